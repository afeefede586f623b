/* SPDX-License-Identifier: Apache-2.0
 * One shard file to storage or from it, without blocking the loop. Calls that may block (open, allocate, close, rename)
 * run in the pool, the data moves by uring.h past the page cache, and read chunks are checksummed in the pool while the
 * next ones arrive. What was written is read back and compared (read_back.h) before it gets its name. */
#include "tiers/persistent_dir.h"

#include "base/failpoint.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/same_chunks.h"
#include "tiers/clone_choice.h"
#include "tiers/clone_put.h"
#include "tiers/read_back.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_BYTES 4096u

uint8_t *persistent_buffer(uint64_t image_bytes)
{
    size_t blocks = (chunk_size(image_bytes, 0) + BLOCK_BYTES - 1) / BLOCK_BYTES;
    return aligned_alloc(BLOCK_BYTES, blocks * BLOCK_BYTES);
}

/* ---- write ----------------------------------------------------------------------------------------------------- */

struct file_write {
    struct persistent *p;
    struct tier_item own; /* with its own copy of the digests: the slot may be reused once this write is given up */
    const struct tier_item *item;
    uint64_t epoch;
    tier_done_fn *done;
    void *ctx;
    struct clone_put *clone; /* NULL: it shares nothing */
    int dir_fd, fd;
    bool direct; /* without the page cache: it may be read back before it is synced */
    char name[MANIFEST_FILE_NAME], part[BENEATH_NAME_MAX + 1];
    struct error outcome;
    struct read_back *back; /* NULL: it is not read back */
    bool writing;           /* its transfer has not ended */
    uint32_t crcs[];
};

/* True if the write was given up; its slot may then have other bytes by now. */
static bool is_given_up(const struct file_write *op)
{
    return op->epoch != atomic_load(&op->p->epoch);
}

static tck_status_t allocate_range(int fd, const char *name, uint64_t begin, uint64_t bytes, struct error *err)
{
    int rc;
    do {
        rc = failpoint_fails(shard, allocate) ? -1 : fallocate(fd, 0, (off_t)begin, (off_t)bytes);
    } while (rc < 0 && errno == EINTR);
    if (rc < 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
        return error_set(err, status_of_errno(errno), "%s: allocate %" PRIu64 " bytes: %m", name, bytes);
    }
    return TCK_OK;
}

/* What is to be written. Allocating first detects a full disk before the transfer, and avoids fragmentation. */
static tck_status_t allocate(struct file_write *op)
{
    const uint8_t *shared = clone_put_shared(op->clone);
    uint64_t bytes = op->item->image_bytes;
    uint32_t chunks = chunk_count(bytes);
    if (shared == NULL) {
        return allocate_range(op->fd, op->name, 0, bytes, &op->outcome);
    }
    tck_status_t status = TCK_OK;
    struct chunk_run run = chunk_run_next(shared, chunks, 0, false);
    while (run.count > 0 && status == TCK_OK) {
        uint64_t begin = (uint64_t)run.first * CHUNK_BYTES, most = (uint64_t)run.count * CHUNK_BYTES;
        status = allocate_range(op->fd, op->name, begin, most < bytes - begin ? most : bytes - begin, &op->outcome);
        run = chunk_run_next(shared, chunks, run.first + run.count, false);
    }
    return status;
}

/* Some file systems accept O_DIRECT and use the page cache nevertheless: ext4 with data=journal, for example. Linux 6.1
 * and later say so: such a file has no alignment for direct requests. */
static bool denies_direct(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx st;
    return statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 && (st.stx_mask & STATX_DIOALIGN) != 0 &&
           st.stx_dio_offset_align == 0;
#else
    (void)fd;
    return false;
#endif
}

static void write_open(void *ctx)
{
    struct file_write *op = ctx;
    struct direct_file file = {.fd = -1};
    progress_begin(op->item->progress);
    tck_status_t status = safe_fs_part_name(op->name, op->part, &op->outcome);
    if (status == TCK_OK) {
        status = open_direct(op->dir_fd, op->part, O_WRONLY | O_CREAT | O_EXCL, op->item, &file, &op->outcome);
        op->fd = file.fd;
    }
    failpoint(shard, opened);
    if (status == TCK_OK) {
        int has = fcntl(op->fd, F_GETFL);
        op->direct = has >= 0 && (has & O_DIRECT) != 0 && !denies_direct(op->fd);
        if (op->clone != NULL) {
            clone_put_share(op->clone, op->p, op->fd, op->name);
        }
        status = allocate(op);
    }
    progress_end(op->item->progress);
    op->outcome.code = status;
}

/* The file gets its final name only if every step succeeded; else it is given up, and the next attempt uses a new name.
 */
static void close_and_name(struct file_write *op)
{
    struct error *outcome = &op->outcome;
    if (op->fd < 0) {
        return;
    }
    if (outcome->code == TCK_OK && is_given_up(op)) {
        error_set(outcome, TCK_ERR_CANCELED, "%s: was given up", op->name);
    }
    if (close(op->fd) < 0 && outcome->code == TCK_OK) {
        error_set(outcome, status_of_errno(errno), "%s: close: %m", op->name);
    }
    if (outcome->code == TCK_OK && safe_fs_rename(op->dir_fd, op->part, op->name, outcome) == TCK_OK) {
        failpoint(shard, named);
        outcome->code = safe_fs_sync(op->dir_fd, outcome);
        if (outcome->code == TCK_OK && op->clone != NULL) {
            clone_put_named(op->clone, op->dir_fd, op->name);
        }
        return;
    }
    struct error why = {0};
    if (safe_fs_unlink(op->dir_fd, op->part, &why) != TCK_OK) {
        log_warn("a part file cannot be removed before the next sweep: %s", why.text);
    }
}

static void write_close(void *ctx)
{
    struct file_write *op = ctx;
    progress_begin(op->item->progress);
    close_and_name(op);
    progress_end(op->item->progress);
}

static void write_closed(void *ctx, bool canceled)
{
    struct file_write *op = ctx;
    persistent_moved(op->p);
    if (canceled) {
        write_close(op);
    }
    read_back_free(op->back);
    op->done(op->ctx, &op->outcome);
    persistent_unref(op->p);
    free(op);
}

static void write_fail(struct file_write *op, const struct error *why)
{
    if (op->outcome.code == TCK_OK) {
        op->outcome = *why;
    }
}

/* The end, once the file is both written and read back. */
static void write_settle(struct file_write *op)
{
    if (!op->writing && (op->back == NULL || !read_back_runs(op->back))) {
        persistent_run_last(op->p, write_close, write_closed, op);
    }
}

static void write_read_back(void *ctx, const struct error *outcome)
{
    struct file_write *op = ctx;
    if (outcome->code != TCK_OK) {
        write_fail(op, outcome);
    }
    write_settle(op);
}

static void write_ended(void *ctx, const struct error *outcome)
{
    struct file_write *op = ctx;
    op->writing = false;
    persistent_moved(op->p);
    failpoint(shard, written);
    if (outcome->code != TCK_OK) {
        write_fail(op, outcome);
    }
    if (op->back != NULL && op->outcome.code != TCK_OK) {
        read_back_stop(op->back);
    } else if (op->back != NULL && read_back_synced(op->back)) {
        return; /* its end continues, and may have done so already */
    }
    write_settle(op);
}

static void write_moved(void *ctx, uint32_t part)
{
    const struct file_write *op = ctx;
    persistent_moved(op->p);
    if (op->back != NULL) {
        read_back_written(op->back, part);
    }
}

static enum uring_turn write_take(void *ctx, uint64_t bytes)
{
    const struct file_write *op = ctx;
    const struct tier_pace *pace = &op->p->pace;
    if (is_given_up(op) || op->outcome.code != TCK_OK) {
        return URING_STOPS;
    }
    if (pace->take == NULL || pace->take(pace->ctx, bytes)) {
        return URING_GOES;
    }
    persistent_moved(op->p); /* it waits for its turn, and not for storage */
    return URING_WAITS;
}

/* A write that was given up sees that by itself. */
void dir_give_up(struct persistent *p)
{
    (void)p;
}

void dir_resume(struct persistent *p)
{
    if (p->uring != NULL) {
        uring_resume(p->uring);
    }
}

/* What is shared is not written, but read back like the rest. */
static void write_shared(struct file_write *op)
{
    const uint8_t *shared = clone_put_shared(op->clone);
    const struct tier_pace *pace = &op->p->pace;
    for (uint32_t i = 0; shared != NULL && op->back != NULL && i < chunk_count(op->item->image_bytes); i++) {
        if (bit_is_set(shared, i)) {
            read_back_written(op->back, i);
        }
    }
    if (shared != NULL && pace->less != NULL) {
        pace->less(pace->ctx, clone_put_bytes(op->clone));
    }
}

static tck_status_t write_begin(struct file_write *op, struct error *err)
{
    const struct read_back_setup back = {.p = op->p,
                                         .item = op->item,
                                         .name = op->name,
                                         .part = op->part,
                                         .dir_fd = op->dir_fd,
                                         .epoch = op->epoch,
                                         .direct = op->direct,
                                         .done = write_read_back,
                                         .ctx = op};
    const struct uring_transfer ask = {.direction = URING_WRITE,
                                       .fd = op->fd,
                                       .name = op->name,
                                       .ctx = op,
                                       .data = op->item->image,
                                       .bytes = op->item->image_bytes,
                                       .progress = op->item->progress,
                                       .part = write_moved,
                                       .take = write_take,
                                       .done = write_ended,
                                       .skip = clone_put_shared(op->clone)};
    tck_status_t status = TCK_OK;
    if (op->p->config->storage_verify == SWITCH_ON) {
        status = read_back_new(&back, &op->back, err);
    }
    if (status == TCK_OK) {
        status = uring_start(op->p->uring, &ask, err);
        op->writing = status == TCK_OK;
    }
    if (status == TCK_OK) {
        write_shared(op);
    }
    return status;
}

static void write_opened(void *ctx, bool canceled)
{
    struct file_write *op = ctx;
    tck_status_t status = op->outcome.code;
    struct error err = {0};
    persistent_moved(op->p);
    if (canceled || op->p->closing || is_given_up(op)) {
        status = error_set(&op->outcome, TCK_ERR_CANCELED, "%s: the persistent tier is closing", op->name);
    }
    if (status == TCK_OK && write_begin(op, &err) != TCK_OK) {
        write_fail(op, &err);
        write_settle(op);
    } else if (status != TCK_OK) {
        write_settle(op);
    }
}

tck_status_t dir_write_file(struct persistent *p, const struct file_to_write *file, tier_done_fn *done, void *ctx,
                            struct error *err)
{
    const struct tier_item *item = file->item;
    uint32_t chunks = chunk_count(item->image_bytes);
    struct file_write *op = calloc(1, sizeof(*op) + chunks * sizeof(op->crcs[0]));
    if (op == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "%s: no memory for a write", file->name);
    }
    *op = (struct file_write){
        .p = p, .own = *item, .done = done, .ctx = ctx, .clone = file->clone, .dir_fd = file->dir_fd, .fd = -1};
    memcpy(op->crcs, item->crcs, chunks * sizeof(op->crcs[0]));
    op->own.crcs = op->crcs;
    op->item = &op->own;
    op->epoch = atomic_load(&p->epoch);
    snprintf(op->name, sizeof(op->name), "%s", file->name);
    tck_status_t status = pool_submit(p->pool, write_open, write_opened, op);
    if (status != TCK_OK) {
        free(op);
        return error_set(err, status, "%s: start a write", file->name);
    }
    persistent_ref(p);
    return TCK_OK;
}

/* ---- read ------------------------------------------------------------------------------------------------------ */

struct file_read {
    struct persistent *p;
    struct tier_item *item;
    tier_done_fn *done;
    void *ctx;
    int dir_fd, fd;
    char name[MANIFEST_FILE_NAME];
    struct error outcome;
    bool data_ended;
    uint32_t jobs; /* checksums under way */
    struct file_chunk {
        struct file_read *op;
        uint32_t i;
    } chunks[];
};

static void read_open(void *ctx)
{
    struct file_read *op = ctx;
    struct direct_file file = {.fd = -1};
    progress_begin(op->item->progress);
    tck_status_t status = open_direct(op->dir_fd, op->name, O_RDONLY, op->item, &file, &op->outcome);
    op->fd = file.fd;
    progress_end(op->item->progress);
    failpoint(shard, reading);
    if (status == TCK_OK && file.bytes != op->item->image_bytes) {
        status = error_set(&op->outcome, TCK_ERR_CORRUPT, "%s has %" PRIu64 " bytes, expected %" PRIu64, op->name,
                           file.bytes, op->item->image_bytes);
    }
    op->outcome.code = status;
}

static void read_close(void *ctx)
{
    struct file_read *op = ctx;
    progress_begin(op->item->progress);
    if (op->fd >= 0) {
        close(op->fd);
    }
    progress_end(op->item->progress);
}

static void read_closed(void *ctx, bool canceled)
{
    struct file_read *op = ctx;
    if (canceled) {
        read_close(op);
    }
    op->done(op->ctx, &op->outcome);
    persistent_unref(op->p);
    free(op);
}

/* The file is closed in the pool: some file systems send a request for that, and wait for the answer. */
static void read_settle(struct file_read *op)
{
    if (op->data_ended && op->jobs == 0) {
        persistent_run_last(op->p, read_close, read_closed, op);
    }
}

static void chunk_work(void *ctx)
{
    const struct file_chunk *chunk = ctx;
    const struct tier_item *item = chunk->op->item;
    uint8_t *data = item->image + (uint64_t)chunk->i * CHUNK_BYTES;
    failpoint_bytes(shard, read, data, chunk_size(item->image_bytes, chunk->i));
    item->crcs[chunk->i] = crc32c(0, data, chunk_size(item->image_bytes, chunk->i));
}

static void chunk_done(void *ctx, bool canceled)
{
    struct file_read *op = ((struct file_chunk *)ctx)->op;
    uint32_t i = ((struct file_chunk *)ctx)->i;
    op->jobs--;
    progress_add(op->item->progress, chunk_size(op->item->image_bytes, i));
    if (canceled) {
        error_set(&op->outcome, TCK_ERR_CANCELED, "%s: its check was canceled", op->name);
    } else if (op->item->watch != NULL) {
        op->item->watch->chunk(op->item->watch->ctx, i);
    }
    read_settle(op);
}

static void read_part(void *ctx, uint32_t i)
{
    struct file_read *op = ctx;
    persistent_moved(op->p);
    op->chunks[i] = (struct file_chunk){.op = op, .i = i};
    op->jobs++;
    if (op->p->closing || pool_submit(op->p->pool, chunk_work, chunk_done, &op->chunks[i]) != TCK_OK) {
        op->jobs--;
        error_set(&op->outcome, TCK_ERR_CANCELED, "%s: chunk %" PRIu32 " could not be checked", op->name, i);
    }
}

static void read_ended(void *ctx, const struct error *outcome)
{
    struct file_read *op = ctx;
    op->data_ended = true;
    if (outcome->code != TCK_OK) {
        op->outcome = *outcome;
    }
    read_settle(op);
}

static void read_opened(void *ctx, bool canceled)
{
    struct file_read *op = ctx;
    tck_status_t status = op->outcome.code;
    if (canceled || op->p->closing) {
        status = error_set(&op->outcome, TCK_ERR_CANCELED, "%s: the persistent tier is closing", op->name);
    }
    if (status == TCK_OK) {
        struct uring_transfer ask = {.direction = URING_READ,
                                     .fd = op->fd,
                                     .name = op->name,
                                     .ctx = op,
                                     .data = op->item->image,
                                     .bytes = op->item->image_bytes,
                                     .progress = op->item->progress,
                                     .part = read_part,
                                     .done = read_ended};
        status = uring_start(op->p->uring, &ask, &op->outcome);
    }
    if (status != TCK_OK) {
        op->data_ended = true;
        read_settle(op);
    }
}

/* NOLINTNEXTLINE(readability-function-size): the file, its content, and the callback */
tck_status_t dir_read_file(struct persistent *p, int dir_fd, const char *name, struct tier_item *item,
                           tier_done_fn *done, void *ctx, struct error *err)
{
    uint32_t chunks = chunk_count(item->image_bytes);
    struct file_read *op = calloc(1, sizeof(*op) + chunks * sizeof(op->chunks[0]));
    if (op == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "%s: no memory for a read", name);
    }
    *op = (struct file_read){.p = p, .item = item, .done = done, .ctx = ctx, .dir_fd = dir_fd, .fd = -1};
    snprintf(op->name, sizeof(op->name), "%s", name);
    tck_status_t status = pool_submit(p->pool, read_open, read_opened, op);
    if (status != TCK_OK) {
        free(op);
        return error_set(err, status, "%s: start a read", name);
    }
    persistent_ref(p);
    return TCK_OK;
}
