/* SPDX-License-Identifier: Apache-2.0
 * Events that require an answer of the node machine. One node, with one shard that it owns. */
#include "agent/driver/moving.h"
#include "agent/driver/protocol_driver.h"
#include "agent/driver/term_context.h"
#include "agent/driver/twins.h"
#include "agent/ipc/ipc_server.h"
#include "agent/state/hard_state.h"
#include "one_node.h"

#include "../wish.h"
#include "base/config.h"
#include "tiers/memory.h"

#include <criterion/criterion.h>
#include <string.h>

#define TERM        5
#define SLOTS       2
#define IMAGE_BYTES 4096
#define CAP_BYTES   ((uint64_t)64 << 20)

static const struct hash128 shard = {1, 1};
static const struct version before = {TERM - 1, 10};

static struct config config;
static struct memory *memory;
static struct term_context *tc;
static struct kept kept = {.term = {.joined = TERM, .adopted = TERM}};
static uint32_t carried[ACTION_PUBLISH + 1];
static uint32_t noted_events, noted_actions;
static uint32_t kept_count;
static bool asks_inside;
static struct node_answer inside;

/* ---- what protocol_driver.c and term_context.c need of the rest of the agent --------------------------------------
 */

const struct kept *hard_state_get(const struct hard_state *state)
{
    (void)state;
    return &kept;
}

void hard_state_put(struct hard_state *state, const struct kept *now)
{
    (void)state;
    kept = *now;
    kept_count++;
}

static struct node_answer ask_slot(struct version version)
{
    struct event fetch = {.type = EVENT_FETCH, .shard = 0, .version = version};
    return driver_ask_node(tc, &fetch);
}

static void carry_out(struct term_context *term_context, const struct action *action)
{
    (void)term_context;
    carried[action->type]++;
    if (asks_inside) {
        asks_inside = false;
        inside = ask_slot((struct version){TERM - 1, 11});
    }
}

static void note(const struct term_context *term_context, const struct event *event, const struct action *action)
{
    (void)term_context;
    cr_assert_neq(event == NULL, action == NULL, "one of them");
    noted_events += event != NULL;
    noted_actions += action != NULL;
}

static void decided(const struct term_context *term_context)
{
    (void)term_context;
}

/* ---- one node ---------------------------------------------------------------------------------------------------- */

static void set_up(void)
{
    static const struct term_hooks hooks = {.carry_out = carry_out, .note = note, .decided = decided};
    struct memory_setup setup = {.job = "job", .cap_bytes = CAP_BYTES, .hugetlb_mount = "", .threads = 1};
    struct segment *segment;
    struct error err = {0};
    strcpy(config.node, "a");
    cr_assert_eq(memory_new(&setup, &memory, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(add_segment(memory, wish_of(shard, IMAGE_BYTES, SLOTS, SLOTS), &segment, &err), TCK_OK, "%s",
                 err.text);
    static struct client *clients;
    const struct term_setup forms = {.config = &config, .memory = memory, .clients = &clients, .hooks = &hooks};
    tc = one_node(&forms, TERM, shard, IMAGE_BYTES);
}

static void tear_down(void)
{
    term_context_free(tc);
    memory_free(memory);
}

TestSuite(driver, .init = set_up, .fini = tear_down);

Test(driver, returns_the_answer_to_the_caller_and_carries_out_the_rest)
{
    struct node_answer answer = ask_slot(before);
    cr_assert(answer.given);
    cr_assert_eq(answer.action.type, ACTION_FETCH_SLOT);
    cr_assert_eq(node_slot(tc->node, answer.action.slot)->state, SLOT_RECEIVING);
    cr_assert_eq(carried[ACTION_FETCH_SLOT], 0);
    cr_assert_eq(carried[ACTION_WRITE_HEADER], 1);
}

Test(driver, drops_an_answer_without_a_waiting_caller)
{
    struct event fetch = {.type = EVENT_FETCH, .shard = 0, .version = before};
    driver_step_node(tc, &fetch);
    cr_assert_eq(carried[ACTION_FETCH_SLOT], 0);
    cr_assert_eq(carried[ACTION_WRITE_HEADER], 1);
}

Test(driver, gives_no_answer_inside_an_action_and_asks_afterwards)
{
    asks_inside = true;
    struct node_answer answer = ask_slot(before);
    cr_assert(answer.given);
    cr_assert(version_is(answer.action.version, before), "it is not the answer to the other question");
    cr_assert_not(inside.given);
    cr_assert_eq(carried[ACTION_WRITE_HEADER], 2, "the other question was asked, too");
}

Test(driver, notes_each_event_and_each_action_also_answers)
{
    (void)ask_slot(before);
    cr_assert_eq(noted_events, 1);
    cr_assert_eq(noted_actions, 2, "a header is written, and the answer");
}

Test(driver, asks_nothing_when_the_term_is_over)
{
    tc->closed = true;
    cr_assert_not(ask_slot(before).given);
    cr_assert_eq(carried[ACTION_WRITE_HEADER], 0);
}

Test(driver, keeps_a_decision_once)
{
    struct event first = {.type = EVENT_DECISION, .decision = {.term = TERM, .seq = 1}};
    struct event second = {.type = EVENT_DECISION, .decision = {.term = TERM, .seq = 2}};
    tc->coordinator = NULL; /* as on another node; its memory is not freed through this */
    driver_step_node(tc, &first);
    driver_step_node(tc, &first);
    cr_assert_eq(kept_count, 1, "each heartbeat brings it again");
    driver_step_node(tc, &second);
    cr_assert_eq(kept_count, 2);
    cr_assert_eq(kept.decision.seq, 2);
}

/* ---- what is under way ------------------------------------------------------------------------------------------- */

static struct event moved_last;

static void note_moved(const struct term_context *term_context, const struct event *event, const struct action *action)
{
    note(term_context, event, action);
    if (event != NULL && event->type == EVENT_MOVED) {
        moved_last = *event;
    }
}

static uint32_t reported(void)
{
    uint32_t before_it = noted_events;
    moving_report(tc);
    return noted_events - before_it;
}

Test(driver, reports_what_has_moved_since_the_last_report)
{
    static const struct term_hooks hooks = {.carry_out = carry_out, .note = note_moved, .decided = decided};
    struct moving digest = {.slot = 0, .node = NONE32, .version = {TERM, 3}},
                  copy = {.slot = 1, .node = 0, .version = {TERM, 4}};
    tc->needs.hooks = &hooks;
    moving_end(&digest);
    moving_begin(tc, &digest);
    moving_begin(tc, &copy);
    cr_assert_eq(reported(), 0);
    progress_add(&copy.progress, 10);
    cr_assert_eq(reported(), 1);
    cr_assert(moved_last.slot == 1 && moved_last.node == 0 && version_is(moved_last.version, copy.version));
    cr_assert(moved_last.bytes == 10 && !moved_last.waits);
    cr_assert_eq(reported(), 0);
    progress_queued(&copy.progress);
    cr_assert_eq(reported(), 1);
    cr_assert(moved_last.bytes == 10 && moved_last.waits);
    moving_end(&copy);
    progress_add(&copy.progress, 10);
    progress_add(&digest.progress, 10);
    cr_assert_eq(reported(), 1);
    cr_assert(moved_last.slot == 0 && moved_last.node == NONE32);
    moving_end(&digest);
    cr_assert_null(tc->moving);
}

Test(driver, names_what_a_version_lacks)
{
    char text[STUCK_TEXT];
    struct event begin = {.type = EVENT_BEGIN, .rank = 0, .version = {0, 3}};
    driver_step_node(tc, &begin);
    moving_lacks(tc, (struct version){TERM, 3}, text);
    cr_assert_str_eq(text, "rank 0 has begun to copy it into memory and has not finished");
}
