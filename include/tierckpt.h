/* SPDX-License-Identifier: Apache-2.0
 *
 * Tierckpt: checkpoints of a training job in the memory of its nodes.
 *
 * This header is the whole contract of libtierckpt.so. The order of calls in a training program:
 *
 *     tck_attach -> tck_add_record / tck_add_blob ... -> tck_register -> tck_restore
 *     every step:  tck_fence; <optimizer step>; tck_save_if_needed
 *     tck_detach
 *
 * Records may lie on CUDA devices. Then libtierckpt_cuda.so is loaded, from beside this library, and tck_set_stream
 * says which stream the training uses; nothing else changes.
 *
 * attach, register and restore are collective: each rank of the job calls them, in the same order. They use the
 * caller's allgather (tck_oob_t) and nothing else to reach other ranks. No other call waits for another rank,
 * except tck_wait, which is told how long. The library never exits, aborts, prints, or installs a signal handler: what
 * it has to say goes to tck_set_log.
 * A client belongs to the process that attached: in a forked child every call with it fails with TCK_ERR_INVAL at once,
 * and tck_detach does nothing.
 *
 * One client per process; its calls come from one thread at a time. Every function returns a status that must be
 * looked at; tck_errmsg gives the text that belongs to the last failure. Sizes are bytes, times are milliseconds
 * unless the name says otherwise. Steps count from 1: step 0 is never saved. Memory that is passed in stays the
 * caller's. A child that the process forks must not use the client. A pointer may be NULL where this header says so;
 * elsewhere it is TCK_ERR_INVAL, and the text names it.
 */
#ifndef TIERCKPT_H
#define TIERCKPT_H

#include <stddef.h>
#include <stdint.h>

#include "tierckpt_version.h" /* TCK_VERSION, and its parts TCK_VERSION_MAJOR, _MINOR, _PATCH */

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TCK_API        __attribute__((visibility("default")))
#define TCK_MUST_CHECK __attribute__((warn_unused_result))
#else
#define TCK_API
#define TCK_MUST_CHECK
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

/* The fixed text of a status; never NULL, never freed. */
TCK_API const char *tck_strerror(tck_status_t status);

/* The text of the client's last failure, naming the thing that failed, or why its last save was not started. client
 * NULL: of this thread's last failed tck_attach, or call without a client. Never NULL; valid until the next call with
 * this client. */
TCK_API const char *tck_errmsg(const tck_client_t *client);

/* The status that belongs to that text; TCK_OK: nothing failed yet. TCK_ERR_DENIED of a save that was not started:
 * another start has taken the job over, and this one can save nothing any more. */
TCK_API tck_status_t tck_errcode(const tck_client_t *client);

/* The library's version as major * 10000 + minor * 100 + patch. */
TCK_API int tck_version_number(void);

/* ---- log ------------------------------------------------------------------------------------------------------- */

typedef enum tck_log_level {
    TCK_LOG_ERROR, /* a fault that somebody has to repair */
    TCK_LOG_WARN,  /* once for each cause: that saves are skipped, for one */
    TCK_LOG_INFO,  /* what happens: attached, restored */
    TCK_LOG_DEBUG,
} tck_log_level_t;

typedef void tck_log_fn(void *ctx, tck_log_level_t level, const char *text);

/* Hands each line of the library, up to the level `most`, to fn; fn NULL: to nobody. The library itself writes nowhere.
 * fn is called by whichever thread has something to say, which is the caller's, inside of a call, or one of the
 * library's own; one line at a time. It may be called with locks of the library held, so it calls nothing of this
 * header, and it must not wait for a thread that is in such a call: an interpreter's lock, for one. Once this has
 * returned, the function before is not called any more. It is for the whole process, and may be called before
 * tck_attach. */
TCK_API void tck_set_log(tck_log_fn *fn, void *ctx, tck_log_level_t most);

/* Without tck_set_log the newest lines up to TCK_LOG_INFO are kept from the first tck_attach on, for programs that want
 * them in a call of their own. Takes the oldest that is left, cut off after cap bytes (1024 suffice): 1, or 0 if there
 * is none. May be called at any time by any thread. */
TCK_API int tck_next_log(tck_log_level_t *level_out, char *text_out, size_t cap);

/* ---- attach -------------------------------------------------------------------------------------------------- */

/* The caller's way to reach the other ranks: torch.distributed, MPI, Slurm's PMI. allgather puts len bytes of every
 * rank into out (world_size * len bytes, in rank order) and returns 0, or anything else when it failed. It is called
 * only from inside attach, register, restore and tck_save_last, by the calling thread. */
typedef struct tck_oob {
    int (*allgather)(void *ctx, const void *in, void *out, size_t len);
    void *ctx;
} tck_oob_t;

typedef struct tck_attach_params {
    size_t struct_size;      /* sizeof(tck_attach_params_t) */
    const char *config_file; /* path of a JSON file, or NULL */
    const char *config_json; /* JSON text whose keys override the file's, or NULL */
    int rank;
    int world_size;
    tck_oob_t oob; /* allgather may be NULL if world_size is 1 */
} tck_attach_params_t;

/* Connects to the agent of this node, starting it (with its supervisor) if none answers, and joins a new term of the
 * job together with all other ranks. Trainers of a term before it can save nothing any more. So while any of them is
 * alive and of another run (configuration key run_id), all ranks get TCK_ERR_EXIST, which names it, and nothing has
 * changed, unless the key takeover is "on". Collective. On success the client is the caller's until tck_detach; on
 * failure *client_out is untouched, every rank gets an error, and the text is in tck_errmsg(NULL). */
TCK_API TCK_MUST_CHECK tck_status_t tck_attach(const tck_attach_params_t *params, tck_client_t **client_out);

/* The name of the job that this configuration is for, as tck_attach takes it: the configured one, or the one that is
 * derived from save_dir. With its NUL it must fit into cap bytes; 64 suffice. The text of a failure is in
 * tck_errmsg(NULL). */
TCK_API TCK_MUST_CHECK tck_status_t tck_job_name(const char *config_file, const char *config_json, char *job_out,
                                                 size_t cap);

/* Leaves. job_done != 0 says that the training ended and its agents need not linger for a successor: what only memory
 * has goes with them (tck_save_last), unless tck_save_last failed before or storage has not taken a step that was to be
 * there: then they linger all the same, and the log says why. 0 keeps the saved versions in memory for the configured
 * linger time. Waits for a copy under way, frees the client in any case. In a child made by fork it does
 * nothing. */
TCK_API void tck_detach(tck_client_t *client, int job_done);

/* ---- what is saved ------------------------------------------------------------------------------------------- */

#define TCK_MAX_NDIM 8
#define TCK_MAX_KEY  1023 /* bytes of a record's key or group, without the NUL */

/* X(name, bytes per element, safetensors name). FP8 kinds are carried by their bytes. */
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
    TCK_EAGER, /* may change at once (RNG state, counters): copied inside the save call; on a device copied aside, on
                  the stream of tck_set_stream, before what that is given next */
} tck_when_t;

typedef enum tck_memory {
    TCK_HOST, /* ordinary memory */
    TCK_CUDA, /* of a CUDA device */
} tck_memory_t;

/* One tensor piece of this rank, contiguous in C order. */
typedef struct tck_record {
    size_t struct_size; /* sizeof(tck_record_t) */
    const char *key;    /* UTF-8 name of the whole tensor, the same on every rank that holds a piece of it */
    tck_dtype_t dtype;
    uint32_t ndim;                       /* 0 for a scalar, at most TCK_MAX_NDIM */
    uint64_t global_shape[TCK_MAX_NDIM]; /* of the whole tensor, in elements */
    uint64_t offset[TCK_MAX_NDIM];       /* where this piece begins in it */
    uint64_t local_shape[TCK_MAX_NDIM];  /* of this piece; offset + local_shape <= global_shape */
    void *addr;                          /* readable for a save, writable for a restore */
    const char *replica_group;           /* name of the set of ranks that hold identical bytes of this piece at every
                                            step (data-parallel twins), equal on all of them and on no others; NULL:
                                            the piece is this rank's alone */
    tck_when_t when;
    tck_memory_t memory; /* of which kind addr is; it is no part of the layout */
    int device;          /* TCK_CUDA: the device's number, as the CUDA runtime counts in this process */
} tck_record_t;          /* a struct_size that ends before memory means TCK_HOST */

/* Adds a record; key, shapes and group are copied, the memory at addr is not and must stay until detach or
 * tck_set_address. *record_out, if not NULL, gets the record's number for tck_set_address. Before tck_register only.
 * TCK_ERR_UNSUPPORTED: it lies on a CUDA device, and the text says which module or device is missing. */
TCK_API TCK_MUST_CHECK tck_status_t tck_add_record(tck_client_t *client, const tck_record_t *record,
                                                   uint32_t *record_out);

/* Adds an opaque blob of at most capacity bytes, held by the library, empty at first. replica_group as in a record. */
TCK_API TCK_MUST_CHECK tck_status_t tck_add_blob(tck_client_t *client, const char *key, size_t capacity,
                                                 const char *replica_group);

/* The next snapshot, and each after it, carries these bytes (copied before it returns). */
TCK_API TCK_MUST_CHECK tck_status_t tck_set_blob(tck_client_t *client, const char *key, const void *data, size_t size);

/* The bytes of the blob as set or, after tck_restore, as restored. *size_out is the whole size also if cap is smaller;
 * then TCK_ERR_NOSPC and nothing is copied. */
TCK_API TCK_MUST_CHECK tck_status_t tck_get_blob(tck_client_t *client, const char *key, void *data, size_t cap,
                                                 size_t *size_out);

/* What a restore into another layout does with what one rank has as its own, which no box of a tensor gives: a record
 * or blob whose key begins with "rank<r>/", r being this rank; a blob without replica group; a record that several
 * ranks have each saved, all of the same place. With as many ranks as had saved it, each gets that of its number. */
typedef enum tck_reshard {
    TCK_RESHARD_REFUSE, /* with another number the restore fails, and names the key: the default */
    TCK_RESHARD_LEAVE,  /* it is left as it is: random state, the position in the data */
    TCK_RESHARD_ANY,    /* rank r gets that of rank r modulo the old number: what all have alike, as a scheduler's. If
                           that rank had no "rank<r>/key", the tensor "key" */
} tck_reshard_t;

/* Of each record and blob of this key. Before tck_register; it is no part of the layout. */
TCK_API TCK_MUST_CHECK tck_status_t tck_set_reshard(tck_client_t *client, const char *key, tck_reshard_t reshard);

/* The tensor has moved; its shape has not, nor has its device. Not while a snapshot is being copied (after tck_fence;
 * of records on devices it then waits for the copy). */
TCK_API TCK_MUST_CHECK tck_status_t tck_set_address(tck_client_t *client, uint32_t record, void *addr);

/* Closes the record table, agrees on the layout with all ranks, and has the agents allocate and touch all memory that
 * later saves need. Collective. TCK_ERR_NOSPC names the bytes wanted and allowed. */
TCK_API TCK_MUST_CHECK tck_status_t tck_register(tck_client_t *client);

/* ---- save ---------------------------------------------------------------------------------------------------- */

typedef enum tck_save_flags {
    TCK_SAVE_MEMORY = 0,  /* to the memory tier */
    TCK_SAVE_STORAGE = 1, /* and on to the persistent tier once committed */
} tck_save_flags_t;

/* Called once per step after the optimizer step. Nothing due: returns in well under a microsecond, no system call.
 * Due: copies the eager records, starts copying the lazy ones, and sets *started_out (may be NULL) to 1. A snapshot
 * before it that is still being copied is waited for, for the configured block time at most. A save that the agent
 * refuses, that finds no agent, or whose step is not newer than the one saved before is skipped; training goes on, so
 * it is not an error here. Why it was not started stands in tck_errmsg, why it was skipped later is what tck_wait fails
 * with. Steps grow over the whole run, not within an epoch; after tck_restore they grow from the step restored. */
TCK_API TCK_MUST_CHECK tck_status_t tck_save_if_needed(tck_client_t *client, uint64_t step, int *started_out);

/* Sets *due_out to what tck_save_if_needed will do at this step: 0 nothing, 1 save to memory, 2 save and on to storage;
 * so that a caller need not refresh its blobs for nothing. As cheap, and tck_save_if_needed of the same step right
 * after it abides by the answer. */
TCK_API TCK_MUST_CHECK tck_status_t tck_save_due(tck_client_t *client, uint64_t step, int *due_out);

/* The same as tck_save_if_needed without asking the intervals. Every rank must snapshot the same steps, or the version
 * never commits. TCK_ERR_INVAL if a later step was saved before. The step that was saved last is not saved again, but
 * with TCK_SAVE_STORAGE it goes to storage if only memory has it. TCK_ERR_BUSY if the snapshot before it is still being
 * copied after the block time. */
TCK_API TCK_MUST_CHECK tck_status_t tck_snapshot(tck_client_t *client, uint64_t step, tck_save_flags_t flags);

/* This rank cannot save this step, which is due, since what it would save could not be made: it counts as skipped,
 * tck_wait fails with `why`, and the version is given up on all ranks soon, instead of when it times out. Called in
 * place of tck_save_if_needed or tck_snapshot. */
TCK_API TCK_MUST_CHECK tck_status_t tck_skip(tck_client_t *client, uint64_t step, const char *why);

/* The stream (a cudaStream_t; NULL: the default stream) that training uses on a device on which records lie; to be
 * called again whenever it is another one. A snapshot copies what that stream's work has made of the records when the
 * save is called, and tck_fence has the stream wait for the copies, not the caller. Until it is called for each such
 * device, snapshots follow the default stream, and tck_fence waits itself. TCK_ERR_INVAL: no record lies there. */
TCK_API TCK_MUST_CHECK tck_status_t tck_set_stream(tck_client_t *client, int device, void *stream);

/* Must be called before the records' memory changes (right before the next optimizer step): waits until the lazy
 * records are copied. It waits for the agent at most the configured block time, then gives the snapshot up.
 * Records on devices may be changed by work that is given to the stream of tck_set_stream after this call: it does not
 * wait for their copies, only until those are on their way. Who wants to wait calls tck_wait with TCK_STAGE_COPIED.
 * Neither this nor a save may be called while that stream is being captured into a graph (unless no snapshot is under
 * way): TCK_ERR_INVAL, and the capture goes on; of a fence that was refused so, nothing is fenced yet. A graph that
 * changes records is launched after a fence like any other work. */
TCK_API TCK_MUST_CHECK tck_status_t tck_fence(tck_client_t *client);

/* With on != 0 each later snapshot is sealed only once tck_confirm has said that the lazy records stayed as they were
 * while they were copied; for a caller that can tell (by version counters, for example) and whose records others may
 * change, too. Between snapshots, after tck_register. The snapshot of tck_save_last needs no word: nothing changes
 * during that call.
 */
TCK_API TCK_MUST_CHECK tck_status_t tck_set_confirm(tck_client_t *client, int on);

/* The word on the snapshot of this step, after its fence or tck_await_copied: why_not NULL has it sealed; any other
 * text gives it up, so that the version commits on no rank, and is what tck_wait then says. The first word counts; if
 * the snapshot under way is of another step, or needs no word, nothing happens. A snapshot that has no word by the next
 * save, restore or detach is given up. */
TCK_API TCK_MUST_CHECK tck_status_t tck_confirm(tck_client_t *client, uint64_t step, const char *why_not);

/* Waits until the snapshot under way is copied and needs a word, and sets *step_out to its step: TCK_ERR_NOENT if none
 * does, TCK_ERR_TIMEDOUT. This and tck_confirm may be called by one more thread than the trainer's, until tck_detach is
 * called. */
TCK_API TCK_MUST_CHECK tck_status_t tck_await_copied(tck_client_t *client, int timeout_ms, uint64_t *step_out);

typedef enum tck_stage {
    TCK_STAGE_COPIED,    /* this rank's records are in its slots */
    TCK_STAGE_PROTECTED, /* this node's shards have their verified copies */
    TCK_STAGE_COMMITTED, /* the version is restorable from the memory tier */
    TCK_STAGE_DRAINED,   /* the version is published on storage */
} tck_stage_t;

/* Waits until the snapshot of this step, or a newer one, has reached the stage. TCK_ERR_TIMEDOUT after timeout_ms
 * (0: only asks), TCK_ERR_CANCELED if it was refused or aborted, or agent and supervisor of this node are gone, or it
 * began anew, and nobody can tell any more, TCK_ERR_NOENT if this step was never saved, or refused because it was older
 * than the newest. */
TCK_API TCK_MUST_CHECK tck_status_t tck_wait(tck_client_t *client, uint64_t step, tck_stage_t stage, int timeout_ms);

/* The end of a training: when it returns, this step is in storage, for the memory goes with the job. Collective. Saves
 * it, unless it was the last one saved; has the agents bring it to storage if only memory has it; waits, timeout_ms at
 * most, until drains under way are over, then for its own. If any node refused the step (no free slot, say) or lost its
 * memory, it is saved once more in a new term. TCK_ERR_TIMEDOUT, or TCK_ERR_CANCELED if it was refused or aborted each
 * time: what was committed before is still there then. */
TCK_API TCK_MUST_CHECK tck_status_t tck_save_last(tck_client_t *client, uint64_t step, int timeout_ms);

/* ---- restore ------------------------------------------------------------------------------------------------- */

typedef struct tck_version {
    uint64_t term; /* term context of the world that saved it */
    uint64_t step;
} tck_version_t;

/* The newest version that can be restored now, from memory or storage; TCK_ERR_NOENT if there is none, TCK_ERR_BUSY if
 * that is just being found out. */
TCK_API TCK_MUST_CHECK tck_status_t tck_query(tck_client_t *client, tck_version_t *version_out);

#define TCK_NEWEST UINT64_MAX

typedef struct tck_restored {
    size_t struct_size; /* sizeof(tck_restored_t), set by the caller */
    tck_version_t version;
    uint64_t bytes_local;      /* of this rank's shards, by where they were found: this node's memory, */
    uint64_t bytes_twin;       /* a data-parallel twin's node, */
    uint64_t bytes_peer;       /* a peer that held a copy, */
    uint64_t bytes_storage;    /* the persistent tier */
    uint64_t newest_step;      /* newest step any rank had begun to keep, 0 if unknown: what was lost is its distance */
    double seconds;            /* from the call to the last byte in place */
    int resharded;             /* the version has another layout; it was read from the persistent tier */
    uint32_t saved_world_size; /* if so: of how many ranks, */
    uint32_t left_count;       /* and how many records and blobs of this rank were left as they are */
    const char *passed_over;   /* "", or which newer version, committed or published, is not the one that was restored,
                                  and why (damaged, no copy left, given up); valid until the next tck_restore or
                                  tck_detach */
} tck_restored_t;

/* Asked by tck_restore when the blobs have been restored (tck_get_blob) and before any record is written: 0 goes on,
 * anything else makes the restore fail on all ranks with TCK_ERR_LAYOUT, and nothing was changed but blobs. why_not
 * gets a text of at most cap bytes. It may call tck_get_blob alone. */
typedef int (*tck_check_t)(void *ctx, char *why_not, size_t cap);

/* After tck_register, and by every rank or by none. check NULL: nobody is asked. */
TCK_API TCK_MUST_CHECK tck_status_t tck_set_check(tck_client_t *client, tck_check_t check, void *ctx);

/* Puts the newest restorable version (step TCK_NEWEST) or the one of a given step into the registered memory.
 * Collective, of the same step on all ranks, at any time after tck_register. A term restores one version, before its
 * first save; a restore that comes later, or of another step, begins a new term by itself (as attach and register
 * would). From an older step a new line of history begins: what it commits counts as newer than all that was saved
 * before, whatever its step, and later steps of the old line are not mixed with it; until its first commit those that
 * are published are still what TCK_NEWEST means. The agents verify everything before any rank writes to the caller's
 * memory, and each rank verifies its part again right before it copies. Should that part have gone bad meanwhile, all
 * ranks try again in a new term; if that fails too, with TCK_ERR_CORRUPT or what the new term says, other ranks'
 * records may have been written. TCK_ERR_NOENT: nothing was ever committed, start fresh: all of save_dir and
 * load_dir was read, and no commit is noted anywhere. TCK_ERR_UNRECOVERABLE, TCK_ERR_LAYOUT: something was saved but
 * cannot be restored, and the text says why. TCK_ERR_IO, TCK_ERR_PROTO: something that is there, or may be, cannot be
 * read now, or not by this build, and no older version is taken in its place. Except in the case above nothing was
 * changed then. An older version is restored in place of one that is damaged or lost: passed_over says so.
 *
 * A version of another layout (other ranks, other sharding) is restored if it is published: each rank reads the parts
 * of its records from whatever files have them. Tensors must be the same by key, dtype and global shape; all of every
 * record must have been saved, and every tensor that was saved must be wanted by some rank; tck_set_reshard says what
 * becomes of each rank's own. All ranks first read and check all that they need, then agree, then read it again into
 * place, checked again: should storage fail only then, the restore fails with records in part written. A newer version
 * of another layout that only memory has is not passed over: TCK_ERR_LAYOUT, and the text says how to bring it to
 * storage. What is saved after it begins a new line, as after an older step; versions of the old layout stay until its
 * first commit. */
TCK_API TCK_MUST_CHECK tck_status_t tck_restore(tck_client_t *client, uint64_t step, tck_restored_t *restored_out);

/* ---- what it cost -------------------------------------------------------------------------------------------- */

typedef struct tck_stats {
    size_t struct_size; /* sizeof(tck_stats_t), set by the caller */
    uint64_t saves_started;
    uint64_t saves_copied;
    uint64_t saves_skipped; /* refused, or no agent */
    uint64_t bytes_copied;
    uint64_t stall_ns_last; /* time spent inside the save call and its fence, last snapshot */
    uint64_t stall_ns_max;
    uint64_t stall_ns_total;
    uint64_t committed_step; /* newest committed step of this term, 0 if none */
    uint64_t published_step; /* newest published step of this term, 0 if none */
    uint64_t segment_bytes;  /* memory the agent holds for this rank's shards */
    uint32_t page_bytes;     /* page size obtained for it */
} tck_stats_t;

TCK_API TCK_MUST_CHECK tck_status_t tck_stats(tck_client_t *client, tck_stats_t *stats_out);

/* ---- health ---------------------------------------------------------------------------------------------------- */

#define TCK_HEALTH_TEXT 512

typedef struct tck_health {
    size_t struct_size;        /* sizeof(tck_health_t), set by the caller */
    int agent_connected;       /* 0: nothing is saved at the moment; agent_text says why */
    int node_lost;             /* of this term: nothing commits; protection_text names it */
    tck_status_t storage;      /* TCK_OK: no trouble is known of; else storage_text names the path and the reason, */
    uint64_t storage_since_ms; /* since when (milliseconds since 1970), */
    uint64_t undrained_first;  /* first and newest step that did not come to storage since then, */
    uint64_t undrained_newest;
    uint64_t undrained_count; /* and how many; 0: something else failed */
    uint64_t shards_short;    /* shards of this term with fewer copies in distinct domains than configured */
    uint64_t copies_missing;  /* of the committed version, on this node, at the moment */
    char agent_text[TCK_HEALTH_TEXT], storage_text[TCK_HEALTH_TEXT], protection_text[TCK_HEALTH_TEXT]; /* or "" */
} tck_health_t;

/* What this rank knows of the state of its job, without asking anybody: it costs no system call and is allowed at any
 * time between attach and detach. Storage trouble of any node is known within a heartbeat, and ends when a later
 * version is published. */
TCK_API TCK_MUST_CHECK tck_status_t tck_health(tck_client_t *client, tck_health_t *health_out);

/* ---- published versions ---------------------------------------------------------------------------------------- */

/* What lies on storage, read without agents, by any program and with any number of ranks. Nothing here is collective or
 * needs a client. One published version is read by one thread at a time. Each byte that is handed out was checked
 * together with its chunk against the CRC in the version's manifest, and by the manifest every file is there with its
 * size: what a plain safetensors reader does not notice is an error here. Each error names file and reason. */
typedef struct tck_published tck_published_t;

typedef struct tck_open_params {
    size_t struct_size;      /* sizeof(tck_open_params_t) */
    const char *path;        /* a version's directory, wherever it was copied to; or NULL: looked for in save_dir and */
    const char *config_file; /* load_dir of this configuration, */
    const char *config_json; /* which is given as in tck_attach_params */
    uint64_t step;           /* TCK_NEWEST, or the newest version of this step; unused with a path */
} tck_open_params_t;

/* Opens a version, and reads the header of each of its files. TCK_NEWEST passes over what is damaged: has no valid
 * manifest, or lacks a file (tck_published_info says so). If the newest cannot be read, this is tried for about three
 * seconds, and then it is an error that names the file: no older one is taken in its place. On failure *published_out
 * is untouched and the text is in tck_published_errmsg(NULL). TCK_ERR_NOENT: nothing is published in directories that
 * could be read; one that does not exist is TCK_ERR_IO. TCK_ERR_TIMEDOUT: storage has not answered for
 * storage_timeout_ms (with a path its default); so says each call below that reads. What hangs is left to a thread of
 * the library's own, which writes to no memory of the caller. */
TCK_API TCK_MUST_CHECK tck_status_t tck_open_published(const tck_open_params_t *params,
                                                       tck_published_t **published_out);
TCK_API void tck_close_published(tck_published_t *published);

/* As tck_errmsg; NULL: of this thread's last failed tck_open_published. */
TCK_API const char *tck_published_errmsg(const tck_published_t *published);

typedef struct tck_published_info {
    size_t struct_size; /* sizeof(tck_published_info_t), set by the caller */
    tck_version_t version;
    const char *job;         /* this text and those below: valid until tck_close_published */
    const char *path;        /* of its directory */
    const char *passed_over; /* "", or the newest version that was passed over for this one, and why */
    uint64_t wall_ms;        /* when it was published, milliseconds since 1970 */
    uint64_t bytes;          /* of all files */
    uint64_t entry_count;
    uint32_t file_count;
    uint32_t world_size; /* of the job that saved it */
} tck_published_info_t;

TCK_API TCK_MUST_CHECK tck_status_t tck_published_info(tck_published_t *published, tck_published_info_t *info_out);

/* One piece of a tensor, or a blob, as a rank has saved it. */
typedef struct tck_entry {
    size_t struct_size; /* sizeof(tck_entry_t), set by the caller */
    const char *key;    /* this and file: valid until tck_close_published */
    const char *file;
    uint64_t bytes; /* of a blob: with its length before it and the room behind it, docs/formats.md */
    tck_dtype_t dtype;
    uint32_t ndim;
    uint64_t global_shape[TCK_MAX_NDIM], offset[TCK_MAX_NDIM], local_shape[TCK_MAX_NDIM]; /* as in tck_record_t */
    int blob;
    int rank; /* whose alone it was in the world that saved it; -1: a replica group's */
} tck_entry_t;

/* Entry number index, below entry_count. They are sorted by key, then by their place in the tensor; fillers are left
 * out, and what several groups have saved of the same piece stands once. */
TCK_API TCK_MUST_CHECK tck_status_t tck_published_entry(tck_published_t *published, uint64_t index,
                                                        tck_entry_t *entry_out);

/* Copies len of the entry's bytes, from byte first on. */
TCK_API TCK_MUST_CHECK tck_status_t tck_read_entry(tck_published_t *published, uint64_t index, uint64_t first,
                                                   uint64_t len, void *to);

/* A box of a whole tensor. */
typedef struct tck_box {
    size_t struct_size; /* sizeof(tck_box_t) */
    const char *key;
    tck_dtype_t dtype;
    uint32_t ndim;
    uint64_t global_shape[TCK_MAX_NDIM], offset[TCK_MAX_NDIM], local_shape[TCK_MAX_NDIM]; /* as in tck_record_t */
} tck_box_t;

/* Fills the box, contiguous in C order at to, from whatever entries have parts of it; only what is needed is read. No
 * conversion: dtype and global shape must be those saved. TCK_ERR_NOENT: nobody saved this tensor. TCK_ERR_LAYOUT: some
 * part of the box is in no entry, or several ranks have saved the same box as their own, so that it cannot be told
 * which is meant (tck_read_entry reads each). After such an error *to is unchanged; after one of reading it is in
 * part written, with checked bytes. */
TCK_API TCK_MUST_CHECK tck_status_t tck_read_box(tck_published_t *published, const tck_box_t *box, void *to);

/* The bytes of a blob: that of a rank of the world that saved it, or with rank -1 the one that there is.
 * TCK_ERR_LAYOUT: there are several of this key. *size_out is the whole size also if cap is smaller; then
 * TCK_ERR_NOSPC and nothing is copied. */
TCK_API TCK_MUST_CHECK tck_status_t tck_read_blob(tck_published_t *published, const char *key, int rank, void *data,
                                                  size_t cap, size_t *size_out);

/* ---- export -------------------------------------------------------------------------------------------------- */

typedef struct tck_export_params {
    size_t struct_size; /* sizeof(tck_export_params_t) */
    const tck_open_params_t *source;
    int from_memory;       /* not what is published: the newest version that the agents' memory has is published first,
                              as `tierckpt drain` does, and then exported. source has step TCK_NEWEST */
    const char *directory; /* that is made; its parent is there, it is not */
    uint64_t shard_bytes;  /* of tensors in one file, unless a single one has more; 0: one file */
    int convert;           /* not 0: F64, F32, F16 and BF16 tensors are written as */
    tck_dtype_t dtype;     /* one of these, rounded to the nearest, ties to even. Others stay as they are */
    const char *model_files; /* directory whose files go along (config.json, the tokenizer's), weights left out; or NULL
                              */
    const char *const *include; /* patterns as of a shell, NULL at the end, of the keys that are exported; NULL or
                                   empty: the model's weights, which are all tensors but each rank's own (rank<r>/...)
                                   and the optimizer's state (optimizer.<key of a tensor>.<...>) */
    const char *const *exclude; /* of those that are not; or NULL */
    const char *strip_prefix;   /* that a key loses if it begins so; or NULL */
    const char *add_prefix;     /* that each key gets then; or NULL */
} tck_export_params_t;

typedef struct tck_exported {
    size_t struct_size; /* sizeof(tck_exported_t), set by the caller */
    tck_version_t version;
    uint64_t tensor_count, file_count;
    uint64_t bytes; /* of the tensors */
} tck_exported_t;

/* Writes whole tensors as a Hugging Face checkpoint: model.safetensors, or several files and
 * model.safetensors.index.json. In bounded memory, whatever the model's size. The directory appears whole and synced,
 * or not at all; nothing is overwritten (TCK_ERR_EXIST). exported_out may be NULL. The text of an error is in
 * tck_published_errmsg(NULL). */
TCK_API TCK_MUST_CHECK tck_status_t tck_export(const tck_export_params_t *params, tck_exported_t *exported_out);

#ifdef __cplusplus
}
#endif
#endif
