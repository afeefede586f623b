/* SPDX-License-Identifier: Apache-2.0
 * Passes shards from rank to rank by NCCL: with a communicator of its own for the ranks that take part, a stream of
 * its own, and each image in pieces from the root to the first receiver, from there to the second, and so on. Every
 * wait has a time-out: a rank that stops taking part costs the time-out and then the communicator. A rank whose turn
 * comes late cannot see the progress of the others, so its time-out begins when they should be done. */
#include "base/clock.h"
#include "client/spread_ops.h"

#include <dlfcn.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIBRARY     "libnccl.so.2"
#define PIECE_BYTES (8u << 20)
#define RING        4 /* pieces in transit at one rank, each with a buffer in pinned memory and one on the device */
#define PAUSE_NS    50000

/* The NCCL functions that are used, under their own names. */
#define NCCL_CALLS(X)         \
    X(ncclGetUniqueId)        \
    X(ncclCommInitRankConfig) \
    X(ncclCommFinalize)       \
    X(ncclCommDestroy)        \
    X(ncclCommAbort)          \
    X(ncclCommGetAsyncError)  \
    X(ncclGetErrorString)     \
    X(ncclGetLastError)       \
    X(ncclGroupStart)         \
    X(ncclGroupEnd)           \
    X(ncclSend)               \
    X(ncclRecv)

struct calls {
#define CALL_MEMBER(name) __typeof__(name) *name; /* NOLINT(bugprone-macro-parentheses): a declaration */
    NCCL_CALLS(CALL_MEMBER)
#undef CALL_MEMBER
};

/* Room for one piece, on the device and in pinned memory. */
struct piece {
    uint8_t *device, *host;
    cudaEvent_t done; /* host may be reused, or has the received bytes */
    bool busy;        /* done was recorded */
    uint8_t *to;      /* where received bytes go; NULL: the piece was sent */
    size_t bytes;
};

struct nccl_way {
    struct spread_way way;
    struct spread_params params;
    struct calls calls;
    uint32_t me;     /* among the members; NONE32: this rank takes no part */
    ncclComm_t comm; /* NULL: none, or aborted */
    cudaStream_t stream;
    struct piece ring[RING];
    uint64_t opened_ms;
    uint64_t moved_ms; /* when something last finished, or should */
};

/* ---- errors ---------------------------------------------------------------------------------------------------- */

static tck_status_t cuda_failed(cudaError_t code, const char *what, struct error *err)
{
    return error_set(err, TCK_ERR_IO, "%s: %s", what, cudaGetErrorString(code));
}

static tck_status_t nccl_failed(const struct nccl_way *w, ncclResult_t code, const char *what, struct error *err)
{
    const char *last = w->comm == NULL ? NULL : w->calls.ncclGetLastError(w->comm);

    return error_set(err, TCK_ERR_IO, "%s: %s%s%s", what, w->calls.ncclGetErrorString(code),
                     last == NULL || last[0] == '\0' ? "" : ": ", last == NULL ? "" : last);
}

/* ---- waiting --------------------------------------------------------------------------------------------------- */

static void moved(struct nccl_way *w)
{
    w->moved_ms = clock_ms();
}

static void moved_or_later(struct nccl_way *w, uint64_t when_ms)
{
    w->moved_ms = when_ms > w->moved_ms ? when_ms : w->moved_ms;
}

static tck_status_t pause_in_time(const struct nccl_way *w, const char *what, struct error *err)
{
    if (clock_ms() >= w->moved_ms + w->params.timeout_ms) {
        return error_set(err, TCK_ERR_TIMEDOUT, "%s: no progress for %u ms", what, w->params.timeout_ms);
    }
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    return TCK_OK;
}

/* The communicator is non-blocking: what a call has started continues after it has returned. */
static tck_status_t settle(struct nccl_way *w, ncclResult_t called, const char *what, struct error *err)
{
    ncclResult_t code = called;
    tck_status_t status = TCK_OK;

    while (code == ncclInProgress && status == TCK_OK) {
        ncclResult_t asked = w->calls.ncclCommGetAsyncError(w->comm, &code);

        if (asked != ncclSuccess) {
            return nccl_failed(w, asked, what, err);
        }
        if (code == ncclInProgress) {
            status = pause_in_time(w, what, err);
        }
    }
    return status == TCK_OK && code != ncclSuccess ? nccl_failed(w, code, what, err) : status;
}

/* Waits for the piece's event, then copies its bytes to their destination. */
static tck_status_t wait_for_piece(struct nccl_way *w, struct piece *piece, struct error *err)
{
    cudaError_t code = piece->busy ? cudaEventQuery(piece->done) : cudaSuccess;

    while (code == cudaErrorNotReady) {
        ncclResult_t state = ncclSuccess;
        tck_status_t status = pause_in_time(w, "a piece of a shard", err);

        if (status == TCK_OK && w->calls.ncclCommGetAsyncError(w->comm, &state) == ncclSuccess &&
            state != ncclSuccess && state != ncclInProgress) {
            status = nccl_failed(w, state, "a piece of a shard", err);
        }
        if (status != TCK_OK) {
            return status;
        }
        code = cudaEventQuery(piece->done);
    }
    if (code != cudaSuccess) {
        return cuda_failed(code, "a piece of a shard", err);
    }
    if (piece->busy) {
        moved_or_later(w, clock_ms());
    }
    if (piece->busy && piece->to != NULL) {
        memcpy(piece->to, piece->host, piece->bytes);
    }
    piece->busy = false;
    return TCK_OK;
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

/* The training usually has it loaded under this name. */
static tck_status_t load(struct calls *calls, struct error *err)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL); /* never unloaded: NCCL has threads of its own */

    if (library == NULL) {
        return error_set(err, TCK_ERR_UNSUPPORTED, "%s", dlerror());
    }
#define LOAD_CALL(name)                                                          \
    *(void **)&calls->name = dlsym(library, #name);                              \
    if (calls->name == NULL) {                                                   \
        return error_set(err, TCK_ERR_UNSUPPORTED, "%s has no " #name, LIBRARY); \
    }
    NCCL_CALLS(LOAD_CALL)
#undef LOAD_CALL
    return TCK_OK;
}

static tck_status_t make_pieces(struct nccl_way *w, struct error *err)
{
    cudaError_t code = cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking);

    for (int i = 0; i < RING && code == cudaSuccess; i++) {
        struct piece *piece = &w->ring[i];

        code = cudaMalloc((void **)&piece->device, PIECE_BYTES);
        if (code == cudaSuccess) {
            code = cudaMallocHost((void **)&piece->host, PIECE_BYTES);
        }
        if (code == cudaSuccess) {
            code = cudaEventCreateWithFlags(&piece->done, cudaEventDisableTiming);
        }
    }
    return code == cudaSuccess ? TCK_OK : cuda_failed(code, "room on the device for pieces of shards", err);
}

static void free_pieces(struct nccl_way *w)
{
    for (int i = 0; i < RING; i++) {
        struct piece *piece = &w->ring[i];

        (void)(piece->done == NULL ? cudaSuccess : cudaEventDestroy(piece->done));
        (void)(piece->host == NULL ? cudaSuccess : cudaFreeHost(piece->host));
        (void)(piece->device == NULL ? cudaSuccess : cudaFree(piece->device));
    }
    (void)(w->stream == NULL ? cudaSuccess : cudaStreamDestroy(w->stream));
}

/* This variable overrides the configuration of a communicator: NCCL's calls could then wait without a limit. */
static bool calls_would_block(void)
{
    const char *set = getenv("NCCL_COMM_BLOCKING");

    return set != NULL && strtol(set, NULL, 0) == 1;
}

static tck_status_t prepare(struct nccl_way *w, struct error *err)
{
    tck_status_t status;

    if (w->me == NONE32) {
        return TCK_OK;
    }
    if (calls_would_block()) {
        return error_set(err, TCK_ERR_UNSUPPORTED, "NCCL_COMM_BLOCKING=1: a rank could wait forever; unset it");
    }
    status = load(&w->calls, err);
    return status == TCK_OK ? make_pieces(w, err) : status;
}

/* The first member's id, for all. */
static tck_status_t share_id(struct nccl_way *w, ncclUniqueId *out, struct error *err)
{
    uint32_t first = w->params.spread->members[0];
    ncclUniqueId mine = {0}, *all = calloc(w->params.oob->world_size, sizeof(*all));
    tck_status_t status = TCK_OK;

    if (all == NULL) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for the ids of %u ranks", w->params.oob->world_size);
    }
    if (status == TCK_OK && w->me == 0) {
        ncclResult_t code = w->calls.ncclGetUniqueId(&mine);

        status = code == ncclSuccess ? TCK_OK : nccl_failed(w, code, "an id for the communicator", err);
    }
    status = oob_exchange(w->params.oob, status, &mine, all, sizeof(mine), err);
    if (status == TCK_OK) {
        *out = all[first];
    }
    free(all);
    return status;
}

static tck_status_t join(struct nccl_way *w, ncclUniqueId id, struct error *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t code;

    if (w->me == NONE32) {
        return TCK_OK;
    }
    config.blocking = 0;
    moved(w);
    code = w->calls.ncclCommInitRankConfig(&w->comm, (int)w->params.spread->member_count, id, (int)w->me, &config);
    return settle(w, code, "the communicator", err);
}

static void way_abort(struct spread_way *way)
{
    struct nccl_way *w = (struct nccl_way *)way;

    if (w->comm != NULL) {
        (void)w->calls.ncclCommAbort(w->comm);
        w->comm = NULL;
    }
}

/* Ends the communicator cleanly if possible, and within the time-out in any case. */
static void leave(struct nccl_way *w)
{
    struct error err;

    if (w->comm == NULL) {
        return;
    }
    moved(w);
    if (settle(w, w->calls.ncclCommFinalize(w->comm), "the end of the communicator", &err) == TCK_OK) {
        (void)w->calls.ncclCommDestroy(w->comm);
        w->comm = NULL;
    }
    way_abort(&w->way);
}

/* No work on the stream uses the pieces any more. */
static bool is_at_rest(struct nccl_way *w)
{
    cudaError_t code = w->stream == NULL ? cudaSuccess : cudaStreamQuery(w->stream);
    tck_status_t status = TCK_OK;
    struct error err;

    moved(w);
    while (code == cudaErrorNotReady && status == TCK_OK) {
        status = pause_in_time(w, "the stream", &err);
        code = cudaStreamQuery(w->stream);
    }
    return code != cudaErrorNotReady;
}

/* Pieces that a device still uses after the time-out are leaked: freeing them would wait for it. */
static void way_close(struct spread_way *way)
{
    struct nccl_way *w = (struct nccl_way *)way;

    leave(w);
    if (is_at_rest(w)) {
        free_pieces(w);
    }
    free(w);
}

extern const struct spread_ops nccl_ops;

/* A rank that failed to allocate takes part in the exchanges nevertheless. */
static tck_status_t way_open(const struct spread_params *params, struct spread_way **out, struct error *err)
{
    struct nccl_way none = {.params = *params, .me = NONE32}, *made = calloc(1, sizeof(*made));
    struct nccl_way *w = made == NULL ? &none : made;
    ncclUniqueId id;
    tck_status_t status;

    *w = (struct nccl_way){
        .way = {&nccl_ops}, .params = *params, .me = spread_member(params->spread, params->oob->rank)};
    status = made == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for a communicator") : prepare(w, err);
    status = oob_agree(params->oob, status, err); /* before there is an id, since NCCL then waits for all of its
                                                     ranks without a limit */
    if (status == TCK_OK) {
        status = share_id(w, &id, err);
    }
    if (status == TCK_OK) {
        status = join(w, id, err);
        status = oob_agree(params->oob, status, err);
    }
    if (status == TCK_OK) {
        w->opened_ms = clock_ms();
        *out = &w->way;
    } else if (made != NULL) {
        way_abort(&w->way);
        way_close(&w->way);
    }
    return status;
}

/* ---- the bytes ------------------------------------------------------------------------------------------------- */

/* One route at this rank. */
struct leg {
    const struct spread_route *route;
    uint8_t *image;
    uint64_t bytes;
    uint32_t pieces;
    int from, to; /* members; -1: nobody */
};

static size_t piece_size(const struct leg *leg, uint32_t i)
{
    uint64_t left = leg->bytes - (uint64_t)i * PIECE_BYTES;

    return left < PIECE_BYTES ? left : PIECE_BYTES;
}

static tck_status_t load_piece(struct nccl_way *w, const struct leg *leg, uint32_t i, struct error *err)
{
    struct piece *piece = &w->ring[i % RING];
    cudaError_t code;

    memcpy(piece->host, leg->image + (uint64_t)i * PIECE_BYTES, piece->bytes);
    code = cudaMemcpyAsync(piece->device, piece->host, piece->bytes, cudaMemcpyHostToDevice, w->stream);
    return code == cudaSuccess ? TCK_OK : cuda_failed(code, "a piece of a shard to the device", err);
}

/* Receives piece i and sends on the one before it; the root only sends piece i. Both are issued together: one after
 * the other, each rank would wait for the next one. */
static tck_status_t exchange_piece(struct nccl_way *w, const struct leg *leg, uint32_t i, struct error *err)
{
    uint32_t sent = leg->from < 0 ? i : i - 1;
    bool comes = leg->from >= 0 && i < leg->pieces, goes = leg->to >= 0 && sent < leg->pieces;
    ncclResult_t code = w->calls.ncclGroupStart(), ended;

    if (code == ncclSuccess && comes) {
        struct piece *piece = &w->ring[i % RING];

        code = w->calls.ncclRecv(piece->device, piece->bytes, ncclUint8, leg->from, w->comm, w->stream);
    }
    if ((code == ncclSuccess || code == ncclInProgress) && goes) {
        struct piece *piece = &w->ring[sent % RING];

        code = w->calls.ncclSend(piece->device, piece_size(leg, sent), ncclUint8, leg->to, w->comm, w->stream);
    }
    ended = w->calls.ncclGroupEnd();
    if (code == ncclSuccess || code == ncclInProgress) {
        code = ended;
    }
    return settle(w, code, "a piece of a shard between ranks", err);
}

static tck_status_t mark_piece(struct nccl_way *w, const struct leg *leg, uint32_t i, struct error *err)
{
    struct piece *piece = &w->ring[i % RING];
    cudaError_t code = cudaSuccess;

    piece->to = leg->from < 0 ? NULL : leg->image + (uint64_t)i * PIECE_BYTES;
    if (piece->to != NULL) {
        code = cudaMemcpyAsync(piece->host, piece->device, piece->bytes, cudaMemcpyDeviceToHost, w->stream);
    }
    if (code == cudaSuccess) {
        code = cudaEventRecord(piece->done, w->stream);
    }
    piece->busy = code == cudaSuccess;
    return code == cudaSuccess ? TCK_OK : cuda_failed(code, "a piece of a shard from the device", err);
}

static tck_status_t pass_piece(struct nccl_way *w, const struct leg *leg, uint32_t i, struct error *err)
{
    struct piece *piece = &w->ring[i % RING];
    tck_status_t status = TCK_OK;

    if (i < leg->pieces) {
        status = wait_for_piece(w, piece, err);
        piece->bytes = piece_size(leg, i);
    }
    if (status == TCK_OK && i < leg->pieces && leg->from < 0) {
        status = load_piece(w, leg, i, err);
    }
    if (status == TCK_OK) {
        status = exchange_piece(w, leg, i, err);
    }
    return status == TCK_OK && i < leg->pieces ? mark_piece(w, leg, i, err) : status;
}

static struct leg leg_of(const struct nccl_way *w, const struct spread_route *route, uint8_t *image)
{
    const struct spread *spread = w->params.spread;
    uint32_t place = spread_place(spread, route, w->params.oob->rank);
    struct leg leg = {route, image, w->params.world->shards[route->shard].image_bytes, 0, -1, -1};

    leg.pieces = (uint32_t)((leg.bytes + PIECE_BYTES - 1) / PIECE_BYTES);
    if (place > 0) {
        leg.from = (int)spread_member(spread, spread_rank_at(spread, route, place - 1));
    }
    if (place < route->count) {
        leg.to = (int)spread_member(spread, spread_rank_at(spread, route, place + 1));
    }
    return leg;
}

static tck_status_t way_pass(struct spread_way *way, const struct spread_route *route, uint8_t *image,
                             struct error *err)
{
    struct nccl_way *w = (struct nccl_way *)way;
    struct leg leg;
    tck_status_t status = TCK_OK;
    uint32_t steps;

    if (image == NULL) {
        return TCK_OK;
    }
    leg = leg_of(w, route, image);
    steps = leg.pieces + (leg.from >= 0 && leg.to >= 0); /* nothing is received while the last piece is sent on */
    moved_or_later(w, clock_ms());
    moved_or_later(w, w->opened_ms + route->ahead / w->params.slow_bytes);
    for (uint32_t i = 0; i < steps && status == TCK_OK; i++) {
        status = pass_piece(w, &leg, i, err);
    }
    return status;
}

static tck_status_t way_finish(struct spread_way *way, struct error *err)
{
    struct nccl_way *w = (struct nccl_way *)way;
    tck_status_t status = TCK_OK;

    moved_or_later(w, clock_ms());
    for (int i = 0; i < RING && status == TCK_OK; i++) {
        status = wait_for_piece(w, &w->ring[i], err);
    }
    return status;
}

const struct spread_ops nccl_ops = {
    .name = "NCCL",
    .open = way_open,
    .pass = way_pass,
    .finish = way_finish,
    .abort = way_abort,
    .close = way_close,
};

extern __attribute__((visibility("default"))) const struct spread_module tck_spread_module;
const struct spread_module tck_spread_module = {SPREAD_MODULE_ABI, &nccl_ops};
