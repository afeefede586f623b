/* SPDX-License-Identifier: Apache-2.0
 * The messages between agents over an authenticated peer session (tiers/peer.h), except heartbeats and transfers. Each
 * message begins with the sender's term. */
#ifndef TCK_AGENT_WIRE_H
#define TCK_AGENT_WIRE_H

#include "base/message.h"
#include "core/changes.h"
#include "core/protocol.h"
#include "tiers/manifest.h"

#define WIRE_SHARDS_MAX (1u << 20)
#define WIRE_KNOWN_MAX  65536u

enum wire_type {
    WIRE_BEAT = 1,      /* struct wire_beat: also sent at once when the decision changes */
    WIRE_REGISTERED,    /* struct wire_note: this node has allocated its memory and is ready to recover */
    WIRE_READY,         /* struct wire_ready, to the coordinator */
    WIRE_REFUSED,       /* struct wire_refused, to the coordinator */
    WIRE_DRAINED,       /* struct wire_drained, to the coordinator */
    WIRE_INVENTORY_ASK, /* struct wire_ask: the receiver adopts the term and sends its inventory */
    WIRE_INVENTORY,     /* struct wire_inventory */
    WIRE_FETCH,         /* struct wire_fetch, from the coordinator */
    WIRE_FETCHED,       /* struct wire_fetched, to the coordinator */
    WIRE_RESTORE_ASK,   /* struct wire_ask: a trainer asks for a step */
    WIRE_READABLE,      /* struct wire_readable, from the coordinator */
    WIRE_STALE,         /* struct wire_note: the sender has adopted this newer term */
    WIRE_CHANGE,        /* struct wire_change: a setting, to the coordinator */
    WIRE_DRAIN_ASK,     /* struct wire_note, to the coordinator */
    WIRE_GONE,          /* struct wire_note: the sender has restarted without its state since that term was formed */
    WIRE_ROOTS,         /* struct wire_roots, to the coordinator: ahead of READY, which repeats them */
    WIRE_HOLDER_ASK,    /* struct wire_holder_ask: would trainers of the receiver lose their job? */
    WIRE_HOLDER,        /* struct wire_holder, the answer */
    WIRE_STOP,          /* struct wire_note: exit unless trainers run there; the coordinator forwards it */
    WIRE_STOP_NOW,      /* struct wire_note: exit in any case */
    WIRE_TERM_ASK,      /* struct wire_term_ask: requests a term that the receiver has reserved */
    WIRE_TERM_GRANT,    /* struct wire_term_grant, the answer */
    WIRE_ARCHIVED,      /* struct wire_archived, to the coordinator */
    WIRE_PROGRESS,      /* struct wire_progress, to the coordinator */
};

/* ---- what each message holds (base/schema.h) ----------------------------------------------------------------- */

/* Part of every heartbeat. Settings count in the coordinator's beats only. */
#define BEAT_FIELDS(F)                                                      \
    F(u64, term)                                                            \
    F(bool, from_coordinator)                                               \
    F(optional, decision, decision)                                         \
    F(u64, mem_steps) /* intervals in force */                              \
    F(u64, storage_steps)                                                   \
    F(u64, from_step)  /* from that step on */                              \
    F(u64, mem_target) /* steps to save at when intervals are in seconds */ \
    F(u64, storage_target)                                                  \
    F(u8, on_node_loss)                                                     \
    F(part, trouble, storage_trouble) /* the coordinator's */               \
    F(part, changes, changes)                                               \
    F(version, archive) /* the coordinator's: to be copied to archive_dir */

#define NOTE_FIELDS(F) F(u64, term)

/* Roots of the shards that have twins on other nodes: equal while data-parallel ranks agree. */
#define WIRE_ROOT_FIELDS(F) \
    F(u32, shard)           \
    F(hash128, root)

#define READY_FIELDS(F) \
    F(u64, term)        \
    F(version, version) \
    F(hash128, layout)  \
    F(bool, to_storage) \
    F(list, wire_root, roots, count, WIRE_SHARDS_MAX)

#define WIRE_ROOTS_FIELDS(F) \
    F(u64, term)             \
    F(version, version)      \
    F(list, wire_root, roots, count, WIRE_SHARDS_MAX)

#define REFUSED_FIELDS(F) \
    F(u64, term)          \
    F(version, version)   \
    F(u8, refusal)

#define DRAINED_FIELDS(F)                        \
    F(u64, term)                                 \
    F(version, version)                          \
    F(u64, attempt)                              \
    F(bool, ok)                                  \
    F(str, why, TROUBLE_TEXT) /* of a failure */ \
    F(owners, manifest_file, files, count, WIRE_SHARDS_MAX)

#define ASK_FIELDS(F)                                                  \
    F(u64, term)                                                       \
    F(u64, asking) /* number of the request, repeated in the answer */ \
    F(u64, step)                                                       \
    F(bool, dry) /* INVENTORY_ASK: list what a later term could use, which may be more than this term can */

#define INVENTORY_FIELDS(F)                                                                                         \
    F(u64, term)                                                                                                    \
    F(u64, asking)                                                                                                  \
    F(list, known_node, known, known_count, WIRE_KNOWN_MAX) /* agents of earlier terms that the sender remembers */ \
    F(view, u64, inventory_len, void, inventory)            /* encoded */

#define FETCH_FIELDS(F)                                                      \
    F(u64, term)                                                             \
    F(u32, shard) /* world index */                                          \
    F(version, version)                                                      \
    F(version, floor)    /* never given up for it: struct recovery_spared */ \
    F(version, fallback) /* given up last */                                 \
    F(u8, source)        /* enum source_kind */                              \
    F(part, node_info, from)                                                 \
    F(u64, number) /* of the request: its answer has the same, also if it is repeated */

#define FETCHED_FIELDS(F)              \
    F(u64, term)                       \
    F(u32, shard)                      \
    F(version, version)                \
    F(i32, outcome) /* tck_status_t */ \
    F(str, reason, ERROR_TEXT_BYTES)   \
    F(u64, number) /* of the request */

#define READABLE_FIELDS(F)                                                  \
    F(u64, term)                                                            \
    F(u64, asked_step)                                                      \
    F(i32, outcome) /* TCK_OK, TCK_ERR_NOENT, TCK_ERR_UNRECOVERABLE, ... */ \
    F(version, version)                                                     \
    F(u64, newest_step)                                                     \
    F(str, reason, ERROR_TEXT_BYTES)                                        \
    F(str, passed_over, PASSED_TEXT_BYTES) /* "", or which newer version was passed over, and why */

#define CHANGE_FIELDS(F)     \
    F(u64, term)             \
    F(str, key, CONFIG_NAME) \
    F(str, value, CONFIG_NAME)

#define HOLDER_ASK_FIELDS(F)                                           \
    F(u64, term)   /* oldest that may still be in use */               \
    F(u64, asking) /* number of the request, repeated in the answer */ \
    F(str, run_id, CONFIG_RUN)                                         \
    F(u64, at_least) /* term that the start wants */

#define HOLDER_FIELDS(F)                                \
    F(u64, term) /* of the trainer, or the asked one */ \
    F(u64, asking)                                      \
    F(bool, held)                                       \
    F(u32, rank) /* of one such trainer */              \
    F(u32, world_size)                                  \
    F(u32, pid)                                         \
    F(u64, adopted) /* by the agent that answers */     \
    F(u64, offer)   /* term that it has reserved, and would grant; 0: none */

#define TERM_ASK_FIELDS(F) \
    F(u64, at_least)       \
    F(u64, asking)         \
    F(u64, adopted) /* as in the receiver's last struct wire_holder */

#define TERM_GRANT_FIELDS(F)                                                      \
    F(u64, term) /* 0: not granted */                                             \
    F(u64, asking)                                                                \
    F(u64, last)    /* of the reservation, which is the receiver's from now on */ \
    F(u64, follows) /* as in struct grant */

#define ARCHIVED_FIELDS(F)                                                             \
    F(u64, term)                                                                       \
    F(version, version)                                                                \
    F(bool, ok)               /* all files that this node drains are in archive_dir */ \
    F(str, why, TROUBLE_TEXT) /* of a failure */

/* Something of an undecided version has moved on the sender's node. */
#define PROGRESS_FIELDS(F) \
    F(u64, term)           \
    F(version, version)

/* M(name, fields, what must hold): struct wire_name with wire_name_encode, wire_name_decode and wire_name_free. */
#define WIRE_MESSAGES(M)                         \
    M(ready, READY_FIELDS, schema_any)           \
    M(drained, DRAINED_FIELDS, schema_any)       \
    M(inventory, INVENTORY_FIELDS, schema_any)   \
    M(beat, BEAT_FIELDS, beat_is_valid)          \
    M(fetch, FETCH_FIELDS, fetch_is_valid)       \
    M(readable, READABLE_FIELDS, schema_any)     \
    M(change, CHANGE_FIELDS, schema_any)         \
    M(roots, WIRE_ROOTS_FIELDS, schema_any)      \
    M(note, NOTE_FIELDS, schema_any)             \
    M(refused, REFUSED_FIELDS, schema_any)       \
    M(ask, ASK_FIELDS, schema_any)               \
    M(fetched, FETCHED_FIELDS, schema_any)       \
    M(holder_ask, HOLDER_ASK_FIELDS, schema_any) \
    M(holder, HOLDER_FIELDS, schema_any)         \
    M(term_ask, TERM_ASK_FIELDS, schema_any)     \
    M(term_grant, TERM_GRANT_FIELDS, schema_any) \
    M(archived, ARCHIVED_FIELDS, schema_any)     \
    M(progress, PROGRESS_FIELDS, schema_any)

SCHEMA_STRUCT(wire_root, WIRE_ROOT_FIELDS)
#define WIRE_DECLARE(name, FIELDS, is_valid) \
    SCHEMA_STRUCT(wire_##name, FIELDS)       \
    SCHEMA_DECLARE(wire_##name)
WIRE_MESSAGES(WIRE_DECLARE)
#undef WIRE_DECLARE

#endif
