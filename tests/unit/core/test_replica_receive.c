/* SPDX-License-Identifier: Apache-2.0
 * Copies that a node holds for others or fetches for a recovery. */
#include "machine.h"

static struct machine m;

static void two_slots(void)
{
    machine_new(&m, 2);
}

static void drop(void)
{
    free(m.memory);
}

TestSuite(node_hold, .init = two_slots, .fini = drop);

static void received(struct version version, struct hash128 root, bool ok)
{
    machine_step(&m, (struct event){.type = EVENT_VERIFIED,
                                    .slot = slot_of(&m, HELD_SHARD, version),
                                    .version = version,
                                    .root = root,
                                    .ok = ok});
}

static void store(struct version version)
{
    offer(&m, 0, version, root_of(1));
    received(version, root_of(1), true);
}

static struct version old(uint64_t step)
{
    return (struct version){MACHINE_TERM - 1, step};
}

/* The newest commit known is that of step `floor`. */
static void fetch_above(uint32_t world_shard, struct version version, uint64_t floor)
{
    machine_step(&m,
                 (struct event){.type = EVENT_FETCH, .shard = world_shard, .version = version, .floor = old(floor)});
}

static void fetch(uint32_t world_shard, struct version version)
{
    fetch_above(world_shard, version, 0);
}

/* Fills the held shard's slots with versions of an older term, as if found in headers. */
static void found_old(uint64_t first_step, uint64_t second_step)
{
    m.found[4] = (struct slot){.shard = 2, .state = SLOT_VERIFIED, .version = {MACHINE_TERM - 1, first_step}};
    m.found[5] = (struct slot){.shard = 2, .state = SLOT_VERIFIED, .version = {MACHINE_TERM - 1, second_step}};
    machine_start(&m);
}

Test(node_hold, acknowledges_an_offer_only_when_its_copy_is_verified)
{
    offer(&m, 0, v(7), root_of(1));
    cr_assert_not_null(action_of(&m, ACTION_STORE));
    cr_assert_null(action_of(&m, ACTION_ACK_OFFER));
    received(v(7), root_of(1), true);
    const struct action *ack = action_of(&m, ACTION_ACK_OFFER);
    cr_assert_not_null(ack);
    cr_assert_eq(ack->node, 0);
    cr_assert(hash128_is(ack->root, root_of(1)));
}

Test(node_hold, rejects_bytes_that_are_not_what_was_announced)
{
    offer(&m, 0, v(7), root_of(1));
    received(v(7), root_of(2), true);
    cr_assert_eq(action_of(&m, ACTION_REJECT_OFFER)->refusal, REFUSAL_CORRUPT);
    cr_assert_eq(state_of(&m, HELD_SHARD, v(7)), SLOT_FREE);
}

Test(node_hold, acknowledges_a_repeated_offer_at_once)
{
    store(v(7));
    offer(&m, 0, v(7), root_of(1));
    cr_assert_not_null(action_of(&m, ACTION_ACK_OFFER));
    cr_assert_null(action_of(&m, ACTION_STORE));
}

Test(node_hold, takes_one_slot_for_an_offer_repeated_while_it_arrives)
{
    offer(&m, 0, v(7), root_of(1));
    offer(&m, 0, v(7), root_of(1));
    cr_assert_eq(m.out.count, 0);
}

Test(node_hold, rejects_an_offer_of_a_shard_it_does_not_hold)
{
    machine_step(&m, (struct event){.type = EVENT_OFFER, .node = 0, .shard = OWN_SHARD, .version = v(7)});
    cr_assert_eq(action_of(&m, ACTION_REJECT_OFFER)->refusal, REFUSAL_NOT_A_HOLDER);
}

Test(node_hold, rejects_an_offer_of_a_version_that_is_over)
{
    decide(&m, (struct decision){.seq = 1, .horizon = 8});
    offer(&m, 0, v(7), root_of(1));
    cr_assert_eq(action_of(&m, ACTION_REJECT_OFFER)->refusal, REFUSAL_ABORTED);
}

Test(node_hold, rejects_an_offer_rather_than_give_up_an_undecided_version)
{
    store(v(7));
    store(v(8));
    offer(&m, 0, v(9), root_of(1));
    cr_assert_eq(action_of(&m, ACTION_REJECT_OFFER)->refusal, REFUSAL_NO_SLOT);
    cr_assert_eq(state_of(&m, HELD_SHARD, v(7)), SLOT_VERIFIED);
}

Test(node_hold, uses_two_slots_even_if_it_has_more)
{
    machine_new(&m, 3);
    m.found[8].withheld = false; /* this node owned the shard before */
    machine_start(&m);
    store(v(7));
    store(v(8));
    offer(&m, 0, v(9), root_of(1));
    cr_assert_eq(action_of(&m, ACTION_REJECT_OFFER)->refusal, REFUSAL_NO_SLOT);
    decide(&m, (struct decision){.seq = 1, .watermark = v(8), .horizon = 9});
    store(v(9));
    cr_assert_eq(state_of(&m, HELD_SHARD, v(9)), SLOT_VERIFIED);
}

Test(node_hold, a_fetch_uses_no_third_slot_either)
{
    machine_new(&m, 3);
    m.found[6] = (struct slot){.shard = 2, .state = SLOT_VERIFIED, .version = old(5)};
    m.found[7] = (struct slot){.shard = 2, .state = SLOT_VERIFIED, .version = old(9)};
    m.found[8].withheld = false;
    machine_start(&m);
    fetch_above(HELD_SHARD, old(7), 5);
    cr_assert_eq(action_of(&m, ACTION_FETCH_SLOT)->slot, 7, "step 9 was found incomplete");
    cr_assert_eq(state_of(&m, HELD_SHARD, old(5)), SLOT_VERIFIED);
}

Test(node_hold, keeps_a_slot_while_bytes_arrive_even_if_its_version_is_over)
{
    offer(&m, 0, v(7), root_of(1));
    decide(&m, (struct decision){.seq = 1, .horizon = 8});
    cr_assert_eq(state_of(&m, HELD_SHARD, v(7)), SLOT_RECEIVING);
    received(v(7), root_of(1), true);
    cr_assert_eq(state_of(&m, HELD_SHARD, v(7)), SLOT_FREE);
    cr_assert_eq(action_of(&m, ACTION_REJECT_OFFER)->refusal, REFUSAL_ABORTED);
}

Test(node_hold, drops_a_digest_event_of_the_slots_earlier_content)
{
    offer(&m, 0, v(7), root_of(1));
    uint32_t slot = slot_of(&m, HELD_SHARD, v(7));
    machine_step(&m, (struct event){.type = EVENT_VERIFIED, .slot = slot, .version = v(6), .ok = true});
    cr_assert_eq(state_of(&m, HELD_SHARD, v(7)), SLOT_RECEIVING);
}

Test(node_hold, does_not_reuse_a_corrupt_slot_while_it_is_read)
{
    store(v(7));
    uint32_t slot = slot_of(&m, HELD_SHARD, v(7));
    machine_step(&m, (struct event){.type = EVENT_PIN, .slot = slot});
    machine_step(&m, (struct event){.type = EVENT_CORRUPT, .slot = slot});
    cr_assert_eq(node_slot(m.node, slot)->state, SLOT_FREE);
    store(v(8));
    cr_assert_neq(slot_of(&m, HELD_SHARD, v(8)), slot);
    offer(&m, 0, v(9), root_of(1));
    cr_assert_eq(action_of(&m, ACTION_REJECT_OFFER)->refusal, REFUSAL_NO_SLOT);
    machine_step(&m, (struct event){.type = EVENT_UNPIN, .slot = slot});
    offer(&m, 0, v(9), root_of(1));
    cr_assert_eq(action_of(&m, ACTION_STORE)->slot, slot);
}

static const struct action *offer_on(struct version version, struct version base, struct hash128 base_root)
{
    machine_step(&m, (struct event){.type = EVENT_OFFER,
                                    .node = 0,
                                    .shard = HELD_SHARD,
                                    .version = version,
                                    .root = root_of(2),
                                    .base = base,
                                    .base_root = base_root});
    const struct action *a = action_of(&m, ACTION_STORE);
    cr_assert_not_null(a);
    return a;
}

Test(node_hold, takes_what_is_the_same_from_the_base_that_is_here)
{
    store(v(7));
    uint32_t base = slot_of(&m, HELD_SHARD, v(7));
    cr_assert_eq(offer_on(v(8), v(7), root_of(1))->base_slot, base);
    cr_assert_eq(node_slot(m.node, base)->pins, 1);
    received(v(8), root_of(2), true);
    cr_assert_eq(node_slot(m.node, base)->pins, 0);
    cr_assert_not_null(action_of(&m, ACTION_ACK_OFFER));
}

Test(node_hold, is_sent_everything_without_the_base)
{
    cr_assert_eq(offer_on(v(8), v(7), root_of(1))->base_slot, NONE32);
    received(v(8), root_of(2), true);
    cr_assert_not_null(action_of(&m, ACTION_ACK_OFFER));
}

Test(node_hold, is_sent_everything_if_its_base_has_another_root)
{
    store(v(7));
    cr_assert_eq(offer_on(v(8), v(7), root_of(3))->base_slot, NONE32);
    cr_assert_eq(node_slot(m.node, slot_of(&m, HELD_SHARD, v(7)))->pins, 0);
}

Test(node_hold, is_sent_everything_after_its_base_was_found_damaged)
{
    store(v(7));
    machine_step(&m, (struct event){.type = EVENT_CORRUPT, .slot = slot_of(&m, HELD_SHARD, v(7))});
    cr_assert_eq(offer_on(v(8), v(7), root_of(1))->base_slot, NONE32);
}

Test(node_hold, does_not_take_a_base_that_is_still_arriving)
{
    offer(&m, 0, v(7), root_of(1));
    cr_assert_eq(offer_on(v(8), v(7), root_of(1))->base_slot, NONE32);
}

Test(node_hold, keeps_the_bases_slot_until_the_copy_has_arrived)
{
    store(v(7));
    uint32_t base = slot_of(&m, HELD_SHARD, v(7));
    (void)offer_on(v(8), v(7), root_of(1));
    decide(&m, (struct decision){.seq = 1, .horizon = 8, .open_count = 1, .open = {8}}); /* 7 is over */
    cr_assert_eq(node_slot(m.node, base)->state, SLOT_VERIFIED);
    received(v(8), root_of(2), true);
    cr_assert_eq(node_slot(m.node, base)->state, SLOT_FREE);
}

Test(node_hold, does_not_reuse_a_damaged_base_while_it_is_read)
{
    store(v(7));
    uint32_t base = slot_of(&m, HELD_SHARD, v(7));
    (void)offer_on(v(8), v(7), root_of(1));
    machine_step(&m, (struct event){.type = EVENT_CORRUPT, .slot = base});
    offer(&m, 0, v(9), root_of(1));
    cr_assert_eq(action_of(&m, ACTION_REJECT_OFFER)->refusal, REFUSAL_NO_SLOT);
    received(v(8), root_of(2), true);
    offer(&m, 0, v(9), root_of(1));
    cr_assert_eq(action_of(&m, ACTION_STORE)->slot, base);
}

Test(node_hold, repairs_a_damaged_base_in_the_third_slot_while_it_is_read)
{
    machine_new(&m, 3);
    m.found[8].withheld = false;
    machine_start(&m);
    store(v(7));
    uint32_t base = slot_of(&m, HELD_SHARD, v(7));
    (void)offer_on(v(8), v(7), root_of(1));
    decide(&m, (struct decision){.seq = 1, .watermark = v(7), .horizon = 8, .open_count = 1, .open = {8}});
    machine_step(&m, (struct event){.type = EVENT_CORRUPT, .slot = base});
    fetch(HELD_SHARD, v(7));
    const struct action *a = action_of(&m, ACTION_FETCH_SLOT);
    cr_assert_not_null(a, "the other two are in use");
    cr_assert_neq(a->slot, base);
    received(v(7), root_of(1), true);
    received(v(8), root_of(2), true);
    offer(&m, 0, v(9), root_of(1));
    cr_assert_eq(action_of(&m, ACTION_REJECT_OFFER)->refusal, REFUSAL_NO_SLOT, "it uses two again");
}

Test(node_hold, releases_the_base_of_a_copy_that_did_not_arrive)
{
    store(v(7));
    uint32_t base = slot_of(&m, HELD_SHARD, v(7));
    (void)offer_on(v(8), v(7), root_of(1));
    received(v(8), root_of(2), false);
    cr_assert_eq(node_slot(m.node, base)->pins, 0);
    cr_assert_eq(offer_on(v(8), v(7), root_of(1))->base_slot, base);
}

Test(node_hold, refuses_an_undecided_version_when_its_copy_turns_corrupt)
{
    store(v(7));
    machine_step(&m, (struct event){.type = EVENT_CORRUPT, .slot = slot_of(&m, HELD_SHARD, v(7))});
    cr_assert_eq(action_of(&m, ACTION_SEND_REFUSED)->refusal, REFUSAL_CORRUPT);
}

Test(node_hold, answers_a_fetch_of_what_is_here_with_its_slot)
{
    found_old(1, 2);
    fetch(HELD_SHARD, old(2));
    const struct action *a = action_of(&m, ACTION_FETCH_SLOT);
    cr_assert(a->ok);
    cr_assert_eq(a->slot, slot_of(&m, HELD_SHARD, old(2)));
}

Test(node_hold, fetches_into_an_empty_slot_and_keeps_the_copy)
{
    fetch(OWN_SHARD, old(2));
    const struct action *a = action_of(&m, ACTION_FETCH_SLOT);
    cr_assert_not(a->ok);
    cr_assert_neq(a->slot, NONE32);
    verified(&m, OWN_SHARD, old(2), true);
    cr_assert_eq(state_of(&m, OWN_SHARD, old(2)), SLOT_VERIFIED);
}

Test(node_hold, fetches_over_a_newer_version_found_incomplete)
{
    found_old(3, 4);
    fetch(HELD_SHARD, old(2));
    cr_assert_neq(action_of(&m, ACTION_FETCH_SLOT)->slot, NONE32);
    cr_assert_eq(state_of(&m, HELD_SHARD, old(4)), SLOT_FREE);
    cr_assert_eq(state_of(&m, HELD_SHARD, old(3)), SLOT_VERIFIED);
}

Test(node_hold, fetches_over_a_superseded_version_rather_than_an_undecided_one)
{
    found_old(1, 3);
    fetch_above(HELD_SHARD, old(4), 2);
    cr_assert_eq(state_of(&m, HELD_SHARD, old(1)), SLOT_FREE);
    cr_assert_eq(state_of(&m, HELD_SHARD, old(3)), SLOT_VERIFIED);
}

Test(node_hold, never_fetches_over_the_newest_known_commit)
{
    found_old(1, 2);
    fetch_above(HELD_SHARD, old(3), 1);
    cr_assert_eq(state_of(&m, HELD_SHARD, old(1)), SLOT_VERIFIED);
    cr_assert_eq(state_of(&m, HELD_SHARD, old(2)), SLOT_FREE);
}

Test(node_hold, fetches_over_the_fallback_last)
{
    found_old(1, 2);
    machine_step(&m, (struct event){.type = EVENT_FETCH, .shard = HELD_SHARD, .version = old(3), .fallback = old(1)});
    cr_assert_eq(state_of(&m, HELD_SHARD, old(1)), SLOT_VERIFIED);
    cr_assert_eq(state_of(&m, HELD_SHARD, old(2)), SLOT_FREE);
}

/* An older step was requested: step 4 may have been committed, and step 3 was. */
Test(node_hold, fetches_over_the_newest_known_commit_rather_than_a_version_that_may_be_committed)
{
    found_old(3, 4);
    machine_step(&m,
                 (struct event){
                     .type = EVENT_FETCH, .shard = HELD_SHARD, .version = old(2), .floor = old(4), .fallback = old(3)});
    cr_assert_eq(state_of(&m, HELD_SHARD, old(4)), SLOT_VERIFIED);
    cr_assert_eq(state_of(&m, HELD_SHARD, old(3)), SLOT_FREE);
}

Test(node_hold, fetches_over_any_other_version_rather_than_the_newest_known_commit)
{
    found_old(3, 5);
    machine_step(&m,
                 (struct event){
                     .type = EVENT_FETCH, .shard = HELD_SHARD, .version = old(2), .floor = old(4), .fallback = old(3)});
    cr_assert_eq(state_of(&m, HELD_SHARD, old(3)), SLOT_VERIFIED);
    cr_assert_eq(state_of(&m, HELD_SHARD, old(5)), SLOT_FREE);
}

Test(node_hold, never_fetches_over_a_pinned_slot)
{
    found_old(3, 4);
    machine_step(&m, (struct event){.type = EVENT_PIN, .slot = slot_of(&m, HELD_SHARD, old(4))});
    fetch(HELD_SHARD, old(2));
    cr_assert_eq(state_of(&m, HELD_SHARD, old(4)), SLOT_VERIFIED);
    cr_assert_eq(state_of(&m, HELD_SHARD, old(3)), SLOT_FREE);
}

/* A frozen trainer's slot does not count as a copy in progress: another slot receives the version. */
Test(node_hold, fetches_the_version_of_a_quarantined_slot_into_another_one)
{
    m.found[4] = (struct slot){.shard = 2, .state = SLOT_QUARANTINED, .version = old(3)};
    machine_start(&m);
    fetch(HELD_SHARD, old(3));
    cr_assert_eq(action_of(&m, ACTION_FETCH_SLOT)->slot, 5);
    cr_assert_eq(node_slot(m.node, 4)->state, SLOT_QUARANTINED);
}

Test(node_hold, never_fetches_over_a_version_of_its_own_term)
{
    store(v(7));
    store(v(8));
    fetch(HELD_SHARD, old(2));
    cr_assert_eq(action_of(&m, ACTION_FETCH_SLOT)->refusal, REFUSAL_NO_SLOT);
}
