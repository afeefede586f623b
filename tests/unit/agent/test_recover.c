/* SPDX-License-Identifier: Apache-2.0
 * Requests of a recovery to the coordinator's own node, which is the only node here and owns the only shard. */
#include "agent/driver/protocol_driver.h"
#include "agent/driver/twins.h"
#include "agent/ipc/ipc_server.h"
#include "agent/membership/reservation.h"
#include "agent/recovery/recover.h"
#include "agent/recovery/recover_internal.h"
#include "agent/recovery/restore.h"
#include "agent/replication/fetch.h"
#include "agent/replication/peer_rpc.h"
#include "agent/state/hard_state.h"
#include "base/clock.h"
#include "base/config.h"
#include "one_node.h"
#include "tiers/memory.h"
#include "tiers/peer.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define TERM        5
#define IMAGE_BYTES 4096

static const struct hash128 shard = {1, 1};
static const struct version saved = {TERM - 1, 10};

static struct config config;
static struct memory *memory;
static struct client *trainers; /* none */
static struct recoveries *recoveries;
static struct term_context *tc;
static uint32_t requests, answers;
static uint64_t number; /* of the newest request */
static bool answers_at_once;
static bool short_of_memory; /* recover.c, when it allocates */
static uint32_t lines_logged;
static bool loses_event; /* the next one of this type that the coordinator is to get */
static enum event_type lost_event;

/* The linker puts it in calloc's place. */
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    return short_of_memory ? NULL : __real_calloc(count, bytes);
}

/* ---- what recover.c and term_context.c need of the rest of the agent --------------------------------------------- */

void hard_state_put_base(struct hard_state *state, uint64_t term, struct version base, const char *passed_over)
{
    (void)state;
    (void)term;
    (void)base;
    (void)passed_over;
}

const char *hard_state_passed_over(const struct hard_state *state, struct version base)
{
    (void)state;
    (void)base;
    return "";
}

void driver_step_node(struct term_context *term_context, const struct event *event)
{
    (void)term_context;
    (void)event;
}

void driver_step_coordinator(struct term_context *term_context, const struct event *event)
{
    if (loses_event && event->type == lost_event) {
        loses_event = false;
        return;
    }
    struct event timed = *event;
    timed.term = TERM;
    timed.now_ms = clock_ms();
    term_context->actions.count = 0;
    coordinator_step(term_context->coordinator, &timed, &term_context->actions);
}

uint64_t reservation_unused(const struct reservations *reservations, uint64_t term)
{
    (void)reservations;
    (void)term;
    return 0;
}

uint32_t rpc_node_of(const struct term_context *term_context, const struct peer *peer)
{
    (void)term_context;
    (void)peer;
    return NONE32;
}

void rpc_send(struct term_context *term_context, uint32_t node, uint16_t type, struct writer *w)
{
    (void)term_context;
    (void)type;
    (void)w;
    cr_assert(false, "there is no node %u", node);
}

size_t peers_count(const struct peers *peers)
{
    (void)peers;
    return 0;
}

struct peer *peers_at(const struct peers *peers, size_t i)
{
    (void)peers;
    (void)i;
    return NULL;
}

const struct node_info *peer_node(const struct peer *peer)
{
    (void)peer;
    return NULL;
}

void peers_unwant(struct peers *peers, struct peer *peer)
{
    (void)peers;
    (void)peer;
}

void recover_dry_tick(struct recoveries *of)
{
    (void)of;
}

void recover_dry_free(struct recoveries *of)
{
    (void)of;
}

void recover_ask_silent(struct recover *r)
{
    (void)r;
}

void recover_ask_peer(struct recover *r, struct peer *peer)
{
    (void)r;
    (void)peer;
}

bool recover_is_outsider(const struct recover *r, const struct node_info *node)
{
    (void)r;
    (void)node;
    return false;
}

void recover_add_outsiders(struct recover *r, const struct known_node *known, size_t count)
{
    (void)r;
    (void)known;
    (void)count;
}

void recover_take_inventory(struct recover *r, uint32_t node, struct inventory *inventory)
{
    (void)r;
    (void)node;
    (void)inventory;
}

/* This node has the shard. */
void recover_ask_all(struct recover *r)
{
    struct inventory inventory = {.node = tc->world.nodes[0], .count = 1};
    inventory.holdings = calloc(1, sizeof(*inventory.holdings));
    cr_assert_neq((void *)inventory.holdings, NULL);
    inventory.holdings[0] = (struct holding){.shard = shard,
                                             .layout = tc->world.layout,
                                             .version = saved,
                                             .root = {7, 7},
                                             .image_bytes = IMAGE_BYTES,
                                             .committed = true};
    recover_step(r, (struct recovery_event){.type = RECOVERY_EVENT_INVENTORY, .inventory = &inventory});
    recover_step(r, (struct recovery_event){.type = RECOVERY_EVENT_ASKED_ALL});
}

void recover_list_storage(struct recover *r, struct survey_range range)
{
    (void)range;
    r->look.view.complete = true;
    recover_step(r, (struct recovery_event){.type = RECOVERY_EVENT_STORED, .storage = &r->look.view});
}

void recover_free_look(struct recover *r)
{
    (void)r;
}

void recover_drop_listing(struct recover *r)
{
    (void)r;
}

static void answer(uint64_t to)
{
    struct wire_fetched m = {.term = TERM, .version = saved, .outcome = TCK_OK, .number = to};
    recover_fetched(recoveries, 0, &m);
}

void fetch_handle_ask(struct fetches *fetches, struct term_context *term_context, const struct wire_fetch *ask)
{
    (void)fetches;
    (void)term_context;
    requests++;
    number = ask->number;
    if (answers_at_once) {
        answer(number);
    }
}

void restore_readable(const struct restore_setup *restore, struct term_context *term_context,
                      const struct wire_readable *m)
{
    (void)restore;
    (void)term_context;
    cr_assert_eq((int)m->outcome, (int)TCK_OK, "%s", m->reason);
    answers++;
}

/* ---- one node ---------------------------------------------------------------------------------------------------- */

static void set_up(void)
{
    struct error err = {0};
    strcpy(config.node, "a");
    one_node_memory(shard, IMAGE_BYTES, &memory);
    struct term_setup term = {.config = &config, .memory = memory, .clients = &trainers};
    tc = one_node(&term, TERM, shard, IMAGE_BYTES);
    struct recoveries_setup needs = {.config = &config, .memory = memory, .clients = &trainers};
    cr_assert_eq(recoveries_new(&needs, &recoveries, &err), TCK_OK, "%s", err.text);
    recover_registered(recoveries, tc, 0);
    recover_restore_ask(recoveries, tc, 0, TCK_NEWEST);
    cr_assert_eq(requests, 1);
}

static void tear_down(void)
{
    recover_end(recoveries);
    recoveries_free(recoveries);
    term_context_free(tc);
    memory_free(memory);
}

TestSuite(recover, .init = set_up, .fini = tear_down);

/* The node may have been out of memory for the fetch. */
Test(recover, a_fetch_of_the_coordinators_own_node_is_requested_until_it_has_an_outcome)
{
    uint64_t first = number;
    recover_tick(recoveries, tc);
    cr_assert_eq(requests, 2);
    cr_assert_eq(number, first, "an outcome must be that of either request");
    answer(number);
    cr_assert_eq(answers, 1);
}

Test(recover, an_outcome_may_come_while_the_request_is_repeated)
{
    answers_at_once = true;
    recover_tick(recoveries, tc);
    cr_assert_eq(answers, 1);
    answer(number);
    cr_assert_eq(answers, 1, "an outcome that is repeated means nothing");
}

/* The node answers the request that it is working on, and does not know the new one until that is repeated. */
Test(recover, an_outcome_of_the_recovery_before_leaves_the_request_of_this_one_open)
{
    uint64_t first = number;
    recover_end(recoveries);
    recover_restore_ask(recoveries, tc, 0, TCK_NEWEST);
    cr_assert_neq(number, first);
    answer(first);
    cr_assert_eq(answers, 0);
    requests = 0;
    recover_tick(recoveries, tc);
    cr_assert_eq(requests, 1);
    answer(number);
    cr_assert_eq(answers, 1);
}

static void lose(enum event_type type)
{
    loses_event = true;
    lost_event = type;
}

/* One node has all copies that there are to be, so the base is protected as soon as it can be read. The driver had no
 * memory for an event. */
Test(recover, trainers_are_told_of_a_base_that_is_protected_before_the_decision_says_that_it_can_be_read)
{
    lose(EVENT_READABLE);
    answer(number);
    cr_assert_eq(answers, 0);
    recover_tick(recoveries, tc);
    cr_assert_eq(answers, 1);
    cr_assert(coordinator_decision(tc->coordinator)->based);
}

Test(recover, that_the_base_is_protected_is_repeated_until_the_decision_says_so)
{
    lose(EVENT_BASED);
    answer(number);
    cr_assert_eq(answers, 1);
    cr_assert_not(coordinator_decision(tc->coordinator)->based);
    recover_tick(recoveries, tc);
    cr_assert(coordinator_decision(tc->coordinator)->based);
    cr_assert_eq(answers, 1, "once is enough");
}

static void count_lines(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    (void)text;
    (void)level;
    lines_logged++;
}

Test(recover, a_recovery_for_which_there_is_no_memory_is_complained_of_once_and_begins_later)
{
    recover_end(recoveries);
    requests = 0;
    log_hand(count_lines, NULL, LOG_DEBUG);
    short_of_memory = true;
    recover_restore_ask(recoveries, tc, 0, TCK_NEWEST);
    for (int i = 0; i < 3; i++) {
        recover_tick(recoveries, tc);
    }
    short_of_memory = false;
    log_hand(NULL, NULL, LOG_ERROR);
    cr_assert_eq(lines_logged, 1);
    recover_tick(recoveries, tc);
    cr_assert(requests > 0);
    answer(number);
    cr_assert_eq(answers, 1);
}
