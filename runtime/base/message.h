/* SPDX-License-Identifier: Apache-2.0
 * The messages between client, command and agent over the agent's socket (ipc.h). Encoders write a payload, decoders
 * accept any bytes. Requests carry a sequence number; the answer repeats it. It comes first in every payload except
 * JSON, so struct msg_seq can read it from each of them. The format number is in HELLO. */
#ifndef TCK_BASE_MESSAGE_H
#define TCK_BASE_MESSAGE_H

#include "base/schema.h"
#include "base/secret.h"
#include "base/stall.h"
#include "base/trouble.h"
#include "base/world.h"

/* Files beside the socket: */
#define AGENT_ERROR_FILE      "agent.error"      /* why the agent does not start, as long as it does not */
#define AGENT_LOCK_FILE       "agent.lock"       /* held by the agent */
#define SUPERVISOR_LOCK_FILE  "supervisor.lock"  /* held by its supervisor */
#define SUPERVISOR_WAITS_FILE "supervisor.waits" /* while its supervisor waits for it to start: JSON */

#define MESSAGE_FORMAT     11
#define MESSAGE_SHARDS_MAX 4096       /* shards of one rank */
#define MESSAGE_CHUNKS_MAX (1u << 24) /* of all of them: 64 TiB */
#define MESSAGE_SLOTS_MAX  16         /* slots of one shard; the receiver checks slot numbers */

enum message_type {
    /* client -> agent */
    MSG_HELLO = 1,    /* struct msg_hello                       -> MSG_WELCOME or MSG_ERROR */
    MSG_CLAIM_TERM,   /* struct msg_claim                       -> MSG_TERM (the claimed one) or MSG_ERROR */
    MSG_JOIN,         /* struct msg_world, without shards        -> MSG_OK or MSG_ERROR */
    MSG_REGISTER,     /* struct msg_world, with shards           -> MSG_SEGMENTS or MSG_ERROR */
    MSG_SEGMENT_GET,  /* struct msg_segment_get                 -> MSG_SEGMENT with the data and meta fds */
    MSG_BEGIN,        /* struct msg_begin                       -> MSG_GRANT or MSG_REFUSED */
    MSG_SEAL,         /* struct msg_step                        no answer */
    MSG_ABANDON,      /* struct msg_step                        no answer */
    MSG_RESTORE,      /* struct msg_restore                     -> MSG_RESTORED or MSG_ERROR (may take long) */
    MSG_RESTORE_DONE, /* struct msg_step                        no answer: all ranks have their bytes */
    MSG_QUERY,        /* struct msg_seq                         -> MSG_VERSION or MSG_ERROR */
    MSG_DETACH,       /* struct msg_detach                      -> MSG_OK */
    MSG_CONTROL,      /* JSON text, of the command              -> MSG_CONTROL_REPLY, JSON text */
    MSG_ROOTS,        /* struct msg_roots no answer; sent before SEAL if devices compute digests */
    /* agent -> client */
    MSG_WELCOME = 64,  /* struct msg_welcome, with the board's fd */
    MSG_TERM,          /* struct msg_term */
    MSG_OK,            /* struct msg_term: the client's */
    MSG_ERROR,         /* struct msg_error */
    MSG_SEGMENTS,      /* struct msg_segments */
    MSG_SEGMENT,       /* struct msg_segment_get, with two fds */
    MSG_GRANT,         /* struct msg_grant */
    MSG_REFUSED,       /* struct msg_error */
    MSG_RESTORED,      /* struct msg_restored */
    MSG_VERSION,       /* struct msg_version */
    MSG_CONTROL_REPLY, /* JSON text */
};

/* The trainer that has claimed a term. */
struct claimer {
    char node[CONFIG_NAME];
    uint32_t pid;
    uint64_t wall_ms;
};

/* Shared page between one client and its agent (fd in MSG_WELCOME): read and written without a system call, all fields
 * with atomic loads and stores (relaxed for counters, release/acquire for targets). */
struct shared_status {
    /* written by the agent */
    _Atomic uint64_t mem_interval_steps; /* 0: not by steps */
    _Atomic uint64_t storage_interval_steps;
    _Atomic uint64_t interval_from_step; /* the two above apply from this step on, the previous ones before it */
    _Atomic uint64_t mem_target_step;    /* save at exactly this step too (intervals in seconds); 0: none */
    _Atomic uint64_t storage_target_step;
    _Atomic uint64_t protected_step; /* newest of this node in this term */
    _Atomic uint64_t committed_step;
    _Atomic uint64_t published_step;
    _Atomic uint64_t failed_step; /* newest refused or aborted */
    _Atomic uint64_t lost_node;   /* 1 + the number in the world of a lost node, without which nothing commits; 0:
                                     none is known */
    _Atomic uint64_t agent_beat;  /* grows while the agent's loop turns */
    _Atomic uint64_t over_term;   /* a newer term than this trainer's, which can no longer save; 0: none */
    _Atomic uint32_t over_told;   /* 1: over_by says who claimed that term; it is written once, before this */
    struct claimer over_by;
    /* written by the client */
    _Atomic uint64_t current_step;
    _Atomic uint64_t step_ns; /* smoothed time of a step */
    /* also written by the agent */
    _Atomic uint64_t shards_short;   /* shards of this term with fewer copies in distinct domains than configured */
    _Atomic uint64_t copies_missing; /* of the committed version, on this node */
    struct shared_trouble storage_trouble;
    _Atomic uint64_t decided_below; /* every lower step of this term is decided; written after the steps above */
    /* also written by the client */
    struct stall_board stalls;   /* since it has this page */
    _Atomic uint64_t step_at_ns; /* clock_ns when current_step ended; written before current_step */
    /* also written by the agent, while this trainer waits for memory or a restore: */
    _Atomic uint64_t work_done_bytes, work_total_bytes; /* of this node; total 0: not known */
    _Atomic uint64_t work_moved_ms;                     /* clock_ms when something moved last; 0: not known */
};

/* ---- what each message holds (schema.h) ---------------------------------------------------------------------- */

#define HELLO_FIELDS(F)                                                                  \
    F(u32, seq)                                                                          \
    F(u32, format)                                                                       \
    F(u32, rank)                                                                         \
    F(u32, world_size)                                                                   \
    F(u32, pid)                                                                          \
    F(str, job, CONFIG_NAME)                                                             \
    F(bool, returning) /* this client knew this agent before it restarted */             \
    F(u64, term)       /* of its world, if returning */                                  \
    /* secret_mac(secret, "client", job) if the config names a token_file, else zeros */ \
    F(bytes, proof, MAC_BYTES)                                                           \
    F(str, run_id, CONFIG_RUN)                                                           \
    F(bool, takeover)                                                                    \
    F(view, u32, settings_len, char, settings) /* config_settings as text, no NUL */

#define WELCOME_FIELDS(F) \
    F(u32, seq)           \
    F(u32, format)        \
    F(part, rank_hello, hello) /* what the rank passes on in the allgather */

#define TERM_FIELDS(F) \
    F(u32, seq)        \
    F(u64, term)

/* An agent of the world that is about to be formed. */
#define CLAIM_AGENT_FIELDS(F) \
    F(str, node, CONFIG_NAME) \
    F(u64, agent_id)

#define CLAIM_FIELDS(F)                                                                                 \
    F(u32, seq)                                                                                         \
    F(u64, at_least) /* the term to claim */                                                            \
    F(u64, after)    /* the claimer's own term, which must be the newest one; 0: it is just starting */ \
    F(list, claim_agent, agents, count, WORLD_RANKS_MAX)

#define WORLD_FIELDS(F)                                                                        \
    F(u32, seq)                                                                                \
    F(u32, rank)                                                                               \
    F(owned, world, world)                                                                     \
    /* REGISTER: the term was formed to restore a given step, which this rank asks for next */ \
    F(bool, will_ask)

/* Where the slots of one shard lie. The data fd holds slot_count images at slot_stride; see MSG_SEGMENT_GET. */
#define SEGMENT_FIELDS(F) \
    F(hash128, shard)     \
    F(u64, slot_stride)   \
    F(u32, slot_count)    \
    F(u32, page_bytes)    \
    F(bool, stored_here) /* false: another rank of this node stores this shard, this one copies nothing for it */

#define SEGMENTS_FIELDS(F) \
    F(u32, seq)            \
    F(list, msg_segment, segments, count, MESSAGE_SHARDS_MAX) /* sorted by shard */

#define SEGMENT_GET_FIELDS(F) \
    F(u32, seq)               \
    F(hash128, shard)

#define BEGIN_FIELDS(F) \
    F(u32, seq)         \
    F(u64, step)        \
    F(bool, to_storage) \
    F(bool, last) /* no step follows: refused with NOSPC while there is no room, and then requested again */

#define GRANT_FIELDS(F) \
    F(u32, seq)         \
    F(u64, step)        \
    F(numbers, slots, count, MESSAGE_SHARDS_MAX) /* of each shard that is stored_here, in the order of msg_segments */

#define STEP_FIELDS(F) \
    F(u32, seq)        \
    F(u64, step)

#define ROOT_FIELDS(F) \
    F(hash128, shard)  \
    F(hash128, root)

/* The roots that the slots will have once everything is copied. Sent as soon as they are known; it does not promise
 * that the copies succeed. */
#define ROOTS_FIELDS(F) \
    F(u32, seq)         \
    F(u64, step)        \
    F(list, msg_root, roots, count, MESSAGE_SHARDS_MAX)

#define RESTORE_FIELDS(F)                                                                                           \
    F(u32, seq)                                                                                                     \
    F(u64, step) /* TCK_NEWEST or a given one */                                                                    \
    F(bool,                                                                                                         \
      may_lack) /* 1: answered even if this node lacks shards that another one has; 0: answered when it has them */ \
    F(str, failed, ERROR_TEXT_BYTES) /* "", or why the ranks could not pass them to each other: for the log */

#define RESTORED_SHARD_FIELDS(F)                                                                  \
    F(u32, slot)     /* NONE32: not here, but on a twin's node; only if the rank may lack some */ \
    F(u8, source)    /* enum source_kind */                                                       \
    F(hash128, root) /* of what is in the slot */

/* The slot of each shard of the rank, in the order of msg_segments (stored_here or not); verified and pinned. With
 * other_layout there are none: the rank reads what it needs from the published version. */
#define RESTORED_FIELDS(F)                                                                           \
    F(u32, seq)                                                                                      \
    F(version, version)                                                                              \
    F(u64, newest_step)                                                                              \
    F(bool, other_layout)                                                                            \
    F(str, passed_over, PASSED_TEXT_BYTES) /* "", or which newer version is not restored, and why */ \
    F(list, restored_shard, shards, count, MESSAGE_SHARDS_MAX)                                       \
    F(numbers, crcs, crc_count, MESSAGE_CHUNKS_MAX) /* of all chunks of each shard that is here */

#define VERSION_FIELDS(F) \
    F(u32, seq)           \
    F(version, version)

#define DETACH_FIELDS(F) \
    F(u32, seq)          \
    F(bool, job_done)    \
    F(bool, last_failed) /* the last step did not reach storage, so the memory is kept after all */

#define ERROR_FIELDS(F) \
    F(u32, seq)         \
    F(error, error)

/* M(name, fields, what must hold): struct msg_name with msg_name_encode, msg_name_decode and msg_name_free. Another
 * format number does not decode. */
#define MESSAGES(M)                                   \
    M(hello, HELLO_FIELDS, hello_is_valid)            \
    M(welcome, WELCOME_FIELDS, welcome_is_valid)      \
    M(term, TERM_FIELDS, schema_any)                  \
    M(world, WORLD_FIELDS, world_is_valid)            \
    M(segments, SEGMENTS_FIELDS, segments_are_sorted) \
    M(segment_get, SEGMENT_GET_FIELDS, schema_any)    \
    M(begin, BEGIN_FIELDS, schema_any)                \
    M(grant, GRANT_FIELDS, schema_any)                \
    M(step, STEP_FIELDS, schema_any)                  \
    M(restore, RESTORE_FIELDS, schema_any)            \
    M(restored, RESTORED_FIELDS, schema_any)          \
    M(version, VERSION_FIELDS, schema_any)            \
    M(detach, DETACH_FIELDS, schema_any)              \
    M(error, ERROR_FIELDS, schema_any)                \
    M(roots, ROOTS_FIELDS, schema_any)                \
    M(claim, CLAIM_FIELDS, schema_any)

SCHEMA_STRUCT(claim_agent, CLAIM_AGENT_FIELDS)
SCHEMA_STRUCT(msg_segment, SEGMENT_FIELDS)
SCHEMA_STRUCT(msg_root, ROOT_FIELDS)
SCHEMA_STRUCT(restored_shard, RESTORED_SHARD_FIELDS)
#define MESSAGE_DECLARE(name, FIELDS, is_valid) \
    SCHEMA_STRUCT(msg_##name, FIELDS)           \
    SCHEMA_DECLARE(msg_##name)
MESSAGES(MESSAGE_DECLARE)
#undef MESSAGE_DECLARE

/* What every message begins with; the decoder ignores the rest. */
struct msg_seq {
    uint32_t seq;
};
void msg_seq_encode(const struct msg_seq *m, struct writer *w);
must_check tck_status_t msg_seq_decode(const void *payload, size_t len, struct msg_seq *out);
/* A struct msg_world, with the world still encoded: every rank of a term sends the same bytes. */
struct msg_world_parts {
    uint32_t seq, rank;
    bool will_ask;
    const void *world; /* in the message */
    size_t world_len;
};
/* False: it is too short. The world is not checked. */
must_check bool msg_world_parts(const void *data, size_t len, struct msg_world_parts *out);

/* The fields that are at the same place in the HELLO of every format. False: it is not a HELLO of any format. */
must_check bool msg_hello_format(const void *payload, size_t len, uint32_t *seq_out, uint32_t *format_out);

#endif
