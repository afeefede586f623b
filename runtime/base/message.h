/* SPDX-License-Identifier: Apache-2.0
 * What client, command and agent say to each other over the agent's socket (ipc.h). Encoders write a payload, decoders
 * are total. Requests carry a sequence number; the answer repeats it. It comes first in every payload but the JSON
 * ones, so struct msg_seq reads it from each. The format number stands in HELLO. */
#ifndef TCK_BASE_MESSAGE_H
#define TCK_BASE_MESSAGE_H

#include "base/secret.h"
#include "base/trouble.h"
#include "base/version.h"
#include "base/world.h"

/* Beside the socket: */
#define AGENT_ERROR_FILE  "agent.error"  /* while the agent does not start: why not */
#define AGENT_LOCK_FILE   "agent.lock"   /* held by the agent */
#define KEEPER_LOCK_FILE  "keeper.lock"  /* held by its keeper */
#define KEEPER_WAITS_FILE "keeper.waits" /* while its keeper waits for it to start: JSON */

#define MESSAGE_FORMAT     7
#define MESSAGE_SHARDS_MAX 4096 /* shards of one rank */
#define MESSAGE_SLOTS_MAX  16   /* slots of one shard; slot numbers are the receiver's to check */

enum message_type {
    /* client -> agent */
    MSG_HELLO = 1,    /* struct msg_hello                       -> MSG_WELCOME or MSG_ERROR */
    MSG_CLAIM_TERM,   /* struct msg_claim                       -> MSG_TERM (the claimed one) or MSG_ERROR */
    MSG_JOIN,         /* world without shards (world_encode)    -> MSG_OK or MSG_ERROR */
    MSG_REGISTER,     /* world with shards                      -> MSG_SEGMENTS or MSG_ERROR */
    MSG_SEGMENT_GET,  /* struct msg_segment_get                 -> MSG_SEGMENT with the data and meta fds */
    MSG_BEGIN,        /* struct msg_begin                       -> MSG_GRANT or MSG_REFUSED */
    MSG_SEAL,         /* struct msg_step                        no answer */
    MSG_ABANDON,      /* struct msg_step                        no answer */
    MSG_RESTORE,      /* struct msg_restore                     -> MSG_RESTORED or MSG_ERROR (may take long) */
    MSG_RESTORE_DONE, /* struct msg_step                        no answer: all ranks have their bytes */
    MSG_QUERY,        /* struct msg_seq                         -> MSG_VERSION or MSG_ERROR */
    MSG_DETACH,       /* struct msg_detach                      -> MSG_OK */
    MSG_CONTROL,      /* JSON text, of the command              -> MSG_CONTROL_REPLY, JSON text */
    MSG_ROOTS,        /* struct msg_roots                       no answer: before SEAL, if devices make digests */
    /* agent -> client */
    MSG_WELCOME = 64,
    MSG_TERM,
    MSG_OK,    /* struct msg_term: the client's */
    MSG_ERROR, /* struct msg_error */
    MSG_SEGMENTS,
    MSG_SEGMENT,
    MSG_GRANT,
    MSG_REFUSED, /* struct msg_error */
    MSG_RESTORED,
    MSG_VERSION,
    MSG_CONTROL_REPLY,
};

/* The trainer that has claimed a term. */
struct claimer {
    char node[CONFIG_NAME];
    uint32_t pid;
    uint64_t wall_ms;
};

/* Shared page between one client and its agent (fd in MSG_WELCOME): read and written without a system call, all fields
 * with atomic loads and stores (relaxed for counters, release/acquire for targets). */
struct board {
    /* written by the agent */
    _Atomic uint64_t mem_interval_steps; /* 0: not by steps */
    _Atomic uint64_t storage_interval_steps;
    _Atomic uint64_t interval_from_step; /* the two above count from this step on; before it the former ones */
    _Atomic uint64_t mem_target_step;    /* save at exactly this step too (intervals in seconds); 0: none */
    _Atomic uint64_t storage_target_step;
    _Atomic uint64_t protected_step; /* newest of this node in this term */
    _Atomic uint64_t committed_step;
    _Atomic uint64_t published_step;
    _Atomic uint64_t failed_step; /* newest refused or aborted */
    _Atomic uint64_t lost_node;   /* 1 + its number in the world: without it nothing commits; 0: none is known of */
    _Atomic uint64_t agent_beat;  /* grows while the agent's loop turns */
    _Atomic uint64_t over_term;   /* a newer term than this trainer's: it can save nothing any more; 0: none */
    _Atomic uint32_t over_told;   /* 1: by whom that term was claimed stands in over_by; written once, before this */
    struct claimer over_by;
    /* written by the client */
    _Atomic uint64_t current_step;
    _Atomic uint64_t step_ns; /* smoothed time of a step */
    /* written by the agent, too */
    _Atomic uint64_t shards_short;   /* shards of this term with fewer copies in distinct domains than configured */
    _Atomic uint64_t copies_missing; /* of the committed version, on this node */
    struct trouble_board storage_trouble;
    _Atomic uint64_t decided_below; /* every lower step of this term is decided; written after the steps above */
};

struct msg_seq {
    uint32_t seq;
};

struct msg_hello {
    uint32_t seq, format, rank, world_size, pid;
    char job[CONFIG_NAME];
    bool returning;           /* this client knew this agent before it restarted */
    uint64_t term;            /* of its world, if returning */
    uint8_t proof[MAC_BYTES]; /* secret_mac(secret, "client", job) if the config names a token_file, else zeros */
    char run_id[CONFIG_RUN];
    bool takeover;
    uint32_t settings_len;
    const char *settings; /* config_settings as text, no NUL; in the decoder's payload */
};

struct msg_welcome {
    uint32_t seq, format;
    struct rank_hello hello; /* what the rank passes on in the allgather */
};

struct msg_term {
    uint32_t seq;
    uint64_t term;
};

/* An agent of the world that is about to be formed. */
struct claim_agent {
    char node[CONFIG_NAME];
    uint64_t agent_id;
};

struct msg_claim {
    uint32_t seq, count;
    uint64_t at_least;          /* the term to claim */
    uint64_t after;             /* the claimer's own term, and none but this may have been the last; 0: it starts */
    struct claim_agent *agents; /* freed by the receiver */
};

struct msg_world {
    uint32_t seq;
    struct world world; /* freed by the receiver */
    uint32_t rank;
    bool will_ask; /* REGISTER: the term was formed to restore a given step, which this rank asks for next */
};

/* Where the slots of one shard lie. The data fd holds slot_count images at slot_stride; see MSG_SEGMENT_GET. */
struct msg_segment {
    struct hash128 shard;
    uint64_t slot_stride;
    uint32_t slot_count;
    uint32_t page_bytes;
    bool stored_here; /* false: another rank of this node stores this shard, this rank copies nothing for it */
};

struct msg_segments {
    uint32_t seq, count;
    struct msg_segment *segments; /* sorted by shard; freed by the receiver */
};

struct msg_segment_get {
    uint32_t seq;
    struct hash128 shard;
};

struct msg_begin {
    uint32_t seq;
    uint64_t step;
    bool to_storage;
};

/* Slot of each shard that is stored_here, in the order of msg_segments. */
struct msg_grant {
    uint32_t seq, count;
    uint64_t step;
    uint32_t *slots; /* freed by the receiver */
};

struct msg_step {
    uint32_t seq;
    uint64_t step;
};

/* What the slots will have when all is copied, told as soon as it is known: no promise that they will. */
struct msg_roots {
    uint32_t seq, count;
    uint64_t step;
    struct msg_root {
        struct hash128 shard, root;
    } * roots; /* freed by the receiver */
};

struct msg_restore {
    uint32_t seq;
    uint64_t step; /* TCK_NEWEST or a given one */
    bool may_lack; /* answered also if this node lacks shards that another one has; else when it has them */
    char failed[ERROR_TEXT_BYTES]; /* "", or why the ranks could not pass them to each other: for the log */
};

struct restored_shard {
    uint32_t slot;       /* NONE32: not here, but with a twin; only if the rank may lack some */
    uint8_t source;      /* enum source_kind */
    struct hash128 root; /* of what is in the slot */
};

/* The slot of each shard of the rank, in the order of msg_segments (stored_here or not); verified and pinned. With
 * other_layout none: the rank reads what it needs from the published version. */
struct msg_restored {
    uint32_t seq, count;
    struct version version;
    uint64_t newest_step;
    bool other_layout;
    char passed_over[PASSED_TEXT_BYTES]; /* "", or which newer version is not restored, and why */
    struct restored_shard *shards;       /* freed by the receiver */
};

struct msg_version {
    uint32_t seq;
    struct version version;
};

struct msg_detach {
    uint32_t seq;
    bool job_done;
    bool last_failed; /* the last step did not come to storage: memory is kept all the same */
};

struct msg_error {
    uint32_t seq;
    struct error error;
};

/* One pair per struct; encode appends to a writer, decode fails with TCK_ERR_PROTO on anything malformed, another
 * format number included, and writes out on success only. msg_seq_decode alone ignores what follows. */
#define MESSAGE_CODEC(name)                                                 \
    void msg_##name##_encode(const struct msg_##name *m, struct writer *w); \
    must_check tck_status_t msg_##name##_decode(const void *payload, size_t len, struct msg_##name *out)
MESSAGE_CODEC(seq);
MESSAGE_CODEC(hello);
MESSAGE_CODEC(welcome);
MESSAGE_CODEC(term);
MESSAGE_CODEC(claim);
MESSAGE_CODEC(world);
MESSAGE_CODEC(segments);
MESSAGE_CODEC(segment_get);
MESSAGE_CODEC(begin);
MESSAGE_CODEC(grant);
MESSAGE_CODEC(step);
MESSAGE_CODEC(roots);
MESSAGE_CODEC(restore);
MESSAGE_CODEC(restored);
MESSAGE_CODEC(version);
MESSAGE_CODEC(detach);
MESSAGE_CODEC(error);
#undef MESSAGE_CODEC
/* What stands at the same place in HELLO of every format. False: it is none of any. */
must_check bool msg_hello_format(const void *payload, size_t len, uint32_t *seq_out, uint32_t *format_out);

#endif
