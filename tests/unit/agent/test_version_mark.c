/* SPDX-License-Identifier: Apache-2.0
 * Each begin has an end with the same name and numbers. */
#include "agent/report/version_mark.h"

#include <criterion/criterion.h>
#include <string.h>

#define TERM 7

static const struct version version = {TERM, 30};

static bool same(const struct version_mark *a, const struct version_mark *b)
{
    return strcmp(a->name, b->name) == 0 && version_is(a->version, b->version) && a->rank == b->rank &&
           a->slot == b->slot && a->shard == b->shard && a->node == b->node && a->attempt == b->attempt;
}

static void expect_pair(const char *name, const struct action *action, const struct event *event,
                        const struct slot *slot)
{
    struct version_mark begin, end;
    cr_assert(version_mark_of_action(action, &begin));
    cr_assert(version_mark_of_event(event, TERM, slot, &end));
    cr_assert_str_eq(begin.name, name);
    cr_assert_eq(begin.phase, MARK_BEGIN);
    cr_assert_eq(end.phase, MARK_END);
    cr_assert(same(&begin, &end));
    cr_assert_eq(end.ok, event->ok || event->type == EVENT_SEAL);
}

static struct action action(enum action_type type)
{
    return (struct action){
        .type = type, .node = NONE32, .rank = NONE32, .slot = NONE32, .shard = NONE32, .version = version};
}

Test(version_mark, save_begins_with_a_grant_and_ends_with_the_seal)
{
    struct action grant = action(ACTION_GRANT);
    grant.rank = 3;
    struct event seal = {.type = EVENT_SEAL, .rank = 3, .version = {0, version.step}};
    expect_pair("save", &grant, &seal, NULL);
    seal.type = EVENT_ABANDON;
    expect_pair("save", &grant, &seal, NULL);
}

Test(version_mark, digest_and_receive_end_by_the_state_of_their_slot)
{
    struct slot slot = {.state = SLOT_SEALED};
    struct event verified = {.type = EVENT_VERIFIED, .slot = 2, .version = version, .ok = true};
    struct action begin = action(ACTION_VERIFY);
    begin.slot = 2;
    expect_pair("digest", &begin, &verified, &slot);
    slot.state = SLOT_RECEIVING;
    begin.type = ACTION_STORE;
    begin.node = 1; /* the sender, which the end does not know */
    begin.shard = 4;
    expect_pair("receive", &begin, &verified, &slot);
    begin.type = ACTION_FETCH_SLOT;
    verified.ok = false;
    expect_pair("receive", &begin, &verified, &slot);
    struct version_mark mark;
    slot.state = SLOT_FREE; /* the slot was given up */
    cr_assert_not(version_mark_of_event(&verified, TERM, &slot, &mark));
}

Test(version_mark, copy_names_shard_and_node)
{
    struct action replicate = action(ACTION_REPLICATE);
    replicate.slot = 2;
    replicate.shard = 4;
    replicate.node = 1;
    struct event replica = {.type = EVENT_REPLICA, .shard = 4, .node = 1, .version = version};
    expect_pair("copy", &replicate, &replica, NULL);
}

Test(version_mark, drains_and_publishes_are_told_apart_by_their_attempt)
{
    struct action begin = action(ACTION_DRAIN);
    begin.attempt = 2;
    struct event end = {.type = EVENT_DRAINED_HERE, .version = version, .attempt = 2, .ok = true};
    expect_pair("drain", &begin, &end, NULL);
    begin.type = ACTION_PUBLISH;
    end.type = EVENT_PUBLISHED;
    expect_pair("publish", &begin, &end, NULL);
}

Test(version_mark, stages_are_instants)
{
    static const char *const names[] = {"protected", "committed", "published", "failed"};
    struct action notify = action(ACTION_NOTIFY);
    struct version_mark mark;
    for (int stage = STAGE_PROTECTED; stage <= STAGE_FAILED; stage++) {
        notify.stage = (enum stage)stage;
        cr_assert(version_mark_of_action(&notify, &mark));
        cr_assert_eq(mark.phase, MARK_INSTANT);
        cr_assert_str_eq(mark.name, names[stage]);
        cr_assert(version_is(mark.version, version));
    }
}

Test(version_mark, decisions_say_what_a_term_restores_and_when_it_is_recovered)
{
    struct version_mark marks[DECISION_MARKS];
    struct decision none = {0}, now = {.term = TERM};
    cr_assert_eq(version_marks_of_decision(&none, &now, marks), 1);
    cr_assert_str_eq(marks[0].name, "term");
    struct decision before = now;
    now.readable = true;
    now.base = (struct version){TERM - 1, 20};
    cr_assert_eq(version_marks_of_decision(&before, &now, marks), 1);
    cr_assert_str_eq(marks[0].name, "restored");
    cr_assert(version_is(marks[0].version, now.base));
    cr_assert_eq(version_marks_of_decision(&now, &now, marks), 0);
    before = now;
    now.based = true;
    cr_assert_eq(version_marks_of_decision(&before, &now, marks), 1);
    cr_assert_str_eq(marks[0].name, "recovered");
    struct decision fresh = {.term = TERM + 1, .readable = true, .based = true};
    cr_assert_eq(version_marks_of_decision(&now, &fresh, marks), 3, "all at once, to an agent that had been away");
    cr_assert_str_eq(marks[1].name, "restored nothing");
}

Test(version_mark, lost_nodes_are_instants)
{
    struct version_mark mark;
    struct event event = {.type = EVENT_NODE_DOWN, .node = 2};
    cr_assert(version_mark_of_event(&event, TERM, NULL, &mark));
    cr_assert_str_eq(mark.name, "node lost");
    cr_assert_eq(mark.node, 2);
    event.type = EVENT_NODE_UP;
    cr_assert(version_mark_of_event(&event, TERM, NULL, &mark));
    cr_assert_str_eq(mark.name, "node back");
}

Test(version_mark, shards_that_arrive_are_instants)
{
    struct version_mark mark = version_mark_of_arrival(4, version, false);
    cr_assert_str_eq(mark.name, "fetched");
    cr_assert(mark.phase == MARK_INSTANT && mark.shard == 4 && version_is(mark.version, version));
    cr_assert_str_eq(version_mark_of_arrival(4, version, true).name, "repaired");
}

Test(version_mark, what_receives_nothing_and_what_is_no_step_of_a_version_has_no_mark)
{
    struct version_mark mark;
    struct action fetch = action(ACTION_FETCH_SLOT);
    cr_assert_not(version_mark_of_action(&fetch, &mark), "refused");
    fetch.slot = 1;
    fetch.ok = true;
    cr_assert_not(version_mark_of_action(&fetch, &mark), "it is here already");
    struct action other = action(ACTION_WRITE_HEADER);
    cr_assert_not(version_mark_of_action(&other, &mark));
    struct event tick = {.type = EVENT_TICK};
    cr_assert_not(version_mark_of_event(&tick, TERM, NULL, &mark));
    struct event verified = {.type = EVENT_VERIFIED, .version = version};
    cr_assert_not(version_mark_of_event(&verified, TERM, NULL, &mark));
}
