/* SPDX-License-Identifier: Apache-2.0
 * Decides who sends which shard to whom after a recovery, if some ranks of a shard have it in their node's memory
 * and others do not. Pure, and computed from what all ranks know, so that each rank gets the same routes in the same
 * order. */
#ifndef TCK_CLIENT_SPREAD_H
#define TCK_CLIENT_SPREAD_H

#include "base/world.h"

/* One shard on its way from one rank that has it to all that lack it. */
struct spread_route {
    uint32_t shard;        /* of the world */
    uint32_t root;         /* the rank that sends */
    uint32_t first, count; /* of spread.receivers */
    struct hash128 digest; /* root digest of the image, as verified by the agent of the root's node */
    uint64_t ahead;        /* bytes that are passed before all of its ranks are free for it */
};

struct spread {
    uint32_t route_count;
    struct spread_route *routes; /* in the order in which every rank takes them */
    uint32_t *receivers;         /* ranks, ascending within a route */
    uint32_t member_count;
    uint32_t *members; /* ranks that send or receive, ascending */
};

/* roots: for each entry of world->shard_ranks the digest of that rank's image, zero if the rank lacks it. A shard is
 * sent by the rank that has it and sends the fewest bytes otherwise. TCK_ERR_NOENT if no rank has a shard that a
 * rank lacks, TCK_ERR_CORRUPT if the ranks that have it have different bytes. Freed by spread_free. */
must_check tck_status_t spread_plan(const struct world *world, const struct hash128 *roots, struct spread *out,
                                    struct error *err);
void spread_free(struct spread *spread);

/* The rank's place in the order in which a route passes the bytes on: 0 is the root, 1 .. count are the receivers,
 * NONE32 if the rank does not take part. */
uint32_t spread_place(const struct spread *spread, const struct spread_route *route, uint32_t rank);
/* The rank at that place. */
uint32_t spread_rank_at(const struct spread *spread, const struct spread_route *route, uint32_t place);
/* The rank's number among the members; NONE32 if it is none. */
uint32_t spread_member(const struct spread *spread, uint32_t rank);

#endif
