/* SPDX-License-Identifier: Apache-2.0
 * The ranks of a test meet through files in a directory. */
#ifndef TCK_TESTS_CLUSTER_MEETING_H
#define TCK_TESTS_CLUSTER_MEETING_H

#include <stddef.h>

struct connectivity {
    const char *dir;
    int rank, world;
    unsigned round;
};

/* As tck_oob_t wants it; ctx is the meeting. */
int meeting_allgather(void *ctx, const void *in, void *out, size_t len);
/* As tck_store_t wants them. */
int meeting_put(void *ctx, const char *key, const void *value, size_t len);
int meeting_get(void *ctx, const char *key, void *value, size_t cap, size_t *len_out);

#endif
