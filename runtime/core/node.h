/* SPDX-License-Identifier: Apache-2.0
 * One node's part of the protocol: which slot may be filled, replicated, kept, freed (docs/protocol.md).
 *
 * A slot is freed only when the newest decision says its version is over (decision_fate), when the trainer or transfer
 * that was filling it is gone, or when its content is corrupt. It is never freed by age or count. There are two
 * exceptions. If memory is short, committed copies that exist elsewhere are given up (node_pressure.h). The other one
 * is used by recovery alone: EVENT_FETCH with no free slot takes one of an older term, but never one of the floor.
 *
 * The floor is the newest known commit: if a version above it was committed, only a lost coordinator can know that, and
 * then that one fault has not cost any copy of this shard. The fallback is the newest complete version before the one
 * fetched: it is what remains if a copy of the fetched version is lost before it is protected. If an older step was
 * requested, there may be a newer complete version that the lost coordinator may have committed: then that version is
 * the floor, and the newest known commit is the fallback (recovery/newer_version.h). Slots are taken in this order: the
 * newest version newer than the one fetched (the planner found it incomplete, or an older step was requested), the
 * oldest below the floor (superseded), the oldest above it, and last the fallback.
 *
 * A slot that something still writes into (FILLING, SEALED before its digests, RECEIVING) waits for the event that ends
 * it before it is used again, even if its version is over; so does one that is pinned, or, at an owner, drained. A
 * slot that was being filled when its trainer's connection ended, or when a newer term began, is in quarantine until
 * its trainer is known to have stopped writing (EVENT_WRITER_GONE): the process may only be frozen. */
#ifndef TCK_CORE_NODE_H
#define TCK_CORE_NODE_H

#include "core/slot.h"

/* A shard that this node owns (a rank here saves it) or holds for others, in this term. */
struct node_shard {
    uint32_t world_shard; /* index in the world, NONE32 for a leftover of an older term that has no duty here */
    struct hash128 id;
    uint32_t slot_count;   /* slots_used says how many of them are used */
    uint32_t source;       /* node that sends copies of it, and keeps its own when others give theirs up */
    uint32_t storing_rank; /* local rank (0..rank_count-1) that saves it, NONE32 if only held */
    uint32_t holder_count; /* nodes that this node sends copies to */
    uint32_t holders[CORE_HOLDERS_MAX];
    bool held;        /* this node accepts offers of it */
    bool drains_here; /* this node writes it to storage */
};

struct node_setup {
    uint64_t term;
    uint32_t self;
    uint32_t node_count;
    struct hash128 layout;
    uint32_t rank_count; /* trainers of this node */
    uint32_t shard_count;
    const struct node_shard *shards; /* slots are numbered consecutively over all shards, shard 0's first */
    uint32_t version_timeout_ms;     /* without progress */
    uint32_t retry_ms;               /* READY, REFUSED and failed replicas are repeated after this */
};

struct node;

/* Bytes of memory that node_init needs. The caller owns the memory, which contains the whole machine. */
size_t node_memory(const struct node_setup *setup);
/* setup and what it points to must outlive the node. slots (setup's total count) gives what was found, as slot_found
 * says: FREE, FILLING, SEALED, VERIFIED or QUARANTINED, with version and to_storage, and the root of VERIFIED ones.
 * Those with versions of this term continue where they were: at the first tick the digests of SEALED slots are
 * requested and the copies of VERIFIED ones are offered again (the progress of transfers is not kept); FILLING slots
 * wait for their trainer's SEAL or ABANDON. The digests of SEALED slots of older terms are requested, too, since a
 * recovery may need them. */
struct node *node_init(void *memory, const struct node_setup *setup, const struct slot *slots, uint64_t now_ms);
uint32_t node_actions_max(const struct node_setup *setup);

void node_step(struct node *node, const struct event *event, struct actions *out);

const struct decision *node_decision(const struct node *node);
uint32_t node_slot_total(const struct node *node);
const struct slot *node_slot(const struct node *node, uint32_t slot);
/* The slot of this shard (index into setup.shards) with this version, NONE32 if none: a slot in quarantine counts as
 * having no version. */
uint32_t node_slot_of(const struct node *node, uint32_t shard, struct version version);
/* For what a version that this node saves waits first: LACKS_BEGIN and LACKS_SEAL of a rank (local), LACKS_DIGESTS of a
 * shard (index into setup.shards), LACKS_COPY of that shard at a node. LACKS_NOTHING: it is ready, or unknown. */
enum lack { LACKS_NOTHING, LACKS_BEGIN, LACKS_SEAL, LACKS_DIGESTS, LACKS_COPY };
struct lacking {
    enum lack lack;
    uint32_t rank, shard, node;
};
struct lacking node_lacks(const struct node *node, struct version version);
/* Whether the newest decision that this node knows still asks for this attempt to drain a version. */
bool node_drain_wanted(const struct node *node, struct version version, uint64_t attempt);
/* False once a copy of this slot that is being sent to this holder was canceled, or has ended. */
bool node_copy_wanted(const struct node *node, uint32_t slot, uint32_t holder);
/* Index into setup.shards of a shard of the world, NONE32 if it has no duty here. */
uint32_t node_shard_of(const struct node *node, uint32_t world_shard);

#endif
