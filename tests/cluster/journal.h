/* SPDX-License-Identifier: Apache-2.0
 * What a trainer does, one JSON object per line, appended to a file that all trainers and the driver of a campaign
 * share. The time is CLOCK_MONOTONIC, so lines of all processes of a machine can be ordered. */
#ifndef TCK_TESTS_CLUSTER_JOURNAL_H
#define TCK_TESTS_CLUSTER_JOURNAL_H

#include <stdint.h>

/* 0, or -1 with errno. path NULL: nothing is written. */
int journal_open(const char *path, int rank, uint64_t launch);

/* format gives further members of the object, beginning with a comma. */
__attribute__((format(printf, 2, 3))) void journal(const char *event, const char *format, ...);

#endif
