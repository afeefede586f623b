/* SPDX-License-Identifier: Apache-2.0
 *
 * Tierckpt: checkpoints of a training job in the memory of its nodes. docs/c.md is the guide to this header.
 *
 * The order of calls in a training program:
 *
 *     tck_attach -> tck_add_record / tck_add_blob ... -> tck_register -> tck_restore
 *     every step:  tck_fence; <optimizer step>; tck_save_if_needed
 *     tck_save_last -> tck_detach
 *
 * Collective calls: every rank of the job makes them, in the same order. These are tck_attach, tck_register,
 * tck_restore and tck_save_last. They reach the other ranks through the caller's allgather (tck_oob_t) and in no other
 * way. No other call waits for another rank, except tck_wait, which has a timeout.
 *
 * Threads: there is one client per process, and one thread at a time calls its functions (but see tck_progress). A
 * client belongs to the process that attached: in a forked child every call with it returns TCK_ERR_INVAL, and
 * tck_detach does nothing.
 *
 * Errors: every function returns a status that must be checked, and tck_errmsg returns the text of the last failure.
 * The library never exits, aborts, prints or installs a signal handler; its log lines go to tck_set_log and, while
 * attached, to the log of the node (configuration key log_file_path).
 *
 * Units: sizes are in bytes, times in milliseconds unless the name says otherwise. Steps count from 1; step 0 is never
 * saved. Memory that is passed in stays the caller's. A pointer may be NULL only where this header says so.
 */
#ifndef TIERCKPT_H
#define TIERCKPT_H

#include <stddef.h>
#include <stdint.h>

#include "tierckpt_version.h" /* TCK_VERSION, and its parts TCK_VERSION_MAJOR, _MINOR, _PATCH */

#ifdef __cplusplus
template <typename type> inline type tck_sized()
{
    type value = type();
    value.struct_size = sizeof(type);
    return value;
}

extern "C" {
#endif

#if defined(__GNUC__)
#define TCK_API        __attribute__((visibility("default")))
#define TCK_MUST_CHECK __attribute__((warn_unused_result))
#else
#define TCK_API
#define TCK_MUST_CHECK
#endif

/* Structs that may grow begin with struct_size, their size as the caller knows it. Initialize each with its
 * TCK_..._INIT, which sets struct_size and zeros the rest. */
#ifdef __cplusplus
#define TCK_SIZED(type) tck_sized<type>()
#else
/* clang-format off */
#define TCK_SIZED(type) {.struct_size = sizeof(type)}
/* clang-format on */
#endif

/* ---- status -------------------------------------------------------------------------------------------------- */

/* One list makes the enum and the texts: X(name, value, text). */
#define TCK_STATUS_MAP(X)                                             \
    X(OK, 0, "success")                                               \
    X(ERR_INVAL, -1, "invalid argument")                              \
    X(ERR_NOMEM, -2, "out of memory")                                 \
    X(ERR_IO, -3, "input/output error")                               \
    X(ERR_NOENT, -4, "not found")                                     \
    X(ERR_BUSY, -5, "busy: refused now, may succeed later")           \
    X(ERR_TIMEDOUT, -6, "timed out")                                  \
    X(ERR_CANCELED, -7, "canceled")                                   \
    X(ERR_CORRUPT, -8, "data does not match its digest")              \
    X(ERR_NOSPC, -9, "no space within the configured cap")            \
    X(ERR_UNREACHABLE, -10, "agent or peer cannot be reached")        \
    X(ERR_UNSUPPORTED, -11, "not supported by this build or machine") \
    X(ERR_PROTO, -12, "unexpected message or format version")         \
    X(ERR_LAYOUT, -13, "the layout differs from the saved one")       \
    X(ERR_UNRECOVERABLE, -14, "no version is complete in any tier")   \
    X(ERR_CONFIG, -15, "invalid configuration")                       \
    X(ERR_DENIED, -16, "not permitted: wrong user, token or term")    \
    X(ERR_EXIST, -17, "exists already")                               \
    X(ERR_INTERNAL, -18, "internal fault")

typedef enum tck_status {
#define TCK_STATUS_ENUM(name, value, text) TCK_##name = (value),
    TCK_STATUS_MAP(TCK_STATUS_ENUM)
#undef TCK_STATUS_ENUM
} tck_status_t;

typedef struct tck_client tck_client_t;

/* The fixed text of a status. Never NULL; do not free it. */
TCK_API const char *tck_strerror(tck_status_t status);

/* The text of the client's last failure, which names what failed, or the reason why its last save was not started. With
 * client NULL: the text of this thread's last failed tck_attach, or of its last failed call without a client. Never
 * NULL; valid until the next call with this client. */
TCK_API const char *tck_errmsg(const tck_client_t *client);

/* The status that belongs to that text; TCK_OK if nothing has failed yet. TCK_ERR_DENIED after a save that was not
 * started means that another start has taken over the job, and that this one cannot save any more. */
TCK_API tck_status_t tck_errcode(const tck_client_t *client);

/* The version of the library that is loaded: major * 10000 + minor * 100 + patch. */
TCK_API int tck_version_number(void);

/* ---- log ------------------------------------------------------------------------------------------------------- */

typedef enum tck_log_level {
    TCK_LOG_ERROR, /* a fault that somebody has to repair */
    TCK_LOG_WARN,  /* once per cause, for example that saves are skipped */
    TCK_LOG_INFO,  /* progress: attached, restored */
    TCK_LOG_DEBUG,
} tck_log_level_t;

typedef void tck_log_fn(void *ctx, tck_log_level_t level, const char *text);

/* Passes each log line of the library up to the level `most` to fn. With fn NULL no line is passed on. Applies to the
 * whole process, and may be called before tck_attach. When it returns, the previous function is not running and is not
 * called again.
 *
 * fn is called from any thread: the caller's, inside a call of this header, or one of the library's own. One line is
 * passed at a time. Locks of the library may be held meanwhile, so fn must not call any function of this header, and it
 * must not wait for a thread that may be inside one, nor for a lock that such a thread holds (an interpreter's lock,
 * for example). Programs that cannot promise this use tck_next_log. */
TCK_API void tck_set_log(tck_log_fn *fn, void *ctx, tck_log_level_t most);

/* If tck_set_log was never called, the newest lines up to TCK_LOG_INFO are kept from the first tck_attach on. This
 * takes the oldest line that is left, cut off after cap bytes (1024 are enough), and returns 1, or 0 if there is none.
 * May be called at any time by any thread. */
TCK_API int tck_next_log(tck_log_level_t *level_out, char *text_out, size_t cap);

/* ---- attach -------------------------------------------------------------------------------------------------- */

/* The caller's way to reach the other ranks: torch.distributed, MPI, Slurm's PMI. allgather copies len bytes of every
 * rank to out (world_size * len bytes, in rank order) and returns 0, or anything else if it failed. It is called only
 * during the collective calls, by the calling thread. */
typedef struct tck_oob {
    int (*allgather)(void *ctx, const void *in, void *out, size_t len);
    void *ctx;
} tck_oob_t;

typedef struct tck_attach_params {
    size_t struct_size;
    const char *config_file; /* path of a JSON file, or NULL */
    const char *config_json; /* JSON text whose keys override those of the file, or NULL */
    int rank;
    int world_size;
    tck_oob_t oob; /* allgather may be NULL if world_size is 1 */
} tck_attach_params_t;
#define TCK_ATTACH_PARAMS_INIT TCK_SIZED(tck_attach_params_t)

/* Connects to the agent of this node and joins a new term of the job together with all other ranks. If no agent
 * answers, it is started together with its supervisor. Collective.
 *
 * Trainers of an earlier term can save nothing any more. Therefore, if any of them is alive and belongs to another run
 * (configuration key run_id), all ranks get TCK_ERR_EXIST, which names it, and nothing has changed; with the key
 * "takeover" set to "on" the job is taken over. On failure every rank gets an error, *client_out is untouched, and the
 * text is in tck_errmsg(NULL). */
TCK_API TCK_MUST_CHECK tck_status_t tck_attach(const tck_attach_params_t *params, tck_client_t **client_out);

/* Writes the name of the job of this configuration: the configured one, or the one that is derived from save_dir. The
 * arguments are those of tck_attach. With its NUL the name must fit into cap bytes; 64 are enough. The text of a
 * failure is in tck_errmsg(NULL). */
TCK_API TCK_MUST_CHECK tck_status_t tck_job_name(const char *config_file, const char *config_json, char *job_out,
                                                 size_t cap);

/* Leaves the job and frees the client in any case. Waits for a copy in progress.
 *
 * job_done 0: the saved versions stay in memory for the configured linger time, for a successor.
 * job_done not 0: the training has ended and its agents end, too, and with them everything that is only in memory (see
 * tck_save_last). If tck_save_last failed, or storage lacks a step that should be there, the agents stay for the linger
 * time after all, and the log says why. */
TCK_API void tck_detach(tck_client_t *client, int job_done);

/* ---- an allgather for programs that have none ------------------------------------------------------------------ */

/* A place that all ranks reach and where they find each other: a key-value store such as torch's TCPStore or PMI's, or
 * a directory that they share. Both functions return 0, or anything else if they failed. */
typedef struct tck_store {
    /* Makes the value of a key available to all ranks, in place of an earlier one. */
    int (*put)(void *ctx, const char *key, const void *value, size_t len);
    /* Waits until the key was put and copies its value, which has at most cap bytes. */
    int (*get)(void *ctx, const char *key, void *value, size_t cap, size_t *len_out);
    void *ctx;
} tck_store_t;

typedef struct tck_bootstrap tck_bootstrap_t;

typedef struct tck_bootstrap_params {
    size_t struct_size;
    int rank;
    int world_size;
    tck_store_t store;   /* used by tck_bootstrap_open alone: each rank puts at most one key and gets another one's */
    const char *prefix;  /* begins each key, at most 128 bytes; NULL: none */
    const char *address; /* numeric addresses at which others reach this rank, separated by commas, the first one first;
                            NULL: those of all interfaces that are up */
    int timeout_ms;      /* how long to wait for another rank each time; 0: 30 minutes */
} tck_bootstrap_params_t;
#define TCK_BOOTSTRAP_PARAMS_INIT TCK_SIZED(tck_bootstrap_params_t)

/* Connects the ranks over TCP in a tree, so that each has at most 9 connections, however many ranks there are.
 * Collective. An error names the rank that did not come, or that cannot be reached. After an error, also one of an
 * allgather, all ranks close it and may open another one. */
TCK_API TCK_MUST_CHECK tck_status_t tck_bootstrap_open(const tck_bootstrap_params_t *params,
                                                       tck_bootstrap_t **bootstrap_out);
/* For tck_attach_params_t, and for the program's own use, by one thread at a time. Its allgather returns a status, and
 * tck_errmsg(NULL) has the text. Once it has failed on one rank, or a rank has ended, it fails on all of them. */
TCK_API tck_oob_t tck_bootstrap_oob(tck_bootstrap_t *bootstrap);
/* After the clients that use it were detached. NULL is allowed. */
TCK_API void tck_bootstrap_close(tck_bootstrap_t *bootstrap);

/* ---- what is saved ------------------------------------------------------------------------------------------- */

#define TCK_MAX_NDIM 8
#define TCK_MAX_KEY  1023 /* bytes of a record's key or group, without the NUL */
#define TCK_MAX_HEAD 4096 /* bytes of a record's head */
#define TCK_MAX_FILE 127  /* bytes of a file's name */

/* X(name, bytes per element, safetensors name). FP8 kinds are carried as bytes. */
#define TCK_DTYPE_MAP(X)     \
    X(BOOL, 1, "BOOL")       \
    X(U8, 1, "U8")           \
    X(I8, 1, "I8")           \
    X(U16, 2, "U16")         \
    X(I16, 2, "I16")         \
    X(F16, 2, "F16")         \
    X(BF16, 2, "BF16")       \
    X(U32, 4, "U32")         \
    X(I32, 4, "I32")         \
    X(F32, 4, "F32")         \
    X(U64, 8, "U64")         \
    X(I64, 8, "I64")         \
    X(F64, 8, "F64")         \
    X(C64, 8, "C64")         \
    X(F8_E4M3, 1, "F8_E4M3") \
    X(F8_E5M2, 1, "F8_E5M2")

typedef enum tck_dtype {
#define TCK_DTYPE_ENUM(name, bytes, st_name) TCK_##name,
    TCK_DTYPE_MAP(TCK_DTYPE_ENUM)
#undef TCK_DTYPE_ENUM
        TCK_DTYPE_COUNT
} tck_dtype_t;

typedef enum tck_when {
    TCK_LAZY,  /* does not change before the next tck_fence: copied in the background */
    TCK_EAGER, /* may change at once (random state, counters): copied inside the save call. If there are 8 MiB or more
                  in host memory, the call waits for the agent to grant the slots into which they are copied, for at
                  most the configured block time, and then for the copy. On a device it is copied aside, on the stream
                  of tck_set_stream, ahead of the work that the stream gets next */
} tck_when_t;

typedef enum tck_memory {
    TCK_HOST, /* ordinary memory */
    TCK_CUDA, /* memory of a CUDA device; needs libtierckpt_cuda.so beside this library */
} tck_memory_t;

/* One piece of a tensor, contiguous in C order, in the memory of this rank. */
typedef struct tck_record {
    size_t struct_size; /* one that ends before `memory` means TCK_HOST, one that ends before `head` no head */
    const char *key;    /* UTF-8 name of the whole tensor, the same on every rank that holds a piece of it */
    tck_dtype_t dtype;
    uint32_t ndim;                       /* 0 for a scalar, at most TCK_MAX_NDIM */
    uint64_t global_shape[TCK_MAX_NDIM]; /* of the whole tensor, in elements */
    uint64_t offset[TCK_MAX_NDIM];       /* where this piece begins in the tensor */
    uint64_t local_shape[TCK_MAX_NDIM];  /* of this piece; offset + local_shape <= global_shape */
    void *addr;                          /* readable for a save, writable for a restore */
    const char *replica_group;           /* names the set of ranks that hold identical bytes of this piece at every step
                                            (data-parallel twins): equal on all of them and on no others. NULL: only this
                                            rank holds the piece */
    tck_when_t when;
    tck_memory_t memory; /* kind of memory at addr; not a part of the layout */
    int device;          /* TCK_CUDA: number of the device, as the CUDA runtime counts in this process */
    const void *head;  /* bytes that files have directly before the piece, so that a reader of another format finds both
                          as one range; copied. NULL: none */
    size_t head_bytes; /* at most TCK_MAX_HEAD; a part of the layout, while the bytes are not */
} tck_record_t;
#define TCK_RECORD_INIT TCK_SIZED(tck_record_t)

/* Adds a record. Key, shapes and group are copied; the memory at addr is not, and must stay valid until tck_detach or
 * tck_set_address. *record_out (may be NULL) is set to the record's number for tck_set_address. Call it before
 * tck_register. TCK_ERR_UNSUPPORTED: the memory is on a CUDA device, and the text says which module or device is
 * missing. */
TCK_API TCK_MUST_CHECK tck_status_t tck_add_record(tck_client_t *client, const tck_record_t *record,
                                                   uint32_t *record_out);

#define TCK_METADATA_KEY "__file__/.metadata"

/* Adds an opaque blob of at most capacity bytes, which the library holds and which is empty at first. replica_group is
 * as in a record. The content of a blob with the key TCK_METADATA_KEY also becomes the file .metadata of each version.
 */
TCK_API TCK_MUST_CHECK tck_status_t tck_add_blob(tck_client_t *client, const char *key, size_t capacity,
                                                 const char *replica_group);

/* Sets the bytes of the blob for the next snapshot and all later ones. They are copied before the call returns. */
TCK_API TCK_MUST_CHECK tck_status_t tck_set_blob(tck_client_t *client, const char *key, const void *data, size_t size);

/* Copies the bytes of the blob as they were set or, after tck_restore, restored. *size_out is the whole size even if
 * cap is smaller; the call then returns TCK_ERR_NOSPC and copies nothing. */
TCK_API TCK_MUST_CHECK tck_status_t tck_get_blob(tck_client_t *client, const char *key, void *data, size_t cap,
                                                 size_t *size_out);

/* What a restore with another number of ranks does with data that belongs to one rank and that no box of a tensor
 * provides: a key that begins with "rank<r>/", where r is this rank; a blob without a replica group; a record of which
 * several ranks have saved the same place, each its own. With the same number of ranks, each gets what its own number
 * had saved. */
typedef enum tck_reshard {
    TCK_RESHARD_REFUSE, /* the restore fails and names the key; this is the default */
    TCK_RESHARD_LEAVE,  /* the data stays as it is, for example random state or the position in the data set */
    TCK_RESHARD_ANY, /* rank r gets the data of rank r modulo the old number, for data that is equal on all ranks, as a
                        scheduler's. If that rank had no "rank<r>/key", it gets the tensor "key" */
} tck_reshard_t;

/* Sets this for each record and blob of the key. Call it before tck_register; it is not a part of the layout. */
TCK_API TCK_MUST_CHECK tck_status_t tck_set_reshard(tck_client_t *client, const char *key, tck_reshard_t reshard);

/* Tells the library that the tensor has moved to addr. Its shape and device must be the same. Do not call it while a
 * snapshot is being copied, that is, call it after tck_fence; for records on devices it then waits for the copy. */
TCK_API TCK_MUST_CHECK tck_status_t tck_set_address(tck_client_t *client, uint32_t record, void *addr);

/* Closes the table of records, agrees on the layout with all ranks, and makes the agents allocate and touch all the
 * memory that later saves need. Collective. TCK_ERR_NOSPC: the text has the bytes that are needed and allowed. */
TCK_API TCK_MUST_CHECK tck_status_t tck_register(tck_client_t *client);

/* Where a record or a blob lies in each published version of this layout. */
typedef struct tck_place {
    size_t struct_size;
    char file[TCK_MAX_FILE + 1]; /* name in the version's directory */
    uint64_t offset, bytes;      /* of its data in the file, without a head; a blob begins with its length (u64) */
} tck_place_t;
#define TCK_PLACE_INIT TCK_SIZED(tck_place_t)

/* Call them after tck_register. */
TCK_API TCK_MUST_CHECK tck_status_t tck_record_place(tck_client_t *client, uint32_t record, tck_place_t *place_out);
TCK_API TCK_MUST_CHECK tck_status_t tck_blob_place(tck_client_t *client, const char *key, tck_place_t *place_out);

/* ---- save ---------------------------------------------------------------------------------------------------- */

typedef enum tck_save_flags {
    TCK_SAVE_MEMORY = 0,  /* to the memory tier */
    TCK_SAVE_STORAGE = 1, /* to the memory tier and, once committed, to the persistent tier */
} tck_save_flags_t;

/* Saves if the configured intervals say so. Call it once per step, after the optimizer step. If nothing is due, it
 * returns in well under a microsecond and makes no system call. If a save is due, it copies the eager records, starts
 * to copy the lazy ones, and sets *started_out (may be NULL) to 1. If the previous snapshot is still being copied, it
 * waits for at most the configured block time.
 *
 * A save is skipped if the agent refuses it or cannot be reached, or if the step is not newer than the one saved
 * before. This is not an error here, since training continues: tck_errmsg says why it was not started, and tck_wait
 * returns why it was skipped later. Steps increase over the whole run, not per epoch; after tck_restore they continue
 * from the restored step. TCK_ERR_CORRUPT: a tck_restore has failed with records torn, so there is no state to save. */
TCK_API TCK_MUST_CHECK tck_status_t tck_save_if_needed(tck_client_t *client, uint64_t step, int *started_out);

typedef enum tck_due {
    TCK_DUE_NOTHING,
    TCK_DUE_MEMORY,  /* a save to the memory tier */
    TCK_DUE_STORAGE, /* a save to the memory tier and on to the persistent tier */
} tck_due_t;

/* Sets *due_out to what tck_save_if_needed will do at this step, so that the caller refreshes its blobs only when they
 * are needed. It costs as little, and a tck_save_if_needed of the same step right after it does what it has
 * announced. A tck_snapshot of that step may take its place. */
TCK_API TCK_MUST_CHECK tck_status_t tck_save_due(tck_client_t *client, uint64_t step, tck_due_t *due_out);

/* Saves this step, whatever the intervals say. Every rank must save the same steps, or the version never commits. A
 * step that was the last one saved is not saved again, but TCK_SAVE_STORAGE takes it to storage if it is only in
 * memory. TCK_ERR_INVAL: a later step was saved before. TCK_ERR_BUSY: the previous snapshot is still being copied after
 * the block time. */
TCK_API TCK_MUST_CHECK tck_status_t tck_snapshot(tck_client_t *client, uint64_t step, tck_save_flags_t flags);

/* Tells the library that this rank cannot save a step that is due, because its data could not be produced. Call it in
 * place of tck_save_if_needed or tck_snapshot. The step counts as skipped, tck_wait fails with the text `why`, and the
 * version is aborted on all ranks now instead of when it times out. */
TCK_API TCK_MUST_CHECK tck_status_t tck_skip(tck_client_t *client, uint64_t step, const char *why);

/* Names the stream (a cudaStream_t; NULL is the default stream) that training uses on a device that holds records. Call
 * it again whenever the stream changes. A snapshot contains the records as the work that was queued on that stream
 * before the save leaves them, and tck_fence makes the stream wait for the copies instead of the caller. Before the
 * first call for a device, snapshots follow the default stream and tck_fence itself waits. TCK_ERR_INVAL: no record is
 * on this device.
 */
TCK_API TCK_MUST_CHECK tck_status_t tck_set_stream(tck_client_t *client, int device, void *stream);

/* Call it before the memory of the records changes, right before the next optimizer step: waits until the lazy records
 * are copied. It waits for the agent for at most the configured block time and then gives the snapshot up.
 *
 * Records on devices may be changed by work that the stream of tck_set_stream gets after this call: it does not wait
 * for their copies, only until they are queued. To block until the copies finish, call tck_wait with TCK_STAGE_COPIED.
 *
 * While that stream is being captured into a graph, this call and saves return TCK_ERR_INVAL unless no snapshot is
 * under way. The capture continues, and nothing is fenced. Launch a graph that changes records after a fence, like any
 * other work. */
TCK_API TCK_MUST_CHECK tck_status_t tck_fence(tck_client_t *client);

/* With on != 0, each later snapshot becomes valid only when tck_confirm says that the lazy records did not change while
 * they were copied. This is for callers that can tell, for example by version counters, and whose records others may
 * change. Call it between snapshots, after tck_register. The snapshot of tck_save_last needs no confirmation, since
 * nothing changes during that call. */
TCK_API TCK_MUST_CHECK tck_status_t tck_set_confirm(tck_client_t *client, int on);

/* Confirms the snapshot of this step, after its fence or tck_await_copied. With why_not other than NULL the snapshot is
 * given up: the version commits on no rank, and tck_wait returns that text. The first answer counts. Nothing happens if
 * the snapshot under way is of another step or needs no confirmation. A snapshot that is not confirmed by the next
 * save, restore or detach is given up. */
TCK_API TCK_MUST_CHECK tck_status_t tck_confirm(tck_client_t *client, uint64_t step, const char *why_not);

/* Waits until the snapshot under way is copied and needs a confirmation, and sets *step_out to its step. TCK_ERR_NOENT:
 * no snapshot needs one. TCK_ERR_TIMEDOUT. One more thread than the trainer's may call this and tck_confirm, until
 * tck_detach is called. */
TCK_API TCK_MUST_CHECK tck_status_t tck_await_copied(tck_client_t *client, int timeout_ms, uint64_t *step_out);

typedef enum tck_stage {
    TCK_STAGE_COPIED,    /* the records of this rank are in its slots */
    TCK_STAGE_PROTECTED, /* the shards of this node have their verified copies */
    TCK_STAGE_COMMITTED, /* the version can be restored from the memory tier */
    TCK_STAGE_DRAINED,   /* the version is published on storage */
} tck_stage_t;

/* Waits until the snapshot of this step, or a newer one, has reached the stage. With timeout_ms 0 it returns at once.
 * TCK_ERR_TIMEDOUT: not within timeout_ms. TCK_ERR_CANCELED: it was refused or aborted, or the outcome is unknown,
 * since the agent and supervisor of this node are gone or have lost their state. TCK_ERR_NOENT: this step was never
 * saved, or was refused because it was older than the newest one. */
TCK_API TCK_MUST_CHECK tck_status_t tck_wait(tck_client_t *client, uint64_t step, tck_stage_t stage, int timeout_ms);

/* Ends a training: when it returns TCK_OK, this step is on storage. Call it before tck_detach with job_done, because
 * the memory tier goes with the job. Collective.
 *
 * It saves the step unless it was the last one saved, as soon as there is a free slot, and waits for its drain, which
 * is repeated if it fails, for at most timeout_ms. If the step was aborted, or a node lost its memory, the step is
 * saved once more in a new term. TCK_ERR_TIMEDOUT, or TCK_ERR_CANCELED if it was refused or aborted each time; what was
 * committed before is then still there. */
TCK_API TCK_MUST_CHECK tck_status_t tck_save_last(tck_client_t *client, uint64_t step, int timeout_ms);

/* ---- restore ------------------------------------------------------------------------------------------------- */

typedef struct tck_version {
    uint64_t term; /* the term of the job that saved it */
    uint64_t step;
} tck_version_t;

/* The newest version that can be restored now, from memory or storage. TCK_ERR_NOENT: there is none. TCK_ERR_BUSY: the
 * agents are still looking for it. */
TCK_API TCK_MUST_CHECK tck_status_t tck_query(tck_client_t *client, tck_version_t *version_out);

#define TCK_NEWEST UINT64_MAX

typedef struct tck_restored {
    size_t struct_size;
    tck_version_t version;
    uint64_t bytes_local;   /* of this rank's shards, by where they were found: in the memory of this node, */
    uint64_t bytes_twin;    /* of the node of a data-parallel twin, */
    uint64_t bytes_peer;    /* or of a peer that held a copy, */
    uint64_t bytes_storage; /* or on the persistent tier */
    uint64_t newest_step;   /* newest step that any rank had begun to save, 0 if unknown; the steps above version.step
                               are lost */
    double seconds;         /* from the call to the last byte in place */
    int resharded;          /* the version has another layout and was read from the persistent tier; if so: */
    uint32_t saved_world_size; /* the number of ranks that saved it, */
    uint32_t left_count;       /* and the number of records and blobs of this rank that were left as they are */
    const char *passed_over;   /* "", or which newer version was not restored and why (damaged, no copy left, given up);
                                  valid until the next tck_restore or tck_detach */
} tck_restored_t;
#define TCK_RESTORED_INIT TCK_SIZED(tck_restored_t)

/* Called by tck_restore when the blobs are restored (tck_get_blob) and before any record is written. If it returns
 * anything but 0, the restore fails on all ranks with TCK_ERR_LAYOUT, and only blobs have changed. It can write a text
 * of at most cap bytes to why_not. It may call tck_get_blob and nothing else. */
typedef int (*tck_check_t)(void *ctx, char *why_not, size_t cap);

/* Sets that function; NULL removes it. Call it after tck_register, on every rank or on none. */
TCK_API TCK_MUST_CHECK tck_status_t tck_set_check(tck_client_t *client, tck_check_t check, void *ctx);

/* Restores the newest restorable version (step TCK_NEWEST), or the version of the given step, into the registered
 * memory. restored_out may be NULL. Collective, with the same step on all ranks, at any time after tck_register. A
 * version of another layout (number of ranks, sharding) is restored if it is published.
 *
 * TCK_ERR_NOENT: nothing was ever committed, so start from scratch. This is proved, not assumed: all of save_dir and
 * load_dir or archive_dir was read, and no commit is noted anywhere.
 * TCK_ERR_UNRECOVERABLE, TCK_ERR_LAYOUT: something was saved but cannot be restored; the text says why.
 * TCK_ERR_IO, TCK_ERR_PROTO: something that is or may be there cannot be read now, or not by this build. No older
 * version is taken in its place. TCK_ERR_CORRUPT: data was found damaged while it was copied, in several terms.
 *
 * Each byte is checked while it is copied. If one is damaged, or a device or storage fails, a part of the records is
 * written already. All ranks then try again in a new term, from another copy or an older version, and that writes all
 * records. If no try succeeds, the records are torn: they hold parts of several states, possibly with wrong bytes, and
 * blobs do, too. Training must not continue from them. The text says so, records_torn of tck_health is set, and every
 * save fails with TCK_ERR_CORRUPT until a tck_restore succeeds (or tck_records_filled is called). TCK_ERR_NOENT is
 * never returned then: there is no fresh start with such records, and TCK_ERR_LAYOUT becomes TCK_ERR_UNRECOVERABLE. If
 * records are not torn, only blobs may have changed after an error.
 *
 * An older version replaces a newer one only if the newer one is damaged or lost, and passed_over then says so.
 * docs/c.md describes what is verified when, going back to an older step, and other layouts. */
TCK_API TCK_MUST_CHECK tck_status_t tck_restore(tck_client_t *client, uint64_t step, tck_restored_t *restored_out);

/* Tells the library, after a tck_restore that has failed with records torn, that the program has filled all records and
 * blobs by other means, for example from another checkpoint: they can be saved again. Call it on every rank. */
TCK_API TCK_MUST_CHECK tck_status_t tck_records_filled(tck_client_t *client);

/* ---- statistics ---------------------------------------------------------------------------------------------- */

typedef struct tck_stats {
    size_t struct_size;
    uint64_t saves_started;
    uint64_t saves_copied;
    uint64_t saves_skipped; /* refused, or without an agent */
    uint64_t bytes_copied;
    uint64_t stall_ns_last; /* time spent in the save call and its fence by the last snapshot, */
    uint64_t stall_ns_max;  /* by the slowest one, */
    uint64_t stall_ns_total;
    uint64_t committed_step; /* newest committed step of this term, 0 if none */
    uint64_t published_step; /* newest published step of this term, 0 if none */
    uint64_t segment_bytes;  /* memory that the agent holds for the shards of this rank */
    uint32_t page_bytes;     /* size of the pages of that memory */
} tck_stats_t;
#define TCK_STATS_INIT TCK_SIZED(tck_stats_t)

TCK_API TCK_MUST_CHECK tck_status_t tck_stats(tck_client_t *client, tck_stats_t *stats_out);

/* ---- health ---------------------------------------------------------------------------------------------------- */

#define TCK_HEALTH_TEXT 512

typedef struct tck_health {
    size_t struct_size;
    int agent_connected;       /* 0: nothing is saved at the moment; agent_text says why */
    int node_lost;             /* a node of this term is lost, so nothing commits; protection_text names it */
    tck_status_t storage;      /* TCK_OK if no trouble is known; otherwise storage_text has the path and the reason, */
    uint64_t storage_since_ms; /* this is when it began (milliseconds since 1970), */
    uint64_t undrained_first;  /* these are the first and the newest step that did not reach storage since then, */
    uint64_t undrained_newest;
    uint64_t undrained_count; /* and this is their number; 0 if something other than a drain failed */
    uint64_t shards_short;    /* shards of this term with fewer copies in distinct domains than configured */
    uint64_t copies_missing;  /* copies of the committed version that this node lacks at the moment */
    int records_torn; /* a restore failed after it had begun to write the records, and none has succeeded since: nothing
                         is saved */
    char agent_text[TCK_HEALTH_TEXT], storage_text[TCK_HEALTH_TEXT], protection_text[TCK_HEALTH_TEXT]; /* or "" */
} tck_health_t;
#define TCK_HEALTH_INIT TCK_SIZED(tck_health_t)

/* What this rank knows about the state of its job. It sends no request, makes no system call, and may be called at any
 * time between attach and detach. Trouble with storage on any node is known within a heartbeat, and ends when a later
 * version is published. */
TCK_API TCK_MUST_CHECK tck_status_t tck_health(tck_client_t *client, tck_health_t *health_out);

/* ---- progress -------------------------------------------------------------------------------------------------- */

typedef struct tck_progress {
    size_t struct_size;
    const char *call;                 /* "register" or "restore"; this text and the next one stay valid */
    const char *what;                 /* what it does now, for people */
    uint64_t done_bytes, total_bytes; /* of that, on this node; total 0: not known */
    uint64_t age_ms;                  /* since the call */
    uint64_t still_ms;                /* since something has moved */
    int shown;                        /* 0: the configuration wants no progress to be shown (show_progress) */
} tck_progress_t;
#define TCK_PROGRESS_INIT TCK_SIZED(tck_progress_t)

/* How far the tck_register or tck_restore is that another thread is in: returns 1, or 0 if there is none. May be called
 * at any time between attach and detach, by any thread. The library itself logs this every 10 s on rank 0. */
TCK_API int tck_progress(tck_client_t *client, tck_progress_t *progress_out);

/* ---- published versions ---------------------------------------------------------------------------------------- */

/* Versions on storage can be read without agents, by any program and with any number of ranks. None of these functions
 * is collective or needs a client. One thread at a time reads from one tck_published_t. Every byte that is returned was
 * checked against the CRC of its chunk in the manifest of the version, and every file of the manifest is there with its
 * size. Each error names the file and the reason. */
typedef struct tck_published tck_published_t;

typedef struct tck_published_open_params {
    size_t struct_size;
    const char *path; /* directory of a version, wherever it was copied to; or NULL: the version is searched for in */
    const char *config_file; /* save_dir, and load_dir or archive_dir, of this configuration, */
    const char *config_json; /* which is given as in tck_attach_params_t */
    uint64_t step;           /* TCK_NEWEST, or the newest version of this step; unused with a path */
} tck_published_open_params_t;
#define TCK_PUBLISHED_OPEN_PARAMS_INIT TCK_SIZED(tck_published_open_params_t)

/* Opens a version and reads the headers of its files, from its .index if that is whole. On failure *published_out is
 * untouched and the text is in tck_published_errmsg(NULL).
 *
 * TCK_NEWEST passes over versions that are damaged, without a valid manifest or without a file (tck_published_info
 * tells). If the newest version cannot be read, reading it is retried for about three seconds and then fails with an
 * error that names the file: no older one is taken in its place. TCK_ERR_NOENT: nothing is published, and all
 * directories could be read. TCK_ERR_CORRUPT: what is at `path` is not a complete version. TCK_ERR_IO: a directory
 * does not exist. TCK_ERR_TIMEDOUT: storage has not answered for storage_timeout_ms (its default if a path is
 * given); every call below that reads can return this. The call that hangs stays in a thread of the library, which
 * writes to no memory of the caller. */
TCK_API TCK_MUST_CHECK tck_status_t tck_published_open(const tck_published_open_params_t *params,
                                                       tck_published_t **published_out);
TCK_API void tck_published_close(tck_published_t *published);

/* As tck_errmsg. NULL: the text of this thread's last failed tck_published_open or tck_export. */
TCK_API const char *tck_published_errmsg(const tck_published_t *published);

typedef struct tck_published_info {
    size_t struct_size;
    tck_version_t version;
    const char *job;         /* this text and those below are valid until tck_published_close */
    const char *path;        /* of its directory */
    const char *passed_over; /* "", or the newest version that was passed over for this one, and why */
    uint64_t wall_ms;        /* when it was published, milliseconds since 1970 */
    uint64_t bytes;          /* of all files */
    uint64_t entry_count;
    uint32_t file_count;
    uint32_t world_size; /* of the job that saved it */
} tck_published_info_t;
#define TCK_PUBLISHED_INFO_INIT TCK_SIZED(tck_published_info_t)

TCK_API TCK_MUST_CHECK tck_status_t tck_published_info(tck_published_t *published, tck_published_info_t *info_out);

/* One piece of a tensor, or a blob, as a rank saved it. */
typedef struct tck_published_entry {
    size_t struct_size;
    const char *key; /* this and file are valid until tck_published_close */
    const char *file;
    uint64_t bytes; /* of a blob: including its length prefix and its unused capacity, see docs/formats.md */
    tck_dtype_t dtype;
    uint32_t ndim;
    uint64_t global_shape[TCK_MAX_NDIM], offset[TCK_MAX_NDIM], local_shape[TCK_MAX_NDIM]; /* as in tck_record_t */
    int blob;
    int rank; /* the rank of the world that saved it to which it belonged alone; -1: it belonged to a replica group */
} tck_published_entry_t;
#define TCK_PUBLISHED_ENTRY_INIT TCK_SIZED(tck_published_entry_t)

/* The entry with this number, below entry_count. Entries are sorted by key, then by their place in the tensor. Fillers
 * are left out, and a piece that several groups have saved is listed once. */
TCK_API TCK_MUST_CHECK tck_status_t tck_published_entry(tck_published_t *published, uint64_t index,
                                                        tck_published_entry_t *entry_out);

/* Copies len bytes of the entry, beginning with byte first. */
TCK_API TCK_MUST_CHECK tck_status_t tck_published_read_entry(tck_published_t *published, uint64_t index, uint64_t first,
                                                             uint64_t len, void *to);

/* A box of a whole tensor. */
typedef struct tck_published_box {
    size_t struct_size;
    const char *key;
    tck_dtype_t dtype;
    uint32_t ndim;
    uint64_t global_shape[TCK_MAX_NDIM], offset[TCK_MAX_NDIM], local_shape[TCK_MAX_NDIM]; /* as in tck_record_t */
} tck_published_box_t;
#define TCK_PUBLISHED_BOX_INIT TCK_SIZED(tck_published_box_t)

/* Copies the box, contiguous in C order, to `to`, from all entries that contain parts of it. Only what is needed is
 * read. There is no conversion: dtype and global shape must be those saved.
 *
 * TCK_ERR_NOENT: this tensor was not saved. TCK_ERR_LAYOUT: no entry contains some part of the box, or several ranks
 * have saved the same box, each its own, so that it is not known which is meant (tck_published_read_entry reads each).
 * After these errors *to is unchanged. After an error of reading a part of it may be written, with checked bytes. */
TCK_API TCK_MUST_CHECK tck_status_t tck_published_read_box(tck_published_t *published, const tck_published_box_t *box,
                                                           void *to);

/* Copies the bytes of a blob: that of a rank of the world that saved it or, with rank -1, the only one there is.
 * TCK_ERR_LAYOUT: there are several of this key. *size_out is the whole size even if cap is smaller; the call then
 * returns TCK_ERR_NOSPC and copies nothing. */
TCK_API TCK_MUST_CHECK tck_status_t tck_published_read_blob(tck_published_t *published, const char *key, int rank,
                                                            void *data, size_t cap, size_t *size_out);

/* ---- export -------------------------------------------------------------------------------------------------- */

typedef struct tck_export_params {
    size_t struct_size;
    const tck_published_open_params_t *source;
    int from_memory;            /* publish the newest version in the agents' memory first, as `tierckpt drain` does, and
                                   export that one; source has step TCK_NEWEST */
    const char *directory;      /* is created: its parent must exist, and it must not */
    uint64_t shard_bytes;       /* limit for the tensors in one file, unless a single one is larger; 0: one file */
    int convert;                /* not 0: tensors of F64, F32, F16 and BF16 are converted to */
    tck_dtype_t dtype;          /* one of these, rounded to the nearest, ties to even; others stay as they are */
    const char *model_files;    /* directory whose files, except weights, are copied (config.json, ...); or NULL */
    const char *const *include; /* shell patterns of the tensors to export, ended by NULL. NULL or empty: the weights of
                                   the model, which docs/published.md defines */
    const char *const *exclude; /* patterns of the tensors among these that are not exported; or NULL */
    const char *strip_prefix;   /* removed from names that begin with it; or NULL */
    const char *add_prefix;     /* then put before every name; or NULL */
    const char *names;          /* before both, a mapping to the names of a model family: the name of one that is
                                   installed, or the path of a file, which has a slash; or NULL */
} tck_export_params_t;
#define TCK_EXPORT_PARAMS_INIT TCK_SIZED(tck_export_params_t)

typedef struct tck_exported {
    size_t struct_size;
    tck_version_t version;
    uint64_t tensor_count, file_count;
    uint64_t bytes; /* of the tensors */
} tck_exported_t;
#define TCK_EXPORTED_INIT TCK_SIZED(tck_exported_t)

/* Writes whole tensors as a Hugging Face checkpoint: model.safetensors, or several files and
 * model.safetensors.index.json. It needs a bounded amount of memory, whatever the size of the model. The directory
 * appears complete and synced, or not at all; nothing is overwritten (TCK_ERR_EXIST). What cannot be made whole is an
 * error before anything is written: TCK_ERR_LAYOUT, TCK_ERR_UNSUPPORTED. exported_out may be NULL. The
 * text of an error is in tck_published_errmsg(NULL). */
TCK_API TCK_MUST_CHECK tck_status_t tck_export(const tck_export_params_t *params, tck_exported_t *exported_out);

#ifdef __cplusplus
}
#endif
#endif
