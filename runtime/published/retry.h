/* SPDX-License-Identifier: Apache-2.0
 * How long the library tries to read what storage does not hand over: an error of it may pass. */
#ifndef TCK_PUBLISHED_RETRY_H
#define TCK_PUBLISHED_RETRY_H

#include "base/status.h"
#include <stdbool.h>

#define READS_MAX 6 /* about three seconds in all */

/* For what a file system said: that a call timed out is an answer, and an error as others. What says nothing at all is
 * TCK_ERR_TIMEDOUT. */
tck_status_t retry_answer(tck_status_t status, struct error *err);
/* Whether to read again after this. */
bool retry_helps(tck_status_t status);
/* Waits before the read of this number, from 0 on: each time twice as long, and the first time not at all. */
void retry_pause(int number);

#endif
