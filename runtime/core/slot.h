/* SPDX-License-Identifier: Apache-2.0
 * The life of a slot. */
#ifndef TCK_CORE_SLOT_H
#define TCK_CORE_SLOT_H

#include "core/protocol.h"

enum slot_state {
    SLOT_FREE,        /* its content is meaningless */
    SLOT_FILLING,     /* a trainer writes into it */
    SLOT_SEALED,      /* completely written, digests not computed yet */
    SLOT_RECEIVING,   /* bytes come from a peer or from storage */
    SLOT_VERIFIED,    /* the digests in the header matched the bytes when they were computed or received */
    SLOT_QUARANTINED, /* unusable: a trainer that it no longer belongs to may still write into it */
    SLOT_STATES
};

const char *slot_state_name(enum slot_state state);
/* FREE->FILLING->SEALED->VERIFIED, FREE->RECEIVING->VERIFIED, FILLING->QUARANTINED, any->FREE. */
bool slot_may_become(enum slot_state from, enum slot_state to);

/* What a slot counts as when an agent begins to serve `term`, by its header and by the seal that a trainer leaves
 * beside it when it has copied everything (VERSION_NONE: none). What was sealed stays sealed, whichever process has
 * died since. What a trainer was filling in this very term it may still be filling. What a trainer of an older term
 * left unfinished is useless, but the trainer may only be frozen and continue to write later, so the slot is in
 * quarantine until EVENT_WRITER_GONE. What was arriving from elsewhere is useless, too, but nothing writes into that
 * slot any longer. */
enum slot_state slot_found(enum slot_state state, struct version version, struct version seal, uint64_t term);

/* A node that only holds a shard for others keeps the newest committed version of it, and receives one more at a time.
 * The owner needs another slot for the version that its trainer writes meanwhile. */
#define HELD_SLOTS 2

/* How many of a shard's slots a node uses, by whether one of its trainers stores the shard. */
static inline uint32_t slots_used(uint32_t slot_count, bool stored_here)
{
    return stored_here || slot_count < HELD_SLOTS ? slot_count : HELD_SLOTS;
}

struct slot {
    uint32_t shard; /* index into node_setup.shards */
    enum slot_state state;
    struct version version;
    bool to_storage;     /* of its version, as its trainer began it */
    bool undigested;     /* SEALED when it was found: its digests have not been requested yet */
    struct hash128 root; /* valid from VERIFIED on; while RECEIVING, what the sender announced */
    uint32_t pins;       /* readers; a FREE slot with pins (its content turned out corrupt) is not used again either */
    bool doomed;         /* its version is over; becomes free when it is no longer read or written */
    uint32_t from;       /* RECEIVING: the node that offered it, NONE32 for a fetch */
    uint32_t base;       /* RECEIVING: the slot that a part of it is copied from, which has a pin for that; or NONE32 */
    bool withheld; /* FREE, and not used: it has no pages, because memory is short or this node needs none there */
};

#endif
