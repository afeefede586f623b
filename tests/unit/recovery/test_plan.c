/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define V(t, s)   ((struct version){(t), (s)})
#define NODES_MAX 8

/* A world with its placement and the planner's input. */
struct scene {
    struct world world;
    struct placement placement;
    struct inventory inventories[NODES_MAX];
    struct stored_version stored[2];
    struct hash128 stored_shards[64];
    struct plan_input input;
    struct plan plan;
};

/* Nodes with one rank and a private shard each, two copies; shard i belongs to node i. Inventories are empty. */
static void scene_init(struct scene *s, uint32_t nodes)
{
    *s = (struct scene){.world = fixture_world(nodes, 1, 1)};
    fixture_add_private_shards(&s->world, 4096);
    for (uint32_t i = 0; i < nodes; i++) {
        s->inventories[i] = fixture_inventory(&s->world, i);
    }
}

/* Two shards, each owned by the ranks of two nodes. */
static void scene_init_twins(struct scene *s, uint32_t nodes, const uint32_t first[2], const uint32_t second[2])
{
    *s = (struct scene){.world = fixture_world(nodes, 1, 1)};
    fixture_add_shard(&s->world, 4096, 2, first);
    fixture_add_shard(&s->world, 4096, 2, second);
    for (uint32_t i = 0; i < nodes; i++) {
        s->inventories[i] = fixture_inventory(&s->world, i);
    }
}

static void scene_plan(struct scene *s)
{
    struct error err;
    plan_free(&s->plan);
    placement_free(&s->placement);
    cr_assert(eq(int, placement_build(&s->world, 2, &s->placement, &err), TCK_OK));
    s->input.world = &s->world;
    s->input.placement = &s->placement;
    s->input.inventories = s->inventories;
    s->input.inventory_count = s->input.inventory_count > 0 ? s->input.inventory_count : s->world.node_count;
    s->input.storage.stored = s->stored;
    s->input.storage.complete = s->input.storage.why == NULL || s->input.storage.newest_only;
    s->input.step = s->input.step > 0 ? s->input.step : TCK_NEWEST;
    cr_assert(eq(int, plan_build(&s->input, &s->plan, &err), TCK_OK), "%s", err.text);
}

static void scene_free(struct scene *s)
{
    plan_free(&s->plan);
    placement_free(&s->placement);
    for (uint32_t i = 0; i < NODES_MAX; i++) {
        inventory_free(&s->inventories[i]);
    }
    world_free(&s->world);
}

/* Every owner and holder has its copies of this version. */
static void hold_everywhere(struct scene *s, struct version version)
{
    struct error err;
    struct placement p;
    cr_assert(eq(int, placement_build(&s->world, 2, &p, &err), TCK_OK));
    for (uint32_t shard = 0; shard < p.shard_count; shard++) {
        for (uint32_t node = 0; node < s->world.node_count; node++) {
            if (placement_is_owner(&p, shard, node) || placement_is_holder(&p, shard, node)) {
                fixture_hold(&s->inventories[node], &s->world, shard, version);
            }
        }
    }
    placement_free(&p);
}

static void store(struct scene *s, struct version version, uint32_t first_shard, uint32_t count)
{
    for (uint32_t i = 0; i < s->world.shard_count; i++) {
        s->stored_shards[i] = s->world.shards[i].id;
    }
    s->stored[s->input.storage.stored_count++] = (struct stored_version){
        .version = version, .layout = s->world.layout, .shard_count = count, .shards = s->stored_shards + first_shard};
}

static void forget(struct inventory *inventory)
{
    inventory->count = 0;
}

static const struct plan_action *action_of(const struct scene *s, uint32_t shard, uint32_t node)
{
    for (uint32_t i = 0; i < s->plan.action_count; i++) {
        if (s->plan.actions[i].shard == shard && s->plan.actions[i].node == node) {
            return &s->plan.actions[i];
        }
    }
    cr_fatal("no action for shard %u on node %u", shard, node);
}

static void assert_version(const struct scene *s, struct version version)
{
    cr_assert(eq(u64, s->plan.version.term, version.term), "%s", s->plan.reason);
    cr_assert(eq(u64, s->plan.version.step, version.step), "%s", s->plan.reason);
}

Test(plan, reports_that_nothing_was_saved)
{
    struct scene s;
    scene_init(&s, 2);
    scene_plan(&s);
    cr_assert(s.plan.nothing_saved);
    cr_assert(version_none(s.plan.version) && version_none(s.plan.newest_seen));
    cr_assert(eq(u32, s.plan.action_count, 0));
    scene_free(&s);
}

Test(plan, takes_the_newest_complete_version)
{
    struct scene s;
    scene_init(&s, 4);
    hold_everywhere(&s, V(3, 100));
    hold_everywhere(&s, V(3, 110));
    hold_everywhere(&s, V(2, 900)); /* of an older term, and therefore older despite its higher step */
    scene_plan(&s);
    assert_version(&s, V(3, 110));
    cr_assert(eq(u32, s.plan.passed_count, 0));
    scene_free(&s);
}

Test(plan, moves_nothing_if_all_is_in_place)
{
    struct scene s;
    scene_init(&s, 4);
    hold_everywhere(&s, V(3, 100));
    scene_plan(&s);
    cr_assert(eq(u32, s.plan.action_count, 8));
    for (uint32_t i = 0; i < s.plan.action_count; i++) {
        cr_assert(eq(int, s.plan.actions[i].source, SOURCE_LOCAL));
        cr_assert(eq(u64, s.plan.actions[i].bytes, 0));
        cr_assert(eq(int, s.plan.actions[i].for_holder, i >= 4));
    }
    cr_assert(eq(u64, s.plan.bytes_by_source[SOURCE_LOCAL], 8 * 4096));
    scene_free(&s);
}

Test(plan, prefers_local_over_peer)
{
    struct scene s;
    scene_init(&s, 3);
    for (uint32_t i = 0; i < 3; i++) {
        fixture_hold(&s.inventories[i], &s.world, i, V(1, 5));
        fixture_hold(&s.inventories[i], &s.world, (i + 1) % 3, V(1, 5));
    }
    scene_plan(&s);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert(eq(int, action_of(&s, i, i)->source, SOURCE_LOCAL));
        cr_assert(eq(u32, action_of(&s, i, i)->inventory, i));
    }
    scene_free(&s);
}

Test(plan, prefers_peer_replica_over_drained_copy)
{
    struct scene s;
    scene_init(&s, 4);
    hold_everywhere(&s, V(3, 100));
    store(&s, V(3, 100), 0, 4);
    forget(&s.inventories[1]);
    scene_plan(&s);
    assert_version(&s, V(3, 100));
    uint32_t holder = s.placement.shards[1].holders[0];
    cr_assert(eq(int, action_of(&s, 1, 1)->source, SOURCE_PEER));
    cr_assert(eq(u32, action_of(&s, 1, 1)->inventory, holder));
    cr_assert(eq(u64, s.plan.bytes_by_source[SOURCE_STORAGE], 0));
    scene_free(&s);
}

Test(plan, prefers_twin_over_peer)
{
    struct scene s;
    s = (struct scene){.world = fixture_world(3, 1, 1)};
    fixture_add_shard(&s.world, 4096, 2, (uint32_t[]){0, 2});
    for (uint32_t i = 0; i < 3; i++) {
        s.inventories[i] = fixture_inventory(&s.world, i);
    }
    fixture_hold(&s.inventories[1], &s.world, 0, V(1, 1)); /* not an owner */
    fixture_hold(&s.inventories[2], &s.world, 0, V(1, 1));
    scene_plan(&s);
    cr_assert(eq(int, action_of(&s, 0, 0)->source, SOURCE_TWIN));
    cr_assert(eq(u32, action_of(&s, 0, 0)->inventory, 2));
    scene_free(&s);
}

Test(plan, fills_the_gaps_of_memory_from_storage)
{
    struct scene s;
    scene_init(&s, 4);
    fixture_hold(&s.inventories[0], &s.world, 0, V(3, 100));
    store(&s, V(3, 100), 1, 3);
    scene_plan(&s);
    assert_version(&s, V(3, 100));
    cr_assert(eq(int, action_of(&s, 0, 0)->source, SOURCE_LOCAL));
    cr_assert(eq(int, action_of(&s, 1, 1)->source, SOURCE_STORAGE));
    cr_assert(eq(u32, action_of(&s, 1, 1)->inventory, NONE32));
    cr_assert(not(s.plan.from_storage_only));
    scene_free(&s);
}

Test(plan, restores_from_storage_only)
{
    struct scene s;
    scene_init(&s, 2);
    store(&s, V(2, 50), 0, 2);
    scene_plan(&s);
    assert_version(&s, V(2, 50));
    cr_assert(s.plan.from_storage_only);
    scene_free(&s);
}

Test(plan, falls_back_to_older_version_and_says_why)
{
    struct scene s;
    scene_init(&s, 4);
    hold_everywhere(&s, V(3, 110));
    for (uint32_t i = 0; i < 2; i++) {
        fixture_hold(&s.inventories[i], &s.world, i, V(3, 120));
    }
    scene_plan(&s);
    assert_version(&s, V(3, 110));
    cr_assert(version_is(s.plan.newest_seen, V(3, 120)));
    cr_assert(eq(u32, s.plan.passed_count, 1));
    cr_assert(eq(u32, s.plan.passed[0].missing, 2));
    cr_assert(hash128_is(s.plan.passed[0].example, s.world.shards[2].id));
    char id[HASH128_TEXT];
    hash128_text(s.world.shards[2].id, id);
    cr_assert(strstr(s.plan.reason, "version 3.120: 2 of 4 shards have no copy (first ") != NULL, "%s", s.plan.reason);
    cr_assert(strstr(s.plan.reason, id) != NULL, "%s", s.plan.reason);
    scene_free(&s);
}

Test(plan, gives_no_version_but_a_reason_if_none_is_complete)
{
    struct scene s;
    scene_init(&s, 4);
    fixture_hold(&s.inventories[0], &s.world, 0, V(3, 120));
    scene_plan(&s);
    cr_assert(version_none(s.plan.version));
    cr_assert(not(s.plan.nothing_saved));
    cr_assert(strstr(s.plan.reason, "version 3.120: 3 of 4 shards have no copy") != NULL, "%s", s.plan.reason);
    scene_free(&s);
}

/* A trainer died in the first save of a job: the launcher must be able to start it again. */
Test(plan, an_incomplete_version_that_was_never_committed_allows_a_fresh_start)
{
    struct scene s;
    scene_init(&s, 4);
    fixture_hold(&s.inventories[0], &s.world, 0, V(1, 2));
    s.inventories[0].holdings[0].committed = false;
    scene_plan(&s);
    cr_assert(version_none(s.plan.version));
    cr_assert(s.plan.nothing_saved);
    cr_assert(strstr(s.plan.reason, "nothing was committed yet") != NULL, "%s", s.plan.reason);
    scene_free(&s);
}

Test(plan, an_incomplete_version_that_any_agent_knows_to_be_committed_is_a_loss)
{
    struct scene s;
    scene_init(&s, 4);
    fixture_hold(&s.inventories[0], &s.world, 0, V(1, 2));
    scene_plan(&s);
    cr_assert(version_none(s.plan.version));
    cr_assert(not(s.plan.nothing_saved));
    s.inventories[0].holdings[0].committed = false;
    s.inventories[1].watermark = V(1, 1);
    plan_free(&s.plan);
    scene_plan(&s);
    cr_assert(version_none(s.plan.version));
    cr_assert(not(s.plan.nothing_saved));
    scene_free(&s);
}

Test(plan, a_requested_step_that_is_not_complete_is_no_fresh_start)
{
    struct scene s;
    scene_init(&s, 4);
    fixture_hold(&s.inventories[0], &s.world, 0, V(1, 2));
    s.inventories[0].holdings[0].committed = false;
    s.input.step = 2;
    scene_plan(&s);
    cr_assert(not(s.plan.nothing_saved));
    scene_free(&s);
}

/* All nodes know that 3.100 was committed. */
static void know_a_commit(struct scene *s)
{
    hold_everywhere(s, V(3, 90));
    hold_everywhere(s, V(3, 100));
    for (uint32_t i = 0; i < s->world.node_count; i++) {
        s->inventories[i].watermark = V(3, 100);
    }
    s->input.step = 90;
}

Test(plan, spares_a_newer_version_that_may_be_committed_when_a_step_is_requested)
{
    struct scene s;
    scene_init(&s, 4);
    know_a_commit(&s);
    hold_everywhere(&s, V(3, 110));
    forget(&s.inventories[1]); /* it was the coordinator, and has lost its memory: the others have the copies */
    scene_plan(&s);
    assert_version(&s, V(3, 90));
    cr_assert(version_is(s.plan.newer, V(3, 110)));
    s.input.only = V(3, 90); /* the base of this term, after the coordinator's agent has started again */
    scene_plan(&s);
    assert_version(&s, V(3, 90));
    cr_assert(version_is(s.plan.newer, V(3, 110)));
    hold_everywhere(&s, V(7, 120)); /* of this term, which may still abort it */
    scene_plan(&s);
    assert_version(&s, V(3, 90));
    cr_assert(version_is(s.plan.newer, V(3, 110)));
    scene_free(&s);
}

Test(plan, spares_no_newer_version_that_is_not_protected)
{
    struct scene s;
    scene_init(&s, 4);
    know_a_commit(&s);
    for (uint32_t i = 0; i < 4; i++) { /* its copies were not sent before the trainers ended */
        fixture_hold(&s.inventories[i], &s.world, i, V(3, 110));
    }
    scene_plan(&s);
    assert_version(&s, V(3, 90));
    cr_assert(version_none(s.plan.newer));
    scene_free(&s);
}

/* Node 1 has a copy of shard 0 of the commit, and nothing of 3.110. */
Test(plan, spares_no_newer_version_of_which_a_node_has_nothing_and_a_copy_of_the_newest_known_commit)
{
    struct scene s;
    scene_init(&s, 2);
    know_a_commit(&s);
    fixture_hold(&s.inventories[0], &s.world, 0, V(3, 110));
    fixture_hold(&s.inventories[0], &s.world, 1, V(3, 110));
    scene_plan(&s);
    assert_version(&s, V(3, 90));
    cr_assert(version_none(s.plan.newer));
    scene_free(&s);
}

static void hold_all(struct scene *s, uint32_t node, uint32_t shard, struct version newest)
{
    for (uint64_t step = 100; step <= newest.step; step += 10) {
        fixture_hold(&s->inventories[node], &s->world, shard, V(newest.term, step));
    }
    s->inventories[node].watermark = V(newest.term, 100);
}

/* Shard 0 is on nodes 0 and 1, shard 1 on nodes 2 and 3. Node 0 had committed 3.110, and is lost. Node 3 had not sealed
 * 3.120 yet, which the others have. */
Test(plan, spares_the_newest_of_the_newer_versions_that_may_be_committed)
{
    static const uint32_t first[] = {0, 1}, second[] = {2, 3};
    struct scene s;
    scene_init_twins(&s, 4, first, second);
    hold_all(&s, 1, 0, V(3, 120));
    hold_all(&s, 2, 1, V(3, 120));
    hold_all(&s, 3, 1, V(3, 110));
    store(&s, V(3, 90), 0, s.world.shard_count);
    s.input.step = 90;
    scene_plan(&s);
    assert_version(&s, V(3, 90));
    cr_assert(version_is(s.plan.newer, V(3, 110)), "it is not 3.110");
    scene_free(&s);
}

Test(plan, spares_no_newer_version_that_is_incomplete_or_known)
{
    struct scene s;
    scene_init(&s, 4);
    know_a_commit(&s);
    fixture_hold(&s.inventories[0], &s.world, 0, V(3, 110));
    scene_plan(&s);
    assert_version(&s, V(3, 90));
    cr_assert(version_none(s.plan.newer), "the newest that is complete is known to be committed");
    scene_free(&s);
}

Test(plan, does_not_mix_versions)
{
    struct scene s;
    scene_init(&s, 2);
    fixture_hold(&s.inventories[0], &s.world, 0, V(3, 120));
    fixture_hold(&s.inventories[1], &s.world, 1, V(3, 119));
    fixture_hold(&s.inventories[1], &s.world, 1, V(2, 120));
    scene_plan(&s);
    cr_assert(version_none(s.plan.version));
    scene_free(&s);
}

Test(plan, passes_over_another_layout)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 120));
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < s.inventories[i].count; k++) {
            s.inventories[i].holdings[k].layout.lo++;
        }
    }
    hold_everywhere(&s, V(3, 100));
    scene_plan(&s);
    assert_version(&s, V(3, 100));
    cr_assert(s.plan.passed[0].other_layout);
    cr_assert(strstr(s.plan.reason, "version 3.120 has another layout") != NULL, "%s", s.plan.reason);
    scene_free(&s);
}

/* Changes the nodes' copies of it as if another layout had saved them. */
static void make_foreign(struct scene *s, struct version version, bool committed)
{
    struct world_shard shards[16];
    struct hash128 layout;
    cr_assert(le(u32, s->world.shard_count, 16));
    for (uint32_t i = 0; i < s->world.shard_count; i++) {
        shards[i] = s->world.shards[i];
        shards[i].image_bytes += 4096;
    }
    cr_assert(eq(int, world_hash_shards(shards, s->world.shard_count, &layout), TCK_OK));
    for (uint32_t i = 0; i < s->world.node_count; i++) {
        for (uint32_t k = 0; k < s->inventories[i].count; k++) {
            struct holding *h = &s->inventories[i].holdings[k];
            if (version_is(h->version, version)) {
                h->layout = layout;
                h->image_bytes += 4096;
                h->committed = committed;
            }
        }
    }
}

Test(plan, takes_a_newer_version_of_another_layout_from_storage)
{
    struct scene s;
    scene_init(&s, 2);
    struct hash128 shards[1] = {{1, 2}};
    s.stored[0] = (struct stored_version){.version = V(3, 120), .layout = {9, 9}, .shard_count = 1, .shards = shards};
    hold_everywhere(&s, V(3, 100));
    s.input.storage.stored_count = 1;
    scene_plan(&s);
    cr_assert(version_none(s.plan.version) && version_is(s.plan.reshard, V(3, 120)));
    cr_assert(not(s.plan.nothing_saved));
    cr_assert(eq(u32, s.plan.action_count, 0));
    json_t *json = plan_json(&s.plan, &s.input);
    uint64_t step = 0;
    cr_assert(json_u64(json_get(json_get(json, "resharded"), "step"), &step));
    cr_assert(eq(u64, step, 120));
    json_free(json);
    s.input.step = 100;
    scene_plan(&s);
    assert_version(&s, V(3, 100));
    cr_assert(version_none(s.plan.reshard));
    scene_free(&s);
}

Test(plan, does_not_pass_over_a_commit_of_another_layout_that_only_memory_has)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 120));
    make_foreign(&s, V(3, 120), true);
    hold_everywhere(&s, V(3, 100));
    scene_plan(&s);
    cr_assert(version_none(s.plan.version) && version_none(s.plan.reshard));
    cr_assert(plan_waits_for_storage(&s.plan));
    cr_assert(not(s.plan.nothing_saved));
    cr_assert(strstr(s.plan.reason, "tierckpt drain --wait") != NULL, "%s", s.plan.reason);
    scene_free(&s);
}

static void expect_unsaved(const struct scene *s, const char *text)
{
    cr_assert(version_none(s->plan.version) && version_none(s->plan.reshard), "%s", s->plan.reason);
    cr_assert(plan_waits_for_storage(&s->plan), "%s", s->plan.reason);
    cr_assert(strstr(s->plan.reason, text) != NULL, "%s", s->plan.reason);
}

/* All agents that knew of its commit may be lost: with its own layout it would be restored. */
Test(plan, does_not_pass_over_a_complete_version_of_another_layout_whose_commit_is_unknown)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 120));
    make_foreign(&s, V(3, 120), false);
    hold_everywhere(&s, V(3, 100));
    scene_plan(&s);
    expect_unsaved(&s, "version 3.120 has another layout, and only memory has it");
    scene_free(&s);
}

Test(plan, a_complete_version_of_another_layout_is_no_loss_if_only_its_term_has_noted_a_commit)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 120));
    make_foreign(&s, V(3, 120), false);
    s.input.storage.noted = V(3, 0);
    scene_plan(&s);
    expect_unsaved(&s, "version 3.120 has another layout");
    s.input.storage.noted = V(3, 110); /* known to a catalog, and lost */
    scene_plan(&s);
    expect_unsaved(&s, "version 3.120 has another layout");
    s.inventories[1].watermark = V(3, 130); /* newer than what is left */
    scene_plan(&s);
    expect_unsaved(&s, "version 3.120 has another layout");
    scene_free(&s);
}

/* Each node has one shard of the version, and no node has both. */
Test(plan, does_not_pass_over_another_layout_whose_parts_are_on_different_nodes)
{
    struct scene s;
    scene_init(&s, 2);
    for (uint32_t i = 0; i < 2; i++) {
        fixture_hold(&s.inventories[i], &s.world, i, V(3, 120));
    }
    make_foreign(&s, V(3, 120), false);
    s.input.storage.noted = V(3, 0);
    scene_plan(&s);
    expect_unsaved(&s, "version 3.120 has another layout");
    scene_free(&s);
}

Test(plan, a_version_of_another_layout_that_is_not_complete_is_a_loss)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 120));
    make_foreign(&s, V(3, 120), true);
    forget(&s.inventories[1]);
    s.inventories[0].count = 1;
    scene_plan(&s);
    cr_assert_not(plan_waits_for_storage(&s.plan));
    cr_assert(strstr(s.plan.reason, "version 3.120 has another layout, and no complete copy of it was found") != NULL,
              "%s", s.plan.reason);
    cr_assert(strstr(s.plan.reason, "tierckpt forget") != NULL, "%s", s.plan.reason);
    scene_free(&s);
}

Test(plan, a_complete_version_of_another_layout_is_not_passed_over_for_an_older_one_on_storage)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 120));
    make_foreign(&s, V(3, 120), false);
    store(&s, V(3, 100), 0, 2);
    scene_plan(&s);
    expect_unsaved(&s, "version 3.120 has another layout");
    s.stored[0].layout = s.inventories[0].holdings[0].layout;
    scene_plan(&s);
    expect_unsaved(&s, "version 3.120 has another layout");
    s.input.step = 100;
    scene_plan(&s);
    cr_assert(version_is(s.plan.reshard, V(3, 100)), "%s", s.plan.reason);
    scene_free(&s);
}

Test(plan, a_published_version_of_another_layout_is_taken_before_an_older_one_that_only_memory_has)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 100));
    make_foreign(&s, V(3, 100), false);
    store(&s, V(3, 120), 0, 2);
    s.stored[0].layout = s.inventories[0].holdings[0].layout;
    scene_plan(&s);
    cr_assert(version_is(s.plan.reshard, V(3, 120)), "%s", s.plan.reason);
    store(&s, V(3, 100), 0, 2);
    s.stored[1].layout = s.stored[0].layout;
    s.input.step = 100; /* memory has it, and so has storage */
    scene_plan(&s);
    cr_assert(version_is(s.plan.reshard, V(3, 100)), "%s", s.plan.reason);
    scene_free(&s);
}

Test(plan, plans_without_bad_copies)
{
    struct scene s;
    scene_init(&s, 4);
    hold_everywhere(&s, V(3, 110));
    hold_everywhere(&s, V(3, 120));
    scene_plan(&s);
    struct bad_copy bad[2] = {{s.world.shards[0].id, V(3, 120), 0}};
    s.input.bad = bad;
    s.input.bad_count = 1;
    scene_plan(&s);
    assert_version(&s, V(3, 120));
    cr_assert(eq(int, action_of(&s, 0, 0)->source, SOURCE_PEER));
    bad[1] = (struct bad_copy){s.world.shards[0].id, V(3, 120), s.placement.shards[0].holders[0]};
    s.input.bad_count = 2;
    scene_plan(&s);
    assert_version(&s, V(3, 110));
    scene_free(&s);
}

Test(plan, reports_bad_copies_as_a_loss_and_not_as_a_fresh_start)
{
    struct scene s;
    scene_init(&s, 1);
    store(&s, V(1, 1), 0, 1);
    struct bad_copy bad = {s.world.shards[0].id, V(1, 1), NONE32};
    s.input.bad = &bad;
    s.input.bad_count = 1;
    scene_plan(&s);
    cr_assert(version_none(s.plan.version));
    cr_assert(not(s.plan.nothing_saved));
    cr_assert(strstr(s.plan.reason, "its file on storage is damaged") != NULL, "%s", s.plan.reason);
    scene_free(&s);
}

Test(plan, takes_the_requested_step)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 120));
    hold_everywhere(&s, V(3, 100));
    hold_everywhere(&s, V(2, 100));
    s.input.step = 100;
    scene_plan(&s);
    assert_version(&s, V(3, 100));
    s.input.step = 77;
    scene_plan(&s);
    cr_assert(version_none(s.plan.version));
    cr_assert(not(s.plan.nothing_saved));
    cr_assert_str_eq(s.plan.reason, "step 77: no copy was seen; the newest version seen is 3.120");
    scene_free(&s);
}

Test(plan, passes_over_only_the_given_up_version)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 120));
    hold_everywhere(&s, V(3, 100));
    s.input.storage.give_up = V(3, 120);
    scene_plan(&s);
    assert_version(&s, V(3, 100));
    cr_assert(s.plan.passed[0].poisoned);
    hold_everywhere(&s, V(3, 130));
    scene_plan(&s);
    assert_version(&s, V(3, 130));
    scene_free(&s);
}

/* The world of these tests is of term 7. An archive that cannot be reached makes the listing incomplete if save_dir's
 * newest version is given up. */
Test(plan, an_incomplete_listing_may_lack_the_version_before_the_given_up_one)
{
    struct scene s;
    scene_init(&s, 2);
    store(&s, V(3, 120), 0, 2);
    store(&s, V(3, 100), 0, 2);
    s.input.storage.give_up = V(3, 120);
    scene_plan(&s);
    assert_version(&s, V(3, 100));
    s.input.storage.why = "archive_dir /a: it cannot be reached";
    scene_plan(&s);
    assert_version(&s, VERSION_NONE);
    cr_assert(eq(int, s.plan.blocked, BLOCK_UNREADABLE));
    scene_free(&s);
}

Test(plan, takes_the_given_up_version_if_its_step_is_requested)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 120));
    s.input.storage.give_up = V(3, 120);
    s.input.step = 120;
    scene_plan(&s);
    assert_version(&s, V(3, 120));
    scene_free(&s);
}

Test(plan, takes_the_root_that_most_copies_have)
{
    struct scene s;
    s = (struct scene){.world = fixture_world(3, 1, 1)};
    fixture_add_shard(&s.world, 4096, 3, (uint32_t[]){0, 1, 2});
    for (uint32_t i = 0; i < 3; i++) {
        s.inventories[i] = fixture_inventory(&s.world, i);
        fixture_hold(&s.inventories[i], &s.world, 0, V(1, 1));
    }
    s.inventories[1].holdings[0].root.lo = 99; /* this twin's content differs */
    scene_plan(&s);
    cr_assert(eq(int, action_of(&s, 0, 0)->source, SOURCE_LOCAL));
    cr_assert(eq(int, action_of(&s, 0, 1)->source, SOURCE_TWIN));
    cr_assert(eq(int, action_of(&s, 0, 2)->source, SOURCE_LOCAL));
    scene_free(&s);
}

Test(plan, ignores_a_copy_of_another_size)
{
    struct scene s;
    scene_init(&s, 1);
    fixture_hold(&s.inventories[0], &s.world, 0, V(1, 1));
    s.inventories[0].holdings[0].image_bytes += 4096;
    scene_plan(&s);
    cr_assert(version_none(s.plan.version));
    scene_free(&s);
}

/* The same machines with other ranks: node 1 now needs the shard of node 0, and so on. */
Test(plan, finds_the_shards_of_ranks_moved_between_nodes)
{
    struct scene s;
    scene_init(&s, 4);
    hold_everywhere(&s, V(3, 100));
    for (uint32_t r = 0; r < 4; r++) {
        s.world.node_of_rank[r] = (r + 1) % 4;
    }
    scene_plan(&s);
    assert_version(&s, V(3, 100));
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert(eq(int, action_of(&s, i, (i + 1) % 4)->source, SOURCE_PEER));
    }
    scene_free(&s);
}

Test(plan, uses_copies_of_a_node_outside_the_world)
{
    struct scene s;
    scene_init(&s, 2);
    s.inventories[2] = (struct inventory){.node = {.name = "gone", .agent_id = 5}};
    s.inventories[2].holdings = calloc(2, sizeof(struct holding));
    fixture_hold(&s.inventories[0], &s.world, 0, V(1, 1));
    fixture_hold(&s.inventories[2], &s.world, 1, V(1, 1));
    s.input.inventory_count = 3;
    scene_plan(&s);
    assert_version(&s, V(1, 1));
    cr_assert(eq(int, action_of(&s, 1, 1)->source, SOURCE_PEER));
    cr_assert(eq(u32, action_of(&s, 1, 1)->inventory, 2));
    scene_free(&s);
}

Test(plan, does_not_take_another_agent_of_the_same_name_for_the_node)
{
    struct scene s;
    scene_init(&s, 1);
    fixture_hold(&s.inventories[0], &s.world, 0, V(1, 1));
    s.inventories[0].node.agent_id++;
    scene_plan(&s);
    cr_assert(eq(int, action_of(&s, 0, 0)->source, SOURCE_PEER));
    scene_free(&s);
}

Test(plan, spreads_the_sending_over_equal_sources)
{
    struct scene s;
    s = (struct scene){.world = fixture_world(8, 1, 1)};
    for (uint32_t shard = 0; shard < 3; shard++) {
        fixture_add_shard(&s.world, 4096, 8, (uint32_t[]){0, 1, 2, 3, 4, 5, 6, 7});
    }
    for (uint32_t i = 0; i < 8; i++) {
        s.inventories[i] = fixture_inventory(&s.world, i);
    }
    for (uint32_t shard = 0; shard < 3; shard++) {
        fixture_hold(&s.inventories[0], &s.world, shard, V(1, 1));
        fixture_hold(&s.inventories[1], &s.world, shard, V(1, 1));
    }
    scene_plan(&s);
    uint32_t sent[8] = {0};
    for (uint32_t i = 0; i < s.plan.action_count; i++) {
        if (s.plan.actions[i].source == SOURCE_TWIN) {
            sent[s.plan.actions[i].inventory]++;
        }
    }
    cr_assert(eq(u32, sent[0], 9));
    cr_assert(eq(u32, sent[1], 9));
    scene_free(&s);
}

/* ---- exhaustive ------------------------------------------------------------------------------------------------ */

/* The newest version of which every shard is in the inventory of a live node or stored, by an exhaustive search. */
static struct version oracle(const struct scene *s, uint32_t dead, const struct version *versions, uint32_t count)
{
    for (uint32_t v = 0; v < count; v++) {
        uint32_t found = 0;
        for (uint32_t shard = 0; shard < s->world.shard_count; shard++) {
            bool here = false;
            for (uint32_t i = 0; i < s->world.node_count; i++) {
                for (uint32_t k = 0; k < s->inventories[i].count && !(dead & 1u << i); k++) {
                    const struct holding *h = &s->inventories[i].holdings[k];
                    here = here ||
                           (version_is(h->version, versions[v]) && hash128_is(h->shard, s->world.shards[shard].id));
                }
            }
            for (uint32_t i = 0; i < s->input.storage.stored_count; i++) {
                here = here || version_is(s->stored[i].version, versions[v]);
            }
            found += here;
        }
        if (found == s->world.shard_count) {
            return versions[v];
        }
    }
    return VERSION_NONE;
}

/* Each action names a live source that has the shard in the chosen version. */
static bool action_is_true(const struct scene *s, const struct plan_action *action)
{
    if (action->source == SOURCE_STORAGE) {
        return s->input.storage.stored_count > 0 && version_is(s->stored[0].version, s->plan.version);
    }
    const struct inventory *inventory = &s->input.inventories[action->inventory];
    bool local = strcmp(inventory->node.name, s->world.nodes[action->node].name) == 0;
    for (uint32_t k = 0; k < inventory->count; k++) {
        const struct holding *h = &inventory->holdings[k];
        if (version_is(h->version, s->plan.version) && hash128_is(h->shard, s->world.shards[action->shard].id)) {
            return local == (action->source == SOURCE_LOCAL);
        }
    }
    return false;
}

static void check_survivors(struct scene *s, uint32_t dead)
{
    static const struct version versions[] = {{3, 30}, {3, 20}, {2, 40}};
    struct version expected = oracle(s, dead, versions, 3);
    struct inventory alive[NODES_MAX] = {0};
    struct plan_input input = s->input;
    struct error err;
    input.inventory_count = 0;
    for (uint32_t i = 0; i < s->world.node_count; i++) {
        if (!(dead & 1u << i)) {
            alive[input.inventory_count++] = s->inventories[i];
        }
    }
    s->input.inventories = input.inventories = alive;
    cr_assert(eq(int, plan_build(&input, &s->plan, &err), TCK_OK));
    cr_assert(version_is(s->plan.version, expected), "%u nodes, dead %x: %s", s->world.node_count, dead,
              s->plan.reason);
    uint32_t right = 0;
    for (uint32_t i = 0; i < s->plan.action_count; i++) {
        right += action_is_true(s, &s->plan.actions[i]);
    }
    cr_assert(eq(u32, right, s->plan.action_count));
    plan_free(&s->plan);
}

/* Worlds of 1 to 6 nodes with private shards and twins; 3.30 in all copies, 3.20 only by owners, 2.40 stored or not. */
Test(plan, agrees_with_a_search_of_everything_for_all_sets_of_dead_nodes)
{
    for (uint32_t c = 0; c < 12; c++) {
        uint32_t nodes = 1 + c / 2;
        struct scene s;
        s = (struct scene){.world = fixture_world(nodes, 1, 1)};
        fixture_add_private_shards(&s.world, 4096);
        fixture_add_shard(&s.world, 8192, nodes, (uint32_t[]){0, 1, 2, 3, 4, 5});
        for (uint32_t i = 0; i < nodes; i++) {
            s.inventories[i] = fixture_inventory(&s.world, i);
            fixture_hold(&s.inventories[i], &s.world, i, V(3, 20));
            fixture_hold(&s.inventories[i], &s.world, nodes, V(3, 20));
        }
        hold_everywhere(&s, V(3, 30));
        if (c % 2 == 1) {
            store(&s, V(2, 40), 0, s.world.shard_count);
        }
        scene_plan(&s);
        plan_free(&s.plan);
        for (uint32_t dead = 0; dead < 1u << nodes; dead++) {
            check_survivors(&s, dead);
        }
        scene_free(&s);
    }
}

Test(plan, is_printed_with_names)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 100));
    fixture_hold(&s.inventories[0], &s.world, 0, V(3, 120));
    forget(&s.inventories[1]);
    scene_plan(&s);
    json_t *json = plan_json(&s.plan, &s.input);
    uint64_t step = 0;
    cr_assert(json_u64(json_get(json_get(json, "version"), "step"), &step));
    cr_assert(eq(u64, step, 100));
    const json_t *action = json_next(json_first(json_get(json, "actions")));
    cr_assert_str_eq(json_str(json_get(action, "node")), "node1");
    cr_assert_str_eq(json_str(json_get(action, "source")), "peer");
    cr_assert_str_eq(json_str(json_get(action, "from")), "node0");
    cr_assert_str_eq(json_str(json_get(action, "for")), "owner");
    cr_assert(eq(sz, json_len(json_get(json, "passed_over")), 1));
    cr_assert(json_get(json_get(json, "bytes_by_source"), "peer") != NULL);
    json_free(json);
    scene_free(&s);
}

Test(plan, handles_sixteen_thousand_nodes)
{
    struct world w = fixture_world(16384, 1, 1);
    struct placement p;
    struct error err;
    struct plan plan;
    for (uint32_t i = 0; i < 3; i++) {
        fixture_add_private_shards(&w, 4096);
    }
    cr_assert(eq(int, placement_build(&w, 2, &p, &err), TCK_OK));
    struct inventory *inventories = calloc(w.node_count, sizeof(*inventories));
    cr_assert(inventories != NULL);
    for (uint32_t i = 0; i < w.node_count; i++) {
        inventories[i] = fixture_inventory(&w, i);
    }
    for (uint32_t shard = 0; shard < w.shard_count; shard++) {
        for (uint64_t step = 1; step <= 3; step++) {
            fixture_hold(&inventories[p.owners[p.shards[shard].first_owner]], &w, shard, V(1, step));
            fixture_hold(&inventories[p.shards[shard].holders[0]], &w, shard, V(1, step));
        }
    }
    forget(&inventories[77]);
    struct plan_input input = {.world = &w, .placement = &p, .inventory_count = w.node_count, .step = TCK_NEWEST};
    input.inventories = inventories;
    input.storage.complete = true;
    cr_assert(eq(int, plan_build(&input, &plan, &err), TCK_OK));
    cr_assert(version_is(plan.version, V(1, 3)), "%s", plan.reason);
    cr_assert(eq(u64, plan.bytes_by_source[SOURCE_PEER], 3 * 4096), "what the lost node owned");
    cr_assert(eq(u64, plan.bytes_by_source[SOURCE_TWIN], 3 * 4096), "what it held");
    for (uint32_t i = 0; i < w.node_count; i++) {
        inventory_free(&inventories[i]);
    }
    free(inventories);
    plan_free(&plan);
    placement_free(&p);
    world_free(&w);
}

/* ---- versions that storage cannot deliver ---------------------------------------------------------------------- */

static void unfit(struct scene *s, struct version version, enum standing standing, const char *why)
{
    static struct unfit_version list[4]; /* each test runs in its own process */
    list[s->input.storage.unfit_count++] = (struct unfit_version){version, standing, why};
    s->input.storage.unfit = list;
}

static void expect_blocked(const struct scene *s, enum plan_block block, const char *text)
{
    cr_assert(version_none(s->plan.version) && version_none(s->plan.reshard), "%s", s->plan.reason);
    cr_assert(eq(int, s->plan.blocked, block), "%s", s->plan.reason);
    cr_assert(not(s->plan.nothing_saved));
    cr_assert(strstr(s->plan.reason, text) != NULL, "%s", s->plan.reason);
}

static void expect_loss(const struct scene *s, const char *text)
{
    cr_assert(version_none(s->plan.version) && s->plan.blocked == BLOCK_NONE, "%s", s->plan.reason);
    cr_assert(not(s->plan.nothing_saved));
    cr_assert(strstr(s->plan.reason, text) != NULL, "%s", s->plan.reason);
    cr_assert(strstr(s->plan.reason, "tierckpt forget") != NULL, "%s", s->plan.reason);
}

Test(plan, the_only_version_being_damaged_is_a_loss)
{
    struct scene s;
    scene_init(&s, 2);
    unfit(&s, V(1, 3), STANDING_DAMAGED, "shard-1: has 3 bytes");
    scene_plan(&s);
    expect_loss(&s, "version 1.3 is damaged on storage: shard-1: has 3 bytes");
    scene_free(&s);
}

Test(plan, an_older_version_in_place_of_a_damaged_one_is_reported)
{
    struct scene s;
    scene_init(&s, 2);
    store(&s, V(2, 50), 0, 2);
    unfit(&s, V(2, 60), STANDING_DAMAGED, "no manifest");
    scene_plan(&s);
    assert_version(&s, V(2, 50));
    cr_assert(strstr(s.plan.passed_text, "version 2.60 is damaged on storage: no manifest") != NULL);
    scene_free(&s);
}

Test(plan, no_older_version_is_taken_in_place_of_one_that_cannot_be_read)
{
    struct scene s;
    scene_init(&s, 2);
    store(&s, V(2, 50), 0, 2);
    unfit(&s, V(2, 60), STANDING_UNREADABLE, "manifest.json: Input/output error");
    scene_plan(&s);
    expect_blocked(&s, BLOCK_UNREADABLE, "version 2.60 cannot be read now: manifest.json: Input/output error");
    scene_free(&s);
}

Test(plan, no_older_version_is_taken_in_place_of_one_of_another_format)
{
    struct scene s;
    scene_init(&s, 2);
    store(&s, V(2, 50), 0, 2);
    unfit(&s, V(2, 60), STANDING_FOREIGN, "format 2");
    scene_plan(&s);
    expect_blocked(&s, BLOCK_FOREIGN, "version 2.60 cannot be read by this build: format 2");
    scene_free(&s);
}

Test(plan, an_older_version_that_cannot_be_read_does_not_block_the_choice)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 70));
    unfit(&s, V(3, 70), STANDING_UNREADABLE, "manifest.json: Input/output error");
    unfit(&s, V(2, 60), STANDING_UNREADABLE, "manifest.json: Input/output error");
    scene_plan(&s);
    assert_version(&s, V(3, 70));
    cr_assert(s.plan.passed_text[0] == 0);
    scene_free(&s);
}

/* The version would be read from storage. */
Test(plan, a_stored_version_that_cannot_be_read_now_is_not_only_in_memory)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 70));
    make_foreign(&s, V(3, 70), true);
    unfit(&s, V(3, 70), STANDING_UNREADABLE, "manifest.json: Input/output error");
    unfit(&s, V(2, 60), STANDING_FOREIGN, "format 2");
    scene_plan(&s);
    expect_blocked(&s, BLOCK_UNREADABLE, "version 3.70 cannot be read now: manifest.json: Input/output error");
    cr_assert_not(plan_waits_for_storage(&s.plan));
    scene_free(&s);
}

Test(plan, a_version_that_is_damaged_on_storage_is_only_in_memory)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 70));
    make_foreign(&s, V(3, 70), true);
    unfit(&s, V(3, 70), STANDING_DAMAGED, "no manifest");
    scene_plan(&s);
    expect_unsaved(&s, "version 3.70 has another layout, and only memory has it");
    scene_free(&s);
}

Test(plan, storage_that_cannot_be_listed_may_have_the_version_of_another_layout)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(6, 70));
    make_foreign(&s, V(6, 70), true);
    s.inventories[1].watermark = V(6, 70);
    s.input.storage.why = "list the directory: Input/output error";
    scene_plan(&s);
    expect_blocked(&s, BLOCK_UNREADABLE,
                   "version 6.70 has another layout, for which it is read from storage, and it is not known whether it "
                   "is there: list the directory: Input/output error");
    cr_assert_not(plan_waits_for_storage(&s.plan));
    scene_free(&s);
}

Test(plan, a_requested_step_is_not_blocked_by_another_version_that_cannot_be_read)
{
    struct scene s;
    scene_init(&s, 2);
    store(&s, V(2, 50), 0, 2);
    unfit(&s, V(2, 60), STANDING_UNREADABLE, "manifest.json: Input/output error");
    s.input.step = 50;
    scene_plan(&s);
    assert_version(&s, V(2, 50));
    scene_free(&s);
}

/* The world of these tests is of term 7. */
Test(plan, memory_of_the_term_before_needs_no_storage)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(6, 70));
    s.input.storage.why = "list the directory: Input/output error";
    scene_plan(&s);
    assert_version(&s, V(6, 70));
    scene_free(&s);
}

Test(plan, memory_of_an_older_term_needs_storage_to_be_the_newest)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(5, 70));
    s.input.storage.why = "list the directory: Input/output error";
    scene_plan(&s);
    expect_blocked(&s, BLOCK_UNREADABLE, "list the directory: Input/output error");
    scene_free(&s);
}

/* Term 6 was given to a start that saved nothing. */
Test(plan, memory_of_the_last_term_that_saved_anything_needs_no_storage)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(5, 70));
    s.input.storage.why = "list the directory: Input/output error";
    s.input.unused_terms = 1;
    scene_plan(&s);
    assert_version(&s, V(5, 70));
    scene_free(&s);
}

/* Its commit is known, and its copies in memory are lost. */
Test(plan, a_newer_commit_may_be_on_storage_that_cannot_be_listed)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(6, 70));
    s.inventories[1].watermark = V(6, 80);
    s.input.storage.why = "list the directory: Input/output error";
    scene_plan(&s);
    expect_blocked(&s, BLOCK_UNREADABLE, "list the directory: Input/output error");
    scene_free(&s);
}

Test(plan, the_missing_shards_of_a_newer_commit_may_be_on_storage_that_cannot_be_listed)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(6, 70));
    fixture_hold(&s.inventories[0], &s.world, 0, V(6, 80));
    for (uint32_t i = 0; i < s.inventories[0].count; i++) {
        s.inventories[0].holdings[i].committed = true;
    }
    s.input.storage.why = "list the directory: Input/output error";
    scene_plan(&s);
    expect_blocked(&s, BLOCK_UNREADABLE, "list the directory: Input/output error");
    scene_free(&s);
}

Test(plan, a_base_that_was_chosen_before_needs_no_storage)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(5, 70));
    s.input.storage.why = "list the directory: Input/output error";
    s.input.only = V(5, 70);
    scene_plan(&s);
    assert_version(&s, V(5, 70));
    scene_free(&s);
}

Test(plan, storage_that_cannot_be_listed_is_no_fresh_start)
{
    struct scene s;
    scene_init(&s, 2);
    s.input.storage.why = "list the directory: Input/output error";
    scene_plan(&s);
    expect_blocked(&s, BLOCK_UNREADABLE, "list the directory: Input/output error");
    scene_free(&s);
}

/* Storage has these two versions, and a file of the newer one is damaged. */
static void store_two_and_damage_one(struct scene *s, struct version newer, struct version older)
{
    static struct hash128 shards[2];
    static struct bad_copy bad;
    for (uint32_t i = 0; i < 2; i++) {
        shards[i] = s->world.shards[i].id;
    }
    s->stored[0] = (struct stored_version){newer, s->world.layout, 2, shards};
    s->stored[1] = (struct stored_version){older, s->world.layout, 2, shards};
    s->input.storage.stored_count = 2;
    bad = (struct bad_copy){.shard = shards[1], .version = newer, .inventory = NONE32};
    s->input.bad = &bad;
    s->input.bad_count = 1;
}

/* Storage has 3.20, which is damaged, and versions from 3.10 on whose content was not read. */
static void store_a_damaged_one_and_unread_ones(struct scene *s)
{
    scene_init(s, 2);
    unfit(s, V(3, 20), STANDING_DAMAGED, "no manifest");
    s->input.storage.deeper = V(3, 10);
}

static void expect_deeper(struct scene *s)
{
    scene_plan(s);
    cr_assert(eq(int, s->plan.blocked, BLOCK_DEEPER), "%s", s->plan.reason);
    cr_assert(version_none(s->plan.version) && version_none(s->plan.reshard) && !s->plan.nothing_saved);
}

Test(plan, versions_on_storage_that_were_not_read_come_before_older_ones)
{
    struct scene s;
    store_a_damaged_one_and_unread_ones(&s);
    expect_deeper(&s);
    hold_everywhere(&s, V(3, 5));
    expect_deeper(&s);
    hold_everywhere(&s, V(3, 10));
    expect_deeper(&s);
    hold_everywhere(&s, V(3, 15));
    scene_plan(&s);
    assert_version(&s, V(3, 15));
    scene_free(&s);
}

Test(plan, one_that_cannot_be_read_blocks_before_older_ones_are_read)
{
    struct scene s;
    store_a_damaged_one_and_unread_ones(&s);
    unfit(&s, V(3, 15), STANDING_UNREADABLE, "manifest.json: Input/output error");
    unfit(&s, V(3, 5), STANDING_FOREIGN, "format 2");
    scene_plan(&s);
    expect_blocked(&s, BLOCK_UNREADABLE, "version 3.15 cannot be read now: manifest.json: Input/output error");
    scene_free(&s);
}

Test(plan, all_of_a_step_that_is_asked_for_were_read)
{
    struct scene s;
    store_a_damaged_one_and_unread_ones(&s);
    store(&s, V(3, 5), 0, 2);
    expect_deeper(&s);
    s.input.step = 5;
    scene_plan(&s);
    assert_version(&s, V(3, 5));
    s.input.step = 6;
    scene_plan(&s);
    cr_assert(eq(int, s.plan.blocked, BLOCK_NONE));
    cr_assert(strstr(s.plan.reason, "step 6: no copy was seen") != NULL, "%s", s.plan.reason);
    scene_free(&s);
}

static void plan_without_archive(struct scene *s)
{
    s->input.storage.newest_only = true;
    s->input.storage.why = "archive_dir /a: Input/output error";
    scene_plan(s);
}

Test(plan, takes_no_version_before_a_damaged_one_if_the_archive_was_not_listed)
{
    struct scene s;
    scene_init(&s, 2);
    store_two_and_damage_one(&s, V(3, 20), V(3, 10));
    scene_plan(&s);
    cr_assert(version_is(s.plan.version, V(3, 10)), "%s", s.plan.reason);
    plan_without_archive(&s);
    expect_blocked(&s, BLOCK_UNREADABLE, "it is not known which older versions the archive has: archive_dir /a: Input");
    cr_assert(strstr(s.plan.reason, "version 3.20: 1 of 2 shards have no copy") != NULL, "%s", s.plan.reason);
    s.input.storage.stored_count = 1;
    plan_without_archive(&s);
    expect_blocked(&s, BLOCK_UNREADABLE, "it is not known which older versions the archive has");
    hold_everywhere(&s, V(3, 15));
    plan_without_archive(&s);
    expect_blocked(&s, BLOCK_UNREADABLE, "it is not known which older versions the archive has");
    scene_free(&s);
}

Test(plan, takes_what_is_not_older_than_the_newest_of_save_dir_if_the_archive_was_not_listed)
{
    struct scene s;
    scene_init(&s, 2);
    store_two_and_damage_one(&s, V(3, 20), V(3, 10));
    s.input.bad_count = 0;
    plan_without_archive(&s);
    cr_assert(version_is(s.plan.version, V(3, 20)), "%s", s.plan.reason);
    s.input.bad_count = 1;
    hold_everywhere(&s, V(3, 25));
    plan_without_archive(&s);
    cr_assert(version_is(s.plan.version, V(3, 25)), "%s", s.plan.reason);
    scene_free(&s);
}

Test(plan, a_base_that_only_the_archive_may_have_is_not_lost)
{
    struct scene s;
    scene_init(&s, 2);
    store_two_and_damage_one(&s, V(3, 20), V(3, 10));
    s.input.step = 8;
    s.input.only = V(3, 8);
    plan_without_archive(&s);
    expect_blocked(&s, BLOCK_UNREADABLE, "it is not known which older versions the archive has");
    s.input.step = 10;
    s.input.only = V(3, 10);
    plan_without_archive(&s);
    cr_assert(version_is(s.plan.version, V(3, 10)), "%s", s.plan.reason);
    s.input.step = 30;
    s.input.only = V(3, 30);
    plan_without_archive(&s);
    cr_assert(eq(int, s.plan.blocked, BLOCK_NONE), "the archive has nothing newer than save_dir: %s", s.plan.reason);
    scene_free(&s);
}

Test(plan, a_noted_commit_is_no_fresh_start)
{
    struct scene s;
    scene_init(&s, 2);
    s.input.storage.noted = V(4, 0);
    scene_plan(&s);
    expect_loss(&s, "term 4 has committed a version, and no copy of it was found");
    scene_free(&s);
}

Test(plan, a_watermark_without_any_copy_is_no_fresh_start)
{
    struct scene s;
    scene_init(&s, 2);
    s.inventories[1].watermark = V(4, 12);
    scene_plan(&s);
    expect_loss(&s, "version 4.12 was committed, and no copy of it was found");
    scene_free(&s);
}

Test(plan, a_note_that_cannot_be_read_now_is_no_fresh_start)
{
    struct scene s;
    scene_init(&s, 2);
    s.input.storage.unsure = "term.3: Input/output error";
    s.input.storage.unsure_passes = true;
    scene_plan(&s);
    expect_blocked(&s, BLOCK_UNREADABLE, "term.3: Input/output error");
    scene_free(&s);
}

Test(plan, a_damaged_note_is_no_fresh_start)
{
    struct scene s;
    scene_init(&s, 2);
    s.input.storage.unsure = "term.3: malformed";
    scene_plan(&s);
    expect_loss(&s, "term.3: malformed");
    scene_free(&s);
}

Test(plan, an_older_version_than_a_noted_commit_is_reported)
{
    struct scene s;
    scene_init(&s, 2);
    store(&s, V(2, 50), 0, 2);
    s.input.storage.noted = V(4, 0);
    scene_plan(&s);
    assert_version(&s, V(2, 50));
    cr_assert(strstr(s.plan.passed_text, "term 4 has committed") != NULL, "%s", s.plan.passed_text);
    scene_free(&s);
}

Test(plan, a_version_of_the_term_that_noted_a_commit_passes_nothing_over)
{
    struct scene s;
    scene_init(&s, 2);
    store(&s, V(4, 50), 0, 2);
    s.input.storage.noted = V(4, 0);
    scene_plan(&s);
    assert_version(&s, V(4, 50));
    cr_assert(eq(u32, s.plan.passed_count, 0));
    scene_free(&s);
}

/* A save that was in progress when the job ended: it was never reported as safe. */
Test(plan, a_version_that_was_never_committed_is_passed_over_without_a_report)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 110));
    fixture_hold(&s.inventories[0], &s.world, 0, V(3, 120));
    for (uint32_t i = 0; i < s.inventories[0].count; i++) {
        struct holding *h = &s.inventories[0].holdings[i];
        h->committed = h->version.step == 110;
    }
    scene_plan(&s);
    assert_version(&s, V(3, 110));
    cr_assert(s.plan.passed_text[0] == 0, "%s", s.plan.passed_text);
    scene_free(&s);
}

/* The commit had been restored by the term of that save, and was lost in that term. */
Test(plan, a_save_that_was_never_committed_hides_no_lost_commit_before_it)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(1, 72));
    fixture_hold(&s.inventories[0], &s.world, 0, V(3, 96));
    for (uint32_t i = 0; i < s.inventories[0].count; i++) {
        struct holding *h = &s.inventories[0].holdings[i];
        h->committed = h->version.step == 72;
    }
    s.inventories[0].watermark = V(1, 78);
    scene_plan(&s);
    assert_version(&s, V(1, 72));
    cr_assert(strstr(s.plan.passed_text, "version 1.78 was committed") != NULL, "%s", s.plan.passed_text);
    scene_free(&s);
}

/* Headers are marked after the commit; an agent may have learned of the commit before that. */
Test(plan, a_commit_that_an_agent_knows_is_reported_even_if_no_header_is_marked)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 110));
    fixture_hold(&s.inventories[0], &s.world, 0, V(3, 120));
    for (uint32_t i = 0; i < s.inventories[0].count; i++) {
        struct holding *h = &s.inventories[0].holdings[i];
        h->committed = h->version.step == 110;
    }
    s.inventories[1].watermark = V(3, 120);
    scene_plan(&s);
    assert_version(&s, V(3, 110));
    cr_assert(strstr(s.plan.passed_text, "version 3.120: 1 of ") != NULL, "%s", s.plan.passed_text);
    scene_free(&s);
}

/* More versions than the plan has room for, from this one on. */
static void hold_many_uncommitted(struct inventory *inventory, const struct world *world, struct version first)
{
    for (uint64_t i = 0; i <= PLAN_PASSED_MAX; i++) {
        fixture_hold(inventory, world, 0, V(first.term, first.step + i));
    }
    for (uint32_t i = 0; i < inventory->count; i++) {
        struct holding *h = &inventory->holdings[i];
        h->committed = h->committed && version_cmp(h->version, first) < 0;
    }
}

/* Each start may leave some behind, and with many nodes there are many. */
Test(plan, a_lost_commit_is_reported_whatever_the_number_of_uncommitted_saves_after_it)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 110));
    hold_many_uncommitted(&s.inventories[0], &s.world, V(3, 121));
    fixture_hold(&s.inventories[0], &s.world, 0, V(3, 120));
    scene_plan(&s);
    assert_version(&s, V(3, 110));
    cr_assert(strstr(s.plan.passed_text, "version 3.120: 1 of ") != NULL, "%s", s.plan.passed_text);
    s.input.storage.why = "it does not answer";
    scene_plan(&s);
    cr_assert(eq(int, s.plan.blocked, BLOCK_UNREADABLE), "storage may have it: %s", s.plan.reason);
    scene_free(&s);
}

Test(plan, an_unreadable_version_is_named_whatever_the_number_of_uncommitted_saves_after_it)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 110));
    hold_many_uncommitted(&s.inventories[0], &s.world, V(3, 121));
    const struct unfit_version unfit = {.version = V(3, 120), .standing = STANDING_UNREADABLE, .why = "EIO"};
    s.input.storage.unfit = &unfit;
    s.input.storage.unfit_count = 1;
    scene_plan(&s);
    cr_assert(eq(int, s.plan.blocked, BLOCK_UNREADABLE), "%s", s.plan.reason);
    cr_assert(strstr(s.plan.reason, "version 3.120 cannot be read now: EIO") != NULL, "%s", s.plan.reason);
    scene_free(&s);
}

/* A coordinator that died may have been the only one that knew of its commit. */
Test(plan, a_version_that_was_restored_before_is_reported_if_it_is_passed_over)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 110));
    s.inventories[1].base = V(3, 120);
    scene_plan(&s);
    assert_version(&s, V(3, 110));
    cr_assert(strstr(s.plan.passed_text, "version 3.120 was restored before") != NULL, "%s", s.plan.passed_text);
    s.inventories[1].watermark = V(3, 120);
    scene_plan(&s);
    cr_assert(strstr(s.plan.passed_text, "version 3.120 was committed") != NULL, "%s", s.plan.passed_text);
    scene_free(&s);
}

/* Its commit may not be known to anyone, but trainers have continued from it. */
Test(plan, a_version_that_was_restored_before_and_is_lost_is_no_fresh_start)
{
    struct scene s;
    scene_init(&s, 2);
    s.inventories[1].base = V(3, 120);
    scene_plan(&s);
    cr_assert_not(s.plan.nothing_saved, "%s", s.plan.reason);
    cr_assert(strstr(s.plan.reason, "version 3.120 was restored before") != NULL, "%s", s.plan.reason);
    fixture_hold(&s.inventories[0], &s.world, 0, V(3, 120));
    s.inventories[0].holdings[0].committed = false;
    scene_plan(&s);
    cr_assert_not(s.plan.nothing_saved, "%s", s.plan.reason);
    s.input.storage.forgotten = 3;
    scene_plan(&s);
    cr_assert(s.plan.nothing_saved, "%s", s.plan.reason);
    scene_free(&s);
}

static void remember(struct inventory *inventory, uint64_t term, struct version base, const char *passed_over)
{
    inventory->base = base;
    inventory->base_term = term;
    snprintf(inventory->passed_over, sizeof(inventory->passed_over), "%s", passed_over);
}

/* The term that chose it may have ended, and its coordinator been lost, before this was reported to its trainers. */
Test(plan, a_version_that_is_restored_again_is_reported_with_the_versions_that_any_agent_knows_it_replaced)
{
    struct scene s;
    scene_init(&s, 3);
    hold_everywhere(&s, V(3, 110));
    remember(&s.inventories[2], 4, V(3, 110), "version 3.120 is damaged");
    scene_plan(&s);
    assert_version(&s, V(3, 110));
    cr_assert_str_eq(s.plan.passed_text, "version 3.120 is damaged");
    scene_free(&s);
}

Test(plan, versions_that_another_version_replaced_are_not_reported_for_this_one)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 110));
    remember(&s.inventories[1], 2, V(1, 40), "version 1.50 is damaged");
    scene_plan(&s);
    assert_version(&s, V(3, 110));
    cr_assert(s.plan.passed_text[0] == 0, "%s", s.plan.passed_text);
    scene_free(&s);
}

Test(plan, the_newest_term_counts_where_agents_remember_different_things)
{
    struct scene s;
    scene_init(&s, 3);
    hold_everywhere(&s, V(3, 110));
    remember(&s.inventories[0], 0, V(3, 110), "of a build that did not keep the term");
    remember(&s.inventories[1], 6, V(3, 110), "version 5.130 is damaged");
    remember(&s.inventories[2], 5, V(3, 110), "version 3.120 is damaged");
    scene_plan(&s);
    cr_assert_str_eq(s.plan.passed_text, "version 5.130 is damaged");
    scene_free(&s);
}

/* That term may have reached no agent that knew the reason. */
Test(plan, a_later_term_that_reported_nothing_hides_nothing)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 110));
    remember(&s.inventories[0], 5, V(3, 110), "");
    remember(&s.inventories[1], 4, V(3, 110), "version 3.120 is damaged");
    scene_plan(&s);
    cr_assert_str_eq(s.plan.passed_text, "version 3.120 is damaged");
    scene_free(&s);
}

Test(plan, versions_passed_over_now_are_reported_before_those_passed_over_earlier)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 110));
    remember(&s.inventories[0], 4, V(3, 110), "version 3.120 is damaged");
    s.inventories[1].watermark = V(4, 130);
    scene_plan(&s);
    assert_version(&s, V(3, 110));
    cr_assert(strstr(s.plan.passed_text, "version 4.130 was committed") != NULL, "%s", s.plan.passed_text);
    scene_free(&s);
}

/* It is no loss: the user who requests a step has chosen it. */
Test(plan, nothing_is_reported_for_a_requested_step)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 110));
    remember(&s.inventories[0], 4, V(3, 110), "version 3.120 is damaged");
    s.input.step = 110;
    scene_plan(&s);
    assert_version(&s, V(3, 110));
    cr_assert(s.plan.passed_text[0] == 0, "%s", s.plan.passed_text);
    scene_free(&s);
}

/* The base's only copies were damaged before they were protected, and an older version replaces it. */
Test(plan, a_base_that_was_given_up_is_reported)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 110));
    remember(&s.inventories[0], 4, V(3, 115), "version 3.120 is damaged");
    remember(&s.inventories[1], 4, V(3, 115), "version 3.120 is damaged");
    scene_plan(&s);
    assert_version(&s, V(3, 110));
    cr_assert(strstr(s.plan.passed_text, "version 3.115 was restored before") != NULL, "%s", s.plan.passed_text);
    scene_free(&s);
}

Test(plan, a_version_in_another_sharding_is_reported_with_the_versions_that_it_replaced_before)
{
    struct scene s;
    scene_init(&s, 2);
    store(&s, V(3, 110), 0, 2);
    s.stored[0].layout = (struct hash128){9, 9};
    remember(&s.inventories[1], 4, V(3, 110), "version 3.120 is damaged");
    scene_plan(&s);
    cr_assert(version_is(s.plan.reshard, V(3, 110)), "%s", s.plan.reason);
    cr_assert_str_eq(s.plan.passed_text, "version 3.120 is damaged");
    scene_free(&s);
}

Test(plan, forgotten_versions_do_not_count)
{
    struct scene s;
    scene_init(&s, 2);
    hold_everywhere(&s, V(3, 110));
    s.inventories[0].watermark = V(3, 110);
    s.input.storage.noted = V(3, 0);
    unfit(&s, V(3, 60), STANDING_DAMAGED, "no manifest");
    s.input.storage.forgotten = 3;
    scene_plan(&s);
    cr_assert(version_none(s.plan.version));
    cr_assert(s.plan.nothing_saved, "%s", s.plan.reason);
    scene_free(&s);
}

Test(plan, a_loss_reports_what_storage_has_of_the_version)
{
    struct scene s;
    scene_init(&s, 1);
    s.input.storage.noted = V(2, 35);
    unfit(&s, V(2, 30), STANDING_DAMAGED, "manifest.json ends at byte 599 of 601");
    scene_plan(&s);
    cr_assert(version_none(s.plan.version));
    cr_assert(strstr(s.plan.reason, "version 2.35 was committed") != NULL, "%s", s.plan.reason);
    cr_assert(strstr(s.plan.reason, "version 2.30 is damaged on storage: manifest.json ends at byte 599") != NULL, "%s",
              s.plan.reason);
    scene_free(&s);
}
