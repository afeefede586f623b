/* SPDX-License-Identifier: Apache-2.0
 * To which nodes tierckpt stop is sent on, and in which order. */
#include "agent/lifecycle/stop.h"

#include "agent/driver/term_context.h"
#include "agent/ipc/ipc_server.h"
#include "agent/lifecycle/idle_exit.h"
#include "agent/replication/peer_rpc.h"
#include "base/config.h"

#include <criterion/criterion.h>
#include <stdio.h>

/* {1, 2, 3} are led by 1, {4, 5, 6} by 4, {7} by itself. */
enum { NODES = 8 };

static char sent[64]; /* the nodes, in the order of sending */
static size_t sent_len;
static uint16_t sent_type;
static size_t stops;
static struct config config;
static struct client *trainers;
static struct term_context tc, *term = &tc;

/* ---- what stop.c needs of the rest of the agent -------------------------------------------------------------------
 */

void rpc_send(struct term_context *term_context, uint32_t node, uint16_t type, struct writer *w)
{
    (void)term_context, (void)w;
    sent_type = type;
    sent_len += (size_t)snprintf(sent + sent_len, sizeof(sent) - sent_len, "%u", node);
}

bool term_context_is_coordinator(const struct term_context *term_context)
{
    return term_context->self == 0;
}

void idle_exit_stop(struct idle_exit *x, bool forced)
{
    (void)x, (void)forced;
    stops++;
}

uint32_t clients_trainers(const struct client *clients)
{
    (void)clients;
    return 0;
}

static bool awaits_none(const void *ctx)
{
    (void)ctx;
    return false;
}

static const struct stop_setup setup = {
    .config = &config, .clients = &trainers, .term = &term, .awaits_trainers = awaits_none};

static void be_node(uint32_t node, uint32_t tree_from_nodes)
{
    config.tree_from_nodes = tree_from_nodes;
    tc = (struct term_context){.world = {.term = 5, .node_count = NODES}, .self = node};
}

static void expect_sent(const char *nodes)
{
    cr_expect_str_eq(sent, nodes);
    cr_expect_eq(stops, 1);
}

/* ---- the tests -----------------------------------------------------------------------------------------------------
 */

Test(stop, a_coordinator_sends_it_to_leaders_last)
{
    be_node(0, 3);
    stop_request(&setup, false);
    expect_sent("2356714");
    cr_expect_eq(sent_type, WIRE_STOP);
}

Test(stop, without_leaders_the_order_is_that_of_the_nodes)
{
    be_node(0, 0);
    stop_request(&setup, false);
    expect_sent("1234567");
}

Test(stop, the_node_that_asks_is_left_out)
{
    be_node(0, 3);
    stop_handle(&setup, &tc, 5, true);
    expect_sent("236714");
    cr_expect_eq(sent_type, WIRE_STOP_NOW);
}

/* Soon it relays nothing any more. */
Test(stop, a_leader_that_asks_sends_it_to_its_group_as_well)
{
    be_node(4, 3);
    stop_request(&setup, true);
    expect_sent("056");
    cr_expect_eq(sent_type, WIRE_STOP_NOW);
}

Test(stop, others_ask_the_coordinator_alone)
{
    be_node(5, 3);
    stop_request(&setup, false);
    expect_sent("0");
}

Test(stop, what_the_coordinator_sends_goes_no_further)
{
    be_node(4, 3);
    stop_handle(&setup, &tc, 0, false);
    expect_sent("");
}
