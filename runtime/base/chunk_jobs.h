/* SPDX-License-Identifier: Apache-2.0
 * Work on the chunks of an image that the threads of a pool share: each takes the next chunk from one counter. */
#ifndef TCK_BASE_CHUNK_JOBS_H
#define TCK_BASE_CHUNK_JOBS_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pool;

/* The caller's, and in place until done is called. The caller fills in the first part and leaves the rest zeroed. */
struct chunk_jobs {
    struct pool *pool;
    uint32_t threads; /* of pool */
    uint32_t count;   /* of chunks, at least 1 */
    /* In any thread of the pool. False: no other chunk is begun. */
    bool (*chunk)(struct chunk_jobs *jobs, uint32_t i);
    /* In the loop's thread, once, when no thread uses this any more. canceled: the pool has ended before all chunks
     * were begun. */
    void (*done)(struct chunk_jobs *jobs, bool canceled);

    _Atomic uint32_t next; /* chunk to be begun */
    atomic_bool stopped;   /* by a chunk */
    uint32_t under_way;    /* jobs in the pool; only the loop's thread counts them */
};

/* Called from the loop's thread. If it fails, no chunk was begun and done is not called. */
must_check tck_status_t chunk_jobs_start(struct chunk_jobs *jobs);

#endif
