/* SPDX-License-Identifier: Apache-2.0
 * File transfers that do not block the loop: large requests, by io_uring, of which as many are in flight over all
 * transfers of one direction as the storage can use (io_depth.h). Where the kernel or a container refuses io_uring, the
 * same requests run in the pool, URING_DEPTH of each direction. Calls and callbacks belong to the loop's thread; a
 * callback may start transfers, but must not free the engine. */
#ifndef TCK_TIERS_URING_H
#define TCK_TIERS_URING_H

#include "base/loop.h"
#include "base/pool.h"
#include "base/progress.h"

#define URING_DEPTH      4          /* requests in flight, of each direction */
#define URING_DEPTH_MAX  32         /* where requests take long, however few there are */
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
/* Part i (bytes from i * URING_PART_BYTES on) has been read or written; parts come in any order. */
typedef void uring_part_fn(void *ctx, uint32_t i);

enum uring_turn {
    URING_GOES,
    URING_WAITS, /* it asks again after the next completion, and in uring_resume */
    URING_STOPS  /* the transfer ends with TCK_ERR_CANCELED */
};

struct uring_transfer {
    enum uring_direction direction;
    int fd;           /* from offset 0; with O_DIRECT data and bytes are multiples of the block size */
    const char *name; /* for error texts */
    void *data;       /* NULL: see place */
    uint64_t bytes;
    struct progress *progress; /* NULL: not tracked */
    uring_part_fn *part;       /* may be NULL */
    uring_done_fn *done;
    void *ctx;
    /* Before each request: whether so many bytes, the next ones, may go now. NULL: they may. */
    enum uring_turn (*take)(void *ctx, uint64_t bytes);
    /* For a read whose parts do not lie in one piece of memory: right after take, where part i belongs. */
    void *(*place)(void *ctx, uint32_t i);
    const uint8_t *skip; /* one bit per part: it is there already; NULL: none is */
};

/* fd, name, data and skip remain the caller's and must not change until done, which runs later, exactly once, unless
 * this fails. A file shorter than bytes is TCK_ERR_CORRUPT. Transfers of one direction are served in the order in which
 * they were started; transfers of the other direction run at the same time. */
must_check tck_status_t uring_start(struct uring *uring, const struct uring_transfer *transfer, struct error *err);
/* Transfers that wait for their turn ask again. */
void uring_resume(struct uring *uring);

#endif
