/* SPDX-License-Identifier: Apache-2.0
 * In which order a node writes its part of a version to storage. Pure.
 *
 * The time may end before all is written: an agent that gets SIGTERM has grace_s. The files that are there then should
 * be those of which nothing else is left. A version that is not whole is not published all the same. */
#ifndef TCK_CORE_DRAIN_ORDER_H
#define TCK_CORE_DRAIN_ORDER_H

#include <stdint.h>

struct drain_place {
    uint32_t shard;     /* index into node_setup.shards */
    uint32_t elsewhere; /* known copies of it outside this node's memory */
};

/* Those with the fewest copies elsewhere come first; equal ones keep the order of node_setup.shards. */
void drain_order(struct drain_place *places, uint32_t count);

#endif
