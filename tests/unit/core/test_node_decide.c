/* SPDX-License-Identifier: Apache-2.0
 * The effects of a decision on a node. */
#include "machine.h"

static struct machine m;

static void three_slots(void)
{
    machine_new(&m, 3);
}

static void drop(void)
{
    free(m.memory);
}

TestSuite(node_decide, .init = three_slots, .fini = drop);

static struct decision committed(uint64_t seq, uint64_t step)
{
    return (struct decision){.seq = seq, .watermark = v(step), .horizon = step + 1};
}

static struct decision draining(uint64_t seq, uint64_t step, uint64_t attempt)
{
    struct decision d = committed(seq, step);
    d.drain = v(step);
    d.drain_attempt = attempt;
    return d;
}

static void drained_here(uint64_t step, uint64_t attempt, bool ok)
{
    machine_step(&m, (struct event){.type = EVENT_DRAINED_HERE, .version = v(step), .attempt = attempt, .ok = ok});
}

/* The next version was compared with this one, its base. */
static void compared(struct version base)
{
    machine_step(&m, (struct event){.type = EVENT_UNPIN, .slot = slot_of(&m, OWN_SHARD, base)});
}

Test(node_decide, learns_nothing_from_another_term)
{
    save_until_ready(&m, 7);
    struct decision d = committed(1, 8);
    d.term = MACHINE_TERM - 1;
    struct event e = {.type = EVENT_DECISION, .term = MACHINE_TERM - 1, .now_ms = m.now, .decision = d};
    m.out.count = 0;
    node_step(m.node, &e, &m.out);
    cr_assert_eq(m.out.count, 0);
    cr_assert_eq(node_decision(m.node)->seq, 0);
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_VERIFIED);
}

Test(node_decide, frees_the_older_version_only_on_the_commit_of_a_newer)
{
    save_until_ready(&m, 7);
    decide(&m, committed(1, 7));
    save_until_ready(&m, 8);
    compared(v(7));
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_VERIFIED);
    decide(&m, committed(2, 8));
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_FREE);
    cr_assert_eq(state_of(&m, OWN_SHARD, v(8)), SLOT_VERIFIED);
}

Test(node_decide, frees_an_aborted_version_and_says_it_failed)
{
    save_until_ready(&m, 7);
    decide(&m, (struct decision){.seq = 1, .horizon = 8});
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_FREE);
    cr_assert(told(&m, v(7), STAGE_FAILED));
}

Test(node_decide, leaves_a_slot_to_the_trainer_that_still_writes)
{
    begin(&m, 0, 7);
    decide(&m, (struct decision){.seq = 1, .horizon = 8});
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_FILLING);
    seal(&m, 0, 7);
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_FREE);
    cr_assert_null(action_of(&m, ACTION_VERIFY));
}

Test(node_decide, leaves_a_slot_to_the_digests_that_still_read)
{
    begin(&m, 0, 7);
    seal(&m, 0, 7);
    decide(&m, (struct decision){.seq = 1, .horizon = 8});
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_SEALED);
    verified(&m, OWN_SHARD, v(7), true);
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_FREE);
}

Test(node_decide, ignores_an_older_decision)
{
    save_until_ready(&m, 7);
    decide(&m, committed(5, 7));
    decide(&m, (struct decision){.seq = 4, .horizon = 9});
    cr_assert(version_is(node_decision(m.node)->watermark, v(7)));
}

Test(node_decide, frees_older_terms_once_the_new_one_is_based)
{
    struct version base = {MACHINE_TERM - 1, 3}, leftover = {MACHINE_TERM - 1, 4};
    m.found[0] = (struct slot){.shard = 0, .state = SLOT_VERIFIED, .version = base};
    m.found[1] = (struct slot){.shard = 0, .state = SLOT_VERIFIED, .version = leftover};
    machine_start(&m);
    decide(&m, (struct decision){.seq = 1});
    cr_assert_eq(state_of(&m, OWN_SHARD, leftover), SLOT_VERIFIED);
    decide(&m, (struct decision){.seq = 2, .based = true, .watermark = base});
    cr_assert_eq(state_of(&m, OWN_SHARD, leftover), SLOT_FREE);
    cr_assert_eq(state_of(&m, OWN_SHARD, base), SLOT_VERIFIED);
}

Test(node_decide, writes_into_the_headers_what_is_committed_or_a_base)
{
    struct version base = {MACHINE_TERM - 1, 3};
    m.found[0] = (struct slot){.shard = 0, .state = SLOT_VERIFIED, .version = base};
    machine_start(&m);
    decide(&m, (struct decision){.seq = 1, .based = true, .watermark = base});
    cr_assert_eq(action_of(&m, ACTION_WRITE_HEADER)->slot, slot_of(&m, OWN_SHARD, base));
    save_until_ready(&m, 7);
    compared(base);
    decide(&m, committed(2, 7));
    cr_assert_eq(actions_of(&m, ACTION_WRITE_HEADER), 3, "two marked, the base freed");
    decide(&m, committed(3, 7));
    cr_assert_eq(actions_of(&m, ACTION_WRITE_HEADER), 0);
}

Test(node_decide, keeps_a_pinned_slot_until_it_is_unpinned)
{
    save_until_ready(&m, 7);
    uint32_t slot = slot_of(&m, OWN_SHARD, v(7));
    machine_step(&m, (struct event){.type = EVENT_PIN, .slot = slot});
    decide(&m, (struct decision){.seq = 1, .horizon = 8});
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_VERIFIED);
    machine_step(&m, (struct event){.type = EVENT_UNPIN, .slot = slot});
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_FREE);
}

Test(node_decide, keeps_a_superseded_version_while_it_is_drained)
{
    save_until_ready(&m, 7);
    struct decision d = draining(1, 7, 1);
    d.watermark = v(8);
    d.horizon = 9;
    decide(&m, d);
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_VERIFIED);
    decide(&m, committed(2, 8));
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_FREE);
}

static void hold(uint64_t step)
{
    offer(&m, 0, v(step), root_of(1));
    machine_step(&m, (struct event){.type = EVENT_VERIFIED,
                                    .slot = slot_of(&m, HELD_SHARD, v(step)),
                                    .version = v(step),
                                    .root = root_of(1),
                                    .ok = true});
}

Test(node_decide, a_copy_held_for_another_node_does_not_wait_for_a_drain_of_what_is_superseded)
{
    hold(7);
    decide(&m, draining(1, 7, 1));
    hold(8);
    cr_assert_eq(state_of(&m, HELD_SHARD, v(7)), SLOT_VERIFIED, "it is the newest committed version");
    struct decision d = draining(2, 7, 1);
    d.watermark = v(8);
    d.horizon = 9;
    decide(&m, d);
    cr_assert_eq(state_of(&m, HELD_SHARD, v(7)), SLOT_FREE);
    hold(9);
    cr_assert_eq(state_of(&m, HELD_SHARD, v(9)), SLOT_VERIFIED);
}

Test(node_decide, drains_once_per_attempt)
{
    save_until_ready(&m, 7);
    decide(&m, draining(1, 7, 1));
    cr_assert_not_null(action_of(&m, ACTION_DRAIN));
    decide(&m, draining(2, 7, 1));
    cr_assert_null(action_of(&m, ACTION_DRAIN));
    drained_here(7, 1, false);
    decide(&m, draining(3, 7, 2));
    cr_assert_eq(action_of(&m, ACTION_DRAIN)->attempt, 2);
}

Test(node_decide, begins_no_drain_while_an_older_one_is_under_way)
{
    save_until_ready(&m, 7);
    decide(&m, draining(1, 7, 1));
    decide(&m, committed(2, 7));
    decide(&m, draining(3, 7, 2));
    cr_assert_null(action_of(&m, ACTION_DRAIN));
    decide(&m, draining(4, 7, 3));
    cr_assert_null(action_of(&m, ACTION_DRAIN));
    drained_here(7, 1, false);
    cr_assert_eq(actions_of(&m, ACTION_DRAIN), 1);
    cr_assert_eq(action_of(&m, ACTION_DRAIN)->attempt, 3, "the newest");
    cr_assert_null(action_of(&m, ACTION_SEND_DRAINED), "of the older one");
}

Test(node_decide, begins_no_drain_that_was_given_up_while_it_waited)
{
    save_until_ready(&m, 7);
    decide(&m, draining(1, 7, 1));
    decide(&m, draining(2, 7, 2));
    decide(&m, committed(3, 7));
    drained_here(7, 1, true);
    cr_assert_null(action_of(&m, ACTION_DRAIN));
    cr_assert_null(action_of(&m, ACTION_SEND_DRAINED));
}

Test(node_decide, reports_its_part_of_a_drain_until_the_drain_ends)
{
    save_until_ready(&m, 7);
    decide(&m, draining(1, 7, 1));
    drained_here(7, 1, true);
    cr_assert(action_of(&m, ACTION_SEND_DRAINED)->ok);
    machine_tick(&m, MACHINE_RETRY);
    cr_assert_not_null(action_of(&m, ACTION_SEND_DRAINED));
    decide(&m, committed(2, 7));
    machine_tick(&m, MACHINE_RETRY);
    cr_assert_null(action_of(&m, ACTION_SEND_DRAINED));
}

Test(node_decide, takes_no_result_of_an_earlier_attempt)
{
    save_until_ready(&m, 7);
    decide(&m, draining(1, 7, 1));
    decide(&m, draining(2, 7, 2));
    drained_here(7, 1, true);
    cr_assert_null(action_of(&m, ACTION_SEND_DRAINED));
    drained_here(7, 2, true);
    cr_assert_eq(action_of(&m, ACTION_SEND_DRAINED)->attempt, 2);
}

Test(node_decide, fails_a_drain_of_what_is_not_here)
{
    decide(&m, draining(1, 7, 1));
    cr_assert_null(action_of(&m, ACTION_DRAIN));
    cr_assert_not(action_of(&m, ACTION_SEND_DRAINED)->ok);
}

Test(node_decide, reports_when_a_version_is_published)
{
    struct decision d = committed(1, 7);
    d.published = v(7);
    decide(&m, d);
    cr_assert(told(&m, v(7), STAGE_PUBLISHED));
}
