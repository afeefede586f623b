/* SPDX-License-Identifier: Apache-2.0
 * A term of one node with one rank and one shard, for tests of the agent. */
#ifndef TCK_TEST_ONE_NODE_H
#define TCK_TEST_ONE_NODE_H

#include "../wish.h"
#include "agent/driver/term_context.h"
#include "tiers/memory.h"

#include <criterion/criterion.h>

/* The memory of the shard must exist. decision: the kept one, or NULL. The caller frees the term context. */
/* A node that owns all of these shards. */
static inline struct term_context *one_node_with(const struct term_setup *setup, uint64_t term,
                                                 const struct shard_info *shards, uint32_t count,
                                                 const struct decision *decision)
{
    struct rank_hello hello = {.node = {.name = "a", .domain = "a", .agent_id = 1}};
    struct world world;
    struct placement placement;
    struct term_context *tc = NULL;
    struct error err;
    cr_assert_eq(world_build(term, &hello, 1, &world, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(world_add_shards(&world, shards, &count, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(placement_build(&world, 1, &placement, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(term_context_new(setup, &world, &placement, decision, &tc, &err), TCK_OK, "%s", err.text);
    return tc;
}

static inline struct term_context *one_node_of(const struct term_setup *setup, uint64_t term, struct hash128 shard,
                                               uint64_t bytes, const struct decision *decision)
{
    const struct shard_info info = {.id = shard, .image_bytes = bytes};
    return one_node_with(setup, term, &info, 1, decision);
}

static inline struct term_context *one_node(const struct term_setup *setup, uint64_t term, struct hash128 shard,
                                            uint64_t bytes)
{
    return one_node_of(setup, term, shard, bytes, NULL);
}

/* New memory with the two slots of the shard. The caller frees it. */
static inline struct segment *one_node_memory(struct hash128 shard, uint64_t bytes, struct memory **out)
{
    struct memory_setup setup = {.job = "job", .cap_bytes = UINT64_C(64) << 20, .hugetlb_mount = "", .threads = 1};
    struct segment *segment = NULL;
    struct error err = {0};
    cr_assert_eq(memory_new(&setup, out, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(add_segment(*out, wish_of(shard, bytes, 2, 2), &segment, &err), TCK_OK, "%s", err.text);
    return segment;
}

#endif
