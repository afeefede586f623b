/* SPDX-License-Identifier: Apache-2.0
 * The thread that makes the last CRC also computes the root. */
#include "agent/replication/slot_digest.h"

#include "base/digest.h"
#include "base/failpoint.h"
#include "base/progress.h"

static void make_root(struct slot_digest *d)
{
    d->root = digest_root(d->crcs, d->image_bytes);
    failpoint(digest, made);
    failpoint_bytes(digest, image, (uint8_t *)(uintptr_t)d->image, d->image_bytes);
}

static bool digest_one(struct chunk_jobs *jobs, uint32_t i)
{
    struct slot_digest *d = (struct slot_digest *)jobs;
    if (i == 0) {
        failpoint(digest, begun);
    }
    d->crcs[i] = chunk_crc(d->image, d->image_bytes, i);
    progress_add(d->progress, chunk_size(d->image_bytes, i));
    if (atomic_fetch_add(&d->made, 1) + 1 == jobs->count) {
        make_root(d);
    }
    return true;
}

tck_status_t slot_digest_start(struct slot_digest *digest)
{
    digest->jobs.count = chunk_count(digest->image_bytes);
    digest->jobs.chunk = digest_one;
    return chunk_jobs_start(&digest->jobs);
}
