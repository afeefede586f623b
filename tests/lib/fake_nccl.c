/* SPDX-License-Identifier: Apache-2.0
 * The stand-in: libnccl.so.2 and the CUDA runtime in one, for ranks that are threads of one process. */
#include "fake_nccl.h"

#include <nccl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANKS_MAX  16
#define GROUP_MAX  4
#define QUEUE_MAX  256
#define WORLDS_MAX 64
#define POLLS      3 /* until a call that was in progress has done its part */

static struct fake_nccl state = {.poor = -1, .silent = -1, .absent = -1, .damages = -1, .fails = -1};
static _Thread_local int entered = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

struct fake_nccl *fake_nccl(void)
{
    return &state;
}

void fake_nccl_enter(unsigned rank)
{
    entered = (int)rank;
}

/* What one rank offers another, until it is taken. */
struct mail {
    const void *data;
    size_t bytes;
};

/* The ranks of one communicator. */
static struct connectivity {
    int size, joined;
    struct mail mail[RANKS_MAX][RANKS_MAX]; /* from, to */
} meetings[WORLDS_MAX];
static int meeting_count;

struct ncclComm {
    struct connectivity *connectivity;
    int rank;
    bool aborted, finalizing;
    ncclResult_t error;
    int pending; /* groups that are in a stream */
    int polls;   /* still needed: nothing else may be asked of it meanwhile */
};

struct transfer {
    bool send, begun, ended;
    void *data;
    size_t bytes;
    int peer;
};

struct work {
    enum { COPY, GROUP, RECORD } kind;
    void *to;
    const void *from;
    size_t bytes;
    cudaEvent_t event;
    struct ncclComm *comm;
    struct transfer transfers[GROUP_MAX];
    int count;
};

struct CUstream_st {
    pthread_t thread;
    struct work queue[QUEUE_MAX];
    int head, count;
    bool ends;
};

struct CUevent_st {
    int recorded, reached;
};

/* ---- streams ------------------------------------------------------------------------------------------------------
 */

/* With the lock held. */
static void try_transfer(struct ncclComm *comm, struct transfer *t)
{
    struct mail *mail =
        t->send ? &comm->connectivity->mail[comm->rank][t->peer] : &comm->connectivity->mail[t->peer][comm->rank];

    if (t->send && !t->begun && mail->data == NULL && comm->rank != state.silent) {
        *mail = (struct mail){t->data, t->bytes};
        t->begun = true;
        pthread_cond_broadcast(&changed);
    } else if (t->send && t->begun && mail->data != t->data) {
        t->ended = true;
    } else if (!t->send && mail->data != NULL) {
        if (mail->bytes != t->bytes) {
            abort(); /* the ranks disagree about a piece */
        }
        memcpy(t->data, mail->data, t->bytes);
        ((uint8_t *)t->data)[0] ^= comm->rank == state.damages;
        mail->data = NULL;
        t->ended = true;
        pthread_cond_broadcast(&changed);
    }
}

static void run_group(struct work *work)
{
    bool ended = false;

    usleep((unsigned)state.slow_ms * 1000);
    pthread_mutex_lock(&lock);
    while (!ended && !work->comm->aborted) {
        ended = true;
        for (int i = 0; i < work->count; i++) {
            if (!work->transfers[i].ended) {
                try_transfer(work->comm, &work->transfers[i]);
            }
            ended = ended && work->transfers[i].ended;
        }
        if (!ended && !work->comm->aborted) {
            pthread_cond_wait(&changed, &lock);
        }
    }
    work->comm->pending--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void run_work(struct work *work)
{
    if (work->kind == COPY) {
        memcpy(work->to, work->from, work->bytes);
    } else if (work->kind == GROUP) {
        run_group(work);
    } else {
        pthread_mutex_lock(&lock);
        work->event->reached++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
}

static void *stream_main(void *arg)
{
    struct CUstream_st *stream = arg;

    pthread_mutex_lock(&lock);
    while (!stream->ends || stream->count > 0) {
        if (stream->count == 0) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        struct work work = stream->queue[stream->head];
        pthread_mutex_unlock(&lock);
        run_work(&work);
        pthread_mutex_lock(&lock);
        stream->head = (stream->head + 1) % QUEUE_MAX;
        stream->count--;
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void enqueue(struct CUstream_st *stream, struct work work)
{
    pthread_mutex_lock(&lock);
    if (stream->count == QUEUE_MAX) {
        abort();
    }
    stream->queue[(stream->head + stream->count++) % QUEUE_MAX] = work;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* ---- the CUDA runtime ----------------------------------------------------------------------------------------------
 */

FAKE_NCCL_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    struct CUstream_st *stream = calloc(1, sizeof(*stream));

    if (flags != cudaStreamNonBlocking || stream == NULL) {
        abort();
    }
    pthread_create(&stream->thread, NULL, stream_main, stream);
    state.streams++;
    *out = stream;
    return cudaSuccess;
}

FAKE_NCCL_API cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    pthread_mutex_lock(&lock);
    stream->ends = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(stream->thread, NULL);
    free(stream);
    state.streams--;
    return cudaSuccess;
}

FAKE_NCCL_API cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    pthread_mutex_lock(&lock);
    bool busy = stream->count > 0;
    pthread_mutex_unlock(&lock);
    return busy ? cudaErrorNotReady : cudaSuccess;
}

FAKE_NCCL_API cudaError_t cudaMalloc(void **out, size_t bytes)
{
    if (entered >= 0 && entered == state.poor) {
        return cudaErrorMemoryAllocation;
    }
    *out = malloc(bytes);
    state.pieces++;
    return cudaSuccess;
}

FAKE_NCCL_API cudaError_t cudaFree(void *data)
{
    free(data); /* sooner than the real one, which waits for the device */
    state.pieces--;
    return cudaSuccess;
}

FAKE_NCCL_API cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    *out = malloc(bytes);
    state.pieces++;
    return cudaSuccess;
}

FAKE_NCCL_API cudaError_t cudaFreeHost(void *data)
{
    return cudaFree(data);
}

FAKE_NCCL_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    (void)flags;
    *out = calloc(1, sizeof(**out));
    return cudaSuccess;
}

FAKE_NCCL_API cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

FAKE_NCCL_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    pthread_mutex_lock(&lock);
    event->recorded++;
    pthread_mutex_unlock(&lock);
    enqueue(stream, (struct work){.kind = RECORD, .event = event});
    return cudaSuccess;
}

FAKE_NCCL_API cudaError_t cudaEventQuery(cudaEvent_t event)
{
    pthread_mutex_lock(&lock);
    bool reached = event->reached == event->recorded;
    pthread_mutex_unlock(&lock);
    return reached ? cudaSuccess : cudaErrorNotReady;
}

FAKE_NCCL_API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                          cudaStream_t stream)
{
    (void)kind;
    enqueue(stream, (struct work){.kind = COPY, .to = to, .from = from, .bytes = bytes});
    return cudaSuccess;
}

FAKE_NCCL_API const char *cudaGetErrorString(cudaError_t code)
{
    return code == cudaErrorMemoryAllocation ? "out of memory" : "an error of the stand-in";
}

/* ---- NCCL ----------------------------------------------------------------------------------------------------------
 */

static _Thread_local struct work group;

FAKE_NCCL_API ncclResult_t ncclGetUniqueId(ncclUniqueId *out)
{
    pthread_mutex_lock(&lock);
    int number = meeting_count++ % WORLDS_MAX;
    state.ids++;
    meetings[number] = (struct connectivity){0};
    pthread_mutex_unlock(&lock);
    memset(out, 0, sizeof(*out));
    memcpy(out, &number, sizeof(number));
    return ncclSuccess;
}

FAKE_NCCL_API ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                                  ncclConfig_t *config)
{
    struct ncclComm *comm = calloc(1, sizeof(*comm));
    int number;

    memcpy(&number, &id, sizeof(number));
    if (comm == NULL || config->blocking != 0 || size > RANKS_MAX) {
        abort();
    }
    comm->connectivity = &meetings[number];
    comm->rank = rank;
    comm->polls = POLLS;
    pthread_mutex_lock(&lock);
    comm->connectivity->size = size;
    comm->connectivity->joined += rank != state.absent;
    pthread_mutex_unlock(&lock);
    state.comms++;
    *out = comm;
    return ncclInProgress;
}

FAKE_NCCL_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
    pthread_mutex_lock(&lock);
    bool registration = comm->connectivity->joined < comm->connectivity->size;
    bool polled = comm->polls > 0;
    comm->polls -= polled;
    *out = comm->error != ncclSuccess                                          ? comm->error
           : state.one_gpu && comm->connectivity->size > 1                     ? ncclInvalidUsage
           : polled || registration || (comm->finalizing && comm->pending > 0) ? ncclInProgress
                                                                               : ncclSuccess;
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

/* As NCCL says of a call that does not wait for the one before. */
static bool is_in_progress(struct ncclComm *comm)
{
    pthread_mutex_lock(&lock);
    bool is = comm->polls > 0;
    pthread_mutex_unlock(&lock);
    return is;
}

FAKE_NCCL_API ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (is_in_progress(comm)) {
        return ncclInvalidArgument;
    }
    comm->finalizing = true;
    comm->polls = POLLS;
    return ncclInProgress;
}

static ncclResult_t forget(ncclComm_t comm)
{
    free(comm);
    state.comms--;
    return ncclSuccess;
}

FAKE_NCCL_API ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return is_in_progress(comm) ? ncclInvalidArgument : forget(comm);
}

/* What it has in streams ends before it returns. */
FAKE_NCCL_API ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    pthread_mutex_lock(&lock);
    comm->aborted = true;
    pthread_cond_broadcast(&changed);
    for (int r = 0; r < RANKS_MAX; r++) { /* nobody may take what this rank has offered */
        comm->connectivity->mail[comm->rank][r].data = NULL;
    }
    while (comm->pending > 0) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    state.aborted++;
    return forget(comm);
}

FAKE_NCCL_API const char *ncclGetErrorString(ncclResult_t code)
{
    return code == ncclInvalidUsage ? "invalid usage" : "an error of the stand-in";
}

FAKE_NCCL_API const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return state.one_gpu ? "Duplicate GPU detected" : "";
}

FAKE_NCCL_API ncclResult_t ncclGroupStart(void)
{
    group = (struct work){.kind = GROUP};
    return ncclSuccess;
}

static cudaStream_t group_stream(cudaStream_t given)
{
    static _Thread_local cudaStream_t stream;

    stream = given == NULL ? stream : given;
    return stream;
}

static ncclResult_t add(struct ncclComm *comm, struct transfer transfer, cudaStream_t stream)
{
    if (group.count == GROUP_MAX) {
        abort();
    }
    if (is_in_progress(comm)) {
        return ncclInvalidArgument;
    }
    group.comm = comm;
    group.transfers[group.count++] = transfer;
    (void)group_stream(stream);
    return ncclInProgress;
}

FAKE_NCCL_API ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                    cudaStream_t stream)
{
    struct transfer t = {.send = true, .bytes = count, .peer = peer};

    (void)type;
    memcpy(&t.data, &data, sizeof(data));
    return add(comm, t, stream);
}

FAKE_NCCL_API ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                    cudaStream_t stream)
{
    (void)type;
    return add(comm, (struct transfer){.data = data, .bytes = count, .peer = peer}, stream);
}

FAKE_NCCL_API ncclResult_t ncclGroupEnd(void)
{
    if (group.count == 0) {
        return ncclSuccess;
    }
    pthread_mutex_lock(&lock);
    group.comm->pending++;
    group.comm->polls = POLLS;
    if (group.comm->rank == state.fails) {
        group.comm->error = ncclRemoteError;
    }
    pthread_mutex_unlock(&lock);
    enqueue(group_stream(NULL), group);
    return ncclInProgress;
}
