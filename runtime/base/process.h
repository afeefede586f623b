/* SPDX-License-Identifier: Apache-2.0
 * Telling whether a process that was known once is still there, although its number may be another one's by now. */
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
/* True only if it has ended: all of its threads, so that none of them writes into memory any longer. One that is
 * stopped or frozen is there, and one that cannot be looked at counts as there. pid must be above 0. */
bool process_has_ended(struct process process);

#endif
