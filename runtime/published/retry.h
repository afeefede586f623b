/* SPDX-License-Identifier: Apache-2.0
 * How long the library retries reads that fail, since errors of storage may be temporary. */
#ifndef TCK_PUBLISHED_RETRY_H
#define TCK_PUBLISHED_RETRY_H

#include "base/status.h"
#include <stdbool.h>

#define READS_MAX 6 /* about three seconds in all */

/* For the answers of a file system: ETIMEDOUT is an answer, and an error like any other. No answer at all is
 * TCK_ERR_TIMEDOUT. */
tck_status_t retry_answer(tck_status_t status, struct error *err);
/* Whether to read again after this error. */
bool retry_helps(tck_status_t status);
/* Waits before the read with this number, counted from 0: not at all before the first, then twice as long each time. */
void retry_pause(int number);

#endif
