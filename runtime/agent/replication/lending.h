/* SPDX-License-Identifier: Apache-2.0
 * What other agents get of a copy while it is being fetched here: each chunk that has arrived and matches its digest.
 */
#ifndef TCK_AGENT_LENDING_H
#define TCK_AGENT_LENDING_H

#include "base/digest.h"
#include "tiers/tier.h"

struct peers;

/* One fetch's. Zeroed: nothing is lent. */
struct lending {
    struct peers *peers;
    struct tier_item item; /* of the fetch */
    uint8_t *have;         /* one bit per chunk that can be sent; NULL: nothing is lent */
    uint32_t *digests;     /* of each chunk; NULL: unknown. The fetch's */
    struct hash128 root;
    uint32_t count; /* gets of other agents that have not ended */
};

/* The fetch has a slot. Without memory for the bits, nothing is lent: the others get the copy when it is whole. */
void lending_begin(struct lending *lending, struct peers *peers, const struct tier_item *item);
void lending_free(struct lending *lending);
/* The digests are known; those that do not have the root are not. */
void lending_digests(struct lending *lending, uint32_t *digests, struct hash128 root);
/* A chunk is in place and has this CRC. */
void lending_chunk(struct lending *lending, uint32_t chunk, uint32_t crc);
/* What has arrived is about to be overwritten. Nothing may be on its way to others. */
void lending_forget(struct lending *lending);
/* Fills in the item for another agent's get, which counts from now on. False: nothing is lent. */
must_check bool lending_lend(struct lending *lending, struct tier_item *out);
/* A get into which another agent got this image has ended. True if it was one of these. */
bool lending_returned(struct lending *lending, const uint8_t *image);
/* The rest does not arrive: gets that wait for it end with the reason. */
void lending_end(const struct lending *lending, const char *node, const char *why);

#endif
