/* SPDX-License-Identifier: Apache-2.0
 * See read_back.h. The chunks are read in their order, into buffers that all read-backs of the tier share, and compared
 * in the pool. */
#include "tiers/read_back.h"

#include "base/failpoint.h"
#include "base/log.h"
#include "tiers/persistent_impl.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK_BYTES     4096u
#define HUGE_PAGE_BYTES (2u << 20)
#define BUFFERS_MAX     16u /* 64 MiB; those that were used last are used again, so few are touched if few suffice */

/* NOLINTNEXTLINE(misc-redundant-expression): they must remain equal */
_Static_assert(URING_PART_BYTES == CHUNK_BYTES, "a part of a transfer is a chunk of an image");

struct read_back_buffer {
    struct read_back_buffer *next; /* of those that are free */
    struct read_back *back;        /* that uses it */
    uint32_t i;                    /* its chunk */
    struct error outcome;
    uint8_t *data;
};

struct read_back {
    struct read_back_setup needs;
    int fd;
    bool began, ended, stopped;
    bool reading; /* its transfer has not ended */
    uint32_t next, chunk_count;
    uint32_t jobs;                  /* comparisons under way */
    struct read_back_buffer *taken; /* for the next chunk */
    struct error outcome;
    struct chunk {
        bool written;
        struct read_back_buffer *buffer; /* while it is read and compared */
    } chunks[];
};

/* ---- the shared buffers ---------------------------------------------------------------------------------------- */

static struct read_back_buffer *buffer_new(void)
{
    struct read_back_buffer *buffer = calloc(1, sizeof(*buffer));
    uint8_t *data = buffer != NULL ? aligned_alloc(HUGE_PAGE_BYTES, CHUNK_BYTES) : NULL;
    if (data == NULL) {
        free(buffer);
        return NULL;
    }
    (void)madvise(data, CHUNK_BYTES, MADV_HUGEPAGE); /* a hint: requests to storage have fewer pieces */
    buffer->data = data;
    return buffer;
}

/* NULL: all are in use, or there is no memory for another one. */
static struct read_back_buffer *buffer_take(struct read_back_buffers *all)
{
    struct read_back_buffer *buffer = all->free;
    if (buffer != NULL) {
        all->free = buffer->next;
        return buffer;
    }
    buffer = all->made < BUFFERS_MAX ? buffer_new() : NULL;
    all->made += buffer != NULL;
    return buffer;
}

static void buffer_return(struct read_back_buffers *all, struct read_back_buffer *buffer)
{
    buffer->next = all->free;
    all->free = buffer;
}

static void buffers_free(struct read_back_buffers *all)
{
    while (all->free != NULL) {
        struct read_back_buffer *buffer = all->free;
        all->free = buffer->next;
        free(buffer->data);
        free(buffer);
        all->made--;
    }
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

static void fail(struct read_back *back, const struct error *why)
{
    if (back->outcome.code == TCK_OK) {
        back->outcome = *why;
    }
}

static void release(struct read_back *back, uint32_t i)
{
    buffer_return(&back->needs.p->read_back, back->chunks[i].buffer);
    back->chunks[i].buffer = NULL;
}

static void settle(struct read_back *back)
{
    if (back->reading || back->jobs > 0 || back->ended) {
        return;
    }
    for (uint32_t i = 0; i < back->chunk_count; i++) {
        if (back->chunks[i].buffer != NULL) { /* its request has failed */
            release(back, i);
        }
    }
    back->ended = true;
    back->needs.done(back->needs.ctx, &back->outcome);
}

static bool is_given_up(const struct read_back *back)
{
    return back->needs.epoch != atomic_load(&back->needs.p->epoch);
}

/* ---- comparing ------------------------------------------------------------------------------------------------- */

/* Storage returned a chunk that does not match its digest: the chunk changed either in memory or on storage. */
static tck_status_t blame(const struct tier_item *item, const char *name, uint32_t i, struct error *err)
{
    const uint8_t *data = item->image + (uint64_t)i * CHUNK_BYTES;
    if (crc32c(0, data, chunk_size(item->image_bytes, i)) != item->crcs[i]) {
        return error_set(err, TCK_ERR_CORRUPT,
                         "%s: chunk %" PRIu32 " no longer matches its digest in memory: it is not published", name, i);
    }
    return error_set(err, TCK_ERR_IO, "%s: storage returned other bytes for chunk %" PRIu32 " than were written", name,
                     i);
}

static void compare_work(void *ctx)
{
    struct read_back_buffer *buffer = ctx;
    const struct read_back *back = buffer->back;
    const struct tier_item *item = back->needs.item;
    uint32_t len = chunk_size(item->image_bytes, buffer->i);
    struct error *err = &buffer->outcome;
    if (failpoint_fails(shard, read_back)) {
        error_set(err, status_of_errno(errno), "%s: read chunk %" PRIu32 " back: %m", back->needs.name, buffer->i);
        return;
    }
    failpoint_bytes(shard, given_back, buffer->data, len);
    if (is_given_up(back)) { /* the image may have other bytes by now */
        error_set(err, TCK_ERR_CANCELED, "%s: was given up", back->needs.name);
    } else if (crc32c(0, buffer->data, len) != item->crcs[buffer->i]) {
        (void)blame(item, back->needs.name, buffer->i, err);
    }
}

static void compare_done(void *ctx, bool canceled)
{
    struct read_back_buffer *buffer = ctx;
    struct read_back *back = buffer->back;
    struct persistent *p = back->needs.p;
    if (canceled) {
        error_set(&buffer->outcome, TCK_ERR_CANCELED, "%s: the persistent tier is closing", back->needs.name);
    }
    if (buffer->outcome.code != TCK_OK) {
        fail(back, &buffer->outcome);
    }
    release(back, buffer->i);
    if (p->uring != NULL) {
        uring_resume(p->uring); /* others may wait for the buffer */
    }
    back->jobs--;
    settle(back);
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

static void chunk_read(void *ctx, uint32_t i)
{
    struct read_back *back = ctx;
    struct read_back_buffer *buffer = back->chunks[i].buffer;
    persistent_moved(back->needs.p);
    buffer->outcome = (struct error){.code = TCK_OK};
    tck_status_t status = pool_submit(back->needs.p->pool, compare_work, compare_done, buffer);
    back->jobs += status == TCK_OK;
    if (status != TCK_OK) {
        struct error err;
        (void)error_set(&err, status, "%s: start to compare chunk %" PRIu32, back->needs.name, i);
        fail(back, &err);
        release(back, i);
    }
}

static enum uring_turn chunk_take(void *ctx, uint64_t bytes)
{
    struct read_back *back = ctx;
    struct read_back_buffers *all = &back->needs.p->read_back;
    (void)bytes;
    if (back->stopped || back->outcome.code != TCK_OK || is_given_up(back)) {
        return URING_STOPS;
    }
    if (!back->chunks[back->next].written) {
        return URING_WAITS;
    }
    back->taken = buffer_take(all);
    if (back->taken == NULL && all->made == 0) {
        (void)error_set(&back->outcome, TCK_ERR_NOMEM, "%s: no memory to read it back", back->needs.name);
        return URING_STOPS;
    }
    return back->taken != NULL ? URING_GOES : URING_WAITS;
}

static void *chunk_place(void *ctx, uint32_t i)
{
    struct read_back *back = ctx;
    back->taken->back = back;
    back->taken->i = i;
    back->chunks[i].buffer = back->taken;
    back->next = i + 1;
    return back->taken->data;
}

static void close_work(void *ctx)
{
    struct read_back *back = ctx;
    progress_begin(back->needs.item->progress);
    close(back->fd);
    progress_end(back->needs.item->progress);
}

static void closed(void *ctx, bool canceled)
{
    struct read_back *back = ctx;
    if (canceled) {
        close_work(back);
    }
    back->fd = -1;
    back->reading = false;
    settle(back);
}

/* In the pool: some file systems send a request when a file is closed, and wait for the answer. */
static void close_file(struct read_back *back)
{
    persistent_run_last(back->needs.p, close_work, closed, back);
}

/* A file that is too short is not a copy in memory that is damaged. */
static void read_ended(void *ctx, const struct error *outcome)
{
    struct read_back *back = ctx;
    struct error why = *outcome;
    if (why.code == TCK_ERR_CORRUPT) {
        why.code = TCK_ERR_IO;
    }
    if (why.code != TCK_OK) {
        fail(back, &why);
    }
    close_file(back);
}

/* NOLINTNEXTLINE(readability-function-size): the file, and what it is opened for */
tck_status_t open_direct(int dir_fd, const char *name, int flags, const struct tier_item *item, struct direct_file *out,
                         struct error *err)
{
    if ((uintptr_t)item->image % BLOCK_BYTES != 0 || item->image_bytes % BLOCK_BYTES != 0) {
        return safe_fs_open_sized(dir_fd, name, flags, &out->fd, &out->bytes, err);
    }
    tck_status_t status = safe_fs_open_sized(dir_fd, name, flags | O_DIRECT, &out->fd, &out->bytes, err);
    if (status != TCK_ERR_INVAL) {
        return status;
    }
    log_info("%s: this file system refuses O_DIRECT, so the page cache is used", name);
    flags &= ~O_EXCL; /* the refused open may have made the file */
    return safe_fs_open_sized(dir_fd, name, flags, &out->fd, &out->bytes, err);
}

/* Bypasses the page cache where possible; elsewhere it first asks the kernel to drop the cached pages. */
static void open_work(void *ctx)
{
    struct read_back *back = ctx;
    const struct read_back_setup *needs = &back->needs;
    struct direct_file file = {.fd = -1};
    progress_begin(needs->item->progress);
    back->outcome.code = open_direct(needs->dir_fd, needs->part, O_RDONLY, needs->item, &file, &back->outcome);
    back->fd = file.fd;
    if (back->outcome.code == TCK_OK) {
        posix_fadvise(back->fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    progress_end(needs->item->progress);
}

static void opened(void *ctx, bool canceled)
{
    struct read_back *back = ctx;
    const struct read_back_setup *needs = &back->needs;
    struct error err = {0};
    const struct uring_transfer ask = {.direction = URING_READ,
                                       .fd = back->fd,
                                       .name = needs->name,
                                       .ctx = back,
                                       .bytes = needs->item->image_bytes,
                                       .progress = needs->item->progress,
                                       .part = chunk_read,
                                       .take = chunk_take,
                                       .place = chunk_place,
                                       .done = read_ended};
    if (canceled || needs->p->closing) {
        (void)error_set(&err, TCK_ERR_CANCELED, "%s: the persistent tier is closing", needs->name);
        fail(back, &err);
    }
    if (back->outcome.code == TCK_OK && uring_start(needs->p->uring, &ask, &err) == TCK_OK) {
        return;
    }
    fail(back, &err);
    if (back->fd >= 0) {
        close_file(back);
        return;
    }
    back->reading = false;
    settle(back);
}

/* The digests that chunks are compared with must be those of the protected root. */
static void begin(struct read_back *back)
{
    const struct tier_item *item = back->needs.item;
    back->began = true;
    if (!hash128_is(digest_root(item->crcs, item->image_bytes), item->root)) {
        error_set(&back->outcome, TCK_ERR_CORRUPT, "%s: its digests in memory do not match its root", back->needs.name);
    } else {
        tck_status_t status = pool_submit(back->needs.p->pool, open_work, opened, back);
        back->reading = status == TCK_OK;
        if (status != TCK_OK) {
            error_set(&back->outcome, status, "%s: start to read it back", back->needs.name);
        }
    }
    settle(back);
}

void read_back_written(struct read_back *back, uint32_t i)
{
    back->chunks[i].written = true;
    if (back->needs.direct && !back->began && back->chunks[0].written) {
        begin(back);
    }
}

bool read_back_synced(struct read_back *back)
{
    bool begins = !back->began;
    if (begins) {
        begin(back);
    }
    return begins;
}

void read_back_stop(struct read_back *back)
{
    back->stopped = true; /* its transfer asks again right after this completion */
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

bool read_back_runs(const struct read_back *back)
{
    return back->began && !back->ended;
}

tck_status_t read_back_new(const struct read_back_setup *setup, struct read_back **out, struct error *err)
{
    uint32_t count = chunk_count(setup->item->image_bytes);
    struct read_back *back = calloc(1, sizeof(*back) + count * sizeof(back->chunks[0]));
    if (back == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "%s: no memory to read it back", setup->name);
    }
    back->needs = *setup;
    back->fd = -1;
    back->chunk_count = count;
    setup->p->read_back.users++;
    *out = back;
    return TCK_OK;
}

void read_back_free(struct read_back *back)
{
    if (back == NULL) {
        return;
    }
    struct read_back_buffers *all = &back->needs.p->read_back;
    if (--all->users == 0) {
        buffers_free(all);
    }
    free(back);
}
