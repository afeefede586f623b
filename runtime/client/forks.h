/* SPDX-License-Identifier: Apache-2.0
 * Distinguishes a forked child from the process that attached, without a system call. */
#ifndef TCK_CLIENT_FORKS_H
#define TCK_CLIENT_FORKS_H

#include "base/status.h"
#include <stdint.h>

/* Starts counting this process's forks. May be called any number of times. */
must_check tck_status_t forks_watch(struct error *err);
/* Grows with each fork between the process that watched first and this one. */
uint32_t forks_count(void);

#endif
