/* SPDX-License-Identifier: Apache-2.0
 * Computes the digests of a sealed slot: all threads of the pool take chunks from one counter. */
#ifndef TCK_AGENT_SLOT_DIGEST_H
#define TCK_AGENT_SLOT_DIGEST_H

#include "base/chunk_jobs.h"
#include "base/version.h"

struct progress;

/* The caller's, with jobs.pool, jobs.threads, jobs.done and what is to be digested filled in. The image must not change
 * until jobs.done has been called. */
struct slot_digest {
    struct chunk_jobs jobs; /* the first member: jobs.done receives it */
    const uint8_t *image;
    uint64_t image_bytes; /* at least 1 */
    struct progress *progress;
    uint32_t *crcs;      /* of the chunks, filled */
    struct hash128 root; /* unless it was canceled */
    _Atomic uint32_t made;
};

/* Called from the loop's thread. If it fails, nothing was begun and jobs.done is not called. */
must_check tck_status_t slot_digest_start(struct slot_digest *digest);

#endif
