/* SPDX-License-Identifier: Apache-2.0
 * The engine behind uring.h. Each direction has request slots, which are filled from the list of transfers, oldest
 * first; each completion frees or repeats its request and fills the slots again. A write's fdatasync is one more
 * request, made when all of its data is written. */
#include "tiers/uring.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/same_chunks.h"
#include "tiers/io_depth.h"
#include <errno.h>
#include <inttypes.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define WRITE_BYTES (2 * URING_PART_BYTES) /* per request, since each costs a turn of the loop */
#define BLOCK_BYTES 4096u /* a short request is continued at a multiple of this, as O_DIRECT requires */
#define DIRECTIONS  2
#define TRIES_MAX   64 /* of one request that was interrupted, was short or found no resources */

struct transfer {
    struct uring_transfer ask;
    uint64_t next; /* first byte that is not requested yet */
    uint32_t in_flight;
    bool syncing; /* its fdatasync was submitted */
    bool held;    /* its next part has to wait */
    struct error outcome;
    struct transfer *next_in_list;
};

struct request {
    struct uring *uring;
    struct transfer *transfer; /* NULL: the slot is free */
    bool sync;
    uint8_t *data;
    uint64_t offset, begun_ns;
    uint32_t len, filled; /* filled: bytes of it that are done */
    uint32_t tries;
    int result; /* when run in the pool: like io_uring's, bytes or -errno */
};

/* The requests of one direction, so that reads do not wait until all writes are done. */
struct lane {
    struct io_depth depth;
    uint32_t in_flight;
    struct request requests[URING_DEPTH_MAX];
};

struct uring {
    struct loop *loop;
    struct pool *pool;
    bool has_ring, closing, submit_posted;
    struct io_uring ring;
    struct loop_fd *source;
    uint32_t in_flight;
    struct transfer *transfers;    /* oldest first */
    struct lane lanes[DIRECTIONS]; /* by enum uring_direction */
};

static void request_done(struct request *request, int result);
static void resume_transfers(struct uring *uring);

/* ---- carrying out one request ---------------------------------------------------------------------------------- */

static void submit_again(void *ctx);

/* Requests for which the kernel has no memory now stay in the ring's queue and are submitted again in the next turn. */
static void ring_submit(struct uring *uring)
{
    int rc = io_uring_submit(&uring->ring);
    if (rc >= 0 || uring->submit_posted) {
        return;
    }
    errno = -rc;
    log_debug("io_uring_submit: %m, trying again");
    uring->submit_posted = loop_post(uring->loop, submit_again, uring) == TCK_OK;
}

static void submit_again(void *ctx)
{
    struct uring *uring = ctx;
    uring->submit_posted = false;
    if (!uring->closing) {
        ring_submit(uring);
    } else if (uring->in_flight == 0) {
        free(uring);
    }
}

static uint8_t *request_data(const struct request *request)
{
    return request->data + request->filled;
}

static struct lane *lane_of(struct uring *uring, const struct transfer *transfer)
{
    return &uring->lanes[transfer->ask.direction];
}

static uint32_t whole_request(enum uring_direction direction)
{
    return direction == URING_WRITE ? WRITE_BYTES : URING_PART_BYTES;
}

static void ring_start(struct request *request)
{
    const struct uring_transfer *ask = &request->transfer->ask;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&request->uring->ring); /* never NULL: the ring has a place per slot */
    uint32_t left = request->len - request->filled;
    uint64_t at = request->offset + request->filled;

    if (request->sync) {
        io_uring_prep_fsync(sqe, ask->fd, IORING_FSYNC_DATASYNC);
    } else if (ask->direction == URING_WRITE) {
        io_uring_prep_write(sqe, ask->fd, request_data(request), left, at);
    } else {
        io_uring_prep_read(sqe, ask->fd, request_data(request), left, at);
    }
    io_uring_sqe_set_data(sqe, request);
    progress_call(ask->progress);
    ring_submit(request->uring);
}

static void pool_work(void *ctx)
{
    struct request *request = ctx;
    const struct uring_transfer *ask = &request->transfer->ask;
    uint32_t left = request->len - request->filled;
    off_t at = (off_t)(request->offset + request->filled);
    ssize_t rc;

    progress_begin(ask->progress);
    if (request->sync) {
        rc = fdatasync(ask->fd);
    } else if (ask->direction == URING_WRITE) {
        rc = pwrite(ask->fd, request_data(request), left, at);
    } else {
        rc = pread(ask->fd, request_data(request), left, at);
    }
    request->result = rc < 0 ? -errno : (int)rc;
    progress_end(ask->progress);
}

static void pool_worked(void *ctx, bool canceled)
{
    struct request *request = ctx;
    struct uring *uring = request->uring;
    request_done(request, canceled ? -ECANCELED : request->result);
    if (uring->closing && uring->in_flight == 0) {
        free(uring);
    } else {
        resume_transfers(uring);
    }
}

/* Counts the request as in flight; false if it could not be started at all. */
static bool request_start(struct request *request)
{
    if (request->uring->has_ring) {
        ring_start(request);
    } else if (pool_submit(request->uring->pool, pool_work, pool_worked, request) != TCK_OK) {
        return false;
    }
    request->uring->in_flight++;
    request->transfer->in_flight++;
    lane_of(request->uring, request->transfer)->in_flight++;
    return true;
}

/* ---- transfers ------------------------------------------------------------------------------------------------- */

static bool transfer_failed(const struct transfer *transfer)
{
    return transfer->outcome.code != TCK_OK;
}

static bool transfer_wants_sync(const struct transfer *transfer)
{
    return transfer->ask.direction == URING_WRITE && transfer->next == transfer->ask.bytes &&
           transfer->in_flight == 0 && !transfer->syncing;
}

static bool transfer_wants_request(const struct transfer *transfer)
{
    return !transfer_failed(transfer) && (transfer->next < transfer->ask.bytes || transfer_wants_sync(transfer));
}

static void transfer_fail(struct transfer *transfer, int errnum, const char *what)
{
    if (!transfer_failed(transfer)) {
        errno = errnum;
        error_set(&transfer->outcome, errnum == ECANCELED ? TCK_ERR_CANCELED : status_of_errno(errnum), "%s: %s: %m",
                  transfer->ask.name, what);
    }
}

static void transfer_unlink(struct uring *uring, struct transfer *transfer)
{
    struct transfer **at = &uring->transfers;
    while (*at != transfer) {
        at = &(*at)->next_in_list;
    }
    *at = transfer->next_in_list;
}

/* Calls done if the transfer has no work left, and then returns true. */
static bool transfer_settle(struct uring *uring, struct transfer *transfer)
{
    if (transfer->in_flight > 0 || transfer_wants_request(transfer)) {
        return false;
    }
    transfer_unlink(uring, transfer);
    transfer->ask.done(transfer->ask.ctx, &transfer->outcome);
    free(transfer);
    return true;
}

/* Whether the next `len` bytes, 0 for the sync, go now. */
static bool may_go(struct transfer *transfer, uint32_t len)
{
    const struct uring_transfer *ask = &transfer->ask;
    enum uring_turn turn = len > 0 && ask->take != NULL ? ask->take(ask->ctx, len) : URING_GOES;
    transfer->held = turn == URING_WAITS;
    if (turn == URING_STOPS) {
        transfer_fail(transfer, ECANCELED, "given up");
    }
    return turn == URING_GOES;
}

static uint8_t *place_of(const struct transfer *transfer)
{
    const struct uring_transfer *ask = &transfer->ask;
    return ask->place != NULL ? ask->place(ask->ctx, (uint32_t)(transfer->next / URING_PART_BYTES))
                              : (uint8_t *)ask->data + transfer->next;
}

static bool is_skipped(const struct transfer *transfer, uint64_t at)
{
    const uint8_t *skip = transfer->ask.skip;
    return skip != NULL && at < transfer->ask.bytes && bit_is_set(skip, (uint32_t)(at / URING_PART_BYTES));
}

/* Past the parts that are there already. Requests begin with a part. */
static void skip_parts(struct transfer *transfer)
{
    while (is_skipped(transfer, transfer->next)) {
        uint64_t left = transfer->ask.bytes - transfer->next;
        transfer->next += left < URING_PART_BYTES ? left : URING_PART_BYTES;
    }
}

/* Of the next request, which ends before a part that is there already; 0: nothing is left. */
static uint32_t next_len(const struct transfer *transfer)
{
    uint64_t left = transfer->ask.bytes - transfer->next;
    uint32_t most = whole_request(transfer->ask.direction), len = URING_PART_BYTES;
    while (len < most && !is_skipped(transfer, transfer->next + len)) {
        len += URING_PART_BYTES;
    }
    return left < len ? (uint32_t)left : len;
}

/* Puts the transfer's next request into the slot, unless it has to wait. */
static void slot_fill(struct request *slot, struct transfer *transfer)
{
    uint32_t len = next_len(transfer);
    if (!may_go(transfer, len)) {
        return;
    }
    slot->transfer = transfer;
    slot->sync = len == 0;
    slot->data = slot->sync ? NULL : place_of(transfer);
    slot->offset = transfer->next;
    slot->begun_ns = clock_ns();
    slot->len = len;
    slot->filled = 0;
    slot->tries = 0;
    transfer->next += slot->len;
    skip_parts(transfer);
    transfer->syncing = slot->sync;
    if (!request_start(slot)) {
        slot->transfer = NULL;
        transfer_fail(transfer, ECANCELED, "start a request");
    }
}

static struct transfer *next_wanting(const struct uring *uring, enum uring_direction direction)
{
    struct transfer *transfer = uring->transfers;
    while (transfer != NULL &&
           (transfer->ask.direction != direction || transfer->held || !transfer_wants_request(transfer))) {
        transfer = transfer->next_in_list;
    }
    return transfer;
}

/* There is one while fewer requests are in flight than the depth allows. */
static struct request *free_slot(struct lane *lane)
{
    struct request *slot = lane->requests;
    while (slot->transfer != NULL) {
        slot++;
    }
    return slot;
}

/* May fail transfers; the caller settles those that have nothing in flight. */
static void fill_slots(struct uring *uring)
{
    for (struct transfer *transfer = uring->transfers; transfer != NULL; transfer = transfer->next_in_list) {
        transfer->held = false;
    }
    for (enum uring_direction direction = 0; direction < DIRECTIONS && !uring->closing; direction++) {
        struct lane *lane = &uring->lanes[direction];
        struct transfer *transfer;
        while (lane->in_flight < lane->depth.now && (transfer = next_wanting(uring, direction)) != NULL) {
            slot_fill(free_slot(lane), transfer);
        }
    }
}

static bool settle_all(struct uring *uring)
{
    bool ended = false;
    struct transfer *transfer = uring->transfers;
    while (transfer != NULL) {
        struct transfer *next = transfer->next_in_list;
        ended = transfer_settle(uring, transfer) || ended;
        transfer = next;
    }
    return ended;
}

/* Whatever its last request was: a write, a sync, or one that failed. */
static void note_pauses(struct uring *uring)
{
    for (uint32_t i = 0; i < DIRECTIONS; i++) {
        if (uring->lanes[i].in_flight == 0) {
            io_depth_paused(&uring->lanes[i].depth);
        }
    }
}

/* After completions: fills the slots, and ends the transfers that failed before they had a request in flight. Others
 * may have waited for one that has ended, so they are asked once more. */
static void resume_transfers(struct uring *uring)
{
    do {
        fill_slots(uring);
    } while (settle_all(uring));
    note_pauses(uring);
}

/* ---- completions ----------------------------------------------------------------------------------------------- */

/* Handles a result; true if the request must be submitted again for the rest. */
static bool request_is_partial(struct request *request, int result)
{
    struct transfer *transfer = request->transfer;
    const char *what = request->sync ? "fdatasync" : transfer->ask.direction == URING_WRITE ? "write" : "read";

    bool again = result == -EINTR || result == -EAGAIN;

    if (again) {
        result = 0;
    } else if (result < 0) {
        transfer_fail(transfer, -result, what);
        return false;
    } else if (request->sync || request->filled + (uint32_t)result == request->len) {
        request->filled = request->len;
        return false;
    }
    uint32_t more = (uint32_t)result / BLOCK_BYTES * BLOCK_BYTES;
    if (more == 0 && !again && transfer->ask.direction == URING_READ) {
        error_set(&transfer->outcome, TCK_ERR_CORRUPT, "%s: ends before byte %" PRIu64 ", expected %" PRIu64 " bytes",
                  transfer->ask.name, request->offset + request->filled + BLOCK_BYTES, transfer->ask.bytes);
        return false;
    }
    request->filled += more;
    if (++request->tries > TRIES_MAX) {
        transfer_fail(transfer, EIO, what);
        return false;
    }
    return true;
}

/* The result that a test injects for a request. */
static int injected(const struct request *request, int result)
{
    bool writes = request->transfer->ask.direction == URING_WRITE;
    if ((request->sync && failpoint_fails(uring, fdatasync)) ||
        (!request->sync && writes && failpoint_fails(uring, write)) || (!writes && failpoint_fails(uring, read))) {
        return -errno;
    }
    return result;
}

/* Requests that were short or repeated, and those of another size, say nothing about the storage. */
static void measure(struct lane *lane, const struct request *request)
{
    bool full = lane->in_flight + 1 >= lane->depth.now;
    if (request->len == whole_request(request->transfer->ask.direction) && request->tries == 0) {
        io_depth_returned(&lane->depth, clock_ns() - request->begun_ns, full);
    }
}

static void report_parts(const struct request *request)
{
    const struct uring_transfer *ask = &request->transfer->ask;
    for (uint64_t at = request->offset; at < request->offset + request->len && ask->part != NULL;
         at += URING_PART_BYTES) {
        ask->part(ask->ctx, (uint32_t)(at / URING_PART_BYTES));
    }
}

static void request_done(struct request *request, int result)
{
    struct uring *uring = request->uring;
    struct transfer *transfer = request->transfer;
    struct lane *lane = lane_of(uring, transfer);
    result = injected(request, result);
    uring->in_flight--;
    transfer->in_flight--;
    lane->in_flight--;

    if (request_is_partial(request, result)) {
        if (!uring->closing && !transfer_failed(transfer) && request_start(request)) {
            return;
        }
        transfer_fail(transfer, ECANCELED, "continue a request");
    } else if (!request->sync && !transfer_failed(transfer)) {
        measure(lane, request);
        if (!uring->closing) { /* else the transfer ends as canceled, and what a part would start may be gone */
            report_parts(request);
        }
    }
    request->transfer = NULL;
    if (uring->closing) {
        transfer_fail(transfer, ECANCELED, "transfer");
    }
    (void)transfer_settle(uring, transfer);
}

static void handle_completions(struct uring *uring)
{
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&uring->ring, &cqe) == 0) {
        struct request *request = io_uring_cqe_get_data(cqe);
        int result = cqe->res;
        io_uring_cqe_seen(&uring->ring, cqe);
        progress_return(request->transfer->ask.progress);
        request_done(request, result);
    }
}

static void on_completion(void *ctx, uint32_t epoll_events)
{
    struct uring *uring = ctx;
    (void)epoll_events;
    handle_completions(uring);
    resume_transfers(uring);
}

/* If its first request cannot be started, removes it from the list again, and done does not run. */
static tck_status_t transfer_begin(struct uring *uring, struct transfer *transfer, struct error *err)
{
    struct transfer **end = &uring->transfers;
    while (*end != NULL) {
        end = &(*end)->next_in_list;
    }
    *end = transfer;
    fill_slots(uring);
    if (!transfer_failed(transfer) || transfer->in_flight > 0) {
        return TCK_OK;
    }
    transfer_unlink(uring, transfer);
    return error_set(err, transfer->outcome.code, "%s", transfer->outcome.text);
}

tck_status_t uring_start(struct uring *uring, const struct uring_transfer *ask, struct error *err)
{
    if (uring->closing || ask->bytes == 0) {
        return error_set(err, uring->closing ? TCK_ERR_CANCELED : TCK_ERR_INVAL,
                         "%s: cannot start a transfer of %" PRIu64 " bytes", ask->name, ask->bytes);
    }
    struct transfer *transfer = calloc(1, sizeof(*transfer));
    if (transfer == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "%s: no memory for a transfer", ask->name);
    }
    transfer->ask = *ask;
    skip_parts(transfer);
    tck_status_t status = transfer_begin(uring, transfer, err);
    if (status != TCK_OK) {
        free(transfer);
    }
    return status;
}

void uring_resume(struct uring *uring)
{
    if (!uring->closing) {
        resume_transfers(uring);
    }
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

/* The ring's own descriptor is readable while completions wait in it. */
static tck_status_t watch_ring(struct uring *uring, struct error *err)
{
    tck_status_t status = loop_fd_add(uring->loop, uring->ring.ring_fd, EPOLLIN, on_completion, uring, &uring->source);
    return status == TCK_OK ? TCK_OK : error_set(err, status, "watch io_uring");
}

/* The pool's threads are few, so more requests would only keep its other jobs waiting. */
static void make_lanes(struct uring *uring)
{
    for (uint32_t i = 0; i < DIRECTIONS; i++) {
        uring->lanes[i].depth = io_depth_new(URING_DEPTH, uring->has_ring ? URING_DEPTH_MAX : URING_DEPTH);
        for (uint32_t k = 0; k < URING_DEPTH_MAX; k++) {
            uring->lanes[i].requests[k].uring = uring;
        }
    }
}

tck_status_t uring_new(struct loop *loop, struct pool *pool, enum uring_way way, struct uring **out, struct error *err)
{
    struct uring *uring = calloc(1, sizeof(*uring));
    if (uring == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for an io_uring engine");
    }
    uring->loop = loop;
    uring->pool = pool;
    int rc = way == URING_NEVER ? -ENOSYS : io_uring_queue_init(DIRECTIONS * URING_DEPTH_MAX, &uring->ring, 0);
    uring->has_ring = rc == 0;
    make_lanes(uring);
    if (rc < 0) {
        errno = -rc;
        log_info("io_uring is not used (%m): file transfers run in the thread pool");
    } else {
        tck_status_t status = watch_ring(uring, err);
        if (status != TCK_OK) {
            io_uring_queue_exit(&uring->ring);
            free(uring);
            return status;
        }
    }
    *out = uring;
    return TCK_OK;
}

/* Waits for the kernel, which still writes into buffers that are about to be freed. */
static void ring_close(struct uring *uring)
{
    while (uring->in_flight > 0) {
        int rc = io_uring_submit_and_wait(&uring->ring, 1);
        if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) {
            errno = -rc;
            log_error("io_uring_enter: %m");
            break;
        }
        handle_completions(uring);
    }
    loop_fd_remove(uring->source);
    io_uring_queue_exit(&uring->ring);
}

void uring_free(struct uring *uring)
{
    if (uring == NULL) {
        return;
    }
    uring->closing = true;
    if (uring->has_ring) {
        ring_close(uring);
    }
    struct transfer *next;
    for (struct transfer *transfer = uring->transfers; transfer != NULL; transfer = next) {
        next = transfer->next_in_list;
        transfer_fail(transfer, ECANCELED, "transfer");
        (void)transfer_settle(uring, transfer); /* frees it unless the pool still works for it */
    }
    if (uring->in_flight == 0 && !uring->submit_posted) {
        free(uring); /* else the last pool job or post does */
    }
}
