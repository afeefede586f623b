/* SPDX-License-Identifier: Apache-2.0
 * The coordinator's decisions. */
#include "core/coordinator.h"
#include <criterion/criterion.h>
#include <stdlib.h>

#define TERM 5

static struct coordinator *c;
static struct action items[4];
static struct actions out;
static uint64_t now;
static const struct hash128 layout = {1, 2};
static const bool drains[3] = {true, false, true};
static const struct coordinator_setup setup = {.term = TERM,
                                               .node_count = 3,
                                               .layout = {1, 2},
                                               .version_timeout_ms = 1000,
                                               .drain_pause_ms = 10,
                                               .drain_pause_max_ms = 50,
                                               .drains = drains};

static void start(const struct decision *kept)
{
    free(c);
    c = coordinator_init(malloc(coordinator_memory(&setup)), &setup, kept, now);
}

static void fresh(void)
{
    now = 100;
    c = NULL;
    start(NULL);
}

static void drop(void)
{
    free(c);
}

TestSuite(coordinator, .init = fresh, .fini = drop);

static void step(struct event e)
{
    e.term = TERM;
    e.now_ms = now;
    out = (struct actions){.items = items, .cap = coordinator_actions_max(&setup)};
    coordinator_step(c, &e, &out);
    cr_assert(out.count <= out.cap);
}

static struct version v(uint64_t s)
{
    return (struct version){TERM, s};
}

static void ready(uint32_t node, uint64_t s, bool to_storage)
{
    step(
        (struct event){.type = EVENT_READY, .node = node, .version = v(s), .layout = layout, .to_storage = to_storage});
}

static void refused(uint32_t node, uint64_t s)
{
    step((struct event){.type = EVENT_REFUSED, .node = node, .version = v(s), .refusal = REFUSAL_NO_SLOT});
}

static void all_ready(uint64_t s, bool to_storage)
{
    for (uint32_t node = 0; node < 3; node++) {
        ready(node, s, to_storage);
    }
}

static void drained(uint32_t node, uint64_t s, uint64_t attempt, bool ok)
{
    step((struct event){.type = EVENT_DRAINED, .node = node, .version = v(s), .attempt = attempt, .ok = ok});
}

static void published(uint64_t s, uint64_t attempt, bool ok)
{
    step((struct event){.type = EVENT_PUBLISHED, .version = v(s), .attempt = attempt, .ok = ok});
}

static bool emitted(enum action_type type)
{
    for (uint32_t i = 0; i < out.count; i++) {
        if (items[i].type == type) {
            return true;
        }
    }
    return false;
}

static const struct decision *decision(void)
{
    return coordinator_decision(c);
}

static enum fate fate(uint64_t s)
{
    return decision_fate(decision(), v(s));
}

Test(coordinator, commits_when_all_nodes_are_ready)
{
    ready(0, 7, false);
    ready(1, 7, false);
    ready(1, 7, false);
    cr_assert_eq(fate(7), FATE_UNDECIDED, "one node twice is not two");
    ready(2, 7, false);
    cr_assert_eq(fate(7), FATE_COMMITTED);
    cr_assert(emitted(ACTION_ANNOUNCE));
}

Test(coordinator, aborts_at_the_first_refusal_and_never_commits_after)
{
    ready(0, 7, false);
    refused(1, 7);
    cr_assert_eq(fate(7), FATE_OVER);
    all_ready(7, false);
    cr_assert_eq(fate(7), FATE_OVER);
}

Test(coordinator, never_aborts_after_a_commit)
{
    all_ready(7, false);
    refused(1, 7);
    cr_assert_eq(fate(7), FATE_COMMITTED);
    cr_assert_not(emitted(ACTION_ANNOUNCE));
}

Test(coordinator, refusal_of_an_unknown_version_decides_it)
{
    refused(0, 7);
    cr_assert_eq(fate(7), FATE_OVER);
    cr_assert_eq(fate(8), FATE_UNDECIDED);
}

Test(coordinator, a_begun_version_survives_the_refusal_of_a_later_step)
{
    step((struct event){.type = EVENT_BEGIN, .version = {0, 7}});
    refused(1, 9);
    cr_assert_eq(fate(7), FATE_UNDECIDED);
    cr_assert_eq(fate(9), FATE_OVER);
    all_ready(7, false);
    cr_assert_eq(fate(7), FATE_COMMITTED);
}

Test(coordinator, a_version_is_begun_once)
{
    refused(1, 7);
    step((struct event){.type = EVENT_BEGIN, .version = {0, 7}});
    cr_assert_eq(fate(7), FATE_OVER);
}

Test(coordinator, commit_ends_older_open_versions_and_leaves_newer_ones)
{
    ready(0, 7, false);
    ready(0, 8, false);
    ready(0, 9, false);
    all_ready(8, false);
    cr_assert_eq(fate(7), FATE_OVER);
    cr_assert_eq(fate(8), FATE_COMMITTED);
    cr_assert_eq(fate(9), FATE_UNDECIDED);
    all_ready(9, false);
    cr_assert_eq(fate(9), FATE_COMMITTED);
}

Test(coordinator, aborts_the_oldest_when_too_many_are_open)
{
    for (uint64_t s = 1; s <= CORE_OPEN_MAX + 1; s++) {
        ready(0, s, false);
    }
    cr_assert_eq(fate(1), FATE_OVER);
    cr_assert_eq(fate(2), FATE_UNDECIDED);
}

Test(coordinator, aborts_what_is_not_decided_in_time)
{
    ready(0, 7, false);
    now += 1000;
    step((struct event){.type = EVENT_TICK});
    cr_assert_eq(fate(7), FATE_OVER);
}

static void progress(uint32_t node, uint64_t s)
{
    step((struct event){.type = EVENT_PROGRESS, .node = node, .version = v(s)});
}

static void tick(uint64_t ms)
{
    now += ms;
    step((struct event){.type = EVENT_TICK});
}

Test(coordinator, waits_for_a_node_as_long_as_it_reports_progress)
{
    ready(0, 7, false);
    ready(1, 7, false);
    for (int i = 0; i < 10; i++) {
        tick(999);
        cr_assert_eq(fate(7), FATE_UNDECIDED);
        progress(2, 7);
    }
    tick(999);
    cr_assert_eq(fate(7), FATE_UNDECIDED);
    tick(1);
    cr_assert_eq(fate(7), FATE_OVER);
}

Test(coordinator, a_node_that_becomes_ready_has_made_progress)
{
    ready(0, 7, false);
    tick(999);
    ready(1, 7, false);
    tick(999);
    ready(1, 7, false);
    cr_assert_eq(fate(7), FATE_UNDECIDED);
    tick(1);
    cr_assert_eq(fate(7), FATE_OVER, "it was ready before");
}

Test(coordinator, progress_of_a_node_that_is_ready_does_not_count)
{
    ready(0, 7, false);
    tick(999);
    progress(0, 7);
    tick(1);
    cr_assert_eq(fate(7), FATE_OVER);
}

Test(coordinator, progress_opens_no_version)
{
    progress(1, 7);
    cr_assert_eq(decision()->open_count, 0);
    cr_assert_eq(decision()->horizon, 0);
}

Test(coordinator, progress_counts_for_newer_versions_and_not_for_older_ones)
{
    ready(0, 7, false);
    ready(0, 8, false);
    ready(0, 9, false);
    tick(999);
    progress(1, 8);
    tick(1);
    cr_assert_eq(fate(7), FATE_OVER);
    cr_assert_eq(fate(8), FATE_UNDECIDED);
    cr_assert_eq(fate(9), FATE_UNDECIDED, "8 may have had the links and the slots");
}

Test(coordinator, names_what_it_gives_up_and_who_is_not_ready)
{
    ready(0, 7, false);
    ready(0, 8, false);
    ready(1, 8, false);
    tick(1000);
    cr_assert_eq(items[0].type, ACTION_GIVE_UP);
    cr_assert(version_is(items[0].version, v(7)));
    cr_assert(items[0].node == 1 && items[0].count == 2);
    tick(1000);
    cr_assert(version_is(items[0].version, v(8)));
    cr_assert(items[0].node == 2 && items[0].count == 1);
    tick(1000);
    cr_assert_not(emitted(ACTION_GIVE_UP));
}

Test(coordinator, what_a_node_refuses_is_logged_there)
{
    ready(0, 7, false);
    step((struct event){.type = EVENT_REFUSED, .node = 1, .version = v(7), .refusal = REFUSAL_TIMED_OUT});
    cr_assert_eq(fate(7), FATE_OVER);
    cr_assert_not(emitted(ACTION_GIVE_UP));
}

/* Its copies were not sent before the older one was decided. */
Test(coordinator, the_end_of_a_version_is_progress_of_newer_ones)
{
    ready(0, 7, false);
    ready(0, 8, false);
    ready(0, 9, false);
    tick(1000);
    cr_assert_eq(fate(7), FATE_OVER);
    for (uint64_t s = 8; s <= 9; s++) {
        tick(999);
        cr_assert_eq(fate(s), FATE_UNDECIDED);
        tick(1);
        cr_assert_eq(fate(s), FATE_OVER);
    }
    ready(0, 10, false);
    ready(0, 11, false);
    tick(999);
    refused(1, 10);
    tick(999);
    cr_assert_eq(fate(11), FATE_UNDECIDED);
    tick(1);
    cr_assert_eq(fate(11), FATE_OVER);
}

Test(coordinator, the_end_of_a_version_is_no_progress_of_older_ones)
{
    ready(0, 7, false);
    ready(0, 8, false);
    tick(999);
    refused(1, 8);
    tick(1);
    cr_assert_eq(fate(7), FATE_OVER);
}

/* ---- more is saved than can be copied -------------------------------------------------------------------------- */

static void begun(uint64_t s)
{
    step((struct event){.type = EVENT_BEGIN, .version = {0, s}});
}

/* Begun here, and refused on another node. */
static void missed(uint64_t s)
{
    begun(s);
    refused(1, s);
}

/* Four saves in a row, `every` steps apart, for which some node has no slot. */
static void four_missed(uint64_t first, uint64_t every)
{
    for (uint64_t i = 0; i < 4; i++) {
        cr_assert_eq(decision()->not_before, 0);
        missed(first + i * every);
    }
}

Test(coordinator, skips_saves_when_versions_are_missed_in_a_row)
{
    four_missed(10, 1);
    begun(14);
    cr_assert_eq(decision()->not_before, 16, "14 is alone for as long as one save takes");
    cr_assert_eq(fate(14), FATE_UNDECIDED);
    begun(15);
    cr_assert_eq(fate(15), FATE_OVER, "who has begun it, not having heard, gives its slots back");
    ready(1, 15, false);
    cr_assert_eq(fate(15), FATE_OVER);
}

Test(coordinator, skips_twice_as_many_when_that_one_is_missed_too)
{
    four_missed(10, 1);
    missed(14);
    begun(15);
    missed(16);
    cr_assert_eq(decision()->not_before, 19);
    begun(18);
    missed(19);
    cr_assert_eq(decision()->not_before, 24);
}

Test(coordinator, counts_saves_and_not_steps)
{
    four_missed(1000, 100);
    begun(1400);
    cr_assert_eq(decision()->not_before, 1501);
}

Test(coordinator, a_commit_halves_the_saves_that_are_skipped)
{
    four_missed(10, 1);
    missed(14);
    begun(15);
    begun(16);
    all_ready(16, false);
    begun(18);
    begun(19);
    cr_assert_eq(decision()->not_before, 21);
    all_ready(19, false);
    begun(20);
    begun(21);
    cr_assert_eq(decision()->not_before, 0);
}

Test(coordinator, misses_nothing_while_an_older_version_is_on_its_way)
{
    begun(9);
    four_missed(10, 1);
    begun(14);
    cr_assert_eq(decision()->not_before, 0);
}

Test(coordinator, a_commit_between_misses_ends_the_row)
{
    missed(10);
    missed(11);
    missed(12);
    all_ready(13, false);
    four_missed(14, 1);
}

Test(coordinator, a_version_that_is_not_decided_in_time_is_missed)
{
    for (uint64_t s = 10; s < 14; s++) {
        begun(s);
        now += 1000;
        step((struct event){.type = EVENT_TICK});
    }
    begun(14);
    cr_assert_eq(decision()->not_before, 16);
}

Test(coordinator, what_ends_for_another_reason_is_not_missed)
{
    for (uint64_t s = 10; s < 20; s++) {
        begun(s);
        step((struct event){.type = EVENT_REFUSED, .node = 1, .version = v(s), .refusal = REFUSAL_RANK_LOST});
    }
    cr_assert_eq(decision()->not_before, 0);
}

Test(coordinator, waits_for_no_step_that_does_not_come)
{
    four_missed(1000, 1000);
    begun(5000);
    cr_assert_eq(decision()->not_before, 6001);
    now += 999;
    step((struct event){.type = EVENT_TICK});
    cr_assert_eq(decision()->not_before, 6001);
    now += 1;
    step((struct event){.type = EVENT_TICK});
    cr_assert_eq(decision()->not_before, 0);
    begun(5001);
    cr_assert_eq(fate(5001), FATE_UNDECIDED);
}

Test(coordinator, names_the_same_step_while_the_version_that_is_alone_moves)
{
    four_missed(1000, 1000);
    begun(5000);
    for (int i = 0; i < 10; i++) {
        tick(999);
        progress(1, 5000);
    }
    tick(999);
    cr_assert_eq(decision()->not_before, 6001);
    tick(1);
    cr_assert_eq(decision()->not_before, 0);
}

Test(coordinator, a_step_that_was_named_is_kept_over_a_restart)
{
    four_missed(10, 1);
    begun(14);
    struct decision kept = *decision();
    start(&kept);
    begun(15);
    cr_assert_eq(fate(15), FATE_OVER);
    begun(16);
    cr_assert_eq(fate(16), FATE_UNDECIDED);
}

Test(coordinator, what_is_missed_while_a_drain_keeps_slots_is_forgotten_when_it_ends)
{
    all_ready(7, true);
    for (uint64_t s = 8; s < 108; s++) {
        missed(s);
    }
    cr_assert(decision()->not_before > 108);
    drained(0, 7, 1, true);
    drained(2, 7, 1, true);
    published(7, 1, true);
    begun(108);
    cr_assert_eq(fate(108), FATE_UNDECIDED);
}

Test(coordinator, what_is_missed_while_a_recovery_keeps_slots_is_forgotten_when_it_is_over)
{
    for (uint64_t s = 8; s < 108; s++) {
        missed(s);
    }
    cr_assert(decision()->not_before > 108);
    step((struct event){.type = EVENT_BASED, .version = {TERM - 1, 7}});
    begun(108);
    cr_assert_eq(fate(108), FATE_UNDECIDED);
}

Test(coordinator, names_no_step_beyond_the_last_one)
{
    four_missed(10, UINT64_MAX / 4);
    begun(UINT64_MAX - 1);
    step((struct event){.type = EVENT_TICK});
    cr_assert_eq(fate(UINT64_MAX - 1), FATE_UNDECIDED);
}

Test(coordinator, aborts_a_version_of_another_layout)
{
    step((struct event){.type = EVENT_READY, .node = 0, .version = v(7), .layout = {9, 9}});
    cr_assert_eq(fate(7), FATE_OVER);
}

Test(coordinator, ignores_other_terms_and_unknown_nodes)
{
    ready(3, 7, false);
    step((struct event){.type = EVENT_READY, .node = 0, .version = {TERM - 1, 7}, .layout = layout});
    cr_assert_eq(decision()->horizon, 0);
}

Test(coordinator, goes_on_from_the_decision_that_was_kept)
{
    all_ready(7, false);
    ready(0, 8, false);
    struct decision kept = *decision();
    start(&kept);
    ready(0, 8, false);
    ready(1, 8, false);
    cr_assert_eq(fate(8), FATE_UNDECIDED);
    ready(2, 8, false);
    cr_assert_eq(fate(8), FATE_COMMITTED);
    cr_assert(decision()->seq > kept.seq);
}

Test(coordinator, drains_a_committed_storage_version_and_publishes_it)
{
    all_ready(7, true);
    cr_assert(version_is(decision()->drain, v(7)));
    drained(0, 7, 1, true);
    cr_assert_not(emitted(ACTION_PUBLISH));
    drained(2, 7, 1, true);
    cr_assert(emitted(ACTION_PUBLISH));
    published(7, 1, true);
    cr_assert(version_is(decision()->published, v(7)));
    cr_assert(version_none(decision()->drain));
}

Test(coordinator, publishes_once)
{
    all_ready(7, true);
    drained(0, 7, 1, true);
    drained(2, 7, 1, true);
    drained(2, 7, 1, true);
    cr_assert_not(emitted(ACTION_PUBLISH));
}

Test(coordinator, a_failed_part_ends_the_drain_and_the_next_attempt_starts_clean)
{
    all_ready(7, true);
    drained(0, 7, 1, true);
    drained(2, 7, 1, false);
    cr_assert(version_none(decision()->drain));
    step((struct event){.type = EVENT_DRAIN_ASKED});
    cr_assert(version_is(decision()->drain, v(7)));
    drained(0, 7, 1, true);
    drained(2, 7, 2, true);
    cr_assert_not(emitted(ACTION_PUBLISH), "node 0 has not drained in this attempt");
    drained(0, 7, 2, true);
    cr_assert(emitted(ACTION_PUBLISH));
}

Test(coordinator, drains_the_newest_version_after_the_running_drain)
{
    all_ready(7, true);
    all_ready(8, true);
    all_ready(9, false);
    cr_assert(version_is(decision()->drain, v(7)));
    drained(0, 7, 1, true);
    drained(2, 7, 1, true);
    published(7, 1, true);
    cr_assert(version_is(decision()->drain, v(9)), "8 may be gone from memory by now");
}

Test(coordinator, drains_after_a_restart_what_was_committed_beside_the_running_drain)
{
    all_ready(7, true);
    all_ready(8, true);
    struct decision kept = *decision();
    start(&kept);
    drained(0, 7, 1, true);
    drained(2, 7, 1, true);
    published(7, 1, true);
    cr_assert(version_is(decision()->drain, v(8)));
}

Test(coordinator, a_drain_that_was_asked_for_beside_another_is_kept)
{
    all_ready(7, true);
    all_ready(8, false);
    step((struct event){.type = EVENT_DRAIN_ASKED});
    cr_assert(emitted(ACTION_ANNOUNCE), "what is not announced is not kept");
    cr_assert(decision()->drain_wanted);
}

Test(coordinator, the_next_commit_is_drained_in_place_of_an_aborted_storage_version)
{
    ready(0, 7, true);
    refused(1, 7);
    all_ready(8, false);
    cr_assert(version_is(decision()->drain, v(8)));
}

Test(coordinator, the_next_commit_is_drained_in_place_of_a_storage_version_refused_before_it_began_here)
{
    refused(1, 7);
    step((struct event){.type = EVENT_BEGIN, .version = v(7), .to_storage = true});
    all_ready(8, false);
    cr_assert(version_is(decision()->drain, v(8)));
}

Test(coordinator, a_committed_version_that_is_begun_once_more_for_storage_is_drained)
{
    all_ready(7, false);
    step((struct event){.type = EVENT_BEGIN, .version = v(7)});
    cr_assert(version_none(decision()->drain));
    step((struct event){.type = EVENT_BEGIN, .version = v(7), .to_storage = true});
    cr_assert(version_is(decision()->drain, v(7)));
}

Test(coordinator, a_commit_is_drained_for_the_open_storage_version_that_it_ends)
{
    ready(0, 7, true);
    all_ready(8, false);
    cr_assert(version_is(decision()->drain, v(8)));
}

Test(coordinator, a_failed_drain_is_repeated_after_growing_pauses)
{
    static const uint64_t pauses_ms[] = {10, 20, 40, 50, 50};
    all_ready(7, true);
    for (uint64_t i = 0; i < sizeof(pauses_ms) / sizeof(pauses_ms[0]); i++) {
        drained(0, 7, i + 1, false);
        cr_assert(version_none(decision()->drain), "its slots are not held during the pause");
        now += pauses_ms[i] - 1;
        step((struct event){.type = EVENT_TICK});
        cr_assert(version_none(decision()->drain));
        now++;
        step((struct event){.type = EVENT_TICK});
        cr_assert(version_is(decision()->drain, v(7)), "without any later commit");
        cr_assert(emitted(ACTION_ANNOUNCE));
    }
}

Test(coordinator, after_a_failed_drain_the_newest_commit_is_drained)
{
    all_ready(7, true);
    drained(0, 7, 1, false);
    all_ready(8, true);
    cr_assert(version_none(decision()->drain), "commits do not shorten the pause");
    now += 10;
    step((struct event){.type = EVENT_TICK});
    cr_assert(version_is(decision()->drain, v(8)));
}

Test(coordinator, a_user_who_asks_for_a_drain_does_not_wait_for_the_pause)
{
    all_ready(7, true);
    drained(0, 7, 1, false);
    step((struct event){.type = EVENT_BEGIN, .version = v(7), .to_storage = true});
    cr_assert(version_none(decision()->drain), "a trainer that asks again does");
    step((struct event){.type = EVENT_DRAIN_ASKED});
    cr_assert(version_is(decision()->drain, v(7)));
}

Test(coordinator, a_failed_drain_is_repeated_after_a_restart)
{
    all_ready(7, true);
    drained(0, 7, 1, false);
    struct decision kept = *decision();
    start(&kept);
    step((struct event){.type = EVENT_TICK});
    cr_assert(version_is(decision()->drain, v(7)));
}

Test(coordinator, a_publish_that_fails_is_repeated)
{
    all_ready(7, true);
    drained(0, 7, 1, true);
    drained(2, 7, 1, true);
    published(7, 1, false);
    now += 10;
    step((struct event){.type = EVENT_TICK});
    cr_assert(version_is(decision()->drain, v(7)));
    cr_assert_eq(decision()->drain_attempt, 2);
}

Test(coordinator, a_drain_that_succeeds_ends_the_repeats)
{
    all_ready(7, true);
    drained(0, 7, 1, false);
    all_ready(8, false);
    now += 10;
    step((struct event){.type = EVENT_TICK});
    drained(0, 8, 2, true);
    drained(2, 8, 2, true);
    published(8, 2, true);
    all_ready(9, false);
    now += 1000;
    step((struct event){.type = EVENT_TICK});
    cr_assert(version_none(decision()->drain));
    all_ready(10, true);
    drained(0, 10, 3, false);
    now += 10;
    step((struct event){.type = EVENT_TICK});
    cr_assert(version_is(decision()->drain, v(10)), "the pause is a short one again");
}

Test(coordinator, the_last_step_is_never_skipped)
{
    for (uint64_t s = 10; s < 14; s++) {
        begun(s);
        refused(1, s);
    }
    begun(14);
    cr_assert_eq(decision()->not_before, 16);
    step((struct event){.type = EVENT_BEGIN, .version = v(15), .to_storage = true, .last = true});
    cr_assert_eq(decision()->not_before, 0);
    cr_assert_eq(decision_fate(decision(), v(15)), FATE_UNDECIDED);
    all_ready(15, false);
    cr_assert(version_is(decision()->drain, v(15)));
}

Test(coordinator, a_node_that_has_no_room_yet_for_the_last_step_ends_nothing)
{
    step((struct event){.type = EVENT_BEGIN, .version = v(7), .to_storage = true, .last = true});
    step((struct event){.type = EVENT_REFUSED, .node = 1, .version = v(7), .refusal = REFUSAL_NOT_YET});
    cr_assert_eq(decision_fate(decision(), v(7)), FATE_UNDECIDED);
    step((struct event){.type = EVENT_REFUSED, .node = 1, .version = v(9), .refusal = REFUSAL_NOT_YET});
    cr_assert_eq(decision()->horizon, 8, "nor does it open anything");
    all_ready(7, false);
    cr_assert(version_is(decision()->drain, v(7)));
}

Test(coordinator, does_not_drain_what_is_published)
{
    all_ready(7, true);
    drained(0, 7, 1, true);
    drained(2, 7, 1, true);
    published(7, 1, true);
    step((struct event){.type = EVENT_DRAIN_ASKED});
    cr_assert(version_none(decision()->drain));
}

Test(coordinator, base_becomes_the_watermark_until_something_newer_is_committed)
{
    struct version base = {TERM - 1, 3};
    step((struct event){.type = EVENT_BASED, .version = base});
    cr_assert(decision()->based);
    cr_assert(version_is(decision()->watermark, base));
    all_ready(7, false);
    cr_assert_eq(decision_fate(decision(), base), FATE_OVER);
}

Test(coordinator, base_does_not_replace_a_commit_of_this_term)
{
    all_ready(7, false);
    step((struct event){.type = EVENT_BASED, .version = {TERM - 1, 3}});
    cr_assert(decision()->based);
    cr_assert(version_is(decision()->watermark, v(7)));
}

Test(coordinator, a_term_has_one_base)
{
    struct version base = {TERM - 1, 3}, other = {TERM - 2, 3};
    step((struct event){.type = EVENT_READABLE, .version = base});
    cr_assert(decision()->readable && !decision()->based);
    cr_assert_eq(decision_fate(decision(), other), FATE_UNDECIDED, "it is not protected again yet");
    step((struct event){.type = EVENT_READABLE, .version = other});
    step((struct event){.type = EVENT_BASED, .version = other});
    cr_assert(version_is(decision()->base, base));
    cr_assert_not(decision()->based);
    step((struct event){.type = EVENT_BASED, .version = base});
    cr_assert(decision()->based);
    cr_assert(version_is(decision()->watermark, base));
}

static void lose_base(struct version base)
{
    step((struct event){.type = EVENT_BASE_LOST, .version = base});
}

Test(coordinator, a_lost_base_makes_room_and_nothing_older_does)
{
    struct version base = {TERM - 1, 3}, older = {TERM - 1, 2};
    step((struct event){.type = EVENT_READABLE, .version = base});
    lose_base(base);
    cr_assert_eq(out.items[0].type, ACTION_ANNOUNCE);
    cr_assert_eq(decision_fate(decision(), base), FATE_OVER);
    cr_assert_eq(decision_fate(decision(), older), FATE_UNDECIDED);
    step((struct event){.type = EVENT_BASED, .version = base});
    cr_assert_not(decision()->based, "what came too late protects nothing");
    all_ready(7, false);
    cr_assert(version_is(decision()->watermark, v(7)));
    cr_assert_eq(decision_fate(decision(), older), FATE_OVER);
}

Test(coordinator, only_the_base_that_is_not_protected_yet_can_be_lost)
{
    struct version base = {TERM - 1, 3}, other = {TERM - 1, 2};
    lose_base(base);
    cr_assert_not(decision()->base_lost, "it is not chosen");
    step((struct event){.type = EVENT_READABLE, .version = base});
    lose_base(other);
    lose_base(VERSION_NONE);
    cr_assert_not(decision()->base_lost);
    step((struct event){.type = EVENT_BASED, .version = base});
    lose_base(base);
    cr_assert_not(decision()->base_lost);
}

Test(coordinator, a_base_is_not_lost_to_a_term_that_has_committed)
{
    struct version base = {TERM - 1, 3};
    step((struct event){.type = EVENT_READABLE, .version = base});
    all_ready(7, false);
    lose_base(base);
    cr_assert_not(decision()->base_lost);
}

Test(coordinator, a_base_is_kept_over_a_restart)
{
    struct version base = {TERM - 1, 3};
    step((struct event){.type = EVENT_READABLE, .version = base});
    cr_assert_eq(out.items[0].type, ACTION_ANNOUNCE, "so it is kept before any other node learns of it");
}

Test(coordinator, nothing_to_recover_still_ends_older_terms)
{
    step((struct event){.type = EVENT_BASED, .version = VERSION_NONE});
    cr_assert_eq(decision_fate(decision(), (struct version){TERM - 1, 3}), FATE_OVER);
}
