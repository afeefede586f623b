/* SPDX-License-Identifier: Apache-2.0
 * Copies that other agents pull: their slot is not reused during the pull, and becomes reusable after it, whatever
 * happens to the version in the meantime. One node, with one shard that it owns. */
#include "agent/driver/protocol_driver.h"
#include "agent/driver/slot_ops.h"
#include "agent/driver/term_context.h"
#include "agent/driver/twins.h"
#include "agent/ipc/ipc_server.h"
#include "agent/replication/fetch.h"
#include "agent/replication/peer_rpc.h"
#include "agent/replication/replica_service.h"
#include "agent/state/hard_state.h"
#include "one_node.h"

#include "../wish.h"
#include "base/config.h"
#include "tiers/memory.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define TERM        5
#define SLOTS       2
#define IMAGE_BYTES 4096
#define CAP_BYTES   ((uint64_t)64 << 20)

static const struct hash128 shard = {1, 1}, root = {7, 7};
static const struct version before = {TERM - 1, 10};

static struct config config;
static struct memory *memory;
static struct term_context *tc;
static uint32_t ops;
static struct replica_setup replicas;
static struct kept kept = {.term = {.joined = TERM, .adopted = TERM}};

/* ---- what replica_service.c needs of the rest of the agent
 * ------------------------------------------------------------- */

void driver_step_node(struct term_context *term_context, const struct event *event)
{
    struct event e = *event;
    e.term = TERM;
    term_context->actions.count = 0;
    node_step(term_context->node, &e, &term_context->actions);
}

static struct node_answer answer; /* to an offer */

struct node_answer driver_ask_node(struct term_context *term_context, const struct event *event)
{
    driver_step_node(term_context, event);
    return answer;
}

const struct kept *hard_state_get(const struct hard_state *state)
{
    (void)state;
    return &kept;
}

void slot_op_begin(struct slot_ops *of)
{
    (void)of;
    ops++;
}

void slot_op_end(struct slot_ops *of)
{
    (void)of;
    ops--;
}

enum memory_use slot_ops_memory(const struct slot_ops *of)
{
    (void)of;
    return MEMORY_STEADY;
}

struct term_context *rpc_term_context(struct rpc *rpc, struct peer *from, uint64_t term)
{
    (void)rpc;
    (void)from;
    (void)term;
    return tc;
}

uint32_t rpc_node_of(const struct term_context *term_context, const struct peer *from)
{
    (void)term_context;
    (void)from;
    return 0;
}

bool fetch_lend(struct fetches *fs, const struct peer_offer *want, uint64_t to, struct tier_item *out)
{
    (void)fs, (void)want, (void)to, (void)out;
    return false;
}

void fetch_returned(struct fetches *fs, const struct tier_item *item)
{
    (void)fs, (void)item;
}

void rpc_send_stale(const struct rpc *rpc, struct peer *peer)
{
    (void)rpc;
    (void)peer;
}

/* ---- one node -------------------------------------------------------------------------------------------------- */

static void set_up(void)
{
    struct memory_setup setup = {.job = "job", .cap_bytes = CAP_BYTES, .hugetlb_mount = "", .threads = 1};
    struct slot_header header = {.state = SLOT_VERIFIED, .version = before, .root = root};
    struct segment *segment;
    struct error err = {0};
    strcpy(config.node, "a");
    cr_assert_eq(memory_new(&setup, &memory, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(add_segment(memory, wish_of(shard, IMAGE_BYTES, SLOTS, SLOTS), &segment, &err), TCK_OK, "%s",
                 err.text);
    segment_write_header(segment, 0, &header);
    static struct client *clients;
    const struct term_setup forms = {.config = &config, .memory = memory, .clients = &clients};
    tc = one_node(&forms, TERM, shard, IMAGE_BYTES);
    replicas = (struct replica_setup){.config = &config, .memory = memory, .term = &tc};
}

static void tear_down(void)
{
    term_context_free(tc);
    memory_free(memory);
}

TestSuite(copies, .init = set_up, .fini = tear_down);

static struct tier_item pull(void)
{
    struct peer_offer want = {.term = TERM, .shard = shard, .version = before};
    struct tier_item item = {0};
    struct error err = {0};
    cr_assert_eq(replica_handle_pull(&replicas, NULL, &want, &item, &err), TCK_OK, "%s", err.text);
    return item;
}

static void drop_copy(void)
{
    struct event corrupt = {.type = EVENT_CORRUPT, .slot = 0};
    driver_step_node(tc, &corrupt);
    cr_assert_eq(node_slot(tc->node, 0)->state, SLOT_FREE);
}

Test(copies, are_pinned_while_they_are_pulled)
{
    struct tier_item item = pull();
    cr_assert_eq(node_slot(tc->node, 0)->pins, 1);
    cr_assert_eq(ops, 1);
    replica_pull_done(&replicas, NULL, &item);
    cr_assert_eq(node_slot(tc->node, 0)->pins, 0);
    cr_assert_eq(ops, 0);
}

Test(copies, that_are_dropped_during_a_pull_leave_no_pin)
{
    struct tier_item item = pull();
    drop_copy();
    cr_assert_eq(node_slot(tc->node, 0)->pins, 1, "it is still read");
    replica_pull_done(&replicas, NULL, &item);
    cr_assert_eq(node_slot(tc->node, 0)->pins, 0);
}

Test(copies, that_are_received_into_another_slot_keep_its_pins)
{
    struct tier_item item = pull();
    drop_copy();
    struct event fetch = {.type = EVENT_FETCH, .shard = 0, .version = before};
    driver_step_node(tc, &fetch);
    cr_assert_eq(node_slot_of(tc->node, 0, before), 1, "slot 0 is still read");
    struct event reader = {.type = EVENT_PIN, .slot = 1};
    driver_step_node(tc, &reader);
    replica_pull_done(&replicas, NULL, &item);
    cr_assert_eq(node_slot(tc->node, 0)->pins, 0);
    cr_assert_eq(node_slot(tc->node, 1)->pins, 1);
}

Test(copies, are_not_handed_out_in_a_term_that_is_over)
{
    struct peer_offer want = {.term = TERM - 1, .shard = shard, .version = before};
    struct tier_item item = {0};
    struct error err = {0};
    cr_assert_eq(replica_handle_pull(&replicas, NULL, &want, &item, &err), TCK_ERR_DENIED);
    cr_assert_eq(node_slot(tc->node, 0)->pins, 0);
    cr_assert_eq(ops, 0);
}

/* Only for want of a slot does a recovery free others. */
Test(copies, that_are_refused_for_want_of_a_slot_differ_from_other_refusals)
{
    const struct peer_offer offer = {.term = TERM, .shard = shard, .version = before, .image_bytes = IMAGE_BYTES};
    const struct {
        enum refusal by_holder, at_sender;
    } cases[] = {{REFUSAL_NO_SLOT, REFUSAL_NO_SLOT},
                 {REFUSAL_MEMORY, REFUSAL_NO_SLOT},
                 {REFUSAL_ABORTED, REFUSAL_HOLDER_LOST},
                 {REFUSAL_NONE, REFUSAL_HOLDER_LOST}}; /* none: the same copy still arrives */
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct tier_item item;
        struct error err = {0};
        bool given = cases[i].by_holder != REFUSAL_NONE;
        answer = (struct node_answer){.given = given,
                                      .action = {.type = ACTION_REJECT_OFFER, .refusal = cases[i].by_holder}};
        tck_status_t status = replica_handle_offer(&replicas, NULL, &offer, &item, &err);
        cr_assert_eq(replica_refusal(status), cases[i].at_sender, "%s", refusal_text(cases[i].by_holder));
    }
}

/* Slot 0 has the base, and the copy goes into slot 1. */
static struct tier_item offer_on(uint32_t base_slot)
{
    const struct peer_offer offer = {.term = TERM,
                                     .shard = shard,
                                     .version = {TERM, 11},
                                     .image_bytes = IMAGE_BYTES,
                                     .base = before,
                                     .base_root = root};
    struct tier_item item = {0};
    struct error err = {0};
    answer = (struct node_answer){.given = true, .action = {.type = ACTION_STORE, .slot = 1, .base_slot = base_slot}};
    cr_assert_eq(replica_handle_offer(&replicas, NULL, &offer, &item, &err), TCK_OK, "%s", err.text);
    return item;
}

Test(copies, are_made_from_the_base_that_is_here)
{
    const struct segment *segment = memory_find(memory, shard);
    cr_assert_eq(offer_on(0).base_image, segment_image(segment, 0));
    cr_assert_eq(offer_on(0).image, segment_image(segment, 1));
    cr_assert_null(offer_on(NONE32).base_image);
}

Test(copies, whose_base_is_damaged_differ_from_those_that_were_announced_wrongly)
{
    struct segment *segment = memory_find(memory, shard), *found = NULL;
    struct tier_item item = offer_on(0);
    struct error err = {0};
    uint32_t k = NONE32;
    (void)digest_image(segment_image(segment, 0), IMAGE_BYTES, segment_crcs(segment, 0));
    cr_assert_not(replica_base_is_bad(&replicas, &item, 0, &found, &k, &err), "it is as its table says");
    segment_image(segment, 0)[100] ^= 1;
    cr_assert(replica_base_is_bad(&replicas, &item, 0, &found, &k, &err));
    cr_assert_eq(found, segment);
    cr_assert_eq(k, 0);
    cr_assert_not_null(strstr(err.text, "chunk 0"), "%s", err.text);
    struct slot_header header = *segment_header(segment, 0);
    header.state = SLOT_FREE;
    segment_write_header(segment, 0, &header);
    cr_assert_not(replica_base_is_bad(&replicas, &item, 0, &found, &k, &err), "it is dropped already");
}
