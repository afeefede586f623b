/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct placement place(const struct world *world, uint32_t copies)
{
    struct placement p;
    struct error err;
    cr_assert(eq(int, placement_build(world, copies, &p, &err), TCK_OK), "%s", err.text);
    return p;
}

static bool has_copy(const struct placement *p, uint32_t shard, uint32_t node)
{
    return placement_is_owner(p, shard, node) || placement_is_holder(p, shard, node);
}

static uint32_t domains_with_copy(const struct world *w, const struct placement *p, uint32_t shard)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < w->node_count; i++) {
        bool first = has_copy(p, shard, i);
        for (uint32_t k = 0; k < i && first; k++) {
            first = !has_copy(p, shard, k) || strcmp(w->nodes[i].domain, w->nodes[k].domain) != 0;
        }
        count += first;
    }
    return count;
}

static uint32_t nodes_with_copy(const struct world *w, const struct placement *p, uint32_t shard)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < w->node_count; i++) {
        count += has_copy(p, shard, i);
    }
    return count;
}

/* Sums holders' bytes by node; the caller frees. */
static uint64_t *held_bytes(const struct world *w, const struct placement *p)
{
    uint64_t *held = calloc(w->node_count, sizeof(*held));
    cr_assert(held != NULL);
    for (uint32_t i = 0; i < p->shard_count; i++) {
        for (uint32_t k = 0; k < p->shards[i].holder_count; k++) {
            held[p->shards[i].holders[k]] += w->shards[i].image_bytes;
        }
    }
    return held;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* One shard for each set of owner nodes. */
static void add_every_shard(struct world *world)
{
    for (uint32_t set = 1; set < 1u << world->node_count; set++) {
        uint32_t ranks[8], count = 0;
        for (uint32_t i = 0; i < world->node_count; i++) {
            if (set & 1u << i) {
                ranks[count++] = i;
            }
        }
        fixture_add_shard(world, 4096 * (1 + set % 5), count, ranks);
    }
}

static bool copies_suffice(const struct world *w, const struct placement *p, uint32_t shard, uint32_t domains,
                           uint32_t copies)
{
    const struct shard_placement *s = &p->shards[shard];
    uint32_t nodes = nodes_with_copy(w, p, shard);
    return domains_with_copy(w, p, shard) >= smaller(domains, copies) && nodes >= smaller(w->node_count, copies) &&
           nodes == s->owner_count + s->holder_count && placement_is_owner(p, shard, s->source) &&
           placement_is_owner(p, shard, s->drainer);
}

static void check_copies(const struct world *w, uint32_t domains, uint32_t copies)
{
    struct placement p = place(w, copies);
    uint32_t right = 0;
    for (uint32_t i = 0; i < p.shard_count; i++) {
        right += copies_suffice(w, &p, i, domains, copies);
    }
    cr_assert(eq(u32, right, p.shard_count), "%u nodes in %u domains, %u copies", w->node_count, domains, copies);
    cr_assert(eq(u32, p.domains_short, domains < copies ? p.shard_count : 0));
    placement_free(&p);
}

/* Puts `node` and all later nodes into each of the domains used so far and into one more, and checks each partition. */
static void check_all_partitions(struct world *w, uint32_t node, uint32_t domains)
{
    if (node == w->node_count) {
        for (uint32_t copies = 1; copies <= 4; copies++) {
            check_copies(w, domains, copies);
        }
        return;
    }
    for (uint32_t d = 0; d <= domains; d++) {
        snprintf(w->nodes[node].domain, sizeof(w->nodes[node].domain), "rack%u", d);
        check_all_partitions(w, node + 1, d == domains ? domains + 1 : domains);
    }
}

/* All partitions of up to 6 nodes into domains, with all sets of owners. The copies are in as many domains as
 * requested, so that no loss of fewer domains loses a shard. */
Test(placement, keeps_a_copy_through_the_loss_of_any_copies_minus_one_domains)
{
    for (uint32_t nodes = 1; nodes <= 6; nodes++) {
        struct world w = fixture_world(nodes, 1, 1);
        add_every_shard(&w);
        check_all_partitions(&w, 0, 0);
        world_free(&w);
    }
}

Test(placement, needs_no_holder_where_twins_are_in_enough_domains)
{
    struct world w = fixture_world(4, 1, 1);
    fixture_add_shard(&w, 4096, 2, (uint32_t[]){0, 2});
    struct placement p = place(&w, 2);
    cr_assert(eq(u32, p.shards[0].owner_count, 2));
    cr_assert(eq(u32, p.shards[0].holder_count, 0));
    placement_free(&p);
    world_free(&w);
}

Test(placement, gives_a_holder_to_twins_of_one_domain)
{
    struct world w = fixture_world(4, 1, 2);
    fixture_add_shard(&w, 4096, 2, (uint32_t[]){0, 1});
    struct placement p = place(&w, 2);
    cr_assert(eq(u32, p.shards[0].holder_count, 1));
    cr_assert(p.shards[0].holders[0] >= 2);
    placement_free(&p);
    world_free(&w);
}

Test(placement, counts_several_ranks_of_a_node_as_one_owner)
{
    struct world w = fixture_world(2, 4, 1);
    fixture_add_shard(&w, 4096, 5, (uint32_t[]){0, 1, 2, 3, 6});
    struct placement p = place(&w, 1);
    cr_assert(eq(u32, p.shards[0].owner_count, 2));
    cr_assert(placement_is_owner(&p, 0, 0) && placement_is_owner(&p, 0, 1));
    placement_free(&p);
    world_free(&w);
}

Test(placement, spreads_equal_shards_evenly)
{
    for (uint32_t copies = 2; copies <= 3; copies++) {
        struct world w = fixture_world(66, 2, 3);
        fixture_add_private_shards(&w, 4096);
        struct placement p = place(&w, copies);
        uint64_t *held = held_bytes(&w, &p);
        for (uint32_t i = 0; i < w.node_count; i++) {
            cr_assert(eq(u64, held[i], 2 * 4096 * (copies - 1)));
        }
        free(held);
        placement_free(&p);
        world_free(&w);
    }
}

Test(placement, exceeds_the_mean_by_at_most_one_shard_if_sizes_differ)
{
    struct world w = fixture_world(17, 1, 1);
    uint64_t total = 0, biggest = 0;
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t rank = i * i % 17;
        uint64_t bytes = 4096 * (1 + i * 37 % 101);
        fixture_add_shard(&w, bytes, 1, &rank);
        total += bytes;
        biggest = bytes > biggest ? bytes : biggest;
    }
    struct placement p = place(&w, 2);
    uint64_t *held = held_bytes(&w, &p);
    for (uint32_t i = 0; i < w.node_count; i++) {
        cr_assert(held[i] <= total / w.node_count + biggest, "node %u holds %" PRIu64, i, held[i]);
    }
    free(held);
    placement_free(&p);
    world_free(&w);
}

Test(placement, fills_a_small_domain_evenly_from_a_big_one)
{
    struct world w = fixture_world(10, 1, 8); /* 8 nodes in one domain, 2 in the other */
    fixture_add_private_shards(&w, 4096);
    struct placement p = place(&w, 2);
    uint64_t *held = held_bytes(&w, &p);
    cr_assert(eq(u64, held[8], 4 * 4096));
    cr_assert(eq(u64, held[9], 4 * 4096));
    free(held);
    placement_free(&p);
    world_free(&w);
}

/* 16 nodes in 8 pairs: 8 of 120 pairs of nodes are fatal (a ring would have 16, a scattered choice nearly all). */
Test(placement, makes_few_pairs_of_nodes_fatal)
{
    struct world w = fixture_world(16, 1, 4);
    for (uint32_t i = 0; i < 4; i++) {
        fixture_add_private_shards(&w, 4096);
    }
    struct placement p = place(&w, 2);
    uint32_t fatal = 0;
    for (uint32_t a = 0; a < 16; a++) {
        for (uint32_t b = a + 1; b < 16; b++) {
            bool lost = false;
            for (uint32_t i = 0; i < p.shard_count; i++) {
                lost = lost || (has_copy(&p, i, a) && has_copy(&p, i, b));
            }
            fatal += lost;
        }
    }
    cr_assert(eq(u32, fatal, 8));
    placement_free(&p);
    world_free(&w);
}

Test(placement, does_not_change_when_a_node_is_replaced_at_its_place)
{
    struct world w = fixture_world(9, 2, 1);
    fixture_add_private_shards(&w, 4096);
    fixture_add_shard(&w, 8192, 3, (uint32_t[]){0, 8, 9});
    struct placement before = place(&w, 2);
    strcpy(w.nodes[4].name, "a-spare");
    strcpy(w.nodes[4].domain, "a-spare");
    w.nodes[4].agent_id = 1;
    struct placement after = place(&w, 2);
    cr_assert(eq(int, memcmp(before.shards, after.shards, before.shard_count * sizeof(*before.shards)), 0));
    placement_free(&before);
    placement_free(&after);
    world_free(&w);
}

Test(placement, shares_the_drain_among_twins_by_bytes)
{
    struct world w = fixture_world(4, 1, 1);
    for (uint32_t i = 0; i < 12; i++) {
        fixture_add_shard(&w, 4096, 4, (uint32_t[]){0, 1, 2, 3});
    }
    struct placement p = place(&w, 2);
    uint32_t drains[4] = {0};
    for (uint32_t i = 0; i < 12; i++) {
        drains[p.shards[i].drainer]++;
    }
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert(eq(u32, drains[i], 3));
    }
    placement_free(&p);
    world_free(&w);
}

Test(placement, shares_the_sending_among_twins_by_bytes)
{
    struct world w = fixture_world(4, 1, 2); /* twins share a domain, so each shard needs a holder */
    for (uint32_t i = 0; i < 6; i++) {
        fixture_add_shard(&w, 4096, 2, (uint32_t[]){0, 1});
    }
    struct placement p = place(&w, 2);
    uint32_t from_node0 = 0;
    for (uint32_t i = 0; i < 6; i++) {
        from_node0 += p.shards[i].source == 0;
    }
    cr_assert(eq(u32, from_node0, 3));
    placement_free(&p);
    world_free(&w);
}

Test(placement, refuses_more_copies_than_the_protocol_carries)
{
    struct world w = fixture_world(9, 1, 1);
    struct placement p;
    struct error err;
    cr_assert(eq(int, placement_build(&w, CORE_HOLDERS_MAX + 2, &p, &err), TCK_ERR_INVAL));
    cr_assert(eq(int, placement_build(&w, 0, &p, &err), TCK_ERR_INVAL));
    world_free(&w);
}

Test(placement, handles_sixteen_thousand_nodes)
{
    struct world w = fixture_world(16384, 1, 16);
    for (uint32_t i = 0; i < 3; i++) {
        fixture_add_private_shards(&w, 4096 * (i + 1));
    }
    struct placement p = place(&w, 2);
    cr_assert(eq(u32, p.domains_short, 0));
    placement_free(&p);
    world_free(&w);
}
