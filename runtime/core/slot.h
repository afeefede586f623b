/* SPDX-License-Identifier: Apache-2.0
 * The life of a slot. */
#ifndef TCK_CORE_SLOT_H
#define TCK_CORE_SLOT_H

#include "core/protocol.h"

enum slot_state {
    SLOT_FREE,      /* content means nothing */
    SLOT_FILLING,   /* a trainer writes into it */
    SLOT_SEALED,    /* written whole, digests not made yet */
    SLOT_RECEIVING, /* bytes come from a peer or from storage */
    SLOT_VERIFIED,  /* digests in the header match the bytes when they were made or received */
    SLOT_STATES
};

const char *slot_state_name(enum slot_state state);
/* FREE->FILLING->SEALED->VERIFIED, FREE->RECEIVING->VERIFIED, any->FREE. */
bool slot_may_become(enum slot_state from, enum slot_state to);

struct slot {
    uint32_t shard; /* index into node_setup.shards */
    enum slot_state state;
    struct version version;
    struct hash128 root; /* valid from VERIFIED on; while RECEIVING, what the sender announced */
    uint32_t pins;       /* readers; a FREE slot with pins (its content turned out corrupt) is not used again either */
    bool doomed;         /* its version is over; becomes free when nobody reads or writes it any more */
    uint32_t from;       /* RECEIVING: the node that offered it, NONE32 for a fetch */
};

#endif
