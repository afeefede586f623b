/* SPDX-License-Identifier: Apache-2.0
 * What agents say to each other over an authenticated peer session (tiers/peer.h), besides heartbeats and transfers.
 * Encode and decode stand side by side; decoders are total. Each message begins with the sender's term. */
#ifndef TCK_AGENT_WIRE_H
#define TCK_AGENT_WIRE_H

#include "base/message.h"
#include "core/protocol.h"
#include "tiers/manifest.h"

enum wire_type {
    WIRE_BEAT = 1,      /* struct wire_beat: also sent at once when the decision changes */
    WIRE_REGISTERED,    /* struct wire_note: this node has its memory and is ready to recover */
    WIRE_READY,         /* struct wire_ready, to the coordinator */
    WIRE_REFUSED,       /* struct wire_refused, to the coordinator */
    WIRE_DRAINED,       /* struct wire_drained, to the coordinator */
    WIRE_INVENTORY_ASK, /* struct wire_ask: adopt the term, tell what you hold */
    WIRE_INVENTORY,     /* struct wire_inventory */
    WIRE_FETCH,         /* struct wire_fetch, from the coordinator */
    WIRE_FETCHED,       /* struct wire_fetched, to the coordinator */
    WIRE_RESTORE_ASK,   /* struct wire_ask: a trainer asks for a step */
    WIRE_READABLE,      /* struct wire_readable, from the coordinator */
    WIRE_STALE,         /* struct wire_note: the sender has adopted this newer term */
    WIRE_CHANGE,        /* struct wire_change: a setting, to the coordinator */
    WIRE_DRAIN_ASK,     /* struct wire_note, to the coordinator */
    WIRE_GONE,          /* struct wire_note: the sender began anew on its node since that term was formed */
    WIRE_ROOTS,         /* struct wire_roots, to the coordinator: ahead of READY, which then says the same */
    WIRE_HOLDER_ASK,    /* struct wire_holder_ask: do trainers live there that would lose their job? */
    WIRE_HOLDER,        /* struct wire_holder, the answer */
    WIRE_STOP,          /* struct wire_note: leave, unless trainers live there; the coordinator passes it on */
    WIRE_STOP_NOW,      /* struct wire_note: leave */
};

/* Rides on every heartbeat. Settings count in the coordinator's beats only. */
struct wire_beat {
    uint64_t term;
    bool from_coordinator;
    struct decision decision;
    uint64_t mem_steps, storage_steps, from_step; /* intervals in force from that step on */
    uint64_t mem_target, storage_target;          /* steps to save at when intervals are in seconds */
    uint8_t on_node_loss;
    struct trouble storage_trouble; /* the coordinator's */
};
#define WIRE_BEAT_MAX 1024

struct wire_note {
    uint64_t term;
};

/* Roots of the shards that have twins on other nodes: equal while data-parallel ranks agree. */
struct wire_root {
    uint32_t shard;
    struct hash128 root;
};

struct wire_ready {
    uint64_t term;
    struct version version;
    struct hash128 layout;
    bool to_storage;
    uint32_t count;
    struct wire_root *roots; /* freed by the receiver */
};

struct wire_roots {
    uint64_t term;
    struct version version;
    uint32_t count;
    struct wire_root *roots; /* freed by the receiver */
};

struct wire_refused {
    uint64_t term;
    struct version version;
    uint8_t refusal;
};

struct wire_drained {
    uint64_t term;
    struct version version;
    uint64_t attempt;
    bool ok;
    char why[TROUBLE_TEXT]; /* not */
    uint32_t count;
    struct manifest_file *files; /* freed by the receiver with wire_drained_free */
};

struct wire_ask {
    uint64_t term;
    uint64_t asking; /* number of the question, repeated in the answer */
    uint64_t step;
    bool dry; /* INVENTORY_ASK: of what a later term could take, which may be more than this one */
};

struct wire_inventory {
    uint64_t term;
    uint64_t asking;
    uint32_t known_count;
    struct known_node *known; /* agents of earlier terms that the sender remembers; freed by the receiver */
    size_t inventory_len;
    const void *inventory; /* encoded; a view into the message */
};

struct wire_fetch {
    uint64_t term;
    uint32_t shard; /* world index */
    struct version version;
    struct version floor;    /* newest commit that any inventory of this recovery knows of */
    struct version fallback; /* newest complete version before the one that is restored */
    uint8_t source;          /* enum source_kind */
    struct node_info from;
};

struct wire_fetched {
    uint64_t term;
    uint32_t shard;
    struct version version;
    int32_t outcome; /* tck_status_t */
    char reason[ERROR_TEXT_BYTES];
};

struct wire_readable {
    uint64_t term;
    uint64_t asked_step;
    int32_t outcome; /* TCK_OK, TCK_ERR_NOENT, TCK_ERR_UNRECOVERABLE, ... */
    struct version version;
    uint64_t newest_step;
    char reason[ERROR_TEXT_BYTES];
    char passed_over[PASSED_TEXT_BYTES]; /* "", or which newer version was passed over, and why */
};

struct wire_change {
    uint64_t term;
    char key[CONFIG_NAME];
    char value[CONFIG_NAME];
};

struct wire_holder_ask {
    uint64_t term;   /* oldest that may still be in use */
    uint64_t asking; /* number of the question, repeated in the answer */
    char run_id[CONFIG_RUN];
};

struct wire_holder {
    uint64_t term; /* of the trainer, or the asked one */
    uint64_t asking;
    bool held;
    uint32_t rank, world_size, pid; /* of one such trainer */
};

#define WIRE_CODEC(name)                                                      \
    void wire_##name##_encode(const struct wire_##name *m, struct writer *w); \
    must_check tck_status_t wire_##name##_decode(const void *data, size_t len, struct wire_##name *out)
WIRE_CODEC(beat);
WIRE_CODEC(note);
WIRE_CODEC(ready);
WIRE_CODEC(roots);
WIRE_CODEC(refused);
WIRE_CODEC(drained);
WIRE_CODEC(ask);
WIRE_CODEC(inventory);
WIRE_CODEC(fetch);
WIRE_CODEC(fetched);
WIRE_CODEC(readable);
WIRE_CODEC(change);
WIRE_CODEC(holder_ask);
WIRE_CODEC(holder);
#undef WIRE_CODEC

void wire_drained_free(struct wire_drained *m);

#endif
