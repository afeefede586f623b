/* SPDX-License-Identifier: Apache-2.0
 * Whole-buffer file transfers that do not block the loop: large requests, URING_DEPTH in flight over all transfers, by
 * io_uring. Where the kernel or a container refuses io_uring, the same requests run in the pool. Calls and callbacks
 * belong to the loop's thread; a callback may start transfers, but must not free the engine. */
#ifndef TCK_TIERS_URING_H
#define TCK_TIERS_URING_H

#include "base/loop.h"
#include "base/pool.h"
#include "base/progress.h"

#define URING_DEPTH      4
#define URING_PART_BYTES (4u << 20) /* one chunk of an image: see uring_part_fn */

struct uring;

enum uring_way { URING_IF_ALLOWED, URING_NEVER /* for tests of the pool */ };

must_check tck_status_t uring_new(struct loop *loop, struct pool *pool, enum uring_way way, struct uring **out,
                                  struct error *err);
/* Ends all transfers with TCK_ERR_CANCELED. A buffer may be reused once its done has run: with io_uring before this
 * returns, with the pool in pool_free at the latest. */
void uring_free(struct uring *uring);

enum uring_direction { URING_READ, URING_WRITE /* and then fdatasync */ };

typedef void uring_done_fn(void *ctx, const struct error *outcome);
/* Part i (bytes from i * URING_PART_BYTES on) has been read; parts come in any order. For a write: some of it has been
 * written. */
typedef void uring_part_fn(void *ctx, uint32_t i);

struct uring_transfer {
    enum uring_direction direction;
    int fd;           /* from offset 0; with O_DIRECT data and bytes are multiples of the block size */
    const char *name; /* for error texts */
    void *data;
    uint64_t bytes;
    struct progress *progress; /* NULL: not tracked */
    uring_part_fn *part;       /* may be NULL */
    uring_done_fn *done;
    void *ctx;
    /* Before a part of a write is sent: whether so many bytes may go now. If not, it asks again in uring_resume. NULL:
     * they may. */
    bool (*take)(void *ctx, uint64_t bytes);
};

/* fd, name and data remain the caller's and must not change until done, which runs later, exactly once, unless this
 * fails. A file shorter than bytes is TCK_ERR_CORRUPT. Transfers are served in the order in which they were started. */
must_check tck_status_t uring_start(struct uring *uring, const struct uring_transfer *transfer, struct error *err);
/* Transfers that were throttled ask again. */
void uring_resume(struct uring *uring);

#endif
