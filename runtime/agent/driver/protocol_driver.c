/* SPDX-License-Identifier: Apache-2.0
 * Connects the pure state machines with the outside world: it feeds in one event after the other, and carries out the
 * actions of each event in order before the next one. Actions that take time (digests, transfers) end with an event. */
#include "agent/driver/protocol_driver.h"

#include "agent/state/hard_state.h"
#include "base/clock.h"
#include "base/failpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Logged once, when throttling begins, with the remedy. */
static void log_throttling(const struct decision *before, const struct decision *now)
{
    bool was = before->term == now->term && before->not_before > 0;
    if (!was && now->not_before > 0) {
        log_warn("saves come faster than they can be copied: several versions in a row found no free slot on some node "
                 "or stood still. Most saves are skipped now (the next one is at step %" PRIu64 " or later) until "
                 "versions commit again. Raise save_mem_interval, or set slots to 3",
                 now->not_before);
    } else if (was && now->not_before == 0) {
        log_info("copies keep up with the saves again: no save is skipped any more");
    }
}

static void keep_decision(struct term_context *tc, const struct decision *decision)
{
    const struct kept *known = hard_state_get(tc->needs.state);
    /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): if only padding differs, it is kept again */
    if (memcmp(&known->decision, decision, sizeof(*decision)) == 0) {
        return; /* most heartbeats repeat the decision that is already kept */
    }
    struct kept kept = *known;
    log_throttling(&kept.decision, decision);
    kept.decision = *decision;
    hard_state_put(tc->needs.state, &kept);
}

static bool is_answer(enum action_type type)
{
    return type == ACTION_STORE || type == ACTION_REJECT_OFFER || type == ACTION_ACK_OFFER || type == ACTION_FETCH_SLOT;
}

/* An answer goes to the caller that asked, and is dropped if there is none. */
static void carry_out(struct term_context *tc, const struct action *action, struct node_answer *answer)
{
    tc->needs.hooks->note(tc, NULL, action);
    if (!is_answer(action->type)) {
        tc->needs.hooks->carry_out(tc, action);
    } else if (answer != NULL) {
        *answer = (struct node_answer){.given = true, .action = *action};
    }
}

static void step(struct term_context *tc, const struct queued_event *next)
{
    tc->actions.count = 0;
    tc->needs.hooks->note(tc, &next->event, NULL);
    if (next->for_coordinator) {
        coordinator_step(tc->coordinator, &next->event, &tc->actions);
    } else {
        node_step(tc->node, &next->event, &tc->actions);
        if (next->event.type == EVENT_DECISION && tc->coordinator == NULL) {
            failpoint(decision, learned);
            keep_decision(tc, node_decision(tc->node));
        }
    }
    /* A decision must survive this process before it is announced. */
    if (next->for_coordinator && tc->actions.count > 0) {
        failpoint(decision, made);
        keep_decision(tc, coordinator_decision(tc->coordinator));
        failpoint(decision, kept);
    }
    for (uint32_t i = 0; i < tc->actions.count; i++) {
        struct action action = tc->actions.items[i];
        carry_out(tc, &action, next->answer);
    }
    if (next->event.type == EVENT_DECISION) {
        tc->needs.hooks->decided(tc);
    }
}

static void run_queue(struct term_context *tc)
{
    if (tc->stepping) {
        return;
    }
    tc->stepping = true;
    for (uint32_t i = 0; i < tc->queue_count; i++) {
        struct queued_event next = tc->queue[i];
        step(tc, &next);
    }
    tc->queue_count = 0;
    tc->stepping = false;
}

static void feed(struct term_context *tc, const struct event *event, bool for_coordinator, struct node_answer *answer)
{
    if (tc->queue_count == tc->queue_cap) {
        uint32_t cap = tc->queue_cap ? 2 * tc->queue_cap : 16;
        struct queued_event *grown = realloc(tc->queue, cap * sizeof(*grown));
        if (grown == NULL) {
            log_error("out of memory: a protocol event is lost"); /* like a lost message: retries repair it */
            return;
        }
        tc->queue = grown;
        tc->queue_cap = cap;
    }
    struct queued_event *slot = &tc->queue[tc->queue_count++];
    *slot = (struct queued_event){.for_coordinator = for_coordinator, .event = *event, .answer = answer};
    slot->event.term = tc->world.term;
    slot->event.now_ms = clock_ms();
    run_queue(tc);
}

/* Events that end operations begun before the term context was closed, and keep pins balanced. */
static bool outlives_term(enum event_type type)
{
    return type == EVENT_VERIFIED || type == EVENT_PIN || type == EVENT_UNPIN || type == EVENT_CORRUPT;
}

void driver_step_node(struct term_context *tc, const struct event *event)
{
    if (!tc->closed || outlives_term(event->type)) {
        feed(tc, event, false, NULL);
    }
}

struct node_answer driver_ask_node(struct term_context *tc, const struct event *event)
{
    struct node_answer answer = {0};
    if (!tc->closed || outlives_term(event->type)) {
        feed(tc, event, false, tc->stepping ? NULL : &answer); /* stepping: the answer comes too late */
    }
    return answer;
}

void driver_step_coordinator(struct term_context *tc, const struct event *event)
{
    if (!tc->closed && tc->coordinator != NULL) {
        feed(tc, event, true, NULL);
    }
}

void driver_tick(struct term_context *tc)
{
    struct event event = {.type = EVENT_TICK};
    driver_step_node(tc, &event);
    driver_step_coordinator(tc, &event);
}
