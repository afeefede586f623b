/* SPDX-License-Identifier: Apache-2.0
 * What an agent reports to a recovery about itself. It has no memory for shards here, and knows no other agents. */
#include "agent/driver/slot_ops.h"
#include "agent/recovery/recover_ask.h"
#include "agent/recovery/recover_internal.h"
#include "agent/state/hard_state.h"
#include "tiers/memory.h"
#include "tiers/peer.h"

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

static int head = -1; /* of the agent's state, as its supervisor keeps it */
static struct memory *memory;
static struct slot_ops *slot_ops;

/* ---- what recover_ask.c needs of the rest of the agent --------------------------------------------------------- */

const struct node_info *peers_self(const struct peers *peers)
{
    static const struct node_info self = {.name = "a", .domain = "a", .agent_id = 1};
    (void)peers;
    return &self;
}

tck_status_t peers_want(struct peers *peers, const struct node_info *node, struct peer **out, struct error *err)
{
    (void)peers;
    (void)node;
    (void)out;
    return error_set(err, TCK_ERR_UNREACHABLE, "there are no other agents");
}

bool peer_is_up(const struct peer *peer)
{
    (void)peer;
    return false;
}

const struct node_info *peer_node(const struct peer *peer)
{
    (void)peer;
    return NULL;
}

tck_status_t peer_send(struct peer *peer, uint16_t type, const void *data, size_t len)
{
    (void)peer;
    (void)type;
    (void)data;
    (void)len;
    return TCK_ERR_UNREACHABLE;
}

/* ---- one agent ------------------------------------------------------------------------------------------------- */

static tck_status_t store(void *ctx, const char *name, int fd, struct error *err)
{
    (void)ctx;
    (void)name;
    (void)err;
    head = dup(fd);
    return TCK_OK;
}

static void drop(void *ctx, const char *name)
{
    (void)ctx;
    (void)name;
}

/* Starts with the state that the agent before it has left. */
static struct hard_state *start(void)
{
    struct hard_state_setup setup = {.store_fd = store, .drop_fd = drop};
    struct hard_state *state = NULL;
    struct error err = {0};
    cr_assert_eq(hard_state_new(&setup, &state, &err), TCK_OK, "%s", err.text);
    if (head >= 0) {
        cr_assert(hard_state_adopt(state, "state.head", dup(head)));
    }
    cr_assert_eq(hard_state_ready(state, &err), TCK_OK, "%s", err.text);
    return state;
}

/* The inventory as the coordinator of a later term receives it; the caller frees it. */
static struct inventory ask(struct hard_state *state)
{
    struct recoveries rs = {.needs = {.state = state, .memory = memory, .slot_ops = slot_ops}};
    struct wire_ask question = {.term = 9, .asking = 3};
    struct wire_inventory answer;
    struct inventory inventory;
    struct writer w = writer_new(0);
    cr_assert_eq(recover_make_inventory(&rs, NULL, &question, &w), TCK_OK);
    cr_assert_eq(wire_inventory_decode(w.data, w.len, &answer), TCK_OK);
    cr_assert_eq(inventory_decode(answer.inventory, answer.inventory_len, &inventory), TCK_OK);
    wire_inventory_free(&answer);
    writer_free(&w);
    return inventory;
}

static void set_up(void)
{
    struct memory_setup setup = {.job = "job", .cap_bytes = 1 << 20, .hugetlb_mount = "", .threads = 1};
    struct error err = {0};
    cr_assert_eq(memory_new(&setup, &memory, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(slot_ops_new(NULL, NULL, &slot_ops, &err), TCK_OK, "%s", err.text);
}

static void tear_down(void)
{
    slot_ops_free(slot_ops);
    memory_free(memory);
}

TestSuite(recover_ask, .init = set_up, .fini = tear_down);

/* It may be the only remaining agent that this was reported to. */
Test(recover_ask, an_agent_that_restarted_reports_what_its_base_replaced)
{
    struct hard_state *state = start();
    hard_state_put_base(state, 4, (struct version){3, 20}, "version 3.30 is damaged");
    hard_state_free(state);
    state = start();
    struct inventory inventory = ask(state);
    cr_assert(version_is(inventory.base, (struct version){3, 20}));
    cr_assert_eq(inventory.base_term, 4);
    cr_assert_str_eq(inventory.passed_over, "version 3.30 is damaged");
    inventory_free(&inventory);
    hard_state_free(state);
}

Test(recover_ask, an_agent_that_has_restored_nothing_reports_that)
{
    struct hard_state *state = start();
    struct inventory inventory = ask(state);
    cr_assert(version_none(inventory.base) && version_none(inventory.watermark));
    cr_assert_str_empty(inventory.passed_over);
    inventory_free(&inventory);
    hard_state_free(state);
}
