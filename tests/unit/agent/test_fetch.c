/* SPDX-License-Identifier: Apache-2.0
 * The source that a shard was restored from, on the only node, which owns the only shard. */
#include "agent/driver/protocol_driver.h"
#include "agent/driver/slot_ops.h"
#include "agent/driver/twins.h"
#include "agent/ipc/ipc_server.h"
#include "agent/replication/fetch.h"
#include "agent/replication/peer_rpc.h"
#include "agent/replication/stored_files.h"
#include "agent/state/hard_state.h"
#include "agent/storage/storage_ops.h"
#include "base/config.h"
#include "base/digest.h"
#include "one_node.h"
#include "tiers/memory.h"
#include "tiers/peer.h"

#include <criterion/criterion.h>
#include <stdlib.h>
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

static struct storage_op *reading; /* the newest */
static bool hangs;                 /* it was given up */

void storage_begin(struct storage_op *op, struct storage_ops *ops, struct term_context *term_context)
{
    (void)ops, (void)term_context;
    reading = op;
}

void storage_pause(struct storage_op *op)
{
    op->paused = true;
}

void storage_resume(struct storage_op *op)
{
    op->paused = false;
}

void storage_end(struct storage_op *op)
{
    (void)op;
}

bool storage_ignored(const struct storage_op *op)
{
    (void)op;
    return hangs;
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

/* Ends at once, or when the test says so. */
static bool gets_take_long;
static struct tier_item *getting;
static tier_done_fn *get_done;
static void *get_ctx;

tck_status_t peer_get(struct peer *peer, uint64_t term, struct tier_item *item, tier_done_fn *done, void *ctx,
                      struct error *err)
{
    (void)peer, (void)term, (void)err;
    struct error came = {.code = TCK_OK};
    getting = item;
    get_done = done;
    get_ctx = ctx;
    if (!gets_take_long) {
        done(ctx, &came);
    }
    return TCK_OK;
}

static uint32_t stored_crc; /* in the manifest */
static struct hash128 stored_root;
static uint32_t reads;

tck_status_t stored_files_new(const struct stored_files_setup *setup, struct stored_files **out, struct error *err)
{
    (void)setup, (void)err;
    *out = NULL;
    return TCK_OK;
}

void stored_files_free(struct stored_files *files)
{
    (void)files;
}

void stored_files_reset(struct stored_files *files)
{
    (void)files;
}

bool stored_files_take(struct stored_files *files, struct version version, struct hash128 of, struct found_file *out)
{
    (void)files;
    *out = (struct found_file){.shard = of, .which.version = version};
    out->file = (struct manifest_file){.bytes = IMAGE_BYTES, .root = stored_root};
    out->file.crcs = malloc(sizeof(stored_crc));
    cr_assert_not_null(out->file.crcs);
    out->file.crcs[0] = stored_crc;
    return true;
}

tck_status_t stored_files_look(struct stored_files *files, const struct term_context *term_context,
                               struct version version, struct error *err)
{
    (void)files, (void)term_context, (void)version, (void)err;
    cr_assert(false, "it is known where the file lies");
    return TCK_ERR_NOENT;
}

tck_status_t persistent_get(struct persistent *p, const struct published *which, const struct manifest_file *file,
                            struct tier_item *item, tier_done_fn *done, void *ctx, struct error *err)
{
    (void)p, (void)which, (void)file, (void)err;
    getting = item;
    get_done = done;
    get_ctx = ctx;
    reads++;
    return TCK_OK;
}

static uint32_t digests_passed_on, chunks_passed_on, failures_passed_on, ends_of_gets;

void peers_arriving_digests(struct peers *peers, const uint8_t *image, uint32_t *crcs, struct hash128 root)
{
    (void)peers, (void)root;
    cr_assert_eq(image, getting->image);
    cr_assert_not_null(crcs);
    digests_passed_on++;
}

void peers_arriving_chunk(struct peers *peers, const uint8_t *image, uint32_t chunk)
{
    (void)peers;
    cr_assert_eq(image, getting->image);
    cr_assert_eq(chunk, 0);
    chunks_passed_on++;
}

void peers_arriving_failed(struct peers *peers, const uint8_t *image, tck_status_t code, const char *why)
{
    (void)peers, (void)image;
    cr_assert_eq(code, TCK_ERR_NOENT);
    cr_assert_not_null(why);
    failures_passed_on++;
}

void peers_end_get(struct peers *peers, const uint8_t *image)
{
    (void)peers;
    cr_assert_eq(image, getting->image);
    ends_of_gets++;
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

/* ---- copies that are passed on while they arrive ------------------------------------------------------------------
 */

#define OTHER 77 /* the agent that pulls */

static bool lend(struct version version, uint64_t to, struct tier_item *out)
{
    const struct peer_offer want = {.term = TERM, .version = version, .shard = shard, .image_bytes = IMAGE_BYTES};
    return fetch_lend(fetches, &want, to, out);
}

static void begin_get(void)
{
    gets_take_long = true;
    ask(newest, SOURCE_TWIN);
}

/* The other agent's digests of the only chunk come, and their root; then the chunk. */
static void digests_come(void)
{
    getting->crcs[0] = 9;
    getting->watch->digests(getting->watch->ctx, digest_root(getting->crcs, IMAGE_BYTES));
}

static void chunk_comes(void)
{
    getting->watch->chunk(getting->watch->ctx, 0);
}

static void end_get(tck_status_t code)
{
    struct error outcome = {.code = code};
    get_done(get_ctx, &outcome);
}

Test(fetch, what_arrives_is_passed_on)
{
    struct tier_item item;
    begin_get();
    cr_assert(lend(newest, OTHER, &item));
    cr_assert_eq(item.image, getting->image);
    cr_assert_null(item.crcs, "its digests are unknown");
    cr_assert_eq(item.here[0], 0);
    digests_come();
    chunk_comes();
    cr_assert_eq(digests_passed_on, 1);
    cr_assert_eq(chunks_passed_on, 1);
    cr_assert(lend(newest, OTHER + 1, &item), "a later one gets what is there");
    cr_assert_eq(item.here[0], 1);
    cr_assert_eq(item.crcs, getting->crcs);
    cr_assert(hash128_is(item.root, digest_root(getting->crcs, IMAGE_BYTES)));
    end_get(TCK_OK);
    fetch_returned(fetches, &item);
}

Test(fetch, nothing_is_passed_on_if_no_one_wants_it)
{
    begin_get();
    digests_come();
    chunk_comes();
    end_get(TCK_ERR_UNREACHABLE);
    cr_assert_eq(digests_passed_on + chunks_passed_on + failures_passed_on, 0);
}

Test(fetch, those_that_wait_for_a_copy_learn_that_it_does_not_come)
{
    struct tier_item item;
    begin_get();
    cr_assert(lend(newest, OTHER, &item));
    end_get(TCK_ERR_UNREACHABLE);
    cr_assert_eq(failures_passed_on, 1);
    cr_assert_not(lend(newest, OTHER, &item), "it is over");
}

Test(fetch, one_that_was_returned_is_not_passed_on)
{
    struct tier_item item;
    begin_get();
    cr_assert(lend(newest, OTHER, &item));
    fetch_returned(fetches, &item);
    digests_come();
    end_get(TCK_ERR_UNREACHABLE);
    cr_assert_eq(digests_passed_on + failures_passed_on, 0);
}

Test(fetch, two_that_fetch_from_each_other_do_not_wait_for_each_other)
{
    struct tier_item item;
    struct wire_fetch m = ask_of(newest, SOURCE_TWIN);
    m.from.agent_id = OTHER;
    gets_take_long = true;
    fetch_handle_ask(fetches, tc, &m);
    cr_assert_not(lend(newest, OTHER, &item));
    cr_assert(lend(newest, OTHER + 1, &item));
    fetch_returned(fetches, &item);
    end_get(TCK_OK);
}

Test(fetch, another_version_or_a_repair_is_not_passed_on)
{
    struct tier_item item;
    struct wire_fetch repair = ask_of(newest, SOURCE_PEER);
    gets_take_long = true;
    fetch_repair(fetches, tc, &repair);
    cr_assert_not(lend(newest, OTHER, &item));
    end_get(TCK_OK);
    ask(older, SOURCE_TWIN);
    cr_assert_not(lend(newest, OTHER, &item));
    end_get(TCK_OK);
}

Test(fetch, what_is_passed_on_ends_with_its_term)
{
    struct tier_item item;
    begin_get();
    cr_assert(lend(newest, OTHER, &item));
    fetch_reset(fetches);
    cr_assert_eq(failures_passed_on, 1);
    cr_assert_eq(ends_of_gets, 1);
    tc->closed = true;
    cr_assert_not(lend(newest, OTHER, &item));
    end_get(TCK_OK);
}

static void begin_read(void)
{
    stored_crc = 5;
    stored_root = digest_root(&stored_crc, IMAGE_BYTES);
    ask(newest, SOURCE_STORAGE);
    cr_assert_eq(reads, 1);
}

Test(fetch, of_what_storage_returns_only_what_matches_the_manifest_is_passed_on)
{
    struct tier_item item;
    begin_read();
    cr_assert(lend(newest, OTHER, &item));
    cr_assert_eq(item.crcs[0], stored_crc, "the digests are those of the manifest");
    getting->crcs[0] = 4;
    chunk_comes();
    cr_assert_eq(chunks_passed_on, 0);
    getting->crcs[0] = stored_crc;
    chunk_comes();
    cr_assert_eq(chunks_passed_on, 1);
    end_get(TCK_OK);
    fetch_returned(fetches, &item);
}

Test(fetch, digests_of_a_manifest_that_do_not_have_its_root_are_not_passed_on)
{
    struct tier_item item;
    stored_crc = 5;
    ask(newest, SOURCE_STORAGE);
    cr_assert(lend(newest, OTHER, &item));
    cr_assert_null(item.crcs);
    getting->crcs[0] = stored_crc;
    chunk_comes();
    cr_assert_eq(chunks_passed_on, 0);
    fetch_returned(fetches, &item);
    end_get(TCK_OK);
}

Test(fetch, storage_is_read_again_when_nothing_of_the_first_read_is_being_sent)
{
    struct tier_item first, second, other;
    begin_read();
    cr_assert(lend(newest, OTHER, &first) && lend(newest, OTHER + 1, &second));
    end_get(TCK_ERR_CORRUPT);
    cr_assert_eq(failures_passed_on, 1);
    cr_assert(reading->paused, "storage has nothing to do meanwhile");
    fetch_returned(fetches, &first);
    cr_assert_eq(reads, 1);
    cr_assert_not(lend(newest, OTHER, &other));
    fetch_returned(fetches, &second);
    cr_assert_eq(reads, 2);
    cr_assert_not(reading->paused);
    cr_assert(lend(newest, OTHER, &other));
    cr_assert_eq(other.here[0], 0, "what was read before does not count");
    end_get(TCK_OK);
    fetch_returned(fetches, &other);
}

/* It ends when peers may be freed already. */
Test(fetch, a_read_that_was_given_up_passes_nothing_on_when_it_ends)
{
    struct tier_item item;
    const struct error why = {.code = TCK_ERR_TIMEDOUT, .text = "storage does not answer"};
    begin_read();
    cr_assert(lend(newest, OTHER, &item));
    hangs = true;
    reading->give_up(reading->ctx, &why);
    cr_assert_eq(failures_passed_on, 1);
    fetch_returned(fetches, &item);
    getting->crcs[0] = stored_crc;
    digests_come();
    chunk_comes();
    end_get(TCK_OK);
    cr_assert_eq(digests_passed_on + chunks_passed_on, 0);
    cr_assert_eq(failures_passed_on, 1);
}

Test(fetch, an_agent_that_ends_does_not_read_again_what_it_has_passed_on)
{
    struct tier_item item;
    begin_read();
    cr_assert(lend(newest, OTHER, &item));
    end_get(TCK_ERR_CORRUPT);
    leaving = true;
    fetch_returned(fetches, &item);
    cr_assert_eq(reads, 1);
}
