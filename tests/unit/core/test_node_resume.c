/* SPDX-License-Identifier: Apache-2.0
 * A node machine that starts with the contents of memory that a previous agent left. */
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

TestSuite(node_resume, .init = three_slots, .fini = drop);

/* Slot 0 of a shard of machine.h, counted from 0. */
static void found(uint32_t shard, enum slot_state state, struct version version)
{
    m.found[(size_t)shard * 3] =
        (struct slot){.shard = shard, .state = state, .version = version, .root = root_of(m.shards[shard].world_shard)};
}

static void found_both(enum slot_state state)
{
    found(0, state, v(7));
    found(1, state, v(7));
    machine_start(&m);
}

static void acknowledge_all(void)
{
    replica(&m, 2, OWN_SHARD, v(7), REFUSAL_NONE);
    replica(&m, 2, OTHER_OWN_SHARD, v(7), REFUSAL_NONE);
    replica(&m, 0, OTHER_OWN_SHARD, v(7), REFUSAL_NONE);
}

Test(node_resume, offers_copies_of_what_is_verified_again_and_reports_it)
{
    found_both(SLOT_VERIFIED);
    machine_tick(&m, 0);
    cr_assert_eq(actions_of(&m, ACTION_REPLICATE), 3);
    cr_assert_null(action_of(&m, ACTION_SEND_READY), "how far the copies had come is not known");
    acknowledge_all();
    cr_assert(version_is(action_of(&m, ACTION_SEND_READY)->version, v(7)));
    cr_assert(told(&m, v(7), STAGE_PROTECTED));
}

Test(node_resume, reports_without_a_copy_if_there_are_no_holders)
{
    m.shards[0].holder_count = m.shards[1].holder_count = 0;
    found_both(SLOT_VERIFIED);
    machine_tick(&m, 0);
    cr_assert(version_is(action_of(&m, ACTION_SEND_READY)->version, v(7)));
}

Test(node_resume, makes_the_digests_of_what_is_sealed_first)
{
    found_both(SLOT_SEALED);
    machine_tick(&m, 0);
    cr_assert_eq(actions_of(&m, ACTION_VERIFY), 2);
    machine_tick(&m, 0);
    cr_assert_null(action_of(&m, ACTION_VERIFY), "once is enough");
    acknowledge_all();
    cr_assert_null(action_of(&m, ACTION_SEND_READY), "its digests are not made");
    verified(&m, OWN_SHARD, v(7), true);
    cr_assert_eq(actions_of(&m, ACTION_REPLICATE), 1);
    verified(&m, OTHER_OWN_SHARD, v(7), true);
    cr_assert_eq(actions_of(&m, ACTION_REPLICATE), 2);
    acknowledge_all();
    cr_assert_not_null(action_of(&m, ACTION_SEND_READY));
}

Test(node_resume, waits_for_the_seal_of_a_trainer_that_still_copies)
{
    found(0, SLOT_SEALED, v(7));
    found(1, SLOT_FILLING, v(7));
    machine_start(&m);
    machine_tick(&m, 0);
    cr_assert_eq(actions_of(&m, ACTION_VERIFY), 1);
    cr_assert_eq(state_of(&m, OTHER_OWN_SHARD, v(7)), SLOT_FILLING);
    seal(&m, 1, 7);
    cr_assert_eq(actions_of(&m, ACTION_VERIFY), 1);
    seal(&m, 0, 7);
    cr_assert_eq(m.out.count, 0, "said twice");
    verified(&m, OWN_SHARD, v(7), true);
    verified(&m, OTHER_OWN_SHARD, v(7), true);
    acknowledge_all();
    cr_assert_not_null(action_of(&m, ACTION_SEND_READY));
}

Test(node_resume, discards_what_a_returning_trainer_has_given_up)
{
    found(0, SLOT_FILLING, v(7));
    machine_start(&m);
    machine_step(&m, (struct event){.type = EVENT_ABANDON, .rank = 0, .version = {0, 7}});
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_FREE);
    cr_assert(version_is(action_of(&m, ACTION_SEND_REFUSED)->version, v(7)));
}

Test(node_resume, keeps_the_quarantine_of_the_agent_before_it)
{
    found(0, SLOT_QUARANTINED, v(7));
    machine_start(&m);
    cr_assert_eq(node_slot(m.node, 0)->state, SLOT_QUARANTINED);
    begin(&m, 0, 8);
    cr_assert_eq(slot_of(&m, OWN_SHARD, v(8)), 1);
}

Test(node_resume, refuses_what_was_sealed_and_is_gone)
{
    found(0, SLOT_SEALED, v(7));
    m.shards[1].storing_rank = 0;
    machine_start(&m);
    seal(&m, 0, 7);
    cr_assert(version_is(action_of(&m, ACTION_SEND_REFUSED)->version, v(7)), "shard 11 is missing");
}

Test(node_resume, does_not_report_what_another_rank_never_sealed)
{
    found(0, SLOT_VERIFIED, v(7));
    machine_start(&m);
    replica(&m, 2, OWN_SHARD, v(7), REFUSAL_NONE);
    machine_tick(&m, MACHINE_RETRY);
    cr_assert_null(action_of(&m, ACTION_SEND_READY));
    machine_tick(&m, MACHINE_TIMEOUT);
    cr_assert_eq(action_of(&m, ACTION_SEND_REFUSED)->refusal, REFUSAL_TIMED_OUT);
}

Test(node_resume, lets_a_rank_that_was_slower_still_save)
{
    found(0, SLOT_VERIFIED, v(7));
    machine_start(&m);
    begin(&m, 0, 7);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_OLD_STEP);
    begin(&m, 1, 7);
    cr_assert_not_null(action_of(&m, ACTION_GRANT));
    seal(&m, 1, 7);
    verified(&m, OTHER_OWN_SHARD, v(7), true);
    machine_tick(&m, 0);
    acknowledge_all();
    cr_assert_not_null(action_of(&m, ACTION_SEND_READY));
}

Test(node_resume, does_not_wait_for_a_rank_that_stores_nothing)
{
    m.shards[1].storing_rank = 0;
    found_both(SLOT_VERIFIED);
    machine_tick(&m, 0);
    acknowledge_all();
    cr_assert_not_null(action_of(&m, ACTION_SEND_READY));
    decide(&m, (struct decision){.seq = 1, .horizon = 8, .open_count = 1, .open = {7}});
    begin(&m, 1, 9);
    cr_assert_null(action_of(&m, ACTION_SEND_REFUSED));
}

Test(node_resume, frees_what_was_decided_meanwhile_without_digests)
{
    found_both(SLOT_SEALED);
    decide(&m, (struct decision){.seq = 4, .horizon = 8});
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_FREE);
    machine_tick(&m, 0);
    cr_assert_null(action_of(&m, ACTION_VERIFY));
    cr_assert_null(action_of(&m, ACTION_SEND_READY));
}

Test(node_resume, reports_nothing_of_a_version_aborted_while_its_digests_were_made)
{
    found_both(SLOT_SEALED);
    machine_tick(&m, 0);
    decide(&m, (struct decision){.seq = 4, .horizon = 8});
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_SEALED, "it is being read");
    verified(&m, OWN_SHARD, v(7), true);
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_FREE);
    cr_assert_null(action_of(&m, ACTION_REPLICATE));
    cr_assert_null(action_of(&m, ACTION_SEND_READY));
}

Test(node_resume, makes_digests_for_a_recovery_of_an_older_term)
{
    struct version old = {MACHINE_TERM - 1, 9};
    found(0, SLOT_SEALED, old);
    found(1, SLOT_SEALED, old);
    machine_start(&m);
    machine_tick(&m, 0);
    cr_assert_eq(actions_of(&m, ACTION_VERIFY), 2);
    verified(&m, OWN_SHARD, old, true);
    cr_assert_eq(state_of(&m, OWN_SHARD, old), SLOT_VERIFIED);
    cr_assert_null(action_of(&m, ACTION_REPLICATE));
    verified(&m, OTHER_OWN_SHARD, old, false);
    cr_assert_eq(state_of(&m, OTHER_OWN_SHARD, old), SLOT_FREE);
    cr_assert_null(action_of(&m, ACTION_SEND_REFUSED), "it is no longer decided on");
}

Test(node_resume, remembers_that_a_version_is_due_on_storage)
{
    begin(&m, 0, 6);
    cr_assert_not(node_slot(m.node, slot_of(&m, OWN_SHARD, v(6)))->to_storage);
    found(0, SLOT_VERIFIED, v(7));
    found(1, SLOT_VERIFIED, v(7));
    m.found[0].to_storage = true;
    machine_start(&m);
    cr_assert(node_slot(m.node, slot_of(&m, OWN_SHARD, v(7)))->to_storage);
    machine_tick(&m, 0);
    acknowledge_all();
    cr_assert(action_of(&m, ACTION_SEND_READY)->to_storage);
}

Test(node_resume, keeps_what_it_holds_for_others)
{
    found(2, SLOT_VERIFIED, v(7));
    machine_start(&m);
    machine_tick(&m, MACHINE_TIMEOUT);
    cr_assert_null(action_of(&m, ACTION_SEND_REFUSED), "nothing is wrong with that copy");
    offer(&m, 0, v(7), root_of(HELD_SHARD));
    cr_assert_not_null(action_of(&m, ACTION_ACK_OFFER));
}
