/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"
#include "recovery/recovery.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#define V(t, s)   ((struct version){(t), (s)})
#define NODES     4
#define WAIT_MS   1000
#define MAX_TRIES 2

/* Four nodes with a private shard each (shard i belongs to node i) and its copy on another one. */
struct course {
    struct world world;
    struct placement placement;
    struct recovery *recovery;
    struct recovery_action actions[256]; /* since the last check */
    uint32_t count;
    struct hash128 stored_shards[NODES];
    struct stored_version stored;
};

/* Steps the machine and records its actions. */
static void step(struct course *c, struct recovery_event event)
{
    struct recovery_actions actions;
    cr_assert(eq(int, recovery_actions_init(&actions), TCK_OK));
    recovery_step(c->recovery, &event, &actions);
    cr_assert(le(u32, c->count + actions.count, 256));
    memcpy(c->actions + c->count, actions.items, actions.count * sizeof(*actions.items));
    c->count += actions.count;
    recovery_actions_free(&actions);
}

static void step_start(struct course *c, uint64_t step_wanted, uint64_t now_ms)
{
    step(c, (struct recovery_event){.type = RECOVERY_EVENT_START, .now_ms = now_ms, .step = step_wanted});
}

static void step_resume(struct course *c, struct version base, uint64_t now_ms)
{
    step(c, (struct recovery_event){.type = RECOVERY_EVENT_RESUME, .now_ms = now_ms, .version = base});
}

static void step_inventory(struct course *c, struct inventory *inventory, uint64_t now_ms)
{
    step(c, (struct recovery_event){.type = RECOVERY_EVENT_INVENTORY, .now_ms = now_ms, .inventory = inventory});
}

static void step_known(struct course *c, const struct known_node *known)
{
    step(c, (struct recovery_event){.type = RECOVERY_EVENT_KNOWN, .known = known});
}

static void step_asked_all(struct course *c, uint64_t now_ms)
{
    step(c, (struct recovery_event){.type = RECOVERY_EVENT_ASKED_ALL, .now_ms = now_ms});
}

static void step_stored(struct course *c, const struct storage_view *storage, uint64_t now_ms)
{
    step(c, (struct recovery_event){.type = RECOVERY_EVENT_STORED, .now_ms = now_ms, .storage = storage});
}

static void step_fetched(struct course *c, uint32_t node, uint32_t shard, struct version version, tck_status_t outcome,
                         uint64_t now_ms)
{
    step(c, (struct recovery_event){.type = RECOVERY_EVENT_FETCHED,
                                    .now_ms = now_ms,
                                    .node = node,
                                    .shard = shard,
                                    .version = version,
                                    .outcome = outcome});
}

static void step_node_down(struct course *c, uint32_t node, uint64_t now_ms)
{
    step(c, (struct recovery_event){.type = RECOVERY_EVENT_NODE_DOWN, .now_ms = now_ms, .node = node});
}

static void step_node_up(struct course *c, uint32_t node)
{
    step(c, (struct recovery_event){.type = RECOVERY_EVENT_NODE_UP, .node = node});
}

static void step_tick(struct course *c, uint64_t now_ms)
{
    step(c, (struct recovery_event){.type = RECOVERY_EVENT_TICK, .now_ms = now_ms});
}

static void step_slots_needed(struct course *c, uint64_t now_ms)
{
    step(c, (struct recovery_event){.type = RECOVERY_EVENT_SLOTS_NEEDED, .now_ms = now_ms});
}

static void course_init(struct course *c)
{
    struct error err;
    *c = (struct course){.world = fixture_world(NODES, 1, 1)};
    fixture_add_private_shards(&c->world, 4096);
    cr_assert(eq(int, placement_build(&c->world, 2, &c->placement, &err), TCK_OK));
    struct recovery_setup setup = {.world = &c->world,
                                   .placement = &c->placement,
                                   .wait_ms = WAIT_MS,
                                   .max_tries = MAX_TRIES,
                                   .first_owner_suffices = false,
                                   .storage_wait_ms = 0,
                                   .storage_hang_ms = 0};
    cr_assert(eq(int, recovery_new(&setup, &c->recovery), TCK_OK));
    step_start(c, TCK_NEWEST, 0);
}

static void course_free(struct course *c)
{
    recovery_free(c->recovery);
    placement_free(&c->placement);
    world_free(&c->world);
}

static uint32_t holder_of(const struct course *c, uint32_t shard)
{
    return c->placement.shards[shard].holders[0];
}

static uint32_t held_by(const struct course *c, uint32_t node)
{
    for (uint32_t shard = 0; shard < NODES; shard++) {
        if (holder_of(c, shard) == node) {
            return shard;
        }
    }
    cr_fatal("node %u holds nothing", node);
}

/* The node answers with every copy that it should have of these versions, as an owner and as a holder (up to
 * VERSION_NONE). */
static struct inventory make_inventory(struct course *c, uint32_t node, struct version watermark,
                                       const struct version *versions)
{
    struct inventory inventory = fixture_inventory(&c->world, node);
    inventory.watermark = watermark;
    for (; !version_none(*versions); versions++) {
        fixture_hold(&inventory, &c->world, node, *versions);
        fixture_hold(&inventory, &c->world, held_by(c, node), *versions);
    }
    return inventory;
}

static void answer(struct course *c, uint32_t node, struct version watermark, const struct version *versions,
                   uint64_t now_ms)
{
    struct inventory inventory = make_inventory(c, node, watermark, versions);
    step_inventory(c, &inventory, now_ms);
}

#define VERSIONS(...) ((const struct version[]){__VA_ARGS__, VERSION_NONE})

static void list_nothing(struct course *c)
{
    step_stored(c, &(struct storage_view){.complete = true}, 0);
}

static void list_stored(struct course *c, struct version version)
{
    for (uint32_t i = 0; i < NODES; i++) {
        c->stored_shards[i] = c->world.shards[i].id;
    }
    c->stored = (struct stored_version){version, c->world.layout, NODES, c->stored_shards};
    step_stored(c, &(struct storage_view){.complete = true, .stored_count = 1, .stored = &c->stored}, 0);
}

/* All nodes have 3.20 and 3.10, except for those in `without`, which answer that they have nothing. */
static void start_with_two_versions(struct course *c, uint32_t without)
{
    list_nothing(c);
    for (uint32_t i = 0; i < NODES; i++) {
        if (without & 1u << i) {
            answer(c, i, VERSION_NONE, VERSIONS(VERSION_NONE), 0);
        } else {
            answer(c, i, V(3, 20), VERSIONS(V(3, 10), V(3, 20)), 0);
        }
    }
    c->count = 0;
    step_asked_all(c, 0);
}

static uint32_t emitted(const struct course *c, enum recovery_action_type type)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        found += c->actions[i].type == type;
    }
    return found;
}

static const struct recovery_action *fetch_of(const struct course *c, uint32_t shard, uint32_t node)
{
    for (uint32_t i = c->count; i-- > 0;) {
        const struct recovery_action *a = &c->actions[i];
        if (a->type == RECOVERY_FETCH && a->shard == shard && a->node == node) {
            return a;
        }
    }
    cr_fatal("no fetch of shard %u by node %u", shard, node);
}

static void fetched(struct course *c, uint32_t shard, uint32_t node, struct version version, tck_status_t outcome)
{
    step_fetched(c, node, shard, version, outcome, 0);
}

static void owners_fetch(struct course *c, struct version version)
{
    for (uint32_t i = 0; i < NODES; i++) {
        fetched(c, i, i, version, TCK_OK);
    }
}

static enum recovery_phase phase(const struct course *c)
{
    return recovery_phase(c->recovery);
}

Test(recovery, asks_the_members_and_lists_storage_first)
{
    struct course c;
    course_init(&c);
    cr_assert(eq(u32, c.count, 2));
    cr_assert(eq(int, c.actions[0].type, RECOVERY_ASK));
    cr_assert(eq(int, c.actions[1].type, RECOVERY_LIST));
    cr_assert(eq(int, phase(&c), RECOVERY_ASKING));
    cr_assert(recovery_plan(c.recovery) == NULL);
    course_free(&c);
}

Test(recovery, is_ready_after_the_owners_and_protected_after_the_holders)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 0);
    cr_assert(eq(u32, emitted(&c, RECOVERY_FETCH), NODES));
    cr_assert(eq(int, fetch_of(&c, 2, 2)->source, SOURCE_LOCAL));
    for (uint32_t i = 0; i < NODES; i++) {
        cr_assert(eq(u32, emitted(&c, RECOVERY_READY), 0));
        fetched(&c, i, i, V(3, 20), TCK_OK);
    }
    cr_assert(eq(u32, emitted(&c, RECOVERY_READY), 1));
    cr_assert(eq(int, phase(&c), RECOVERY_PROTECTING));
    for (uint32_t i = 0; i < NODES; i++) {
        cr_assert(eq(u32, emitted(&c, RECOVERY_PROTECTED), 0));
        fetched(&c, i, holder_of(&c, i), V(3, 20), TCK_OK);
    }
    cr_assert(eq(u32, emitted(&c, RECOVERY_PROTECTED), 1));
    cr_assert(eq(int, phase(&c), RECOVERY_DONE));
    course_free(&c);
}

Test(recovery, reports_for_a_fresh_start_that_nothing_was_saved)
{
    struct course c;
    course_init(&c);
    list_nothing(&c);
    step_asked_all(&c, 0);
    cr_assert(eq(u32, emitted(&c, RECOVERY_NOTHING), 1));
    cr_assert(recovery_plan(c.recovery)->nothing_saved);
    course_free(&c);
}

Test(recovery, makes_no_fresh_start_while_an_agent_is_silent)
{
    struct course c;
    course_init(&c);
    list_nothing(&c);
    step_tick(&c, 10 * WAIT_MS);
    cr_assert(eq(int, phase(&c), RECOVERY_ASKING));
    course_free(&c);
}

Test(recovery, makes_no_fresh_start_without_a_member)
{
    struct course c;
    course_init(&c);
    list_nothing(&c);
    step_node_down(&c, 2, 0);
    step_asked_all(&c, 0);
    step_tick(&c, WAIT_MS);
    cr_assert(eq(int, phase(&c), RECOVERY_FAILED));
    cr_assert_not(recovery_plan(c.recovery)->nothing_saved);
    cr_assert(eq(int, recovery_failure(c.recovery), TCK_ERR_UNREACHABLE));
    course_free(&c);
}

Test(recovery, does_not_plan_before_storage_is_listed)
{
    struct course c;
    course_init(&c);
    step_asked_all(&c, 0);
    step_tick(&c, 10 * WAIT_MS);
    cr_assert(eq(int, phase(&c), RECOVERY_ASKING));
    list_stored(&c, V(2, 5));
    cr_assert(eq(int, phase(&c), RECOVERY_FETCHING));
    cr_assert(eq(int, fetch_of(&c, 0, 0)->source, SOURCE_STORAGE));
    course_free(&c);
}

Test(recovery, waits_for_a_silent_member)
{
    struct course c;
    course_init(&c);
    list_nothing(&c);
    for (uint32_t i = 1; i < NODES; i++) {
        answer(&c, i, V(3, 20), VERSIONS(V(3, 20)), 0);
    }
    step_tick(&c, 10 * WAIT_MS);
    cr_assert(eq(int, phase(&c), RECOVERY_ASKING));
    answer(&c, 0, V(3, 20), VERSIONS(V(3, 20)), 10 * WAIT_MS);
    cr_assert(eq(int, phase(&c), RECOVERY_FETCHING));
    course_free(&c);
}

Test(recovery, asks_again_when_a_member_returns)
{
    struct course c;
    course_init(&c);
    list_nothing(&c);
    step_node_down(&c, 2, 0);
    step_node_up(&c, 2);
    cr_assert(eq(u32, emitted(&c, RECOVERY_ASK), 2));
    course_free(&c);
}

Test(recovery, waits_for_a_commit_that_any_agent_knows)
{
    struct course c;
    course_init(&c);
    list_nothing(&c);
    for (uint32_t i = 0; i < NODES; i++) {
        answer(&c, i, V(3, 20), VERSIONS(V(3, 10)), 0);
    }
    step_asked_all(&c, 1);
    cr_assert(eq(int, phase(&c), RECOVERY_ASKING));
    step_tick(&c, WAIT_MS);
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 10)));
    course_free(&c);
}

Test(recovery, takes_the_commit_of_a_member_that_returned_in_time)
{
    struct course c;
    course_init(&c);
    list_nothing(&c);
    for (uint32_t i = 0; i < 2; i++) {
        answer(&c, i, V(3, 20), VERSIONS(V(3, 20)), 0);
    }
    step_asked_all(&c, 1);
    for (uint32_t i = 2; i < NODES; i++) {
        answer(&c, i, V(3, 20), VERSIONS(V(3, 20)), 2);
    }
    cr_assert(eq(int, phase(&c), RECOVERY_FETCHING));
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 20)));
    course_free(&c);
}

Test(recovery, takes_another_copy_for_a_corrupt_one)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 0);
    fetched(&c, 1, 1, V(3, 20), TCK_ERR_CORRUPT);
    cr_assert(eq(u32, emitted(&c, RECOVERY_FETCH), NODES + 1), "what is under way is not asked for again");
    cr_assert(eq(int, fetch_of(&c, 1, 1)->source, SOURCE_PEER));
    owners_fetch(&c, V(3, 20));
    cr_assert(eq(u32, emitted(&c, RECOVERY_READY), 1));
    course_free(&c);
}

Test(recovery, falls_back_when_the_last_copy_is_corrupt)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 0);
    fetched(&c, 0, 0, V(3, 20), TCK_OK);
    fetched(&c, 1, 1, V(3, 20), TCK_ERR_CORRUPT);
    fetched(&c, 1, 1, V(3, 20), TCK_ERR_NOENT);
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 10)), "%s", recovery_plan(c.recovery)->reason);
    fetched(&c, 2, 2, V(3, 20), TCK_OK); /* too late: it belongs to the former plan */
    owners_fetch(&c, V(3, 10));
    cr_assert(eq(u32, emitted(&c, RECOVERY_READY), 1));
    cr_assert(version_is(c.actions[c.count - 1].version, V(3, 10)));
    course_free(&c);
}

Test(recovery, requests_again_a_copy_that_was_damaged_in_transfer)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 0);
    fetched(&c, 1, 1, V(3, 20), TCK_ERR_CORRUPT); /* its own copy */
    fetched(&c, 1, 1, V(3, 20), TCK_ERR_CORRUPT); /* a peer's copy, or its transfer */
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 20)));
    c.count = 0;
    step_tick(&c, 1);
    cr_assert(eq(u32, c.count, 1));
    cr_assert(eq(int, fetch_of(&c, 1, 1)->source, SOURCE_PEER));
    owners_fetch(&c, V(3, 20));
    cr_assert(eq(u32, emitted(&c, RECOVERY_READY), 1));
    course_free(&c);
}

Test(recovery, does_not_return_to_a_version_that_was_passed_over)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 0);
    for (uint64_t i = 0; i < 12 * MAX_TRIES; i++) { /* neither version can be fetched */
        step_fetched(&c, 1, 1, V(3, 20), TCK_ERR_UNREACHABLE, i * WAIT_MS);
        step_fetched(&c, 1, 1, V(3, 10), TCK_ERR_UNREACHABLE, i * WAIT_MS);
        step_tick(&c, i * WAIT_MS);
    }
    cr_assert(eq(int, phase(&c), RECOVERY_FAILED));
    course_free(&c);
}

Test(recovery, has_nothing_when_every_copy_is_corrupt)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 0);
    for (uint64_t i = 0; i < 8 * MAX_TRIES; i++) { /* of each version its own copy, the peer's, and the peer's again */
        step_fetched(&c, 1, 1, V(3, 20), TCK_ERR_CORRUPT, i * WAIT_MS);
        step_fetched(&c, 1, 1, V(3, 10), TCK_ERR_CORRUPT, i * WAIT_MS);
        step_tick(&c, i * WAIT_MS);
    }
    cr_assert(eq(u32, emitted(&c, RECOVERY_NOTHING), 1));
    cr_assert(eq(int, phase(&c), RECOVERY_FAILED));
    cr_assert(not(recovery_plan(c.recovery)->nothing_saved));
    course_free(&c);
}

Test(recovery, tries_a_copy_out_of_reach_again_before_an_older_version)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 1u << 1); /* node 1 is new: one copy of its shard is left */
    for (uint32_t i = 0; i < MAX_TRIES; i++) {
        fetched(&c, 1, 1, V(3, 20), TCK_ERR_UNREACHABLE);
        cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 20)));
        c.count = 0;
        step_tick(&c, 1);
        cr_assert(eq(u32, c.count, 1));
        cr_assert(version_is(fetch_of(&c, 1, 1)->version, V(3, 20)));
    }
    fetched(&c, 1, 1, V(3, 20), TCK_ERR_UNREACHABLE);
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 20)), "it has not been waited for long enough");
    step_tick(&c, WAIT_MS - 1);
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 20)));
    step_fetched(&c, 1, 1, V(3, 20), TCK_ERR_UNREACHABLE, WAIT_MS);
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 10)));
    course_free(&c);
}

Test(recovery, takes_no_older_version_for_a_copy_out_of_reach_while_a_member_is_down)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 1u << 1);
    step_fetched(&c, 1, 1, V(3, 20), TCK_ERR_UNREACHABLE, 0);
    step_node_down(&c, 2, 1);
    for (uint64_t ms = WAIT_MS; ms < 20 * WAIT_MS; ms += WAIT_MS) {
        step_tick(&c, ms);
        step_fetched(&c, 1, 1, V(3, 20), TCK_ERR_UNREACHABLE, ms);
    }
    cr_assert(eq(u32, emitted(&c, RECOVERY_READY), 0));
    cr_assert_not(version_is(recovery_plan(c.recovery)->version, V(3, 10)));
    course_free(&c);
}

Test(recovery, stays_failed_when_a_new_plan_was_due)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 0);
    fetched(&c, 1, 1, V(3, 20), TCK_ERR_UNREACHABLE);
    fetched(&c, 1, 1, V(3, 20), TCK_ERR_UNREACHABLE);
    step_node_down(&c, 2, 5);
    step_tick(&c, 5 + WAIT_MS);
    cr_assert(eq(int, phase(&c), RECOVERY_FAILED));
    course_free(&c);
}

Test(recovery, never_returns_to_a_corrupt_copy_while_another_is_out_of_reach)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 0);
    fetched(&c, 1, 1, V(3, 20), TCK_ERR_CORRUPT); /* its own copy */
    fetched(&c, 1, 1, V(3, 20), TCK_ERR_TIMEDOUT);
    c.count = 0;
    step_tick(&c, 1);
    cr_assert(eq(u32, c.count, 1));
    cr_assert(eq(int, fetch_of(&c, 1, 1)->source, SOURCE_PEER));
    course_free(&c);
}

Test(recovery, fails_if_a_node_has_no_room_for_its_shard)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 0);
    fetched(&c, 1, 1, V(3, 20), TCK_ERR_NOSPC);
    cr_assert(eq(int, phase(&c), RECOVERY_FETCHING));
    step_tick(&c, 1);
    fetched(&c, 1, 1, V(3, 20), TCK_ERR_NOSPC);
    cr_assert(eq(int, phase(&c), RECOVERY_FAILED));
    const struct plan *plan = recovery_plan(c.recovery);
    cr_assert(strstr(plan->reason, "node node1 cannot take shard") != NULL, "%s", plan->reason);
    cr_assert(version_none(plan->version));
    course_free(&c);
}

Test(recovery, names_the_member_that_went_down_while_fetching)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 0);
    step_node_down(&c, 2, 5);
    step_tick(&c, 4 + WAIT_MS);
    cr_assert(eq(u32, emitted(&c, RECOVERY_NOTHING), 0));
    step_tick(&c, 5 + WAIT_MS);
    cr_assert(eq(u32, emitted(&c, RECOVERY_NOTHING), 1));
    cr_assert(strstr(recovery_plan(c.recovery)->reason, "node2") != NULL);
    owners_fetch(&c, V(3, 20));
    cr_assert(eq(u32, emitted(&c, RECOVERY_READY), 0));
    course_free(&c);
}

Test(recovery, names_the_member_that_went_down_while_asking)
{
    struct course c;
    course_init(&c);
    step_node_down(&c, 2, 0);
    start_with_two_versions(&c, 0);
    cr_assert(eq(int, phase(&c), RECOVERY_ASKING));
    step_tick(&c, WAIT_MS);
    cr_assert(eq(int, phase(&c), RECOVERY_FAILED));
    cr_assert(strstr(recovery_plan(c.recovery)->reason, "node2") != NULL);
    course_free(&c);
}

Test(recovery, continues_with_a_member_that_returned)
{
    struct course c;
    course_init(&c);
    step_node_down(&c, 2, 0);
    step_node_up(&c, 2);
    start_with_two_versions(&c, 0);
    cr_assert(eq(int, phase(&c), RECOVERY_FETCHING));
    course_free(&c);
}

Test(recovery, continues_with_a_member_whose_agent_restarted_while_it_fetched)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 0);
    step_node_down(&c, 2, 5);
    step_tick(&c, 6);
    step_node_up(&c, 2);
    step_tick(&c, 10 * WAIT_MS);
    owners_fetch(&c, V(3, 20));
    cr_assert(eq(u32, emitted(&c, RECOVERY_READY), 1));
    course_free(&c);
}

Test(recovery, takes_no_older_version_while_a_member_may_return)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 0);
    step_node_down(&c, 2, 5);
    fetched(&c, 1, 1, V(3, 20), TCK_ERR_UNREACHABLE);
    for (uint32_t i = 0; i < 3 * MAX_TRIES; i++) {
        fetched(&c, 1, 1, V(3, 20), TCK_ERR_UNREACHABLE);
        step_tick(&c, 6 + i);
        cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 20)));
    }
    course_free(&c);
}

Test(recovery, tries_other_owners_for_a_holder_and_stays_ready)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 0);
    owners_fetch(&c, V(3, 20));
    uint32_t holder = holder_of(&c, 1);
    for (uint32_t i = 0; i < 3 * MAX_TRIES; i++) {
        fetched(&c, 1, holder, V(3, 20), i % 2 == 0 ? TCK_ERR_CORRUPT : TCK_ERR_NOSPC);
        cr_assert(eq(int, phase(&c), RECOVERY_PROTECTING));
        step_tick(&c, i);
        cr_assert(eq(int, fetch_of(&c, 1, holder)->source, SOURCE_TWIN));
        cr_assert_str_eq(fetch_of(&c, 1, holder)->from.name, "node1");
    }
    for (uint32_t i = 0; i < NODES; i++) {
        fetched(&c, i, holder_of(&c, i), V(3, 20), TCK_OK);
    }
    cr_assert(eq(int, phase(&c), RECOVERY_DONE));
    cr_assert(eq(u32, emitted(&c, RECOVERY_READY), 1));
    course_free(&c);
}

/* The world has changed since then: neither an owner nor a holder has the only good copy. */
Test(recovery, asks_former_holders_when_the_copies_of_the_owners_are_bad)
{
    struct course c;
    course_init(&c);
    uint32_t holder = holder_of(&c, 1), former = NONE32, asked = 0;
    for (uint32_t i = 0; i < NODES; i++) {
        former = i != 1 && i != holder ? i : former;
    }
    list_nothing(&c);
    for (uint32_t i = 0; i < NODES; i++) {
        struct inventory inventory = fixture_inventory(&c.world, i);
        fixture_hold(&inventory, &c.world, i, V(3, 20));
        if (i == former) {
            fixture_hold(&inventory, &c.world, 1, V(3, 20));
        }
        inventory_sort(&inventory);
        step_inventory(&c, &inventory, 0);
    }
    step_asked_all(&c, 0);
    owners_fetch(&c, V(3, 20));
    for (uint32_t i = 0; i < 3 * MAX_TRIES; i++) {
        fetched(&c, 1, holder, V(3, 20), TCK_ERR_CORRUPT);
        step_tick(&c, i);
        asked += strcmp(fetch_of(&c, 1, holder)->from.name, c.world.nodes[former].name) == 0;
    }
    cr_assert(gt(u32, asked, 0));
    course_free(&c);
}

Test(recovery, asks_a_holder_again_that_went_down_while_protecting)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 0);
    owners_fetch(&c, V(3, 20));
    step_node_down(&c, holder_of(&c, 1), 5);
    cr_assert(eq(int, phase(&c), RECOVERY_PROTECTING));
    c.count = 0;
    step_tick(&c, 6);
    cr_assert(eq(u32, c.count, 1));
    cr_assert(eq(u32, c.actions[0].shard, 1));
    course_free(&c);
}

Test(recovery, spares_storage_the_holders)
{
    struct course c;
    course_init(&c);
    list_stored(&c, V(2, 5));
    step_asked_all(&c, 0);
    owners_fetch(&c, V(2, 5));
    cr_assert(eq(int, fetch_of(&c, 1, holder_of(&c, 1))->source, SOURCE_TWIN));
    cr_assert_str_eq(fetch_of(&c, 1, holder_of(&c, 1))->from.name, "node1");
    course_free(&c);
}

/* A shard that all four nodes own. */
static void begin_with_twins(struct course *c, bool first_owner_suffices)
{
    struct error err;
    recovery_free(c->recovery);
    placement_free(&c->placement);
    world_free(&c->world);
    c->world = fixture_world(NODES, 1, 1);
    fixture_add_shard(&c->world, 4096, NODES, (uint32_t[]){0, 1, 2, 3});
    cr_assert(eq(int, placement_build(&c->world, 2, &c->placement, &err), TCK_OK));
    struct recovery_setup setup = {.world = &c->world,
                                   .placement = &c->placement,
                                   .wait_ms = WAIT_MS,
                                   .max_tries = MAX_TRIES,
                                   .first_owner_suffices = first_owner_suffices,
                                   .storage_wait_ms = 0,
                                   .storage_hang_ms = 0};
    cr_assert(eq(int, recovery_new(&setup, &c->recovery), TCK_OK));
    step_start(c, TCK_NEWEST, 0);
    c->count = 0;
}

/* The version is on storage only. */
static void start_twins_from_storage(struct course *c, bool first_owner_suffices)
{
    begin_with_twins(c, first_owner_suffices);
    c->stored_shards[0] = c->world.shards[0].id;
    c->stored = (struct stored_version){V(2, 5), c->world.layout, 1, c->stored_shards};
    step_stored(c, &(struct storage_view){.complete = true, .stored_count = 1, .stored = &c->stored}, 0);
    c->count = 0;
    step_asked_all(c, 0);
}

/* Node `with` has the version, the others have nothing. */
static void start_twins_from_memory(struct course *c, uint32_t with)
{
    begin_with_twins(c, true);
    list_nothing(c);
    for (uint32_t i = 0; i < NODES; i++) {
        struct inventory inventory = fixture_inventory(&c->world, i);
        if (i == with) {
            fixture_hold(&inventory, &c->world, 0, V(2, 5));
        }
        step_inventory(c, &inventory, 0);
    }
    c->count = 0;
    step_asked_all(c, 0);
}

Test(recovery, reads_storage_once_and_passes_the_shard_on_between_twins)
{
    struct course c;
    course_init(&c);
    start_twins_from_storage(&c, false);
    cr_assert(eq(int, fetch_of(&c, 0, 0)->source, SOURCE_STORAGE), "one read");
    cr_assert_str_eq(fetch_of(&c, 0, 1)->from.name, "node0");
    cr_assert_str_eq(fetch_of(&c, 0, 2)->from.name, "node0");
    cr_assert_str_eq(fetch_of(&c, 0, 3)->from.name, "node1");
    step_tick(&c, 1);
    cr_assert(eq(u32, c.count, NODES), "each is requested once");
    for (uint32_t i = 0; i < NODES; i++) {
        fetched(&c, 0, i, V(2, 5), TCK_OK);
    }
    cr_assert(eq(int, phase(&c), RECOVERY_DONE));
    course_free(&c);
}

Test(recovery, a_twin_whose_source_does_not_get_the_shard_itself_asks_it_again_and_not_storage)
{
    struct course c;
    course_init(&c);
    start_twins_from_storage(&c, false);
    for (uint32_t again = 1; again < 3; again++) {
        fetched(&c, 0, 1, V(2, 5), TCK_ERR_NOENT);
        step_tick(&c, again);
        cr_assert(eq(u32, c.count, NODES + again));
        cr_assert_str_eq(fetch_of(&c, 0, 1)->from.name, "node0");
    }
    fetched(&c, 0, 1, V(2, 5), TCK_ERR_UNREACHABLE);
    step_tick(&c, 3);
    cr_assert(eq(u32, c.count, NODES + 2), "from now on its source must have it");
    fetched(&c, 0, 0, V(2, 5), TCK_OK);
    cr_assert(eq(u32, c.count, NODES + 3));
    cr_assert_str_eq(fetch_of(&c, 0, 1)->from.name, "node0");
    fetched(&c, 0, 1, V(2, 5), TCK_ERR_NOENT);
    cr_assert(eq(int, fetch_of(&c, 0, 1)->source, SOURCE_STORAGE));
    course_free(&c);
}

Test(recovery, a_twin_that_cannot_take_the_shard_is_not_asked_for_ever_while_its_source_receives_it)
{
    struct course c;
    course_init(&c);
    start_twins_from_storage(&c, false);
    for (uint32_t tries = 1; phase(&c) == RECOVERY_FETCHING; tries++) {
        cr_assert(lt(u32, tries, 20));
        fetched(&c, 0, 1, V(2, 5), TCK_ERR_NOSPC);
        step_tick(&c, tries);
    }
    cr_assert(eq(int, phase(&c), RECOVERY_FAILED));
    course_free(&c);
}

Test(recovery, a_twin_waits_for_its_source_if_that_has_failed)
{
    struct course c;
    course_init(&c);
    start_twins_from_storage(&c, false);
    fetched(&c, 0, 0, V(2, 5), TCK_ERR_BUSY);
    fetched(&c, 0, 1, V(2, 5), TCK_ERR_NOENT);
    cr_assert(eq(u32, c.count, NODES));
    step_tick(&c, 1);
    cr_assert(eq(int, fetch_of(&c, 0, 0)->source, SOURCE_STORAGE));
    cr_assert_str_eq(fetch_of(&c, 0, 1)->from.name, "node0");
    cr_assert(eq(u32, c.count, NODES + 2));
    course_free(&c);
}

Test(recovery, every_owner_has_as_many_owners_before_it_as_the_placement_gives)
{
    struct course c;
    uint32_t hops[NODES] = {0};
    course_init(&c);
    start_twins_from_storage(&c, false);
    for (uint32_t i = 0; i < NODES; i++) {
        const struct recovery_action *fetch = fetch_of(&c, 0, i);
        hops[i] = fetch->source == SOURCE_STORAGE ? 0 : hops[fetch->from.name[4] - '0'] + 1;
        cr_assert(eq(u32, placement_turn(&c.placement, 0, i), hops[i]));
        fetched(&c, 0, i, V(2, 5), TCK_OK);
    }
    cr_assert(eq(u32, hops[NODES - 1], 2));
    course_free(&c);
}

Test(recovery, reads_from_storage_if_the_twin_before_does_not_deliver)
{
    struct course c;
    course_init(&c);
    start_twins_from_storage(&c, false);
    fetched(&c, 0, 0, V(2, 5), TCK_OK);
    fetched(&c, 0, 1, V(2, 5), TCK_ERR_UNREACHABLE);
    step_tick(&c, 1);
    cr_assert_str_eq(fetch_of(&c, 0, 1)->from.name, "node0", "it was asked before it had the shard");
    fetched(&c, 0, 1, V(2, 5), TCK_ERR_UNREACHABLE);
    cr_assert(eq(int, fetch_of(&c, 0, 1)->source, SOURCE_STORAGE));
    fetched(&c, 0, 1, V(2, 5), TCK_ERR_CORRUPT);
    cr_assert(eq(int, phase(&c), RECOVERY_FAILED), "that was the only copy");
    course_free(&c);
}

Test(recovery, is_ready_after_the_first_owner_if_that_suffices_and_protected_after_all)
{
    struct course c;
    course_init(&c);
    start_twins_from_storage(&c, true);
    cr_assert(eq(u32, c.count, 1), "one read");
    fetched(&c, 0, 0, V(2, 5), TCK_OK);
    cr_assert(eq(u32, emitted(&c, RECOVERY_READY), 1));
    cr_assert(eq(int, phase(&c), RECOVERY_PROTECTING));
    for (uint32_t i = 1; i < NODES; i++) {
        cr_assert(eq(u32, emitted(&c, RECOVERY_PROTECTED), 0));
        cr_assert(eq(int, fetch_of(&c, 0, i)->source, SOURCE_TWIN));
        fetched(&c, 0, i, V(2, 5), TCK_OK);
    }
    cr_assert(eq(u32, emitted(&c, RECOVERY_READY), 1));
    cr_assert(eq(u32, emitted(&c, RECOVERY_PROTECTED), 1));
    course_free(&c);
}

Test(recovery, needs_before_reading_only_the_owner_that_has_it_itself)
{
    struct course c;
    course_init(&c);
    start_twins_from_memory(&c, 2);
    cr_assert(eq(u32, c.count, 1));
    cr_assert(eq(int, fetch_of(&c, 0, 2)->source, SOURCE_LOCAL));
    fetched(&c, 0, 2, V(2, 5), TCK_OK);
    cr_assert(eq(u32, emitted(&c, RECOVERY_READY), 1));
    cr_assert_str_eq(fetch_of(&c, 0, 3)->from.name, "node2");
    cr_assert_str_eq(fetch_of(&c, 0, 0)->from.name, "node2");
    course_free(&c);
}

Test(recovery, is_not_ready_while_no_owner_has_a_good_copy)
{
    struct course c;
    course_init(&c);
    start_twins_from_memory(&c, 2);
    fetched(&c, 0, 2, V(2, 5), TCK_ERR_CORRUPT);
    cr_assert(eq(u32, emitted(&c, RECOVERY_READY), 0));
    cr_assert(eq(int, phase(&c), RECOVERY_FAILED), "that was the only copy");
    course_free(&c);
}

Test(recovery, requests_again_for_an_owner_that_arrives_after_reading_and_stays_ready)
{
    struct course c;
    course_init(&c);
    start_twins_from_memory(&c, 2);
    fetched(&c, 0, 2, V(2, 5), TCK_OK);
    for (int i = 0; i < 3 * NODES; i++) {
        c.count = 0;
        fetched(&c, 0, 3, V(2, 5), i % 2 == 0 ? TCK_ERR_UNREACHABLE : TCK_ERR_BUSY);
        step_tick(&c, 1);
        cr_assert_str_neq(fetch_of(&c, 0, 3)->from.name, "node3");
    }
    cr_assert(eq(int, phase(&c), RECOVERY_PROTECTING));
    fetched(&c, 0, 3, V(2, 5), TCK_OK);
    fetched(&c, 0, 0, V(2, 5), TCK_OK);
    fetched(&c, 0, 1, V(2, 5), TCK_OK);
    cr_assert(eq(u32, emitted(&c, RECOVERY_PROTECTED), 1));
    course_free(&c);
}

Test(recovery, base_is_lost_when_the_only_owner_that_had_it_lost_it_before_the_others_arrived)
{
    struct course c;
    course_init(&c);
    start_twins_from_memory(&c, 2);
    fetched(&c, 0, 2, V(2, 5), TCK_OK);
    step_slots_needed(&c, 0);
    for (uint32_t tries = 0; tries < 8 * NODES && emitted(&c, RECOVERY_BASE_LOST) == 0; tries++) {
        c.count = 0;
        for (uint32_t i = 0; i < NODES; i++) {
            fetched(&c, 0, i, V(2, 5), TCK_ERR_NOENT);
        }
        step_tick(&c, 10 * WAIT_MS + tries);
    }
    cr_assert(eq(u32, emitted(&c, RECOVERY_BASE_LOST), 1));
    course_free(&c);
}

Test(recovery, ignores_answers_that_were_not_requested)
{
    struct course c;
    course_init(&c);
    fetched(&c, 0, 0, V(3, 20), TCK_OK);
    start_with_two_versions(&c, 0);
    fetched(&c, 0, 3, V(3, 20), TCK_OK);
    fetched(&c, 99, 0, V(3, 20), TCK_ERR_CORRUPT);
    fetched(&c, 0, 99, V(3, 20), TCK_ERR_CORRUPT);
    for (uint32_t i = 0; i < NODES; i++) {
        fetched(&c, 0, 0, V(3, 20), TCK_OK); /* the same answer, four times */
    }
    cr_assert(eq(int, phase(&c), RECOVERY_FETCHING));
    course_free(&c);
}

Test(recovery, replaces_a_former_answer_of_the_same_agent)
{
    struct course c;
    course_init(&c);
    answer(&c, 0, V(3, 20), VERSIONS(V(3, 20)), 0);
    answer(&c, 0, V(3, 20), VERSIONS(V(3, 10)), 0);
    cr_assert(eq(u32, recovery_input(c.recovery)->inventory_count, 1));
    cr_assert(version_is(recovery_input(c.recovery)->inventories[0].holdings[0].version, V(3, 10)));
    course_free(&c);
}

/* An agent's newest answer replaces its former one, even if the former one named a newer commit. */
Test(recovery, the_newest_commit_is_that_of_the_present_answers)
{
    struct course c;
    course_init(&c);
    cr_assert(version_none(recovery_newest_commit(c.recovery)));
    answer(&c, 0, V(3, 20), VERSIONS(V(3, 20)), 0);
    answer(&c, 1, V(3, 10), VERSIONS(V(3, 10)), 0);
    cr_assert(version_is(recovery_newest_commit(c.recovery), V(3, 20)));
    answer(&c, 0, V(2, 5), VERSIONS(V(2, 5)), 0);
    cr_assert(version_is(recovery_newest_commit(c.recovery), V(3, 10)));
    answer(&c, 2, V(3, 30), VERSIONS(V(3, 30)), 0);
    cr_assert(version_is(recovery_newest_commit(c.recovery), V(3, 30)));
    cr_assert(eq(u32, recovery_input(c.recovery)->inventory_count, 3));
    course_free(&c);
}

/* Two names of one agent: both answers count, and each replaces its own former one. */
Test(recovery, an_agent_with_two_names_has_two_answers)
{
    struct course c;
    course_init(&c);
    for (uint32_t i = 0; i < 4; i++) {
        struct inventory inventory = {.node = c.world.nodes[0], .watermark = V(1, i + 1)};
        snprintf(inventory.node.name, sizeof(inventory.node.name), "%s", i % 2 == 0 ? "one" : "two");
        step_inventory(&c, &inventory, 0);
    }
    cr_assert(eq(u32, recovery_input(c.recovery)->inventory_count, 2));
    cr_assert(version_is(recovery_input(c.recovery)->inventories[0].watermark, V(1, 3)));
    cr_assert(version_is(recovery_input(c.recovery)->inventories[1].watermark, V(1, 4)));
    course_free(&c);
}

Test(recovery, can_begin_again)
{
    struct course c;
    course_init(&c);
    start_with_two_versions(&c, 0);
    fetched(&c, 1, 1, V(3, 20), TCK_ERR_CORRUPT);
    step_start(&c, 10, 50);
    start_with_two_versions(&c, 0);
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 10)));
    owners_fetch(&c, V(3, 10));
    cr_assert(eq(int, phase(&c), RECOVERY_PROTECTING));
    course_free(&c);
}

Test(recovery, resumes_with_the_base_chosen_before_and_no_other)
{
    struct course c;
    course_init(&c);
    step_resume(&c, V(3, 10), 0);
    start_with_two_versions(&c, 0);
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 10)));
    owners_fetch(&c, V(3, 10));
    cr_assert(eq(int, phase(&c), RECOVERY_PROTECTING));
    course_free(&c);
}

Test(recovery, resumes_with_nothing_if_only_the_same_step_of_another_term_remains)
{
    struct course c;
    course_init(&c);
    step_resume(&c, V(2, 20), 0);
    start_with_two_versions(&c, 0);
    cr_assert(eq(u32, emitted(&c, RECOVERY_NOTHING), 1));
    course_free(&c);
}

/* ---- a base that is lost --------------------------------------------------------------------------------------- */

/* Trainers have read 3.20; node 1 has shard 1, its holder does not get it. The outcome of each holder's tries until no
 * more of them are made. */
static void ready_but_for_shard_1(struct course *c)
{
    course_init(c);
    start_with_two_versions(c, 0);
    owners_fetch(c, V(3, 20));
    for (uint32_t i = 0; i < NODES; i++) {
        if (i != 1) {
            fetched(c, i, holder_of(c, i), V(3, 20), TCK_OK);
        }
    }
    cr_assert(eq(int, phase(c), RECOVERY_PROTECTING));
}

static bool asks_holder_again(struct course *c)
{
    c->count = 0;
    step_tick(c, 0);
    return c->count == 1 && c->actions[0].node == holder_of(c, 1);
}

/* Until the base-loss check's first question, which is left in actions. */
static void try_in_vain(struct course *c)
{
    uint32_t tries = 0;
    fetched(c, 1, holder_of(c, 1), V(3, 20), TCK_ERR_CORRUPT);
    while (asks_holder_again(c)) {
        cr_assert(lt(u32, tries++, 20), "the holder is asked for ever");
        fetched(c, 1, holder_of(c, 1), V(3, 20), TCK_ERR_CORRUPT);
    }
    cr_assert(eq(u32, c->count, 1));
}

/* The newest action is a check by this node of its own copy; this is what it finds. */
static void checked_by(struct course *c, uint32_t node, tck_status_t outcome)
{
    const struct recovery_action *a = &c->actions[c->count - 1];
    cr_assert(eq(int, a->type, RECOVERY_FETCH));
    cr_assert(eq(u32, a->node, node));
    cr_assert(eq(u32, a->shard, 1));
    cr_assert(eq(int, a->source, SOURCE_LOCAL));
    fetched(c, 1, node, V(3, 20), outcome);
}

Test(recovery, without_a_waiting_save_holders_try_forever)
{
    struct course c;
    ready_but_for_shard_1(&c);
    for (uint32_t i = 0; i < 50; i++) {
        fetched(&c, 1, holder_of(&c, 1), V(3, 20), TCK_ERR_CORRUPT);
        cr_assert(asks_holder_again(&c));
    }
    cr_assert(eq(int, phase(&c), RECOVERY_PROTECTING));
    course_free(&c);
}

Test(recovery, base_is_lost_when_every_agent_that_may_have_a_shard_reports_none)
{
    struct course c;
    ready_but_for_shard_1(&c);
    step_slots_needed(&c, 0);
    try_in_vain(&c);
    checked_by(&c, 1, TCK_ERR_CORRUPT);
    cr_assert(eq(u32, emitted(&c, RECOVERY_BASE_LOST), 0), "its holder was not heard");
    checked_by(&c, holder_of(&c, 1), TCK_ERR_NOENT);
    cr_assert(eq(u32, emitted(&c, RECOVERY_BASE_LOST), 1));
    cr_assert(version_is(c.actions[c.count - 1].version, V(3, 20)));
    cr_assert(eq(int, phase(&c), RECOVERY_LOST));
    c.count = 0;
    step_tick(&c, 10);
    cr_assert(eq(u32, c.count, 0), "it is over");
    course_free(&c);
}

Test(recovery, one_good_copy_ends_the_base_loss_check_and_is_requested_again)
{
    struct course c;
    ready_but_for_shard_1(&c);
    step_slots_needed(&c, 0);
    try_in_vain(&c);
    checked_by(&c, 1, TCK_OK);
    cr_assert(eq(u32, emitted(&c, RECOVERY_BASE_LOST), 0));
    cr_assert(asks_holder_again(&c));
    fetched(&c, 1, holder_of(&c, 1), V(3, 20), TCK_OK);
    cr_assert(eq(u32, emitted(&c, RECOVERY_PROTECTED), 1));
    course_free(&c);
}

Test(recovery, a_holder_that_has_the_shard_after_all_is_done)
{
    struct course c;
    ready_but_for_shard_1(&c);
    step_slots_needed(&c, 0);
    try_in_vain(&c);
    checked_by(&c, 1, TCK_ERR_CORRUPT);
    checked_by(&c, holder_of(&c, 1), TCK_OK);
    cr_assert(eq(u32, emitted(&c, RECOVERY_PROTECTED), 1));
    course_free(&c);
}

Test(recovery, no_base_is_lost_while_an_agent_to_be_asked_is_unreachable)
{
    struct course c;
    ready_but_for_shard_1(&c);
    step_slots_needed(&c, 0);
    try_in_vain(&c);
    checked_by(&c, 1, TCK_ERR_TIMEDOUT);
    cr_assert(asks_holder_again(&c), "nothing follows from silence");
    try_in_vain(&c);
    step_node_down(&c, 1, 0);
    fetched(&c, 1, 1, V(3, 20), TCK_ERR_CORRUPT);
    cr_assert(eq(u32, emitted(&c, RECOVERY_BASE_LOST), 0), "what was asked before counts for nothing");
    cr_assert(eq(int, phase(&c), RECOVERY_PROTECTING));
    course_free(&c);
}

/* 3.20 is on storage, too; the owner's copy of shard 1 is damaged after the trainers have read it. */
static void ready_with_a_stored_base(struct course *c)
{
    course_init(c);
    list_stored(c, V(3, 20));
    for (uint32_t i = 0; i < NODES; i++) {
        answer(c, i, V(3, 20), VERSIONS(V(3, 20)), 0);
    }
    step_asked_all(c, 0);
    owners_fetch(c, V(3, 20));
    for (uint32_t i = 0; i < NODES; i++) {
        fetched(c, i, holder_of(c, i), V(3, 20), i == 1 ? TCK_ERR_CORRUPT : TCK_OK);
    }
}

Test(recovery, storage_protects_a_shard_that_its_owner_lost_after_it_was_read)
{
    struct course c;
    ready_with_a_stored_base(&c);
    for (uint32_t tries = 0; fetch_of(&c, 1, holder_of(&c, 1))->source != SOURCE_STORAGE; tries++) {
        cr_assert(lt(u32, tries, 20), "storage is never asked");
        cr_assert(asks_holder_again(&c));
        fetched(&c, 1, holder_of(&c, 1), V(3, 20),
                fetch_of(&c, 1, holder_of(&c, 1))->source == SOURCE_STORAGE ? TCK_OK : TCK_ERR_NOENT);
    }
    cr_assert(eq(u32, emitted(&c, RECOVERY_PROTECTED), 1));
    course_free(&c);
}

Test(recovery, base_is_not_lost_while_storage_has_it)
{
    struct course c;
    ready_with_a_stored_base(&c);
    step_slots_needed(&c, 0);
    (void)asks_holder_again(&c);
    try_in_vain(&c);
    checked_by(&c, 1, TCK_ERR_CORRUPT);
    checked_by(&c, holder_of(&c, 1), TCK_ERR_NOENT);
    cr_assert(eq(int, c.actions[c.count - 1].source, SOURCE_STORAGE));
    fetched(&c, 1, holder_of(&c, 1), V(3, 20), TCK_OK);
    cr_assert(eq(u32, emitted(&c, RECOVERY_PROTECTED), 1));
    course_free(&c);
}

/* Node 9 is outside the world and has shard 1 too. */
static void press_with_a_stranger(struct course *c)
{
    course_init(c);
    list_nothing(c);
    for (uint32_t i = 0; i < NODES; i++) {
        answer(c, i, V(3, 20), VERSIONS(V(3, 20)), 0);
    }
    struct inventory stranger = fixture_inventory(&c->world, 0);
    stranger.node.agent_id = 999;
    snprintf(stranger.node.name, sizeof(stranger.node.name), "stranger");
    fixture_hold(&stranger, &c->world, 1, V(3, 20));
    step_inventory(c, &stranger, 0);
    step_asked_all(c, 0);
    owners_fetch(c, V(3, 20));
    for (uint32_t i = 0; i < NODES; i++) {
        fetched(c, i, holder_of(c, i), V(3, 20), i == 1 ? TCK_ERR_CORRUPT : TCK_OK);
    }
    step_slots_needed(c, 0);
    (void)asks_holder_again(c);
    try_in_vain(c);
    checked_by(c, 1, TCK_ERR_CORRUPT);
    checked_by(c, holder_of(c, 1), TCK_ERR_NOENT);
}

Test(recovery, a_node_outside_the_world_is_asked_for_its_copy)
{
    struct course c;
    press_with_a_stranger(&c);
    const struct recovery_action *a = &c.actions[c.count - 1];
    cr_assert(strcmp(a->from.name, "stranger") == 0);
    cr_assert(eq(u32, a->node, holder_of(&c, 1)));
    fetched(&c, 1, a->node, V(3, 20), TCK_OK);
    cr_assert(eq(u32, emitted(&c, RECOVERY_PROTECTED), 1));
    course_free(&c);
}

Test(recovery, a_copy_from_a_node_outside_the_world_is_bad_only_if_it_is_bad_again)
{
    struct course c;
    press_with_a_stranger(&c);
    for (uint32_t i = 0; i < MAX_TRIES; i++) {
        cr_assert(eq(u32, emitted(&c, RECOVERY_BASE_LOST), 0));
        fetched(&c, 1, holder_of(&c, 1), V(3, 20), TCK_ERR_CORRUPT);
    }
    cr_assert(eq(u32, emitted(&c, RECOVERY_BASE_LOST), 1));
    course_free(&c);
}

Test(recovery, a_node_outside_the_world_may_be_out_of_reach_for_a_while)
{
    struct course c;
    press_with_a_stranger(&c);
    fetched(&c, 1, holder_of(&c, 1), V(3, 20), TCK_ERR_UNREACHABLE);
    cr_assert(eq(u32, emitted(&c, RECOVERY_BASE_LOST), 0));
    (void)asks_holder_again(&c);
    try_in_vain(&c);
    checked_by(&c, 1, TCK_ERR_CORRUPT);
    checked_by(&c, holder_of(&c, 1), TCK_ERR_NOENT);
    step_fetched(&c, holder_of(&c, 1), 1, V(3, 20), TCK_ERR_UNREACHABLE, WAIT_MS);
    cr_assert(eq(u32, emitted(&c, RECOVERY_BASE_LOST), 1));
    course_free(&c);
}

/* ---- a save that finds no slot --------------------------------------------------------------------------------- */

static const struct decision with_base = {.term = 4, .readable = true, .base = {3, 20}}, without_base = {.term = 4};

/* Node 1 cannot take its shard: a failure of this kind. */
static void fail_with(struct course *c, tck_status_t outcome)
{
    course_init(c);
    start_with_two_versions(c, 0);
    for (uint64_t i = 0; i < 8 * MAX_TRIES && phase(c) != RECOVERY_FAILED; i++) {
        step_fetched(c, 1, 1, V(3, 20), outcome, i * WAIT_MS);
        step_fetched(c, 1, 1, V(3, 10), outcome, i * WAIT_MS);
        step_tick(c, i * WAIT_MS);
    }
    cr_assert(eq(int, phase(c), RECOVERY_FAILED));
    cr_assert(eq(int, recovery_failure(c->recovery), outcome == TCK_ERR_CORRUPT ? TCK_ERR_UNRECOVERABLE : outcome));
}

Test(recovery, a_save_without_a_slot_hurries_a_recovery_in_progress)
{
    struct course c;
    course_init(&c);
    cr_assert(eq(int, recovery_free_slots(c.recovery, &without_base), RELIEF_PRESS));
    start_with_two_versions(&c, 0);
    cr_assert(eq(int, recovery_free_slots(c.recovery, &without_base), RELIEF_PRESS));
    owners_fetch(&c, V(3, 20));
    cr_assert(eq(int, recovery_free_slots(c.recovery, &with_base), RELIEF_PRESS));
    course_free(&c);
}

Test(recovery, a_save_without_a_slot_requires_nothing_of_a_recovery_that_is_over)
{
    struct course c;
    ready_but_for_shard_1(&c);
    const struct decision over[] = {{.term = 4, .based = true},
                                    {.term = 4, .readable = true, .base = V(3, 20), .base_lost = true},
                                    {.term = 4, .watermark = V(4, 22)}};
    for (uint32_t i = 0; i < sizeof(over) / sizeof(*over); i++) {
        cr_assert(eq(int, recovery_free_slots(c.recovery, &over[i]), RELIEF_NONE), "decision %u", i);
    }
    fetched(&c, 1, holder_of(&c, 1), V(3, 20), TCK_OK);
    cr_assert(eq(int, phase(&c), RECOVERY_DONE));
    cr_assert(eq(int, recovery_free_slots(c.recovery, &with_base), RELIEF_NONE), "said, and not kept yet");
    cr_assert(eq(int, recovery_free_slots(NULL, &with_base), RELIEF_NONE));
    course_free(&c);
}

Test(recovery, a_version_that_is_complete_nowhere_makes_room)
{
    struct course c;
    fail_with(&c, TCK_ERR_CORRUPT);
    cr_assert(eq(int, recovery_free_slots(c.recovery, &with_base), RELIEF_BASE_LOST));
    cr_assert(eq(int, recovery_free_slots(c.recovery, &without_base), RELIEF_NO_BASE));
    course_free(&c);
}

Test(recovery, a_fetch_that_failed_for_another_reason_is_tried_again_and_never_given_up)
{
    struct course c;
    fail_with(&c, TCK_ERR_NOSPC);
    cr_assert(eq(int, recovery_free_slots(c.recovery, &with_base), RELIEF_BEGIN_AGAIN));
    cr_assert(eq(int, recovery_free_slots(c.recovery, &without_base), RELIEF_BEGIN_AGAIN));
    course_free(&c);
}

Test(recovery, a_base_is_not_given_up_for_a_member_that_was_away_too_long)
{
    struct course c;
    course_init(&c);
    list_nothing(&c);
    step_node_down(&c, 2, 0);
    step_asked_all(&c, 0);
    step_tick(&c, WAIT_MS);
    cr_assert(eq(int, recovery_failure(c.recovery), TCK_ERR_UNREACHABLE));
    cr_assert(eq(int, recovery_free_slots(c.recovery, &with_base), RELIEF_BEGIN_AGAIN));
    cr_assert(eq(int, recovery_free_slots(c.recovery, &without_base), RELIEF_BEGIN_AGAIN));
    course_free(&c);
}

Test(recovery, a_fresh_start_has_already_been_reported)
{
    struct course c;
    course_init(&c);
    list_nothing(&c);
    for (uint32_t i = 0; i < NODES; i++) {
        answer(&c, i, VERSION_NONE, VERSIONS(VERSION_NONE), 0);
    }
    step_asked_all(&c, 0);
    cr_assert(eq(int, recovery_failure(c.recovery), TCK_ERR_NOENT));
    cr_assert(eq(int, recovery_free_slots(c.recovery, &without_base), RELIEF_NONE));
    course_free(&c);
}

/* ---- chance ---------------------------------------------------------------------------------------------------- */

/* Which copies are corrupt: bit (version * NODES + shard) * 2 + (0 for the owner's copy, 1 for the holder's). */
struct damage {
    uint32_t corrupt;
};

static bool copy_is_good(const struct damage *d, uint32_t version, uint32_t shard, bool holders)
{
    return !(d->corrupt >> ((version * NODES + shard) * 2 + holders) & 1);
}

static struct version newest_restorable(const struct damage *d, const struct version *versions)
{
    for (uint32_t v = 0; v < 2; v++) {
        uint32_t whole = 0;
        for (uint32_t shard = 0; shard < NODES; shard++) {
            whole += copy_is_good(d, v, shard, false) || copy_is_good(d, v, shard, true);
        }
        if (whole == NODES) {
            return versions[v];
        }
    }
    return VERSION_NONE;
}

/* Answers the fetches in an order that follows from the seed, each by the state of the copy it names. */
static void answer_truthfully(struct course *c, const struct damage *d, const struct version *versions, uint32_t seed)
{
    uint64_t now_ms = 0;
    while (phase(c) == RECOVERY_FETCHING) {
        if (c->count == 0) {
            now_ms += WAIT_MS;
            step_tick(c, now_ms); /* a copy that may have been damaged in transfer is requested again */
        }
        cr_assert_gt(c->count, 0, "nothing is asked for");
        uint32_t pick = seed % c->count;
        struct recovery_action a = c->actions[pick];
        c->actions[pick] = c->actions[--c->count];
        seed = seed * 1664525 + 1013904223;
        if (a.type == RECOVERY_FETCH) {
            uint32_t version = version_is(a.version, versions[0]) ? 0 : 1;
            bool holders = strcmp(a.from.name, c->world.nodes[a.shard].name) != 0;
            bool good = copy_is_good(d, version, a.shard, holders);
            step_fetched(c, a.node, a.shard, a.version, good ? TCK_OK : TCK_ERR_CORRUPT, now_ms);
        }
    }
}

Test(recovery, ends_with_the_newest_version_of_which_a_good_copy_of_each_shard_exists)
{
    static const struct version versions[] = {{3, 20}, {3, 10}};
    uint32_t chance = 12345;
    for (uint32_t i = 0; i < 3000; i++) {
        struct course c;
        chance = chance * 1664525 + 1013904223;
        struct damage d = {.corrupt = (chance >> 16) & (i % 2 == 0 ? 0x5a3c : 0xffff)};
        course_init(&c);
        start_with_two_versions(&c, 0);
        answer_truthfully(&c, &d, versions, chance);
        struct version expected = newest_restorable(&d, versions);
        cr_assert(version_is(recovery_plan(c.recovery)->version, expected), "case %u: %s", i,
                  recovery_plan(c.recovery)->reason);
        cr_assert(eq(int, phase(&c), version_none(expected) ? RECOVERY_FAILED : RECOVERY_PROTECTING));
        course_free(&c);
    }
}

/* ---- storage that cannot be read ------------------------------------------------------------------------------- */

static void course_with_storage(struct course *c)
{
    struct error err;
    *c = (struct course){.world = fixture_world(NODES, 1, 1)};
    fixture_add_private_shards(&c->world, 4096);
    cr_assert(eq(int, placement_build(&c->world, 2, &c->placement, &err), TCK_OK));
    struct recovery_setup setup = {.world = &c->world,
                                   .placement = &c->placement,
                                   .wait_ms = WAIT_MS,
                                   .max_tries = MAX_TRIES,
                                   .first_owner_suffices = false,
                                   .storage_wait_ms = 4000,
                                   .storage_hang_ms = 60000};
    cr_assert(eq(int, recovery_new(&setup, &c->recovery), TCK_OK));
    step_start(c, TCK_NEWEST, 0);
}

static void answer_with_nothing(struct course *c)
{
    for (uint32_t i = 0; i < NODES; i++) {
        answer(c, i, VERSION_NONE, VERSIONS(VERSION_NONE), 0);
    }
    step_asked_all(c, 0);
}

static const struct storage_view unlisted = {.why = "list the directory: Input/output error"};

Test(recovery, lists_storage_again_until_it_can_be_read)
{
    struct course c;
    course_with_storage(&c);
    step_stored(&c, &unlisted, 0);
    answer_with_nothing(&c);
    cr_assert(eq(u32, emitted(&c, RECOVERY_LIST), 1));
    step_tick(&c, 100);
    cr_assert(eq(u32, emitted(&c, RECOVERY_LIST), 2));
    step_stored(&c, &unlisted, 110);
    step_tick(&c, 120);
    cr_assert(eq(u32, emitted(&c, RECOVERY_LIST), 2), "the pause grows");
    step_tick(&c, 320);
    cr_assert(eq(u32, emitted(&c, RECOVERY_LIST), 3));
    list_stored(&c, V(3, 20));
    cr_assert(eq(int, recovery_phase(c.recovery), RECOVERY_FETCHING));
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 20)));
    course_free(&c);
}

Test(recovery, ends_with_an_error_if_storage_stays_unreadable)
{
    struct course c;
    course_with_storage(&c);
    step_stored(&c, &unlisted, 0);
    answer_with_nothing(&c);
    for (uint64_t now = 100; now < 4000; now += 100) {
        step_tick(&c, now);
        step_stored(&c, &unlisted, now);
        cr_assert(eq(int, recovery_phase(c.recovery), RECOVERY_ASKING));
    }
    step_tick(&c, 4000);
    step_stored(&c, &unlisted, 4000);
    cr_assert(eq(int, recovery_phase(c.recovery), RECOVERY_FAILED));
    cr_assert(eq(int, recovery_failure(c.recovery), TCK_ERR_IO));
    cr_assert(strstr(recovery_plan(c.recovery)->reason, "Input/output error") != NULL);
    course_free(&c);
}

/* Every node has its shard of a version that another layout has saved, with larger images. */
static void answer_with_another_layout(struct course *c, struct version version)
{
    struct world_shard shards[NODES];
    struct hash128 layout;
    memcpy(shards, c->world.shards, sizeof(shards));
    for (uint32_t i = 0; i < NODES; i++) {
        shards[i].image_bytes += 4096;
    }
    cr_assert(eq(int, world_hash_shards(shards, NODES, &layout), TCK_OK));
    for (uint32_t i = 0; i < NODES; i++) {
        struct inventory inventory = fixture_inventory(&c->world, i);
        fixture_hold(&inventory, &c->world, i, version);
        inventory.holdings[0].layout = layout;
        inventory.holdings[0].image_bytes += 4096;
        step_inventory(c, &inventory, 0);
    }
    step_asked_all(c, 0);
}

Test(recovery, lists_storage_again_for_a_version_that_memory_has_in_another_layout)
{
    struct course c;
    course_with_storage(&c);
    step_stored(&c, &unlisted, 0);
    answer_with_another_layout(&c, V(3, 20));
    cr_assert(eq(int, phase(&c), RECOVERY_ASKING));
    step_tick(&c, 100);
    cr_assert(eq(u32, emitted(&c, RECOVERY_LIST), 2));
    c.stored = (struct stored_version){.version = V(3, 20), .layout = {9, 9}, .shard_count = 0};
    step_stored(&c, &(struct storage_view){.complete = true, .stored_count = 1, .stored = &c.stored}, 110);
    cr_assert(eq(int, recovery_failure(c.recovery), TCK_ERR_LAYOUT));
    cr_assert(version_is(recovery_plan(c.recovery)->reshard, V(3, 20)));
    course_free(&c);
}

Test(recovery, reports_that_only_memory_has_another_layout_once_storage_is_known_to_lack_it)
{
    struct course c;
    course_with_storage(&c);
    step_stored(&c, &unlisted, 0);
    answer_with_another_layout(&c, V(3, 20));
    step_tick(&c, 100);
    step_stored(&c, &(struct storage_view){.complete = true, .noted = V(3, 0)}, 110);
    cr_assert(eq(int, recovery_failure(c.recovery), TCK_ERR_LAYOUT));
    cr_assert(version_none(recovery_plan(c.recovery)->reshard));
    course_free(&c);
}

Test(recovery, cannot_locate_another_layout_if_storage_stays_unreadable)
{
    struct course c;
    course_with_storage(&c);
    step_stored(&c, &unlisted, 0);
    answer_with_another_layout(&c, V(3, 20));
    step_tick(&c, 4000);
    step_stored(&c, &unlisted, 4000);
    cr_assert(eq(int, recovery_failure(c.recovery), TCK_ERR_IO));
    course_free(&c);
}

Test(recovery, ignores_storage_that_hangs_if_memory_suffices)
{
    struct course c;
    course_with_storage(&c);
    for (uint32_t i = 0; i < NODES; i++) {
        answer(&c, i, V(6, 20), VERSIONS(V(6, 20)), 0);
    }
    step_asked_all(&c, 0);
    step_tick(&c, 3999);
    cr_assert(eq(int, recovery_phase(c.recovery), RECOVERY_ASKING));
    step_tick(&c, 4000);
    cr_assert(eq(int, recovery_phase(c.recovery), RECOVERY_FETCHING));
    course_free(&c);
}

Test(recovery, waits_long_for_storage_that_is_needed)
{
    struct course c;
    course_with_storage(&c);
    answer_with_nothing(&c);
    step_tick(&c, 59999);
    cr_assert(eq(int, recovery_phase(c.recovery), RECOVERY_ASKING));
    step_tick(&c, 60000);
    cr_assert(eq(int, recovery_failure(c.recovery), TCK_ERR_IO));
    course_free(&c);
}

static const struct stored_version *store_two(struct course *c, struct version newer, struct version older)
{
    static struct stored_version two[2];
    for (uint32_t i = 0; i < NODES; i++) {
        c->stored_shards[i] = c->world.shards[i].id;
    }
    two[0] = (struct stored_version){newer, c->world.layout, NODES, c->stored_shards};
    two[1] = (struct stored_version){older, c->world.layout, NODES, c->stored_shards};
    return two;
}

/* 3.20 was planned from a listing without the archive, and is damaged in save_dir. */
static struct storage_view damage_the_only_one_listed(struct course *c)
{
    course_with_storage(c);
    const struct storage_view save_dir = {.complete = true,
                                          .newest_only = true,
                                          .why = "archive_dir /a: Input/output error",
                                          .stored_count = 1,
                                          .stored = store_two(c, V(3, 20), V(3, 10))};
    step_stored(c, &save_dir, 0);
    answer_with_nothing(c);
    cr_assert(version_is(recovery_plan(c->recovery)->version, V(3, 20)));
    cr_assert(eq(u32, emitted(c, RECOVERY_LIST), 1));
    step_fetched(c, 0, 0, V(3, 20), TCK_ERR_CORRUPT, 10000);
    cr_assert(eq(int, recovery_phase(c->recovery), RECOVERY_ASKING));
    cr_assert(eq(u32, emitted(c, RECOVERY_LIST), 2));
    return save_dir;
}

Test(recovery, lists_the_archive_again_before_it_says_that_nothing_is_left)
{
    struct course c;
    (void)damage_the_only_one_listed(&c);
    step_stored(
        &c, &(struct storage_view){.complete = true, .stored_count = 2, .stored = store_two(&c, V(3, 20), V(3, 10))},
        10100);
    cr_assert(eq(int, recovery_phase(c.recovery), RECOVERY_FETCHING));
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 10)));
    course_free(&c);
}

Test(recovery, ends_with_an_error_if_the_archive_that_may_have_the_next_version_cannot_be_listed)
{
    struct course c;
    struct storage_view save_dir = damage_the_only_one_listed(&c);
    for (uint64_t now = 10000; now < 14000; now += 100) {
        step_stored(&c, &save_dir, now);
        cr_assert(eq(int, recovery_phase(c.recovery), RECOVERY_ASKING));
        step_tick(&c, now);
    }
    step_tick(&c, 14000);
    step_stored(&c, &save_dir, 14000);
    cr_assert(eq(int, recovery_failure(c.recovery), TCK_ERR_IO));
    cr_assert(strstr(recovery_plan(c.recovery)->reason, "archive_dir /a: Input/output error") != NULL);
    course_free(&c);
}

static struct recovery_action last_list(const struct course *c)
{
    struct recovery_action last = {0};
    for (uint32_t i = 0; i < c->count; i++) {
        last = c->actions[i].type == RECOVERY_LIST ? c->actions[i] : last;
    }
    return last;
}

Test(recovery, reads_more_versions_on_storage_if_none_of_the_newest_can_be_taken)
{
    struct course c;
    course_with_storage(&c);
    cr_assert(eq(u32, last_list(&c).newest, 2));
    answer_with_nothing(&c);
    const struct unfit_version damaged = {.version = V(3, 20), .standing = STANDING_DAMAGED, .why = "no manifest"};
    struct storage_view view = {.complete = true, .unfit_count = 1, .unfit = &damaged, .deeper = V(3, 10)};
    for (uint32_t read = 16; read <= 128; read *= 8) {
        step_stored(&c, &view, 0);
        cr_assert(eq(int, recovery_phase(c.recovery), RECOVERY_ASKING));
        cr_assert(eq(u32, last_list(&c).newest, read));
        cr_assert(eq(u64, last_list(&c).step, TCK_NEWEST));
    }
    view.deeper = VERSION_NONE;
    view.stored = store_two(&c, V(3, 10), V(3, 5));
    view.stored_count = 2;
    step_stored(&c, &view, 0);
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 10)));
    course_free(&c);
}

Test(recovery, reads_more_versions_on_storage_once_all_that_were_read_turned_out_damaged)
{
    struct course c;
    course_with_storage(&c);
    struct storage_view view = {
        .complete = true, .stored_count = 1, .stored = store_two(&c, V(3, 20), V(3, 10)), .deeper = V(3, 10)};
    step_stored(&c, &view, 0);
    answer_with_nothing(&c);
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 20)));
    step_fetched(&c, 0, 0, V(3, 20), TCK_ERR_CORRUPT, 10000);
    cr_assert(eq(int, recovery_phase(c.recovery), RECOVERY_ASKING));
    cr_assert(eq(u32, last_list(&c).newest, 16));
    view.stored_count = 2;
    view.deeper = VERSION_NONE;
    step_stored(&c, &view, 10100);
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 10)));
    course_free(&c);
}

/* The manifest of the version could be read, and its files cannot be read: that is no damage. */
Test(recovery, takes_no_older_version_in_place_of_one_whose_files_cannot_be_read)
{
    struct course c;
    course_init(&c);
    const struct stored_version *two = store_two(&c, V(3, 20), V(3, 10));
    step_stored(&c, &(struct storage_view){.complete = true, .stored_count = 2, .stored = two}, 0);
    answer_with_nothing(&c);
    for (uint64_t now = 0; now <= 20 * WAIT_MS && recovery_phase(c.recovery) == RECOVERY_FETCHING; now += 100) {
        cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 20)));
        step_fetched(&c, 0, 0, V(3, 20), TCK_ERR_IO, now);
        c.count = 0;
        step_tick(&c, now);
    }
    cr_assert(eq(int, recovery_failure(c.recovery), TCK_ERR_IO));
    cr_assert(strstr(recovery_plan(c.recovery)->reason, "cannot be read from storage") != NULL);
    course_free(&c);
}

Test(recovery, names_the_newest_complete_version_before_the_planned_one_as_fallback)
{
    struct course c;
    course_init(&c);
    list_nothing(&c);
    for (uint32_t i = 0; i < NODES; i++) { /* 2.20 is incomplete */
        answer(&c, i, VERSION_NONE, i == 0 ? VERSIONS(V(2, 10), V(2, 20), V(3, 10)) : VERSIONS(V(2, 10), V(3, 10)), 0);
    }
    step_asked_all(&c, 0);
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 10)));
    cr_assert(version_is(recovery_plan(c.recovery)->fallback, V(2, 10)));
    course_free(&c);
}

static void course_request(struct course *c, uint64_t step_wanted)
{
    course_init(c);
    step_start(c, step_wanted, 0);
    list_nothing(c);
}

/* Node 3 lacks what is requested, and its slots may have the two others. */
Test(recovery, spares_what_may_be_committed_and_last_what_is_known_to_be)
{
    struct course c;
    course_request(&c, 10);
    for (uint32_t i = 0; i < NODES; i++) {
        answer(&c, i, V(3, 20), i == 3 ? VERSIONS(V(3, 20), V(3, 30)) : VERSIONS(V(3, 10), V(3, 20), V(3, 30)), 0);
    }
    step_asked_all(&c, 0);
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 10)));
    struct recovery_spared spared = recovery_spared(c.recovery);
    cr_assert(version_is(spared.floor, V(3, 30)));
    cr_assert(version_is(spared.fallback, V(3, 20)));
    course_free(&c);
}

/* The coordinator's agent has started again after the trainers had got the requested step. */
Test(recovery, spares_the_same_versions_when_it_resumes)
{
    struct course c;
    course_init(&c);
    step_resume(&c, V(3, 10), 0);
    list_nothing(&c);
    for (uint32_t i = 0; i < NODES; i++) {
        answer(&c, i, V(3, 20), i == 3 ? VERSIONS(V(3, 20), V(3, 30)) : VERSIONS(V(3, 10), V(3, 20), V(3, 30)), 0);
    }
    step_asked_all(&c, 0);
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 10)));
    struct recovery_spared spared = recovery_spared(c.recovery);
    cr_assert(version_is(spared.floor, V(3, 30)));
    cr_assert(version_is(spared.fallback, V(3, 20)));
    course_free(&c);
}

Test(recovery, spares_the_newest_known_commit_and_last_the_version_before_the_planned_one)
{
    struct course c;
    course_init(&c);
    list_nothing(&c);
    for (uint32_t i = 0; i < NODES; i++) {
        answer(&c, i, V(3, 15), VERSIONS(V(3, 10), V(3, 20)), 0);
    }
    step_asked_all(&c, 0);
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 20)));
    struct recovery_spared spared = recovery_spared(c.recovery);
    cr_assert(version_is(spared.floor, V(3, 15)));
    cr_assert(version_is(spared.fallback, V(3, 10)));
    course_free(&c);
}

Test(recovery, does_not_count_the_time_while_its_process_was_stopped)
{
    struct recovery_clock clock = {0};
    cr_assert(eq(u64, recovery_clock_at(&clock, 7000), 0));
    cr_assert(eq(u64, recovery_clock_at(&clock, 7050), 50));
    cr_assert(eq(u64, recovery_clock_at(&clock, 7050 + 3600000), 50 + RECOVERY_STEP_MS));
    cr_assert(eq(u64, recovery_clock_at(&clock, 1000), 50 + RECOVERY_STEP_MS), "a clock that goes back");
    cr_assert(eq(u64, recovery_clock_at(&clock, 1040), 90 + RECOVERY_STEP_MS));
}

/* ---- agents outside the world ---------------------------------------------------------------------------------- */

static struct known_node outsider(const struct course *c, uint64_t agent_id, uint64_t term)
{
    struct known_node known = {.node = c->world.nodes[0], .term = term};
    snprintf(known.node.name, sizeof(known.node.name), "old%d", (int)agent_id);
    known.node.agent_id = agent_id;
    return known;
}

/* 3.20 is seen in part and not known to be committed, 3.10 is complete; these agents are remembered of this term. */
static void start_with_a_part(struct course *c, uint32_t outsiders, uint64_t term)
{
    list_nothing(c);
    for (uint32_t i = 0; i < outsiders; i++) {
        struct known_node known = outsider(c, 0x4000 + i, term);
        step_known(c, &known);
    }
    for (uint32_t i = 0; i < NODES; i++) {
        answer(c, i, V(3, 10), i == 0 ? VERSIONS(V(3, 10), V(3, 20)) : VERSIONS(V(3, 10)), 0);
    }
    step_asked_all(c, 0);
}

Test(recovery, waits_for_outsiders_that_may_complete_a_newer_version)
{
    struct course c;
    course_init(&c);
    start_with_a_part(&c, 2, 3);
    cr_assert(eq(int, phase(&c), RECOVERY_ASKING));
    step_tick(&c, WAIT_MS);
    cr_assert(eq(int, phase(&c), RECOVERY_FETCHING));
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 10)));
    course_free(&c);
}

Test(recovery, takes_the_newer_version_that_an_outsider_completes)
{
    struct course c;
    course_init(&c);
    start_with_a_part(&c, 2, 3);
    struct known_node known = outsider(&c, 0x4000, 3);
    struct inventory inventory = fixture_inventory(&c.world, 0);
    inventory.node = known.node;
    for (uint32_t shard = 0; shard < NODES; shard++) {
        fixture_hold(&inventory, &c.world, shard, V(3, 20));
    }
    step_inventory(&c, &inventory, 1);
    cr_assert(eq(int, phase(&c), RECOVERY_FETCHING));
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 20)));
    course_free(&c);
}

Test(recovery, does_not_wait_for_fewer_outsiders_than_there_are_copies)
{
    struct course c;
    course_init(&c);
    start_with_a_part(&c, 1, 3);
    cr_assert(eq(int, phase(&c), RECOVERY_FETCHING));
    course_free(&c);
}

Test(recovery, does_not_wait_for_outsiders_of_terms_before_the_newer_version)
{
    struct course c;
    course_init(&c);
    start_with_a_part(&c, 2, 2);
    cr_assert(eq(int, phase(&c), RECOVERY_FETCHING));
    course_free(&c);
}

static void answer_with_base(struct course *c, uint32_t node, struct version held, struct version base)
{
    struct inventory inventory = make_inventory(c, node, held, VERSIONS(held));
    inventory.base = base;
    step_inventory(c, &inventory, 0);
}

/* 3.20 was restored by the term before, or is noted as committed, and no member has anything of it. 3.10 is
 * complete. */
static void start_without_the_newest(struct course *c, struct version base, struct version noted,
                                     uint64_t outsider_term)
{
    struct error err;
    *c = (struct course){.world = fixture_world(NODES, 1, 1)};
    fixture_add_private_shards(&c->world, 4096);
    cr_assert(eq(int, placement_build(&c->world, 2, &c->placement, &err), TCK_OK));
    struct recovery_setup setup = {
        .world = &c->world, .placement = &c->placement, .wait_ms = WAIT_MS, .max_tries = MAX_TRIES};
    cr_assert(eq(int, recovery_new(&setup, &c->recovery), TCK_OK));
    step_start(c, TCK_NEWEST, 0);
    step_stored(c, &(struct storage_view){.complete = true, .noted = noted}, 0);
    struct known_node known = outsider(c, 0x4000, outsider_term);
    step_known(c, &known);
    answer_with_base(c, 0, V(3, 10), base);
    for (uint32_t i = 1; i < NODES; i++) {
        answer(c, i, V(3, 10), VERSIONS(V(3, 10)), 0);
    }
    step_asked_all(c, 0);
}

Test(recovery, waits_for_an_outsider_that_may_have_the_base_of_the_term_before)
{
    struct course c;
    start_without_the_newest(&c, V(3, 20), VERSION_NONE, 4);
    cr_assert(eq(int, phase(&c), RECOVERY_ASKING));
    struct inventory inventory = fixture_inventory(&c.world, 0);
    inventory.node = outsider(&c, 0x4000, 4).node;
    for (uint32_t shard = 0; shard < NODES; shard++) {
        fixture_hold(&inventory, &c.world, shard, V(3, 20));
        inventory.holdings[shard].committed = false;
    }
    step_inventory(&c, &inventory, 1);
    cr_assert(eq(int, phase(&c), RECOVERY_FETCHING));
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 20)));
    course_free(&c);
}

Test(recovery, takes_an_older_version_than_the_base_of_the_term_before_after_the_wait)
{
    struct course c;
    start_without_the_newest(&c, V(3, 20), VERSION_NONE, 4);
    step_tick(&c, WAIT_MS);
    cr_assert(eq(int, phase(&c), RECOVERY_FETCHING));
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 10)));
    cr_assert(strstr(recovery_plan(c.recovery)->passed_text, "3.20 was restored before") != NULL);
    course_free(&c);
}

Test(recovery, waits_for_an_outsider_that_may_have_the_noted_commit)
{
    struct course c;
    start_without_the_newest(&c, VERSION_NONE, V(4, 0), 4);
    cr_assert(eq(int, phase(&c), RECOVERY_ASKING));
    step_tick(&c, WAIT_MS);
    cr_assert(version_is(recovery_plan(c.recovery)->version, V(3, 10)));
    course_free(&c);
}

Test(recovery, waits_for_no_outsider_of_terms_before_the_base_or_the_noted_commit)
{
    struct course c;
    start_without_the_newest(&c, V(3, 20), V(3, 20), 2);
    cr_assert(eq(int, phase(&c), RECOVERY_FETCHING));
    course_free(&c);
}

Test(recovery, makes_no_fresh_start_before_it_has_waited_for_an_outsider)
{
    struct course c;
    course_init(&c);
    list_nothing(&c);
    struct known_node known = outsider(&c, 0x4000, 1);
    step_known(&c, &known);
    known = (struct known_node){.node = c.world.nodes[2], .term = 1}; /* a member, which answers as one */
    step_known(&c, &known);
    for (uint32_t i = 0; i < NODES; i++) {
        answer(&c, i, VERSION_NONE, VERSIONS(VERSION_NONE), 0);
    }
    step_asked_all(&c, 0);
    cr_assert(eq(int, phase(&c), RECOVERY_ASKING));
    step_tick(&c, WAIT_MS);
    cr_assert(eq(int, recovery_failure(c.recovery), TCK_ERR_NOENT));
    course_free(&c);
}
