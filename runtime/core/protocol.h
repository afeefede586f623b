/* SPDX-License-Identifier: Apache-2.0
 * What the protocol's machines (node.h, coordinator.h, term.h) consume and produce. Pure: plain structs, no I/O, no
 * clock, no allocation; the agent and the simulator feed events in and carry the actions out, in order, before the next
 * event. Nodes and shards are indices into the term's world (base/world.h).
 *
 * The protocol rests on one idea: the coordinator's whole decision state (struct decision) is small and is sent
 * repeatedly. Every message may be lost, duplicated, delayed or reordered; a node acts on the newest decision it has
 * seen. */
#ifndef TCK_CORE_PROTOCOL_H
#define TCK_CORE_PROTOCOL_H

#include "base/schema.h"

#define CORE_OPEN_MAX    8 /* undecided versions that the coordinator keeps open; one more aborts the oldest */
#define CORE_HOLDERS_MAX 4 /* replicas of one shard */
#define CORE_SLOTS_MAX   4 /* slots per shard */

/* The one decision state of a term. A version of this term is
 *   committed  if it is the watermark,
 *   undecided  if its step is in open[], or not below the horizon,
 *   over       otherwise: aborted, or committed once and superseded by the watermark.
 * A version of an older term is over once `based` is set or the watermark is of this term; only the watermark itself,
 * which may be of an older term (the base of a recovery), stays. With `base_lost` only the base is over: a recovery may
 * still need what was committed before it. A version that is committed or over never becomes undecided. */
#define DECISION_FIELDS(F)                                                                                             \
    F(u64, term)                                                                                                       \
    F(u64, seq) /* grows with every change; an older one is ignored */                                                 \
    /* the choice of what this term restores is final: the base, whichever node leads the recovery */                  \
    F(bool, readable)                                                                                                  \
    F(version, base)      /* VERSION_NONE: nothing, a fresh start */                                                   \
    F(bool, base_lost)    /* a shard of it has no good copy left, and it was not protected yet: its slots are free */  \
    F(bool, based)        /* recovery of this term is over: the watermark (if any) is protected again in this world */ \
    F(version, watermark) /* newest committed */                                                                       \
    F(u64, horizon)       /* one above the highest step reported in this term; 0: none was */                          \
    /* saves came too fast: no step below this one is begun, except those in open[]; 0: any may be begun */            \
    F(u64, not_before)                                                                                                 \
    F(few, open_count, CORE_OPEN_MAX, u64, open) /* ascending */                                                       \
    F(version, drain)     /* committed version being drained; VERSION_NONE: none. Its owners' slots stay */            \
    F(u64, drain_attempt) /* counts the drains of this term: tells two attempts at one version apart */                \
    F(bool, drain_wanted) /* another drain is due, of the newest commit, when this one has ended, or after a pause if  \
                             it has failed */                                                                          \
    F(version, published) /* newest one published in this term */
SCHEMA_STRUCT(decision, DECISION_FIELDS)
SCHEMA_DECLARE_PART(decision, DECISION_FIELDS)

/* There is no decision before a term has a coordinator. */
static inline bool decision_is_none(const struct decision *d)
{
    return d->term == 0;
}

enum fate {
    FATE_UNDECIDED,
    FATE_COMMITTED,
    FATE_OVER /* aborted, superseded, or of a closed term: its slots are free */
};

/* Whether a step may be begun: false while steps are skipped because saves come too fast. Says nothing about its
 * fate. */
bool decision_lets_begin(const struct decision *d, uint64_t step);
/* What the decision says about v. */
enum fate decision_fate(const struct decision *d, struct version v);
/* True if the recovery is over: the term's base is protected or lost, or the term has a commit of its own and needs
 * no base. */
bool decision_is_recovered(const struct decision *d);

/* Why a save or an offer is refused; X(name, text). */
#define REFUSAL_MAP(X)                                                                                          \
    X(NO_SLOT, "no free slot: the versions before it are undecided or being drained")                           \
    X(OLD_STEP, "the step is not newer than one already begun")                                                 \
    X(TERM_CLOSED, "a newer term has begun")                                                                    \
    X(NOT_JOINED, "this agent has no world yet")                                                                \
    X(ABORTED, "the version was already aborted")                                                               \
    X(NOT_A_HOLDER, "this node does not hold that shard")                                                       \
    X(RANK_LOST, "a trainer of this node disconnected, or could not save this version")                         \
    X(HOLDER_LOST, "a node that should hold a copy is lost")                                                    \
    X(CORRUPT, "the bytes do not match their digest")                                                           \
    X(TIMED_OUT, "nothing of it moved for version_timeout_ms")                                                  \
    X(PASSED_OVER, "a trainer of this node continued without saving it")                                        \
    X(HELD_BACK, "saves come faster than they can be copied, so most are skipped: raise save_mem_interval")     \
    X(QUARANTINED, "no free slot: what an earlier start has begun may still write into one")                    \
    X(NOT_YET, "no free slot for the training's last step yet")                                                 \
    X(MEMORY, "memory on this node is short, so its slots were given back and nothing is saved until there is " \
              "enough again: free memory there or raise its limit (tierckpt status says more)")

enum refusal {
    REFUSAL_NONE,
#define REFUSAL_ENUM(name, text) REFUSAL_##name,
    REFUSAL_MAP(REFUSAL_ENUM)
#undef REFUSAL_ENUM
};
const char *refusal_text(enum refusal refusal);

/* ---- events -------------------------------------------------------------------------------------------------- */

enum event_type {
    /* node machine, from this node */
    EVENT_BEGIN,     /* rank, step, to_storage: a trainer wants to save. On the coordinator's node its machine gets this
                        event first, so that the version is open before a refusal of a later step arrives. last: no step
                        follows. While there is no room, REFUSAL_NOT_YET tells the trainer to ask again, which decides
                        nothing */
    EVENT_SEAL,      /* rank, step: the trainer has copied everything */
    EVENT_ABANDON,   /* rank, step: the trainer gave it up */
    EVENT_RANK_LOST, /* rank: its connection has ended; the process may still exist and write into its slots */
    EVENT_VERIFIED,  /* slot, version, root, ok, refusal: the digests of a sealed or received slot are computed.
                        Comes exactly once for each ACTION_VERIFY, ACTION_STORE and granted ACTION_FETCH_SLOT, even
                        if the sender is lost (not ok), and only when nothing writes into the slot any longer */
    EVENT_WRITER_GONE, /* slot, version: the trainer that was given this quarantined slot no longer writes into it:
                          its process has ended, or it has reported that */
    EVENT_MOVED,       /* slot, version, bytes, node: so many bytes of the slot have been digested (node NONE32), or
                          sent to this holder or copied from the base there, since that was begun. waits: none were,
                          but what is sent there before it moves, or it is being compared with its base */
    EVENT_TICK,        /* now_ms */
    EVENT_PIN,     /* slot: it is being read (replicate, restore, pull, drain): not used again before its last UNPIN */
    EVENT_UNPIN,   /* slot */
    EVENT_CORRUPT, /* slot: its content no longer matches; the copy is lost */
    EVENT_GIVE_BACK, /* slot: memory is short: if node_pressure.h allows it, the slot becomes free and is not used again
                        before EVENT_TAKE_BACK, because its pages are given back */
    EVENT_TAKE_BACK, /* slot: its pages are there again */
    EVENT_FETCH,     /* shard, version: recovery wants a slot to receive this version into (ends with EVENT_VERIFIED) */
    /* node machine, from other nodes */
    EVENT_OFFER,        /* node, shard, version, root, base, base_root: an owner wants a copy stored here, and has the
                           base, too (VERSION_NONE: none) */
    EVENT_REPLICA,      /* node, shard, version, root, ok, refusal: the outcome of our ACTION_REPLICATE */
    EVENT_NODE_DOWN,    /* node: it has been down for longer than an agent needs to come back */
    EVENT_NODE_UP,      /* node */
    EVENT_DECISION,     /* decision */
    EVENT_DRAINED_HERE, /* version, attempt, ok: this node's part of a drain is on storage */
    /* coordinator machine */
    EVENT_READY,       /* node, version, layout, to_storage: all shards of that node are protected */
    EVENT_REFUSED,     /* node, version, refusal */
    EVENT_PROGRESS,    /* node, version: something of it has moved there */
    EVENT_DRAINED,     /* node, version, attempt, ok */
    EVENT_PUBLISHED,   /* version, attempt, ok: outcome of ACTION_PUBLISH */
    EVENT_READABLE,    /* version: every owner has it; once the decision is kept, the trainers may read it */
    EVENT_BASED,       /* version: recovery is over and this version (or none) is protected in this world */
    EVENT_BASE_LOST,   /* version: the base, which trainers may have read, can neither be protected nor restored */
    EVENT_DRAIN_ASKED, /* the user wants the newest committed version on storage */
};

struct event {
    enum event_type type;
    uint64_t now_ms; /* every event carries the time */
    uint64_t term;   /* of the message or request; every event of another term than the machine's is dropped */
    uint32_t node, rank, slot;
    uint32_t shard;          /* index in the world */
    struct version version;  /* BEGIN, SEAL, ABANDON: step only */
    struct version floor;    /* FETCH: never given up for it (struct recovery_spared) */
    struct version fallback; /* FETCH: given up last */
    struct version base;     /* OFFER */
    struct hash128 root, base_root, layout;
    uint64_t attempt, bytes;
    bool ok, to_storage, last, waits;
    enum refusal refusal;
    struct decision decision;
};

/* ---- actions ------------------------------------------------------------------------------------------------- */

enum action_type {
    /* node machine */
    ACTION_GRANT,        /* rank, version: its shards' slots are in FILLING with that version (node_slot_of) */
    ACTION_REFUSE,       /* rank, version, refusal */
    ACTION_WRITE_HEADER, /* slot: its state or version changed, or its version is committed now; write the header before
                            carrying out later actions */
    ACTION_VERIFY,       /* slot, version: compute the digests, then EVENT_VERIFIED */
    ACTION_REPLICATE,    /* slot, base_slot, node, shard, version: send it there, then EVENT_REPLICA. base_slot: of a
                             version that this node should have already, with a pin that EVENT_UNPIN removes once the
                             two were compared; NONE32: there is none */
    ACTION_CANCEL_COPY,  /* slot, node, shard, version: stop sending it there; then EVENT_REPLICA, as without this */
    ACTION_STORE, /* slot, base_slot, node, shard, version, root: receive the offered copy into this slot, check it
                     against root, then EVENT_VERIFIED. base_slot: its base, which stays until then; NONE32: it is
                     not here, so all of the copy has to be sent */
    ACTION_REJECT_OFFER,  /* node, shard, version, refusal */
    ACTION_ACK_OFFER,     /* node, shard, version, root: the copy is here and verified */
    ACTION_FETCH_SLOT,    /* slot, shard, version, ok: answer to EVENT_FETCH. ok: it is here already, in this slot;
                             otherwise receive it into slot, then EVENT_VERIFIED; slot NONE32 and refusal: not now */
    ACTION_SEND_READY,    /* version, to_storage: to the coordinator */
    ACTION_SEND_REFUSED,  /* version, refusal, first: to the coordinator. first: refused by this event, not a repetition
                           */
    ACTION_SEND_PROGRESS, /* version: to the coordinator */
    ACTION_DRAIN,         /* version, attempt: write this node's part to storage, then EVENT_DRAINED_HERE */
    ACTION_SEND_DRAINED,  /* version, attempt, ok: to the coordinator */
    ACTION_NOTIFY,        /* version, stage: to the trainers of this node: protected, committed, published or failed */
    /* coordinator machine */
    ACTION_GIVE_UP,  /* version, node, count: it is aborted, since nothing of it moved for version_timeout_ms. This many
                        nodes are not ready with it, of which node is the first */
    ACTION_ANNOUNCE, /* the decision changed: keep it (agent state), then send it to every node */
    ACTION_PUBLISH,  /* version, attempt: write the manifest and publish, then EVENT_PUBLISHED. It is repeated after
                        a restart of the agent; if the version is published already, that is a success */
};

enum stage { STAGE_PROTECTED, STAGE_COMMITTED, STAGE_PUBLISHED, STAGE_FAILED };

struct action {
    enum action_type type;
    uint32_t node, rank, slot, base_slot;
    uint32_t shard; /* index in the world */
    uint32_t count;
    struct version version;
    struct hash128 root;
    uint64_t attempt;
    bool ok, to_storage, first;
    enum refusal refusal;
    enum stage stage;
};

/* The caller provides items; a machine never emits more than <machine>_actions_max of its setup per event. */
struct actions {
    struct action *items;
    uint32_t count, cap;
};

/* Adds an action of this type and returns it to be filled in; all other members are zero or NONE32. */
struct action *action_add(struct actions *out, enum action_type type);

#endif
