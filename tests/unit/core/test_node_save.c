/* SPDX-License-Identifier: Apache-2.0
 * Versions that a node saves. */
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

TestSuite(node_save, .init = three_slots, .fini = drop);

Test(node_save, grants_a_free_slot_of_each_shard_the_rank_stores)
{
    begin(&m, 0, 7);
    const struct action *grant = action_of(&m, ACTION_GRANT);
    cr_assert_not_null(grant);
    cr_assert(version_is(grant->version, v(7)));
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_FILLING);
    cr_assert_eq(state_of(&m, OTHER_OWN_SHARD, v(7)), SLOT_FREE);
}

Test(node_save, refuses_a_step_that_is_not_newer)
{
    begin(&m, 0, 7);
    begin(&m, 0, 7);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_OLD_STEP);
}

Test(node_save, saves_step_zero)
{
    begin(&m, 0, 0);
    cr_assert_not_null(action_of(&m, ACTION_GRANT));
}

Test(node_save, refuses_without_a_slot_and_tells_the_coordinator)
{
    begin(&m, 0, 1);
    begin(&m, 0, 2);
    begin(&m, 0, 3);
    begin(&m, 0, 4);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_NO_SLOT);
    cr_assert_eq(action_of(&m, ACTION_SEND_REFUSED)->refusal, REFUSAL_NO_SLOT);
    cr_assert_not(told(&m, v(4), STAGE_FAILED));
    decide(&m, (struct decision){.seq = 1, .horizon = 5});
    cr_assert(told(&m, v(4), STAGE_FAILED));
}

Test(node_save, begins_no_step_that_is_throttled)
{
    decide(&m, (struct decision){.seq = 1, .horizon = 8, .not_before = 20});
    begin(&m, 0, 19);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_HELD_BACK);
    cr_assert_null(action_of(&m, ACTION_SEND_REFUSED), "many saves cause one message");
    begin(&m, 0, 20);
    cr_assert_not_null(action_of(&m, ACTION_GRANT));
}

Test(node_save, begins_the_open_version_below_the_step_that_is_named)
{
    decide(&m, (struct decision){.seq = 1, .horizon = 8, .not_before = 20, .open_count = 1, .open = {7}});
    begin(&m, 0, 7);
    cr_assert_not_null(action_of(&m, ACTION_GRANT));
}

static void begin_last(uint32_t rank, uint64_t step)
{
    machine_step(
        &m, (struct event){.type = EVENT_BEGIN, .rank = rank, .version = {0, step}, .to_storage = true, .last = true});
}

Test(node_save, the_last_step_is_begun_as_soon_as_a_slot_is_free)
{
    begin(&m, 0, 1);
    begin(&m, 0, 2);
    begin(&m, 0, 3);
    for (int i = 0; i < 2; i++) {
        begin_last(0, 4);
        cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_NOT_YET);
        cr_assert_eq(action_of(&m, ACTION_SEND_REFUSED)->refusal, REFUSAL_NOT_YET, "a recovery may free a slot");
    }
    machine_step(&m, (struct event){.type = EVENT_ABANDON, .rank = 0, .version = {0, 2}});
    begin_last(0, 4);
    cr_assert_not_null(action_of(&m, ACTION_GRANT));
    begin_last(0, 4);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_OLD_STEP);
}

Test(node_save, the_last_step_waits_until_it_is_no_longer_throttled)
{
    decide(&m, (struct decision){.seq = 1, .horizon = 8, .not_before = 20});
    begin_last(0, 19);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_NOT_YET);
    decide(&m, (struct decision){.seq = 2, .horizon = 20, .open_count = 1, .open = {19}});
    begin_last(0, 19);
    cr_assert_not_null(action_of(&m, ACTION_GRANT));
}

Test(node_save, the_last_step_is_refused_for_good_once_it_is_aborted)
{
    begin(&m, 0, 1);
    begin(&m, 0, 2);
    begin(&m, 0, 3);
    decide(&m, (struct decision){.seq = 1, .horizon = 5, .open_count = 3, .open = {1, 2, 3}});
    begin_last(0, 4);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_ABORTED);
}

Test(node_save, the_last_step_does_not_wait_for_a_holder_that_is_lost)
{
    machine_step(&m, (struct event){.type = EVENT_NODE_DOWN, .node = 2});
    begin_last(0, 4);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_HOLDER_LOST);
}

/* As while the coordinator's agent is down: nothing is decided then. */
Test(node_save, the_last_step_waits_while_the_node_has_its_fill_of_undecided_versions)
{
    machine_step(&m, (struct event){.type = EVENT_NODE_DOWN, .node = 2});
    uint64_t step = 1;
    for (begin(&m, 0, step); action_of(&m, ACTION_SEND_REFUSED) != NULL; begin(&m, 0, step)) {
        step++;
    }
    begin_last(0, step + 1);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_NOT_YET);
    decide(&m, (struct decision){.seq = 1, .horizon = step + 1});
    begin_last(0, step + 1);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_HOLDER_LOST);
}

Test(node_save, the_last_step_has_versions_refused_that_its_rank_has_passed_over)
{
    decide(&m, (struct decision){.seq = 1, .horizon = 2, .not_before = 20, .open_count = 1, .open = {1}});
    begin_last(0, 4);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_NOT_YET);
    cr_assert_eq(action_nth(&m, ACTION_SEND_REFUSED, 1)->refusal, REFUSAL_PASSED_OVER);
}

Test(node_save, refuses_what_one_rank_has_begun_and_another_may_not)
{
    begin(&m, 0, 7);
    decide(&m, (struct decision){.seq = 1, .not_before = 20});
    begin(&m, 1, 7);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_HELD_BACK);
    cr_assert_eq(action_of(&m, ACTION_SEND_REFUSED)->refusal, REFUSAL_HELD_BACK);
}

Test(node_save, says_that_a_version_failed_only_when_it_is_decided)
{
    save_until_verified(&m, 7);
    machine_step(&m, (struct event){.type = EVENT_NODE_DOWN, .node = 2});
    cr_assert_eq(action_of(&m, ACTION_SEND_REFUSED)->refusal, REFUSAL_HOLDER_LOST);
    cr_assert_not(told(&m, v(7), STAGE_FAILED), "this agent may die unheard, and the next one report it ready");
    seal(&m, 0, 7);
    cr_assert_not(told(&m, v(7), STAGE_FAILED));
    decide(&m, (struct decision){.seq = 1, .horizon = 8});
    cr_assert(told(&m, v(7), STAGE_FAILED));
}

Test(node_save, does_not_say_that_a_version_failed_which_is_drained)
{
    save_until_verified(&m, 7);
    decide(&m, (struct decision){.seq = 2, .watermark = v(8), .horizon = 9, .drain = v(7), .drain_attempt = 1});
    cr_assert_not(told(&m, v(7), STAGE_FAILED), "it was committed, and superseded by 8, in decisions that were lost");
}

Test(node_save, refuses_the_other_ranks_of_a_refused_version)
{
    begin(&m, 0, 1);
    begin(&m, 0, 2);
    begin(&m, 0, 3);
    begin(&m, 0, 4);
    begin(&m, 1, 4);
    cr_assert_not_null(action_of(&m, ACTION_REFUSE));
    cr_assert_eq(state_of(&m, OTHER_OWN_SHARD, v(4)), SLOT_FREE);
}

Test(node_save, refuses_an_open_version_that_a_rank_has_passed_over)
{
    begin(&m, 1, 7);
    decide(&m, (struct decision){.seq = 1, .horizon = 8, .open_count = 1, .open = {7}});
    begin(&m, 1, 8);
    cr_assert_null(action_of(&m, ACTION_SEND_REFUSED), "rank 1 has begun both, rank 0 may yet begin 7");
    begin(&m, 0, 8);
    cr_assert(version_is(action_of(&m, ACTION_SEND_REFUSED)->version, v(7)));
    cr_assert_eq(action_of(&m, ACTION_SEND_REFUSED)->refusal, REFUSAL_PASSED_OVER);
    cr_assert_not_null(action_of(&m, ACTION_GRANT), "the new one is saved all the same");
}

Test(node_save, refuses_a_version_already_aborted)
{
    decide(&m, (struct decision){.seq = 1, .horizon = 9});
    begin(&m, 0, 8);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_ABORTED);
}

Test(node_save, refuses_at_begin_when_a_holder_is_down)
{
    machine_step(&m, (struct event){.type = EVENT_NODE_DOWN, .node = 0});
    begin(&m, 1, 7);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_HOLDER_LOST);
    machine_step(&m, (struct event){.type = EVENT_NODE_UP, .node = 0});
    begin(&m, 1, 8);
    cr_assert_not_null(action_of(&m, ACTION_GRANT));
}

Test(node_save, replicates_to_every_holder_once_verified)
{
    begin(&m, 1, 7);
    seal(&m, 1, 7);
    cr_assert_eq(actions_of(&m, ACTION_VERIFY), 1);
    cr_assert_eq(actions_of(&m, ACTION_REPLICATE), 0);
    verified(&m, OTHER_OWN_SHARD, v(7), true);
    cr_assert_eq(actions_of(&m, ACTION_REPLICATE), 2);
    cr_assert_eq(action_nth(&m, ACTION_REPLICATE, 0)->node, 2);
    cr_assert_eq(action_nth(&m, ACTION_REPLICATE, 1)->node, 0);
}

/* All copies of the step are acknowledged, and it is committed. */
static void commit(uint64_t step, uint64_t seq)
{
    save_until_verified(&m, step);
    replica(&m, 2, OWN_SHARD, v(step), REFUSAL_NONE);
    replica(&m, 2, OTHER_OWN_SHARD, v(step), REFUSAL_NONE);
    replica(&m, 0, OTHER_OWN_SHARD, v(step), REFUSAL_NONE);
    decide(&m, (struct decision){.seq = seq, .watermark = v(step), .horizon = step + 1});
}

Test(node_save, sends_the_first_version_without_a_base)
{
    begin(&m, 0, 7);
    seal(&m, 0, 7);
    verified(&m, OWN_SHARD, v(7), true);
    cr_assert_eq(action_of(&m, ACTION_REPLICATE)->base_slot, NONE32);
}

Test(node_save, the_base_of_a_copy_is_the_newest_committed_version)
{
    commit(7, 1);
    save_until_verified(&m, 8);
    decide(&m, (struct decision){.seq = 2, .watermark = v(7), .horizon = 9}); /* 8 is aborted */
    begin(&m, 0, 9);
    seal(&m, 0, 9);
    verified(&m, OWN_SHARD, v(9), true);
    const struct action *a = action_of(&m, ACTION_REPLICATE);
    cr_assert_eq(a->base_slot, slot_of(&m, OWN_SHARD, v(7)));
    cr_assert_neq(a->base_slot, a->slot);
}

Test(node_save, keeps_a_base_until_it_was_compared)
{
    commit(7, 1);
    begin(&m, 0, 8);
    seal(&m, 0, 8);
    verified(&m, OWN_SHARD, v(8), true);
    uint32_t base = action_of(&m, ACTION_REPLICATE)->base_slot;
    cr_assert_eq(node_slot(m.node, base)->pins, 1);
    decide(&m, (struct decision){.seq = 2, .watermark = v(8), .horizon = 9});
    cr_assert_eq(node_slot(m.node, base)->state, SLOT_VERIFIED);
    machine_step(&m, (struct event){.type = EVENT_UNPIN, .slot = base});
    cr_assert_eq(node_slot(m.node, base)->state, SLOT_FREE);
}

Test(node_save, a_committed_version_that_was_found_damaged_here_is_no_base)
{
    commit(7, 1);
    machine_step(&m, (struct event){.type = EVENT_CORRUPT, .slot = slot_of(&m, OWN_SHARD, v(7))});
    begin(&m, 0, 8);
    seal(&m, 0, 8);
    verified(&m, OWN_SHARD, v(8), true);
    cr_assert_eq(action_of(&m, ACTION_REPLICATE)->base_slot, NONE32);
}

Test(node_save, the_base_of_the_first_version_of_a_term_is_what_the_term_restored)
{
    const struct version restored = {MACHINE_TERM - 1, 40};
    m.found[0] = (struct slot){.shard = 0, .state = SLOT_VERIFIED, .version = restored, .root = root_of(9)};
    machine_start(&m);
    decide(&m, (struct decision){.seq = 1, .readable = true, .base = restored, .based = true, .watermark = restored});
    begin(&m, 0, 41);
    seal(&m, 0, 41);
    verified(&m, OWN_SHARD, v(41), true);
    cr_assert_eq(action_of(&m, ACTION_REPLICATE)->base_slot, 0);
}

Test(node_save, a_copy_that_failed_is_sent_again_with_its_base)
{
    commit(7, 1);
    save_until_verified(&m, 8);
    replica(&m, 2, OWN_SHARD, v(8), REFUSAL_HOLDER_LOST);
    machine_tick(&m, MACHINE_RETRY);
    cr_assert_eq(action_of(&m, ACTION_REPLICATE)->base_slot, slot_of(&m, OWN_SHARD, v(7)));
}

Test(node_save, is_ready_only_when_all_copies_are_acknowledged)
{
    save_until_verified(&m, 7);
    replica(&m, 2, OWN_SHARD, v(7), REFUSAL_NONE);
    replica(&m, 2, OTHER_OWN_SHARD, v(7), REFUSAL_NONE);
    cr_assert_null(action_of(&m, ACTION_SEND_READY));
    replica(&m, 0, OTHER_OWN_SHARD, v(7), REFUSAL_NONE);
    cr_assert_not_null(action_of(&m, ACTION_SEND_READY));
    cr_assert(told(&m, v(7), STAGE_PROTECTED));
}

Test(node_save, does_not_count_a_copy_with_another_root)
{
    save_until_verified(&m, 7);
    replica(&m, 2, OWN_SHARD, v(7), REFUSAL_NONE);
    replica(&m, 2, OTHER_OWN_SHARD, v(7), REFUSAL_NONE);
    machine_step(&m, (struct event){.type = EVENT_REPLICA,
                                    .node = 0,
                                    .shard = OTHER_OWN_SHARD,
                                    .version = v(7),
                                    .root = root_of(666),
                                    .ok = true});
    cr_assert_null(action_of(&m, ACTION_SEND_READY));
}

Test(node_save, is_not_ready_before_every_rank_has_sealed)
{
    begin(&m, 0, 7);
    seal(&m, 0, 7);
    verified(&m, OWN_SHARD, v(7), true);
    replica(&m, 2, OWN_SHARD, v(7), REFUSAL_NONE);
    cr_assert_null(action_of(&m, ACTION_SEND_READY));
}

Test(node_save, passes_the_request_for_storage_on)
{
    machine_step(&m, (struct event){.type = EVENT_BEGIN, .rank = 0, .version = {0, 7}, .to_storage = true});
    begin(&m, 1, 7);
    seal(&m, 0, 7);
    seal(&m, 1, 7);
    verified(&m, OWN_SHARD, v(7), true);
    verified(&m, OTHER_OWN_SHARD, v(7), true);
    replica(&m, 2, OWN_SHARD, v(7), REFUSAL_NONE);
    replica(&m, 2, OTHER_OWN_SHARD, v(7), REFUSAL_NONE);
    replica(&m, 0, OTHER_OWN_SHARD, v(7), REFUSAL_NONE);
    cr_assert(action_of(&m, ACTION_SEND_READY)->to_storage);
}

/* The coordinator may have counted it as ready, and committed it, before it learns of the refusal. */
Test(node_save, a_ready_version_that_is_refused_keeps_its_slots_until_it_is_decided)
{
    save_until_ready(&m, 7);
    machine_step(&m, (struct event){.type = EVENT_CORRUPT, .slot = slot_of(&m, OWN_SHARD, v(7))});
    cr_assert_eq(action_of(&m, ACTION_SEND_REFUSED)->refusal, REFUSAL_CORRUPT);
    cr_assert_eq(state_of(&m, OTHER_OWN_SHARD, v(7)), SLOT_VERIFIED);
}

Test(node_save, repeats_ready_until_decided)
{
    save_until_ready(&m, 7);
    machine_tick(&m, MACHINE_RETRY);
    cr_assert_not_null(action_of(&m, ACTION_SEND_READY));
    decide(&m, (struct decision){.seq = 1, .watermark = v(7), .horizon = 8});
    machine_tick(&m, MACHINE_RETRY);
    cr_assert_null(action_of(&m, ACTION_SEND_READY));
}

Test(node_save, sends_a_failed_copy_again_after_a_while)
{
    save_until_verified(&m, 7);
    replica(&m, 2, OWN_SHARD, v(7), REFUSAL_NO_SLOT);
    machine_tick(&m, MACHINE_RETRY - 1);
    cr_assert_null(action_of(&m, ACTION_REPLICATE));
    machine_tick(&m, 1);
    cr_assert_eq(action_of(&m, ACTION_REPLICATE)->shard, OWN_SHARD);
    machine_tick(&m, MACHINE_RETRY);
    cr_assert_null(action_of(&m, ACTION_REPLICATE), "one at a time");
}

Test(node_save, sends_the_next_version_to_a_holder_when_the_one_before_is_decided)
{
    machine_new(&m, 3);
    save_until_ready(&m, 7);
    save_until_verified(&m, 8);
    cr_assert_null(action_of(&m, ACTION_REPLICATE), "the holders have no room for it yet");
    machine_tick(&m, MACHINE_RETRY);
    cr_assert_null(action_of(&m, ACTION_REPLICATE));
    decide(&m, (struct decision){.seq = 1, .watermark = v(7), .horizon = 9, .open = {8}, .open_count = 1});
    cr_assert_eq(actions_of(&m, ACTION_REPLICATE), 3, "at once");
    cr_assert_eq(action_of(&m, ACTION_REPLICATE)->version.step, 8);
}

/* Step 7 is aborted while it is sent. */
Test(node_save, cancels_the_copies_of_a_version_that_is_over_and_sends_the_next_when_they_have_ended)
{
    save_until_verified(&m, 7);
    replica(&m, 0, OTHER_OWN_SHARD, v(7), REFUSAL_NONE);
    machine_step(&m, (struct event){.type = EVENT_PIN, .slot = slot_of(&m, OWN_SHARD, v(7))});
    machine_step(&m, (struct event){.type = EVENT_PIN, .slot = slot_of(&m, OTHER_OWN_SHARD, v(7))});
    save_until_verified(&m, 8);
    decide(&m, (struct decision){.seq = 1, .horizon = 9, .open = {8}, .open_count = 1});
    cr_assert_eq(actions_of(&m, ACTION_CANCEL_COPY), 2, "not the one that was acknowledged");
    cr_assert_not(node_copy_wanted(m.node, slot_of(&m, OWN_SHARD, v(7)), 2));
    cr_assert(node_copy_wanted(m.node, slot_of(&m, OTHER_OWN_SHARD, v(8)), 0));
    const struct action *cancel = action_of(&m, ACTION_CANCEL_COPY);
    cr_assert_eq(cancel->node, 2);
    cr_assert_eq(cancel->shard, OWN_SHARD);
    cr_assert_eq(cancel->version.step, 7);
    cr_assert_eq(actions_of(&m, ACTION_REPLICATE), 1);
    cr_assert_eq(action_of(&m, ACTION_REPLICATE)->node, 0, "node 2 has no room before the others have ended");
    replica(&m, 2, OWN_SHARD, v(7), REFUSAL_HOLDER_LOST);
    cr_assert_eq(actions_of(&m, ACTION_REPLICATE), 1, "at once");
    cr_assert_eq(action_of(&m, ACTION_REPLICATE)->shard, OWN_SHARD);
    cr_assert_eq(action_of(&m, ACTION_REPLICATE)->version.step, 8);
    machine_step(&m, (struct event){.type = EVENT_UNPIN, .slot = slot_of(&m, OWN_SHARD, v(7))});
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_FREE);
    decide(&m, (struct decision){.seq = 2, .horizon = 10, .open = {8}, .open_count = 1});
    cr_assert_null(action_of(&m, ACTION_CANCEL_COPY), "once");
}

/* Node 0 has refused its copy, and the time for the next attempt has not come. */
Test(node_save, the_end_of_a_canceled_copy_lets_no_other_holder_be_tried_earlier)
{
    save_until_verified(&m, 7);
    replica(&m, 0, OTHER_OWN_SHARD, v(7), REFUSAL_NONE);
    machine_step(&m, (struct event){.type = EVENT_PIN, .slot = slot_of(&m, OWN_SHARD, v(7))});
    save_until_verified(&m, 8);
    decide(&m, (struct decision){.seq = 1, .horizon = 9, .open = {8}, .open_count = 1});
    replica(&m, 0, OTHER_OWN_SHARD, v(8), REFUSAL_NO_SLOT);
    replica(&m, 2, OWN_SHARD, v(7), REFUSAL_HOLDER_LOST);
    cr_assert_eq(actions_of(&m, ACTION_REPLICATE), 1);
    cr_assert_eq(action_of(&m, ACTION_REPLICATE)->shard, OWN_SHARD);
    machine_tick(&m, MACHINE_RETRY);
    cr_assert_eq(action_of(&m, ACTION_REPLICATE)->node, 0);
}

Test(node_save, sends_the_older_version_first_even_if_its_digests_come_later)
{
    machine_new(&m, 3);
    for (uint64_t step = 7; step < 9; step++) {
        begin(&m, 0, step);
        seal(&m, 0, step);
    }
    verified(&m, OWN_SHARD, v(8), true);
    cr_assert_null(action_of(&m, ACTION_REPLICATE));
    verified(&m, OWN_SHARD, v(7), true);
    cr_assert_eq(actions_of(&m, ACTION_REPLICATE), 1);
    cr_assert_eq(action_of(&m, ACTION_REPLICATE)->version.step, 7);
}

Test(node_save, does_not_wait_for_a_version_that_was_given_up_before_it_was_sent)
{
    machine_new(&m, 3);
    begin(&m, 0, 7);
    seal(&m, 0, 7); /* rank 1 goes on without it, before its digests are made */
    begin(&m, 1, 8);
    decide(&m, (struct decision){.seq = 1, .horizon = 9, .open = {7, 8}, .open_count = 2});
    begin(&m, 1, 9);
    begin(&m, 0, 9);
    seal(&m, 0, 9);
    verified(&m, OWN_SHARD, v(9), true);
    cr_assert_eq(action_of(&m, ACTION_REPLICATE)->version.step, 9);
}

Test(node_save, waits_for_a_version_that_was_given_up_while_a_holder_may_have_it)
{
    machine_new(&m, 3);
    save_until_verified(&m, 7);
    machine_step(&m, (struct event){.type = EVENT_CORRUPT, .slot = slot_of(&m, OTHER_OWN_SHARD, v(7))});
    cr_assert_eq(action_of(&m, ACTION_SEND_REFUSED)->refusal, REFUSAL_CORRUPT);
    save_until_verified(&m, 8);
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_VERIFIED);
    for (uint32_t i = 0; i < m.out.count; i++) {
        cr_assert(m.items[i].type != ACTION_REPLICATE || m.items[i].shard != OWN_SHARD);
    }
    decide(&m, (struct decision){.seq = 1, .horizon = 9, .open = {8}, .open_count = 1});
    cr_assert_eq(action_of(&m, ACTION_REPLICATE)->shard, OWN_SHARD);
}

Test(node_save, asks_a_recovery_for_room_at_a_holder)
{
    save_until_verified(&m, 7);
    replica(&m, 2, OWN_SHARD, v(7), REFUSAL_NO_SLOT);
    cr_assert_eq(action_of(&m, ACTION_SEND_REFUSED)->refusal, REFUSAL_NOT_YET, "it decides nothing");
    decide(&m, (struct decision){.seq = 1, .readable = true, .based = true});
    cr_assert_not_null(action_of(&m, ACTION_REPLICATE), "the end of the recovery has made room");
    replica(&m, 2, OWN_SHARD, v(7), REFUSAL_NO_SLOT);
    cr_assert_null(action_of(&m, ACTION_SEND_REFUSED), "no recovery can help");
}

Test(node_save, gives_a_version_up_when_its_holder_can_never_take_it)
{
    save_until_verified(&m, 7);
    replica(&m, 2, OWN_SHARD, v(7), REFUSAL_NOT_A_HOLDER);
    cr_assert_eq(action_of(&m, ACTION_SEND_REFUSED)->refusal, REFUSAL_NOT_A_HOLDER);
}

Test(node_save, refuses_a_version_that_waits_for_a_lost_holder)
{
    save_until_verified(&m, 7);
    machine_step(&m, (struct event){.type = EVENT_NODE_DOWN, .node = 2});
    cr_assert_eq(action_of(&m, ACTION_SEND_REFUSED)->refusal, REFUSAL_HOLDER_LOST);
}

Test(node_save, stays_ready_when_a_holder_is_lost_after_its_acknowledgement)
{
    save_until_ready(&m, 7);
    machine_step(&m, (struct event){.type = EVENT_NODE_DOWN, .node = 2});
    cr_assert_null(action_of(&m, ACTION_SEND_REFUSED));
}

static void writer_gone(uint32_t slot, struct version version)
{
    machine_step(&m, (struct event){.type = EVENT_WRITER_GONE, .slot = slot, .version = version});
}

Test(node_save, quarantines_the_slots_of_a_lost_trainer_and_refuses_its_version)
{
    begin(&m, 0, 7);
    begin(&m, 1, 7);
    uint32_t slot = slot_of(&m, OWN_SHARD, v(7));
    machine_step(&m, (struct event){.type = EVENT_RANK_LOST, .rank = 0});
    cr_assert_eq(node_slot(m.node, slot)->state, SLOT_QUARANTINED, "its process may only be frozen");
    cr_assert_eq(slot_of(&m, OWN_SHARD, v(7)), NONE32, "nothing of the version is here");
    cr_assert_eq(state_of(&m, OTHER_OWN_SHARD, v(7)), SLOT_FILLING, "the other trainer still writes");
    cr_assert_eq(action_of(&m, ACTION_SEND_REFUSED)->refusal, REFUSAL_RANK_LOST);
}

Test(node_save, does_not_give_away_a_quarantined_slot_before_its_writer_is_gone)
{
    begin(&m, 0, 7);
    uint32_t slot = slot_of(&m, OWN_SHARD, v(7));
    machine_step(&m, (struct event){.type = EVENT_RANK_LOST, .rank = 0});
    begin(&m, 0, 8);
    cr_assert_neq(slot_of(&m, OWN_SHARD, v(8)), slot);
    decide(&m, (struct decision){.seq = 1, .horizon = 9, .open_count = 1, .open = {8}});
    cr_assert_eq(node_slot(m.node, slot)->state, SLOT_QUARANTINED, "its version is over, its writer is not");
    writer_gone(slot, v(8));
    cr_assert_eq(node_slot(m.node, slot)->state, SLOT_QUARANTINED, "that is about another filling");
    writer_gone(slot, v(7));
    cr_assert_eq(node_slot(m.node, slot)->state, SLOT_FREE);
    cr_assert_not_null(action_of(&m, ACTION_WRITE_HEADER));
    writer_gone(slot, VERSION_NONE);
    cr_assert_eq(m.out.count, 0, "said twice");
}

Test(node_save, names_quarantine_as_the_reason_when_nothing_else_takes_up_the_slots)
{
    for (uint64_t step = 1; step <= 2; step++) {
        begin(&m, 0, step);
        machine_step(&m, (struct event){.type = EVENT_RANK_LOST, .rank = 0});
    }
    begin(&m, 0, 7);
    begin(&m, 0, 8);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_NO_SLOT, "step 7 is undecided and has the third");
    machine_step(&m, (struct event){.type = EVENT_RANK_LOST, .rank = 0});
    begin(&m, 0, 9);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_QUARANTINED);
    cr_assert_eq(action_of(&m, ACTION_SEND_REFUSED)->refusal, REFUSAL_QUARANTINED);
}

Test(node_save, keeps_what_a_lost_trainer_had_sealed)
{
    save_until_ready(&m, 7);
    machine_step(&m, (struct event){.type = EVENT_RANK_LOST, .rank = 0});
    cr_assert_null(action_of(&m, ACTION_SEND_REFUSED));
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_VERIFIED);
}

Test(node_save, frees_the_slots_of_an_abandoned_save)
{
    begin(&m, 0, 7);
    machine_step(&m, (struct event){.type = EVENT_ABANDON, .rank = 0, .version = {0, 7}});
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_FREE);
    cr_assert_not_null(action_of(&m, ACTION_SEND_REFUSED));
}

Test(node_save, refuses_a_version_whose_bytes_changed_before_their_digest)
{
    begin(&m, 0, 7);
    seal(&m, 0, 7);
    verified(&m, OWN_SHARD, v(7), false);
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_FREE);
    cr_assert_eq(action_of(&m, ACTION_SEND_REFUSED)->refusal, REFUSAL_CORRUPT);
}

/* ---- time without progress ------------------------------------------------------------------------------------- */

static void moved(uint32_t node, uint32_t world_shard, uint64_t step, uint64_t bytes, bool waits)
{
    machine_step(&m, (struct event){.type = EVENT_MOVED,
                                    .slot = slot_of(&m, world_shard, v(step)),
                                    .version = v(step),
                                    .node = node,
                                    .bytes = bytes,
                                    .waits = waits});
}

static bool timed_out(void)
{
    const struct action *refused = action_of(&m, ACTION_SEND_REFUSED);
    return refused != NULL && refused->refusal == REFUSAL_TIMED_OUT;
}

/* After so much time without progress. */
static bool times_out_after(uint64_t ms)
{
    machine_tick(&m, ms - 1);
    cr_assert_not(timed_out());
    machine_tick(&m, 1);
    return timed_out();
}

Test(node_save, a_rank_that_does_not_seal_times_out)
{
    begin(&m, 0, 7);
    begin(&m, 1, 7);
    seal(&m, 1, 7);
    verified(&m, OTHER_OWN_SHARD, v(7), true);
    replica(&m, 2, OTHER_OWN_SHARD, v(7), REFUSAL_NONE);
    replica(&m, 0, OTHER_OWN_SHARD, v(7), REFUSAL_NONE);
    cr_assert(times_out_after(MACHINE_TIMEOUT));
}

Test(node_save, a_refusal_that_is_repeated_is_not_the_first)
{
    begin(&m, 0, 7);
    cr_assert(times_out_after(MACHINE_TIMEOUT));
    cr_assert(action_of(&m, ACTION_SEND_REFUSED)->first);
    machine_tick(&m, MACHINE_RETRY);
    cr_assert(timed_out());
    cr_assert_not(action_of(&m, ACTION_SEND_REFUSED)->first, "it is in the log already");
}

Test(node_save, knows_what_a_version_waits_for)
{
    cr_assert_eq(node_lacks(m.node, v(7)).lack, LACKS_NOTHING);
    begin(&m, 0, 7);
    cr_assert_eq(node_lacks(m.node, v(7)).lack, LACKS_SEAL);
    seal(&m, 0, 7);
    cr_assert_eq(node_lacks(m.node, v(7)).lack, LACKS_BEGIN);
    cr_assert_eq(node_lacks(m.node, v(7)).rank, 1);
    begin(&m, 1, 7);
    seal(&m, 1, 7);
    cr_assert_eq(node_lacks(m.node, v(7)).lack, LACKS_DIGESTS);
    verified(&m, OWN_SHARD, v(7), true);
    cr_assert_eq(node_lacks(m.node, v(7)).lack, LACKS_COPY);
    cr_assert_eq(node_lacks(m.node, v(7)).node, 2);
    verified(&m, OTHER_OWN_SHARD, v(7), true);
    replica(&m, 2, OWN_SHARD, v(7), REFUSAL_NONE);
    replica(&m, 2, OTHER_OWN_SHARD, v(7), REFUSAL_NONE);
    cr_assert_eq(node_lacks(m.node, v(7)).node, 0);
    replica(&m, 0, OTHER_OWN_SHARD, v(7), REFUSAL_NONE);
    cr_assert_eq(node_lacks(m.node, v(7)).lack, LACKS_NOTHING);
}

Test(node_save, a_copy_that_takes_several_times_the_time_out_is_waited_for)
{
    save_until_verified(&m, 7);
    for (uint64_t chunks = 1; chunks <= 10; chunks++) {
        machine_tick(&m, MACHINE_TIMEOUT - 1);
        cr_assert_not(timed_out());
        moved(2, OWN_SHARD, 7, chunks, false);
    }
    cr_assert(times_out_after(MACHINE_TIMEOUT));
}

/* So many times, shortly before the version would time out, and is sent again, as far as before. */
static void fails_on_its_way(int times)
{
    for (int i = 0; i < times; i++) {
        replica(&m, 2, OWN_SHARD, v(7), REFUSAL_HOLDER_LOST);
        machine_tick(&m, MACHINE_TIMEOUT - 1);
        cr_assert_not_null(action_of(&m, ACTION_REPLICATE));
        cr_assert_not(timed_out());
        moved(2, OWN_SHARD, 7, 5, false);
    }
}

Test(node_save, a_connection_that_breaks_in_the_middle_of_a_long_copy_costs_no_version)
{
    save_until_verified(&m, 7);
    moved(2, OWN_SHARD, 7, 5, false);
    fails_on_its_way(4);
    cr_assert(times_out_after(MACHINE_TIMEOUT));
}

Test(node_save, each_chunk_of_a_copy_counts_in_five_attempts_at_most)
{
    save_until_verified(&m, 7);
    moved(2, OWN_SHARD, 7, 5, false);
    fails_on_its_way(5);
    machine_tick(&m, 1);
    cr_assert(timed_out());
}

Test(node_save, attempts_that_send_nothing_are_not_counted)
{
    save_until_verified(&m, 7);
    for (int i = 0; i < 9; i++) {
        replica(&m, 2, OWN_SHARD, v(7), REFUSAL_NO_SLOT);
        machine_tick(&m, MACHINE_RETRY);
        cr_assert_not_null(action_of(&m, ACTION_REPLICATE));
    }
    moved(2, OWN_SHARD, 7, 5, false);
    fails_on_its_way(4);
}

Test(node_save, a_copy_that_gets_further_than_before_counts)
{
    save_until_verified(&m, 7);
    moved(2, OWN_SHARD, 7, 5, false);
    fails_on_its_way(5);
    moved(2, OWN_SHARD, 7, 6, false);
    cr_assert(times_out_after(MACHINE_TIMEOUT));
}

Test(node_save, a_copy_that_waits_for_its_turn_does_not_time_out)
{
    save_until_verified(&m, 7);
    machine_tick(&m, MACHINE_TIMEOUT - 1);
    moved(2, OWN_SHARD, 7, 0, true);
    cr_assert(times_out_after(MACHINE_TIMEOUT));
}

Test(node_save, digests_and_seals_and_acknowledgements_are_progress)
{
    begin(&m, 0, 7);
    begin(&m, 1, 7);
    machine_tick(&m, MACHINE_TIMEOUT - 1);
    seal(&m, 0, 7);
    machine_tick(&m, MACHINE_TIMEOUT - 1);
    moved(NONE32, OWN_SHARD, 7, 1, false);
    machine_tick(&m, MACHINE_TIMEOUT - 1);
    verified(&m, OWN_SHARD, v(7), true);
    machine_tick(&m, MACHINE_TIMEOUT - 1);
    replica(&m, 2, OWN_SHARD, v(7), REFUSAL_NONE);
    cr_assert(times_out_after(MACHINE_TIMEOUT));
}

Test(node_save, progress_counts_for_newer_versions_and_not_for_older_ones)
{
    save_until_verified(&m, 7);
    begin(&m, 0, 8);
    begin(&m, 0, 9);
    machine_tick(&m, MACHINE_TIMEOUT - 1);
    begin(&m, 1, 8);
    machine_tick(&m, 1);
    cr_assert(timed_out());
    cr_assert_eq(actions_of(&m, ACTION_SEND_REFUSED), 1, "8 and 9 may have waited for it");
    cr_assert(version_is(action_of(&m, ACTION_SEND_REFUSED)->version, v(7)));
}

Test(node_save, the_time_of_a_version_does_not_run_while_an_older_one_is_ready_and_undecided)
{
    save_until_ready(&m, 7);
    save_until_verified(&m, 8);
    machine_tick(&m, 3 * MACHINE_TIMEOUT);
    cr_assert_not(timed_out(), "7 may have its holders' slots");
    decide(&m, (struct decision){.seq = 1, .watermark = v(7), .horizon = 9, .open_count = 1, .open = {8}});
    cr_assert(times_out_after(MACHINE_TIMEOUT));
}

/* Its copies wait for the decision of that one. */
Test(node_save, the_time_of_a_version_begins_when_an_older_one_that_timed_out_is_decided)
{
    save_until_verified(&m, 7);
    save_until_verified(&m, 8);
    cr_assert(times_out_after(MACHINE_TIMEOUT));
    machine_tick(&m, 3 * MACHINE_TIMEOUT);
    cr_assert_eq(actions_of(&m, ACTION_SEND_REFUSED), 1);
    cr_assert(version_is(action_of(&m, ACTION_SEND_REFUSED)->version, v(7)));
    m.now += MACHINE_TIMEOUT;
    decide(&m, (struct decision){.seq = 1, .horizon = 9, .open_count = 1, .open = {8}});
    machine_tick(&m, 0);
    cr_assert_eq(actions_of(&m, ACTION_SEND_REFUSED), 0, "the decision came before the tick");
    cr_assert(times_out_after(MACHINE_TIMEOUT));
}

/* Other nodes may take longer, which only the coordinator knows. */
Test(node_save, a_ready_version_does_not_time_out)
{
    save_until_ready(&m, 7);
    machine_tick(&m, 10 * MACHINE_TIMEOUT);
    cr_assert_null(action_of(&m, ACTION_SEND_REFUSED));
    cr_assert_not_null(action_of(&m, ACTION_SEND_READY));
}

Test(node_save, reports_progress_a_few_times_in_each_time_out)
{
    begin(&m, 0, 7);
    machine_tick(&m, MACHINE_TIMEOUT / 8 - 1);
    cr_assert_null(action_of(&m, ACTION_SEND_PROGRESS), "it may be decided soon");
    machine_tick(&m, 1);
    cr_assert(version_is(action_of(&m, ACTION_SEND_PROGRESS)->version, v(7)));
    begin(&m, 1, 7);
    machine_tick(&m, MACHINE_TIMEOUT / 8 - 1);
    cr_assert_null(action_of(&m, ACTION_SEND_PROGRESS), "too soon after the last one");
    machine_tick(&m, 1);
    cr_assert_not_null(action_of(&m, ACTION_SEND_PROGRESS));
    machine_tick(&m, MACHINE_TIMEOUT / 2);
    cr_assert_null(action_of(&m, ACTION_SEND_PROGRESS), "nothing has moved since");
}

Test(node_save, reports_no_progress_of_what_is_ready)
{
    save_until_ready(&m, 7);
    machine_tick(&m, MACHINE_TIMEOUT);
    cr_assert_null(action_of(&m, ACTION_SEND_PROGRESS));
}

Test(node_save, answers_a_trainer_that_repeats_its_seal)
{
    save_until_ready(&m, 7);
    seal(&m, 0, 7);
    cr_assert(told(&m, v(7), STAGE_PROTECTED));
    decide(&m, (struct decision){.seq = 1, .horizon = 8});
    seal(&m, 0, 7);
    cr_assert(told(&m, v(7), STAGE_FAILED), "it was aborted");
}

Test(node_save, says_nothing_of_a_step_that_was_never_begun)
{
    seal(&m, 0, 7);
    cr_assert_eq(m.out.count, 0);
}

Test(node_save, ignores_events_of_another_term)
{
    struct event e = {.type = EVENT_BEGIN, .term = MACHINE_TERM - 1, .version = {0, 7}};
    m.out.count = 0;
    node_step(m.node, &e, &m.out);
    cr_assert_eq(m.out.count, 0);
}
