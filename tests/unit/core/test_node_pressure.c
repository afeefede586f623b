/* SPDX-License-Identifier: Apache-2.0
 * What a node gives back when its memory is short. */
#include "core/node_pressure.h"

#include "machine.h"

static struct machine m;
static const bool none_fixed[3];
static bool alone;

/* Fresh start: the recovery is over. */
static void three_slots(void)
{
    machine_new(&m, 3);
    alone = false;
    decide(&m, (struct decision){.seq = 1, .readable = true, .based = true});
}

static void drop(void)
{
    free(m.memory);
}

TestSuite(node_pressure, .init = three_slots, .fini = drop);

static void store(uint64_t step)
{
    offer(&m, 0, v(step), root_of(1));
    machine_step(&m, (struct event){.type = EVENT_VERIFIED,
                                    .slot = slot_of(&m, HELD_SHARD, v(step)),
                                    .version = v(step),
                                    .root = root_of(1),
                                    .ok = true});
}

static struct decision committed(uint64_t seq, uint64_t step)
{
    return (struct decision){.seq = seq, .readable = true, .based = true, .watermark = v(step), .horizon = step + 1};
}

static void commit(uint64_t step, bool published)
{
    save_until_ready(&m, step);
    store(step);
    struct decision d = committed(step, step);
    d.published = published ? v(step) : VERSION_NONE;
    decide(&m, d);
}

static void event_of(enum event_type type, uint32_t slot)
{
    machine_step(&m, (struct event){.type = type, .slot = slot});
}

/* Gives back the next slot, and returns the step that it belongs to. */
static enum give_back give_next(enum memory_level level)
{
    const struct give_back_limits limits = {.level = level, .alone = alone, .fixed = none_fixed};
    uint32_t slot = node_give_back_next(m.node, &limits);
    enum give_back step = slot == NONE32 ? GIVE_BACK_NOTHING : node_give_back_step(m.node, slot);
    if (slot != NONE32) {
        event_of(EVENT_GIVE_BACK, slot);
        cr_assert_eq(node_slot(m.node, slot)->state, SLOT_FREE);
        cr_assert(node_slot(m.node, slot)->withheld);
    }
    return step;
}

static uint32_t give_all(enum memory_level level)
{
    uint32_t count = 0;
    while (give_next(level) != GIVE_BACK_NOTHING) {
        count++;
    }
    return count;
}

Test(node_pressure, gives_nothing_back_with_enough_memory)
{
    commit(7, true);
    cr_assert_eq(give_all(MEMORY_ENOUGH), 0);
}

Test(node_pressure, gives_back_only_spare_slots_when_memory_is_low)
{
    commit(7, true);
    cr_assert_eq(give_all(MEMORY_LOW), 2, "one of each shard that is stored here");
    commit(8, true); /* saving goes on */
    cr_assert_eq(state_of(&m, OWN_SHARD, v(8)), SLOT_VERIFIED);
    cr_assert_not(node_saving_suspended(m.node));
}

Test(node_pressure, keeps_to_the_order_when_memory_is_critical)
{
    commit(7, true);
    const enum give_back order[] = {GIVE_BACK_SPARE,          GIVE_BACK_SPARE,          GIVE_BACK_STORED_COPY,
                                    GIVE_BACK_LAST_FREE_SLOT, GIVE_BACK_LAST_FREE_SLOT, GIVE_BACK_LAST_FREE_SLOT,
                                    GIVE_BACK_OWN_COPY,       GIVE_BACK_OWN_COPY,       GIVE_BACK_NOTHING};
    for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++) {
        enum give_back step = give_next(MEMORY_CRITICAL);
        cr_assert_eq(step, order[i], "number %zu: %s", i, give_back_text(step));
    }
}

Test(node_pressure, the_source_keeps_its_copy_of_what_storage_does_not_have)
{
    commit(7, false);
    (void)give_all(MEMORY_CRITICAL);
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_VERIFIED);
    cr_assert_eq(state_of(&m, OTHER_OWN_SHARD, v(7)), SLOT_VERIFIED);
    cr_assert_eq(slot_of(&m, HELD_SHARD, v(7)), NONE32, "its source has it");
}

Test(node_pressure, a_twin_relies_on_the_source_but_the_drainer_does_not)
{
    m.shards[0].source = m.shards[1].source = 0; /* shard 0 is drained here */
    commit(7, false);
    (void)give_all(MEMORY_CRITICAL);
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_VERIFIED);
    cr_assert_eq(slot_of(&m, OTHER_OWN_SHARD, v(7)), NONE32);
}

Test(node_pressure, relies_on_no_other_node_while_one_is_out_of_reach)
{
    commit(7, false);
    alone = true;
    (void)give_all(MEMORY_CRITICAL);
    cr_assert_eq(state_of(&m, HELD_SHARD, v(7)), SLOT_VERIFIED);
}

Test(node_pressure, touches_nothing_before_the_recovery_is_over)
{
    machine_new(&m, 3);
    cr_assert_eq(give_all(MEMORY_CRITICAL), 0);
}

Test(node_pressure, touches_nothing_that_is_written_read_or_drained)
{
    commit(7, false);
    begin(&m, 0, 8);
    offer(&m, 0, v(8), root_of(1));
    event_of(EVENT_PIN, slot_of(&m, HELD_SHARD, v(7)));
    struct decision d = committed(8, 7);
    d.drain = v(7);
    d.drain_attempt = 1;
    decide(&m, d);
    (void)give_all(MEMORY_CRITICAL);
    cr_assert_eq(state_of(&m, OWN_SHARD, v(8)), SLOT_FILLING);
    cr_assert_eq(state_of(&m, HELD_SHARD, v(8)), SLOT_RECEIVING);
    cr_assert_eq(state_of(&m, HELD_SHARD, v(7)), SLOT_VERIFIED);
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_VERIFIED);
    event_of(EVENT_GIVE_BACK, slot_of(&m, OWN_SHARD, v(8)));
    cr_assert_eq(state_of(&m, OWN_SHARD, v(8)), SLOT_FILLING, "even if it is asked to");
}

Test(node_pressure, a_copy_that_is_being_read_stays_until_it_is_not)
{
    commit(7, false);
    uint32_t slot = slot_of(&m, HELD_SHARD, v(7));
    event_of(EVENT_PIN, slot);
    (void)give_all(MEMORY_CRITICAL);
    cr_assert_eq(node_slot(m.node, slot)->state, SLOT_VERIFIED);
    event_of(EVENT_UNPIN, slot);
    cr_assert_eq(give_all(MEMORY_CRITICAL), 1);
}

Test(node_pressure, touches_no_version_that_is_undecided)
{
    save_until_ready(&m, 7);
    store(7);
    (void)give_all(MEMORY_CRITICAL);
    cr_assert_eq(state_of(&m, OWN_SHARD, v(7)), SLOT_VERIFIED);
    cr_assert_eq(state_of(&m, HELD_SHARD, v(7)), SLOT_VERIFIED);
}

Test(node_pressure, passes_over_shards_whose_pages_are_fixed)
{
    const bool fixed[3] = {true, true, false};
    commit(7, false);
    const struct give_back_limits limits = {.level = MEMORY_CRITICAL, .fixed = fixed};
    uint32_t slot = node_give_back_next(m.node, &limits);
    cr_assert_eq(node_slot(m.node, slot)->shard, 2);
}

Test(node_pressure, saves_and_offers_are_refused_with_the_reason_once_no_slot_is_left)
{
    commit(7, false);
    (void)give_all(MEMORY_CRITICAL);
    begin(&m, 0, 8);
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_MEMORY);
    cr_assert_eq(action_of(&m, ACTION_SEND_REFUSED)->refusal, REFUSAL_MEMORY);
    offer(&m, 0, v(8), root_of(1));
    cr_assert_eq(action_of(&m, ACTION_REJECT_OFFER)->refusal, REFUSAL_MEMORY);
}

Test(node_pressure, the_last_step_waits_for_memory)
{
    commit(7, false);
    (void)give_all(MEMORY_CRITICAL);
    machine_step(&m, (struct event){.type = EVENT_BEGIN, .version = {0, 8}, .last = true});
    cr_assert_eq(action_of(&m, ACTION_REFUSE)->refusal, REFUSAL_NOT_YET);
}

Test(node_pressure, a_fetch_does_not_use_a_slot_that_was_given_back)
{
    commit(7, true);
    (void)give_all(MEMORY_CRITICAL);
    machine_step(&m, (struct event){.type = EVENT_FETCH, .shard = HELD_SHARD, .version = v(7)});
    cr_assert_eq(action_of(&m, ACTION_FETCH_SLOT)->slot, NONE32);
    cr_assert_eq(action_of(&m, ACTION_FETCH_SLOT)->refusal, REFUSAL_MEMORY, "so it can be waited for");
}

Test(node_pressure, takes_back_first_what_saving_lacks)
{
    commit(7, true);
    (void)give_all(MEMORY_LOW);
    event_of(EVENT_GIVE_BACK, slot_of(&m, HELD_SHARD, v(7)));
    uint32_t slot = node_take_back_next(m.node);
    cr_assert_eq(node_slot(m.node, slot)->shard, 2, "it has one slot left, the others have two");
    event_of(EVENT_TAKE_BACK, slot);
    cr_assert_not(node_slot(m.node, slot)->withheld);
    for (int i = 0; i < 2; i++) {
        event_of(EVENT_TAKE_BACK, node_take_back_next(m.node));
    }
    cr_assert_eq(node_take_back_next(m.node), NONE32);
}

Test(node_pressure, what_was_given_back_stays_so_in_the_next_term)
{
    m.found[0].withheld = m.found[1].withheld = true;
    m.found[6].withheld = m.found[7].withheld = true;
    m.found[3] = (struct slot){.shard = 1, .state = SLOT_VERIFIED, .version = v(7), .withheld = true};
    machine_start(&m);
    cr_assert(node_lacks_slots(m.node, 0));
    cr_assert_not(node_lacks_slots(m.node, 1), "none was given back");
    cr_assert(node_lacks_slots(m.node, 2), "one of the two that it uses");
    cr_assert_not(node_slot(m.node, 3)->withheld, "it has content, and so pages");
    cr_assert_eq(node_take_back_next(m.node), 6);
}

static void with_pages_everywhere(void)
{
    m.found[8].withheld = false;
    machine_start(&m);
}

Test(node_pressure, a_slot_that_a_copy_for_another_node_does_not_need_is_given_back_with_enough_memory)
{
    with_pages_everywhere(); /* this node owned the shard before */
    cr_assert_eq(give_next(MEMORY_ENOUGH), GIVE_BACK_UNUSED, "even before the recovery is over");
    cr_assert_eq(give_next(MEMORY_ENOUGH), GIVE_BACK_NOTHING, "two are used");
    cr_assert_not(node_has_given_back(m.node, 2), "nothing is missing");
    cr_assert_not(node_lacks_slots(m.node, 2));
    cr_assert_eq(node_take_back_next(m.node), NONE32);
    decide(&m, (struct decision){.seq = 1, .readable = true, .based = true});
    commit(7, false);
    cr_assert_not(node_saving_suspended(m.node));
    commit(8, false);
}

Test(node_pressure, a_slot_that_is_not_needed_stays_while_it_is_in_use)
{
    for (uint32_t i = 0; i < 3; i++) {
        m.found[6 + i] = (struct slot){.shard = 2, .state = SLOT_VERIFIED, .version = {MACHINE_TERM - 1, 5 + i}};
    }
    machine_start(&m);
    cr_assert_eq(give_next(MEMORY_ENOUGH), GIVE_BACK_NOTHING);
    decide(&m, (struct decision){.seq = 1, .readable = true, .based = true, .watermark = {MACHINE_TERM - 1, 7}});
    cr_assert_eq(give_next(MEMORY_ENOUGH), GIVE_BACK_UNUSED);
    cr_assert_eq(give_next(MEMORY_ENOUGH), GIVE_BACK_NOTHING);
}

static struct slot quarantined(void)
{
    return (struct slot){.shard = 2, .state = SLOT_QUARANTINED, .version = {MACHINE_TERM - 1, 6}};
}

static void recovered_with(struct slot other)
{
    m.found[6] = (struct slot){.shard = 2, .state = SLOT_VERIFIED, .version = {MACHINE_TERM - 1, 5}};
    m.found[7] = other;
    machine_start(&m);
    decide(&m, (struct decision){.seq = 1, .readable = true, .based = true, .watermark = {MACHINE_TERM - 1, 5}});
}

Test(node_pressure, a_third_slot_is_used_while_another_one_is_in_quarantine)
{
    m.found[8].withheld = false;
    recovered_with(quarantined());
    cr_assert_eq(node_give_back_step(m.node, 8), GIVE_BACK_LAST_FREE_SLOT, "it is no spare one");
    store(7);
    cr_assert_eq(state_of(&m, HELD_SHARD, v(7)), SLOT_VERIFIED);
    machine_step(&m, (struct event){.type = EVENT_WRITER_GONE, .slot = 7, .version = {MACHINE_TERM - 1, 6}});
    cr_assert_eq(give_next(MEMORY_ENOUGH), GIVE_BACK_UNUSED);
    cr_assert_eq(give_next(MEMORY_ENOUGH), GIVE_BACK_NOTHING);
    cr_assert_eq(state_of(&m, HELD_SHARD, v(7)), SLOT_VERIFIED);
}

Test(node_pressure, a_third_slot_without_pages_is_taken_back_while_another_one_is_in_quarantine)
{
    recovered_with(quarantined());
    offer(&m, 0, v(7), root_of(1));
    cr_assert_eq(action_of(&m, ACTION_REJECT_OFFER)->refusal, REFUSAL_NO_SLOT);
    cr_assert_not(node_saving_suspended(m.node), "memory is not short");
    cr_assert_eq(node_take_back_next(m.node), 8);
    event_of(EVENT_TAKE_BACK, 8);
    cr_assert_eq(give_next(MEMORY_ENOUGH), GIVE_BACK_NOTHING, "not at once again");
    cr_assert_eq(node_take_back_next(m.node), NONE32);
    store(7);
    cr_assert_eq(state_of(&m, HELD_SHARD, v(7)), SLOT_VERIFIED);
    machine_step(&m, (struct event){.type = EVENT_WRITER_GONE, .slot = 7, .version = {MACHINE_TERM - 1, 6}});
    cr_assert_eq(give_next(MEMORY_ENOUGH), GIVE_BACK_UNUSED);
    cr_assert_eq(node_take_back_next(m.node), NONE32);
}

Test(node_pressure, no_slot_is_taken_back_for_a_shard_that_this_node_does_not_hold)
{
    m.shards[2].held = false;
    recovered_with(quarantined());
    cr_assert_eq(node_take_back_next(m.node), NONE32);
}

Test(node_pressure, a_third_slot_is_used_while_a_read_from_storage_hangs)
{
    m.found[6] = (struct slot){.shard = 2, .state = SLOT_VERIFIED, .version = {MACHINE_TERM - 1, 5}};
    machine_start(&m);
    machine_step(&m, (struct event){.type = EVENT_FETCH, .shard = HELD_SHARD, .version = {MACHINE_TERM - 1, 4}});
    cr_assert_eq(action_of(&m, ACTION_FETCH_SLOT)->slot, 7);
    cr_assert_eq(node_take_back_next(m.node), NONE32, "it is wanted");
    decide(&m, (struct decision){.seq = 1, .readable = true, .based = true, .watermark = {MACHINE_TERM - 1, 5}});
    cr_assert(node_slot(m.node, 7)->doomed);
    event_of(EVENT_TAKE_BACK, node_take_back_next(m.node));
    store(7);
    cr_assert_eq(state_of(&m, HELD_SHARD, v(7)), SLOT_VERIFIED);
}

Test(node_pressure, what_this_node_owns_needs_all_slots)
{
    with_pages_everywhere();
    m.shards[2].storing_rank = 0; /* and so it does after a restart with its rank here */
    m.found[8].withheld = true;
    machine_start(&m);
    cr_assert(node_has_given_back(m.node, 2));
    cr_assert_eq(node_take_back_next(m.node), 8);
}
