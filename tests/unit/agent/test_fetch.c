/* SPDX-License-Identifier: Apache-2.0
 * The source that a shard was restored from, on the only node, which owns the only shard. */
#include "agent/driver/protocol_driver.h"
#include "agent/driver/slot_ops.h"
#include "agent/driver/twins.h"
#include "agent/ipc/ipc_server.h"
#include "agent/replication/fetch.h"
#include "agent/replication/peer_rpc.h"
#include "agent/state/hard_state.h"
#include "agent/storage/storage_ops.h"
#include "base/config.h"
#include "base/digest.h"
#include "one_node.h"
#include "tiers/memory.h"
#include "tiers/peer.h"

#include <criterion/criterion.h>
#include <string.h>

#define TERM        5
#define IMAGE_BYTES 4096

static const struct hash128 shard = {1, 1};
static const struct version newest = {TERM - 1, 20}, older = {TERM - 1, 10};

static struct config config;
static struct memory *memory;
static struct client *trainers; /* none */
static struct term_context *tc;
static struct fetches *fetches;
static bool leaving;
static struct kept kept = {.term = {.joined = TERM, .adopted = TERM}};
static struct version held[2]; /* by slot */
static bool damaged;           /* the copies are found damaged when all of them is checked */
static uint32_t checks;        /* of all of a copy */
static bool given_back;        /* no slot may be used, because memory is short */
static uint32_t reports, repairs, arrivals;
static struct arrival last_arrival;

/* ---- what fetch.c and term_context.c need of the rest of the agent --------------------------------------------- */

const struct kept *hard_state_get(const struct hard_state *state)
{
    (void)state;
    return &kept;
}

void driver_step_node(struct term_context *term_context, const struct event *event)
{
    (void)term_context;
    if (event->type == EVENT_VERIFIED && event->ok) {
        held[event->slot] = event->version;
    } else if (event->type == EVENT_CORRUPT) {
        held[event->slot] = VERSION_NONE;
    }
}

/* The slot that has the version, or else a free one. */
struct node_answer driver_ask_node(struct term_context *term_context, const struct event *event)
{
    (void)term_context;
    struct node_answer answer = {.given = true, .action = {.type = ACTION_FETCH_SLOT, .slot = NONE32}};
    for (uint32_t i = 0; i < 2; i++) {
        if (version_is(held[i], event->version)) {
            answer.action.slot = i;
            answer.action.ok = true;
            return answer;
        }
        answer.action.slot = version_none(held[i]) && !given_back ? i : answer.action.slot;
    }
    answer.action.refusal = answer.action.slot == NONE32 ? REFUSAL_MEMORY : REFUSAL_NONE;
    return answer;
}

void rpc_send_coordinator(struct term_context *term_context, uint16_t type, struct writer *w)
{
    (void)term_context, (void)w;
    reports += type == WIRE_FETCHED;
}

void check_slot(const struct check_setup *setup, struct segment *segment, uint32_t slot, check_done_fn *done, void *ctx)
{
    (void)setup, (void)segment, (void)slot;
    struct error err = {.code = TCK_OK};
    checks++;
    if (damaged) {
        (void)error_set(&err, TCK_ERR_CORRUPT, "the bytes do not match");
    }
    done(ctx, &err);
}

void slot_op_begin(struct slot_ops *ops)
{
    (void)ops;
}

void slot_op_end(struct slot_ops *ops)
{
    (void)ops;
}

void storage_begin(struct storage_op *op, struct storage_ops *ops, struct term_context *term_context)
{
    (void)op, (void)ops, (void)term_context;
    cr_assert(false, "storage has nothing");
}

void storage_end(struct storage_op *op)
{
    (void)op;
}

bool storage_ignored(const struct storage_op *op)
{
    (void)op;
    return false;
}

tck_status_t peers_want_copies(struct peers *peers, const struct node_info *node, bool both, struct peer **out,
                               struct error *err)
{
    (void)peers, (void)node, (void)err;
    cr_assert_not(both, "the other agent does not know of a fetch");
    *out = NULL;
    return TCK_OK;
}

bool peer_takes_copies(const struct peer *peer)
{
    (void)peer;
    return true;
}

const struct node_info *peer_node(const struct peer *peer)
{
    (void)peer;
    return &tc->world.nodes[0];
}

const char *peer_trouble(const struct peer *peer)
{
    (void)peer;
    return "";
}

tck_status_t peer_get(struct peer *peer, uint64_t term, struct tier_item *item, tier_done_fn *done, void *ctx,
                      struct error *err)
{
    (void)peer, (void)term, (void)item, (void)err;
    struct error came = {.code = TCK_OK};
    done(ctx, &came);
    return TCK_OK;
}

static void arrived(void *ctx, struct term_context *term_context, const struct arrival *what)
{
    (void)ctx, (void)term_context;
    arrivals++;
    last_arrival = *what;
    last_arrival.from = ""; /* which ends with the call */
}

static void repaired(void *ctx, bool ok)
{
    (void)ctx;
    repairs += ok;
}

/* ---- one node -------------------------------------------------------------------------------------------------- */

static struct term_context *make_term(void)
{
    struct term_setup term = {.config = &config, .memory = memory, .clients = &trainers};
    return one_node(&term, TERM, shard, IMAGE_BYTES);
}

static void set_up(void)
{
    struct error err = {0};
    strcpy(config.node, "a");
    one_node_memory(shard, IMAGE_BYTES, &memory);
    tc = make_term();
    tc->shards[0].holder_count = 1;
    struct fetches_setup needs = {
        .config = &config, .term = &tc, .leaving = &leaving, .arrived = arrived, .repaired = repaired};
    cr_assert_eq(fetches_new(&needs, &fetches, &err), TCK_OK, "%s", err.text);
}

static void tear_down(void)
{
    cr_assert(fetches_none(fetches));
    fetches_free(fetches);
    term_context_free(tc);
    memory_free(memory);
}

TestSuite(fetch, .init = set_up, .fini = tear_down);

static struct wire_fetch ask_of(struct version version, uint8_t source)
{
    return (struct wire_fetch){.term = TERM, .version = version, .source = source, .number = 1};
}

static void ask(struct version version, uint8_t source)
{
    struct wire_fetch m = ask_of(version, source);
    fetch_handle_ask(fetches, tc, &m);
}

/* A copy of this version in slot 0 whose digests match its bytes. */
static void put_copy(struct version version)
{
    struct segment *segment = tc->local_shards[0].segment;
    struct slot_header header = *segment_header(segment, 0);
    segment_crcs(segment, 0)[0] = crc32c(0, segment_image(segment, 0), IMAGE_BYTES);
    header.state = SLOT_VERIFIED;
    header.version = version;
    header.root = digest_root(segment_crcs(segment, 0), IMAGE_BYTES);
    segment_write_header(segment, 0, &header);
    held[0] = version;
}

static void expect_source(uint8_t source)
{
    cr_assert_eq((int)tc->local_shards[0].restored_from, (int)source);
}

/* The answer was in transit, or lost. */
Test(fetch, a_shard_that_is_requested_again_keeps_its_first_source)
{
    ask(newest, SOURCE_TWIN);
    expect_source(SOURCE_TWIN);
    ask(newest, SOURCE_TWIN);
    cr_assert_eq(reports, 2);
    expect_source(SOURCE_TWIN);
}

static void expect_arrival(uint32_t count, enum source_kind source, bool repairs_it)
{
    cr_assert_eq(arrivals, count);
    cr_assert_eq(last_arrival.source, source);
    cr_assert(version_is(last_arrival.version, newest));
    cr_assert_eq(last_arrival.bytes, IMAGE_BYTES);
    cr_assert_eq(last_arrival.repairs, repairs_it);
}

Test(fetch, each_shard_that_arrives_is_passed_on_with_its_source)
{
    struct wire_fetch repair = ask_of(newest, SOURCE_PEER);
    ask(newest, SOURCE_TWIN);
    expect_arrival(1, SOURCE_TWIN, false);
    damaged = true;
    tc->readable_known = true; /* it is checked as a whole */
    ask(newest, SOURCE_TWIN);
    cr_assert_eq(arrivals, 1, "nothing has arrived");
    damaged = false;
    fetch_repair(fetches, tc, &repair);
    expect_arrival(2, SOURCE_PEER, true);
    ask(newest, SOURCE_PEER);
    expect_arrival(3, SOURCE_LOCAL, false);
}

Test(fetch, a_copy_from_before_the_term_is_local)
{
    put_copy(newest);
    ask(newest, SOURCE_TWIN);
    expect_source(SOURCE_LOCAL);
}

Test(fetch, a_copy_that_replaced_the_fetched_version_is_local)
{
    put_copy(older);
    ask(newest, SOURCE_TWIN);
    ask(older, SOURCE_LOCAL);
    expect_source(SOURCE_LOCAL);
}

Test(fetch, a_copy_in_place_of_a_damaged_one_is_not_local)
{
    put_copy(newest);
    segment_set_unproven(tc->local_shards[0].segment, 0, true);
    damaged = true;
    ask(newest, SOURCE_LOCAL);
    damaged = false;
    ask(newest, SOURCE_PEER);
    expect_source(SOURCE_PEER);
}

Test(fetch, the_ranks_check_the_bytes_of_a_copy_that_they_are_offered_for_the_first_time)
{
    put_copy(newest);
    ask(newest, SOURCE_LOCAL);
    cr_assert_eq(checks, 0);
    expect_source(SOURCE_LOCAL);
}

Test(fetch, digests_that_do_not_match_their_root_are_damage)
{
    put_copy(newest);
    segment_crcs(tc->local_shards[0].segment, 0)[0] ^= 1;
    ask(newest, SOURCE_LOCAL);
    cr_assert(version_none(held[0]));
    cr_assert_eq(tc->fetches_failed, 1);
}

/* In another term, because a rank has found damage, or because the ranks were killed while they copied. */
Test(fetch, a_copy_that_is_offered_again_is_checked_as_a_whole)
{
    put_copy(newest);
    segment_set_unproven(tc->local_shards[0].segment, 0, true);
    damaged = true;
    ask(newest, SOURCE_LOCAL);
    cr_assert_eq(checks, 1);
    cr_assert(version_none(held[0]));
}

Test(fetch, a_copy_that_all_ranks_have_copied_is_not_checked_as_a_whole)
{
    put_copy(newest);
    term_context_free(tc);
    tc = make_term();
    tc->shards[0].holder_count = 1;
    segment_set_unproven(tc->local_shards[0].segment, 0, true);
    fetches_proven(tc, older);
    cr_assert(segment_is_unproven(tc->local_shards[0].segment, 0));
    fetches_proven(tc, newest);
    ask(newest, SOURCE_LOCAL);
    cr_assert_eq(checks, 0);
}

Test(fetch, a_repair_checks_all_of_a_copy)
{
    struct wire_fetch m = ask_of(newest, SOURCE_LOCAL);
    put_copy(newest);
    fetch_repair(fetches, tc, &m);
    cr_assert_eq(checks, 1);
}

/* Older versions are given up as soon as all copies of this one are there. */
Test(fetch, a_copy_that_no_other_node_has_is_checked_as_a_whole)
{
    tc->shards[0].holder_count = 0;
    put_copy(newest);
    ask(newest, SOURCE_LOCAL);
    cr_assert_eq(checks, 1);
}

/* Because the base may be lost, for example. */
Test(fetch, a_copy_that_is_requested_after_the_ranks_have_got_their_answer_is_checked_as_a_whole)
{
    tc->readable_known = true;
    put_copy(newest);
    ask(newest, SOURCE_LOCAL);
    cr_assert_eq(checks, 1);
}

/* No rank of this node copies from it. */
Test(fetch, a_copy_for_other_nodes_is_checked_as_a_whole)
{
    tc->shards[0].storing_rank = NONE32;
    put_copy(newest);
    ask(newest, SOURCE_LOCAL);
    cr_assert_eq(checks, 1);
}

Test(fetch, a_slot_that_was_given_back_is_waited_for)
{
    given_back = true;
    ask(newest, SOURCE_TWIN);
    fetch_tick(fetches);
    ask(newest, SOURCE_TWIN);
    cr_assert_eq(reports, 0);
    cr_assert(fetches_lack_memory(fetches));
    given_back = false;
    fetch_tick(fetches);
    cr_assert_eq(reports, 1);
    cr_assert_not(fetches_lack_memory(fetches));
    expect_source(SOURCE_TWIN);
}

Test(fetch, a_wait_for_memory_ends_with_its_term)
{
    given_back = true;
    ask(newest, SOURCE_TWIN);
    fetch_reset(fetches);
    cr_assert(fetches_none(fetches));
    cr_assert_eq(reports, 0);
}

Test(fetch, a_repair_does_not_wait_for_memory)
{
    struct wire_fetch m = ask_of(newest, SOURCE_PEER);
    given_back = true;
    fetch_repair(fetches, tc, &m);
    cr_assert(fetches_none(fetches));
}

Test(fetch, a_repair_does_not_change_where_the_shard_was_restored_from)
{
    ask(newest, SOURCE_TWIN);
    held[0] = held[1] = VERSION_NONE;
    struct wire_fetch m = ask_of(newest, SOURCE_PEER);
    fetch_repair(fetches, tc, &m);
    cr_assert_eq(repairs, 1);
    expect_source(SOURCE_TWIN);
}
