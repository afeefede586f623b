/* SPDX-License-Identifier: Apache-2.0
 * Tells whether a process that was identified earlier still exists, although its pid may have been reused since. */
#ifndef TCK_BASE_PROCESS_H
#define TCK_BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* pid 0: not known, because it is not visible from here (another PID namespace). start 0: the pid alone is known. */
struct process {
    pid_t pid;
    uint64_t start; /* clock ticks after the boot, as /proc/PID/stat has it */
};

/* The process that has this number now. */
struct process process_of(pid_t pid);
/* True only if all of its threads have ended, so that none of them can write into memory any longer. A stopped or
 * frozen process still exists, and one that cannot be inspected counts as existing. pid must be above 0. */
bool process_has_ended(struct process process);

#endif
