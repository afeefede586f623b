/* SPDX-License-Identifier: Apache-2.0
 * Copies between two agents: bit-exact or refused, and every callback exactly once. */
#include "base/clock.h"
#include "base/same_chunks.h"
#include "peer_rig.h"
#include "tiers/peer_internal.h"

#include <string.h>

#define MIB   ((uint64_t)1 << 20)
#define LARGE (64 * MIB)
#define ODD   (9 * MIB + 4096)

static struct agent a, b;
static struct peer *to_b, *to_a;
static struct outcome outcome;

static void set_up(void)
{
    rig_open();
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 7);
    agents_meet(&a, &b, &to_b, &to_a);
}

static void tear_down(void)
{
    agent_close(&a);
    agent_close(&b);
    rig_close();
}

static void put(void)
{
    struct tier_item item = slot_item(&a.slot);
    struct error err;
    cr_assert_eq(peer_put(to_b, 1, &item, outcome_done, &outcome, &err), TCK_OK, "%s", err.text);
}

/* The item must live until the outcome: the root is written to it. */
static void get(struct tier_item *item)
{
    struct error err;
    cr_assert_eq(peer_get(to_b, 1, item, outcome_done, &outcome, &err), TCK_OK, "%s", err.text);
}

static void expect_equal_slots(void)
{
    cr_expect_eq(memcmp(a.slot.image, b.slot.image, a.slot.bytes), 0);
    cr_expect_eq(memcmp(a.slot.crcs, b.slot.crcs, chunk_count(a.slot.bytes) * sizeof(uint32_t)), 0);
}

TestSuite(peer_transfer, .init = set_up, .fini = tear_down, .timeout = 200);

Test(peer_transfer, puts_a_large_image_bit_exact)
{
    slot_fill(&a.slot, LARGE);
    slot_empty(&b.slot, LARGE);
    put();
    rig_run_until(&outcome.calls, 1);
    cr_assert_eq(outcome.err.code, TCK_OK, "%s", outcome.err.text);
    cr_expect_eq(b.stored, 1);
    cr_expect_eq(b.stored_outcome.code, TCK_OK);
    expect_equal_slots();
}

static void put_counted(struct progress *progress)
{
    struct tier_item item = slot_item(&a.slot);
    struct error err;
    item.progress = progress;
    cr_assert_eq(peer_put(to_b, 1, &item, outcome_done, &outcome, &err), TCK_OK, "%s", err.text);
}

Test(peer_transfer, counts_the_bytes_that_are_sent_and_stamps_what_waits_behind_them)
{
    struct progress first = {0}, second = {0};
    slot_fill(&a.slot, LARGE + 1);
    slot_empty(&b.slot, LARGE + 1);
    put_counted(&first);
    put_counted(&second);
    rig_run_until(&outcome.calls, 2);
    cr_assert_eq(first.bytes, LARGE + 1);
    cr_assert_eq(first.moved_ms, 0, "nothing was begun before it");
    cr_assert(second.bytes == LARGE + 1 || second.bytes == 0, "it may be acknowledged without");
    cr_assert_neq(second.moved_ms, 0);
}

Test(peer_transfer, does_not_stamp_what_is_refused_while_others_are_sent)
{
    struct progress sent = {0}, refused = {0};
    slot_fill(&a.slot, LARGE);
    slot_empty(&b.slot, LARGE);
    put_counted(&sent);
    rig_run_until(&b.offers, 1);
    b.answer = TCK_ERR_DENIED;
    for (size_t calls = 1; sent.bytes < LARGE; calls++) {
        put_counted(&refused);
        rig_run_until(&outcome.calls, calls);
    }
    cr_assert_gt(b.offers, 2);
    cr_assert_eq(refused.moved_ms, 0, "it only waits for the answer");
}

Test(peer_transfer, puts_an_image_whose_last_chunk_is_short)
{
    slot_fill(&a.slot, ODD);
    slot_empty(&b.slot, ODD);
    put();
    rig_run_until(&outcome.calls, 1);
    cr_assert_eq(outcome.err.code, TCK_OK, "%s", outcome.err.text);
    expect_equal_slots();
}

Test(peer_transfer, refuses_a_byte_that_flipped_after_the_table_was_made)
{
    slot_fill(&a.slot, ODD);
    slot_empty(&b.slot, ODD);
    a.slot.image[5 * MIB] ^= 0x10;
    put();
    rig_run_until(&outcome.calls, 1);
    cr_expect_eq(outcome.err.code, TCK_ERR_CORRUPT);
    cr_expect_not_null(strstr(outcome.err.text, "chunk 1 "), "%s", outcome.err.text);
    rig_run_until(&b.stored, 1);
    cr_expect_eq(b.stored_outcome.code, TCK_ERR_CORRUPT);
}

Test(peer_transfer, refuses_a_table_that_does_not_have_its_root)
{
    slot_fill(&a.slot, ODD);
    slot_empty(&b.slot, ODD);
    a.slot.crcs[2] ^= 1;
    put();
    rig_run_until(&outcome.calls, 1);
    cr_expect_eq(outcome.err.code, TCK_ERR_CORRUPT);
    cr_expect_eq(b.offers, 0);
}

Test(peer_transfer, reports_the_reason_of_a_refusal)
{
    slot_fill(&a.slot, ODD);
    b.answer = TCK_ERR_DENIED;
    put();
    rig_run_until(&outcome.calls, 1);
    cr_expect_eq(outcome.err.code, TCK_ERR_DENIED);
    cr_expect_not_null(strstr(outcome.err.text, "the test refuses"), "%s", outcome.err.text);
    cr_expect_not_null(strstr(outcome.err.text, "node2"), "%s", outcome.err.text);
    cr_expect_eq(b.stored, 0);
}

Test(peer_transfer, acknowledges_without_moving_bytes_that_are_already_there)
{
    slot_fill(&a.slot, ODD);
    b.answer = TCK_ERR_EXIST;
    put();
    rig_run_until(&outcome.calls, 1);
    cr_expect_eq(outcome.err.code, TCK_OK);
    cr_expect_eq(b.stored, 0);
}

Test(peer_transfer, moves_many_images_at_once)
{
    slot_fill(&a.slot, ODD);
    slot_empty(&b.slot, ODD);
    for (int i = 0; i < 20; i++) {
        put();
    }
    rig_run_until(&outcome.calls, 20);
    cr_expect_eq(outcome.err.code, TCK_OK);
    cr_expect_eq(b.stored, 20);
    expect_equal_slots();
}

Test(peer_transfer, gets_an_image_bit_exact_and_reports_its_root)
{
    struct tier_item item;
    slot_empty(&a.slot, LARGE);
    slot_fill(&b.slot, LARGE);
    item = slot_item(&a.slot);
    get(&item);
    rig_run_until(&outcome.calls, 1);
    cr_assert_eq(outcome.err.code, TCK_OK, "%s", outcome.err.text);
    cr_expect(hash128_is(item.root, b.slot.root));
    expect_equal_slots();
    rig_run_until(&b.pull_dones, 1);
    cr_expect_eq(b.pulled, 1);
}

Test(peer_transfer, does_not_get_a_copy_with_another_root_than_expected)
{
    struct tier_item item;
    slot_empty(&a.slot, ODD);
    slot_fill(&b.slot, ODD);
    item = slot_item(&a.slot);
    item.root = (struct hash128){1, 1};
    get(&item);
    rig_run_until(&outcome.calls, 1);
    cr_expect_eq(outcome.err.code, TCK_ERR_CORRUPT);
    rig_run_until(&b.pull_dones, 1);
}

Test(peer_transfer, does_not_get_a_copy_that_was_damaged)
{
    struct tier_item item;
    slot_empty(&a.slot, ODD);
    slot_fill(&b.slot, ODD);
    b.slot.image[ODD - 1] ^= 1;
    item = slot_item(&a.slot);
    get(&item);
    rig_run_until(&outcome.calls, 1);
    cr_expect_eq(outcome.err.code, TCK_ERR_CORRUPT);
    rig_run_until(&b.pull_dones, 1);
}

Test(peer_transfer, reports_why_a_copy_cannot_be_fetched)
{
    struct tier_item item;
    slot_empty(&a.slot, ODD);
    b.answer = TCK_ERR_NOENT;
    item = slot_item(&a.slot);
    get(&item);
    rig_run_until(&outcome.calls, 1);
    cr_expect_eq(outcome.err.code, TCK_ERR_NOENT);
    cr_expect_eq(b.pull_dones, 0);
}

Test(peer_transfer, cannot_begin_with_a_peer_that_is_down)
{
    struct tier_item item;
    struct error err;
    slot_fill(&a.slot, ODD);
    item = slot_item(&a.slot);
    agent_close(&b);
    rig_run_until(&a.downs, 1);
    cr_expect_eq(peer_put(to_b, 1, &item, outcome_done, &outcome, &err), TCK_ERR_UNREACHABLE);
    cr_expect_eq(outcome.calls, 0);
}

/* Ends one side after n iterations of the loop, so that the end falls into every phase. */
static void cut_after(int turns, struct agent *ended)
{
    for (int i = 0; i < turns; i++) {
        rig_run_ms(1);
    }
    agent_close(ended);
}

static void expect_one_callback_each(int turns)
{
    memset(&outcome, 0, sizeof(outcome));
    slot_fill(&a.slot, LARGE);
    slot_empty(&b.slot, LARGE);
    put();
    put();
    cut_after(turns, &b);
    rig_run_until(&outcome.calls, 2);
    rig_run_ms(5);
    cr_expect_eq(outcome.calls, 2);
}

Test(peer_transfer, ends_once_when_the_holder_ends_before_the_grant)
{
    expect_one_callback_each(0);
}

Test(peer_transfer, ends_once_when_the_holder_ends_at_the_first_chunks)
{
    expect_one_callback_each(3);
}

Test(peer_transfer, ends_once_when_the_holder_ends_in_the_middle)
{
    expect_one_callback_each(15);
}

Test(peer_transfer, is_given_up_on_both_sides_when_the_sender_ends)
{
    slot_fill(&a.slot, LARGE);
    slot_empty(&b.slot, LARGE);
    put();
    rig_run_ms(5);
    peers_unwant(a.peers, to_b);
    rig_run_until(&outcome.calls, 1);
    if (b.offers > 0) {
        rig_run_until(&b.stored, 1);
    }
    rig_run_ms(5);
    cr_expect_eq(outcome.calls, 1);
    cr_expect_eq(b.stored, b.offers);
}

static void cancel(void)
{
    struct tier_item item = slot_item(&a.slot);
    peer_cancel_put(to_b, 1, item.version, item.shard);
}

Test(peer_transfer, a_put_that_is_canceled_stops_on_both_sides_and_the_next_one_need_not_wait_for_its_rest)
{
    struct progress canceled = {0}, next = {0};
    slot_fill(&a.slot, LARGE);
    slot_empty(&b.slot, LARGE);
    put_counted(&canceled);
    rig_run_until(&b.offers, 1);
    while (canceled.bytes == 0) {
        rig_run_ms(1);
    }
    cancel();
    cr_assert_eq(outcome.calls, 0, "chunks are being sent");
    rig_run_until(&outcome.calls, 1);
    cr_assert_eq(outcome.err.code, TCK_ERR_CANCELED, "%s", outcome.err.text);
    cr_assert_lt(canceled.bytes, LARGE / 2, "a few chunks are in flight");
    cr_assert_eq(b.stored, 1, "its slot is free");
    cr_assert_eq(b.stored_outcome.code, TCK_ERR_CANCELED, "%s", b.stored_outcome.text);
    slot_free(&a.slot); /* nothing reads it any more */
    slot_free(&b.slot);
    slot_fill(&a.slot, LARGE);
    slot_empty(&b.slot, LARGE);
    put_counted(&next);
    rig_run_until(&outcome.calls, 2);
    cr_assert_eq(outcome.err.code, TCK_OK, "%s", outcome.err.text);
    expect_equal_slots();
    cr_assert_eq(a.downs + b.downs, 0, "the session is still the same");
}

Test(peer_transfer, a_put_that_is_canceled_before_it_is_granted_moves_nothing)
{
    struct progress progress = {0};
    slot_fill(&a.slot, LARGE);
    slot_empty(&b.slot, LARGE);
    put_counted(&progress);
    cancel();
    rig_run_until(&outcome.calls, 1);
    cr_assert_eq(outcome.err.code, TCK_ERR_CANCELED);
    cr_assert_eq(b.stored, 1);
    cr_assert_eq(b.stored_outcome.code, TCK_ERR_CANCELED);
    cr_assert_eq(progress.bytes, 0);
}

Test(peer_transfer, only_the_named_put_is_canceled)
{
    slot_fill(&a.slot, ODD);
    slot_empty(&b.slot, ODD);
    struct tier_item item = slot_item(&a.slot);
    put();
    peer_cancel_put(to_b, 2, item.version, item.shard);
    peer_cancel_put(to_b, 1, (struct version){item.version.term, item.version.step + 1}, item.shard);
    peer_cancel_put(to_b, 1, item.version, (struct hash128){1, 2});
    rig_run_until(&outcome.calls, 1);
    cr_assert_eq(outcome.err.code, TCK_OK, "%s", outcome.err.text);
}

/* ---- throttled --------------------------------------------------------------------------------------------------- */

static struct {
    bool open;
    size_t asked, taken;
    uint64_t bytes, more;
} gate;

static bool gate_take(void *ctx, uint64_t bytes)
{
    (void)ctx;
    gate.asked++;
    gate.taken += gate.open;
    gate.bytes += gate.open ? bytes : 0;
    return gate.open;
}

static void gate_more(void *ctx, uint64_t bytes)
{
    (void)ctx;
    gate.more += bytes;
}

/* ---- with a base ------------------------------------------------------------------------------------------------- */

#define CHUNKS (LARGE / CHUNK_BYTES)

static struct slot base_at_a, base_at_b;
static uint8_t same[CHUNKS / 8];
static uint64_t same_bytes;
static struct tier_base base;

/* Both have the same base, and these chunks of what a has now differ from it. */
static void change(const uint32_t *chunks, size_t count)
{
    slot_fill(&base_at_a, LARGE);
    slot_fill(&base_at_b, LARGE);
    slot_fill(&a.slot, LARGE);
    slot_empty(&b.slot, LARGE);
    for (size_t i = 0; i < count; i++) {
        a.slot.image[(uint64_t)chunks[i] * CHUNK_BYTES + 9] ^= 1;
    }
    a.slot.root = digest_image(a.slot.image, LARGE, a.slot.crcs);
    const struct digested now = {a.slot.image, a.slot.crcs}, before = {base_at_a.image, base_at_a.crcs};
    memset(same, 0, sizeof(same));
    same_bytes = same_chunks(&now, &before, LARGE, 0, CHUNKS, same);
    cr_assert_eq(same_bytes, LARGE - count * CHUNK_BYTES);
    base = (struct tier_base){.version = RIG_BASE, .root = base_at_a.root, .same = same};
    b.base = &base_at_b;
}

/* Returns the bytes that were sent. */
static uint64_t put_on_base(void)
{
    struct tier_item item = slot_item(&a.slot);
    struct progress progress = {0};
    struct error err;
    uint64_t sent = 0;
    item.base = &base;
    item.progress = &progress;
    item.sent = &sent;
    outcome.calls = 0;
    gate.bytes = gate.more = 0;
    cr_assert_eq(peer_put(to_b, 1, &item, outcome_done, &outcome, &err), TCK_OK, "%s", err.text);
    rig_run_until(&outcome.calls, 1);
    cr_expect_eq(sent, gate.bytes);
    return gate.bytes;
}

static void expect_copied(uint64_t from_base)
{
    cr_assert_eq(outcome.err.code, TCK_OK, "%s", outcome.err.text);
    cr_expect_eq(base.not_sent, from_base);
    cr_expect_eq(b.from_base, from_base);
    cr_expect_eq(gate.more, same_bytes - from_base, "all that is sent although it is the same");
    expect_equal_slots();
}

static void set_up_base(void)
{
    gate.open = true;
    rig_open();
    a.pace = (struct tier_pace){.take = gate_take, .more = gate_more};
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 7);
    agents_meet(&a, &b, &to_b, &to_a);
}

static void tear_down_base(void)
{
    slot_free(&base_at_a);
    slot_free(&base_at_b);
    tear_down();
}

TestSuite(peer_base, .init = set_up_base, .fini = tear_down_base, .timeout = 200);

Test(peer_base, only_chunks_that_changed_are_sent)
{
    change((const uint32_t[]){0, 7, CHUNKS - 1}, 3);
    cr_expect_eq(put_on_base(), 3 * CHUNK_BYTES);
    expect_copied(LARGE - 3 * CHUNK_BYTES);
}

Test(peer_base, nothing_is_sent_of_a_version_that_did_not_change)
{
    change(NULL, 0);
    cr_expect_eq(put_on_base(), 0);
    expect_copied(LARGE);
}

Test(peer_base, everything_is_sent_to_a_holder_without_the_base)
{
    change((const uint32_t[]){3}, 1);
    b.base = NULL;
    cr_expect_eq(put_on_base(), LARGE);
    expect_copied(0);
}

Test(peer_base, everything_is_sent_to_a_holder_whose_base_has_another_root)
{
    change((const uint32_t[]){3}, 1);
    base_at_b.root.lo ^= 1;
    cr_expect_eq(put_on_base(), LARGE);
    expect_copied(0);
}

Test(peer_base, a_chunk_that_is_damaged_at_the_holder_is_sent_and_reported)
{
    change((const uint32_t[]){3}, 1);
    base_at_b.image[5 * (uint64_t)CHUNK_BYTES] ^= 4;
    cr_expect_eq(put_on_base(), 2 * CHUNK_BYTES);
    expect_copied(LARGE - 2 * CHUNK_BYTES);
    cr_expect_eq(b.bad_bases, 1);
    cr_expect_eq(b.bad_chunk, 5);
}

Test(peer_base, a_base_that_is_damaged_everywhere_is_of_no_use)
{
    change((const uint32_t[]){3}, 1);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        base_at_b.image[(uint64_t)i * CHUNK_BYTES] ^= 4;
    }
    cr_expect_eq(put_on_base(), LARGE);
    expect_copied(0);
    cr_expect_eq(b.bad_bases, CHUNKS - 1);
}

/* A wrong answer of memcmp: the digest finds it at the holder, too. */
Test(peer_base, a_chunk_that_was_taken_for_unchanged_is_sent)
{
    change((const uint32_t[]){3}, 1);
    bit_set(same, 3);
    same_bytes += CHUNK_BYTES;
    cr_expect_eq(put_on_base(), CHUNK_BYTES);
    expect_copied(LARGE - CHUNK_BYTES);
    cr_expect_eq(b.bad_chunk, 3);
}

Test(peer_base, a_copy_that_was_cut_off_is_made_from_its_base_again)
{
    change((const uint32_t[]){3}, 1);
    gate.open = false;
    struct tier_item item = slot_item(&a.slot);
    struct error err;
    item.base = &base;
    cr_assert_eq(peer_put(to_b, 1, &item, outcome_done, &outcome, &err), TCK_OK, "%s", err.text);
    rig_run_until(&b.offers, 1);
    peers_unwant(a.peers, to_b);
    rig_run_until(&outcome.calls, 1);
    cr_assert_neq(outcome.err.code, TCK_OK);
    rig_run_until(&b.stored, 1);
    a.ups = b.ups = 0;
    agents_meet(&a, &b, &to_b, &to_a);
    gate.open = true;
    memset(b.slot.image, 0, LARGE);
    cr_expect_eq(put_on_base(), CHUNK_BYTES);
    expect_copied(LARGE - CHUNK_BYTES);
}

/* The holder's pool copies from the base when CANCEL arrives. */
Test(peer_base, a_put_that_is_canceled_while_the_holder_copies_from_its_base_reads_it_no_longer)
{
    struct tier_item item;
    struct error err;
    change(NULL, 0);
    item = slot_item(&a.slot);
    item.base = &base;
    outcome.calls = 0;
    cr_assert_eq(peer_put(to_b, 1, &item, outcome_done, &outcome, &err), TCK_OK, "%s", err.text);
    cancel(); /* it is sent when GRANT comes */
    rig_run_until(&outcome.calls, 1);
    cr_assert_eq(outcome.err.code, TCK_ERR_CANCELED, "%s", outcome.err.text);
    cr_assert_eq(b.stored, 1, "its slot is free");
    cr_assert_eq(b.stored_outcome.code, TCK_ERR_CANCELED, "%s", b.stored_outcome.text);
    cr_assert_lt(b.from_base, LARGE);
    cr_assert_eq(gate.bytes, 0);
    slot_free(&base_at_a);
    slot_free(&base_at_b);
    slot_free(&a.slot);
    slot_free(&b.slot);
    change((const uint32_t[]){3}, 1);
    cr_expect_eq(put_on_base(), CHUNK_BYTES);
    expect_copied(LARGE - CHUNK_BYTES);
}

/* The sender sees nothing else move while the holder copies. */
Test(peer_base, bytes_from_the_base_count_as_progress_of_the_sender)
{
    struct tier_item item;
    struct progress progress = {0};
    struct error err;
    change((const uint32_t[]){3}, 1);
    for (size_t round = 0; progress.bytes <= CHUNK_BYTES && round < 200;
         round++) { /* if the report comes before the end */
        item = slot_item(&a.slot);
        item.base = &base;
        item.progress = &progress;
        progress.bytes = 0;
        outcome.calls = 0;
        cr_assert_eq(peer_put(to_b, 1, &item, outcome_done, &outcome, &err), TCK_OK, "%s", err.text);
        rig_run_until(&outcome.calls, 1);
    }
    cr_assert_gt(progress.bytes, CHUNK_BYTES);
    cr_assert_leq(progress.bytes, LARGE);
}

/* ---- throttled --------------------------------------------------------------------------------------------------- */

static void set_up_gate(void)
{
    gate.open = false;
    rig_open();
    a.pace = (struct tier_pace){.take = gate_take, .more = gate_more};
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 7);
    agents_meet(&a, &b, &to_b, &to_a);
}

TestSuite(peer_held, .init = set_up_gate, .fini = tear_down, .timeout = 200);

Test(peer_held, a_put_waits_longer_than_a_transfer_may_stand_still_and_then_goes_on)
{
    slot_fill(&a.slot, ODD);
    slot_empty(&b.slot, ODD);
    put();
    rig_run_ms(RIG_TRANSFER_MS * 3 / 2);
    cr_assert_eq(outcome.calls, 0, "%s", outcome.err.text);
    cr_assert_eq(gate.taken, 0);
    gate.open = true;
    peers_resume(a.peers);
    rig_run_until(&outcome.calls, 1);
    cr_assert_eq(outcome.err.code, TCK_OK, "%s", outcome.err.text);
    cr_assert_eq(gate.bytes, ODD, "each byte is taken once");
    expect_equal_slots();
}

Test(peer_held, a_put_that_is_canceled_after_it_was_throttled_for_long_does_not_time_out)
{
    slot_fill(&a.slot, ODD);
    slot_empty(&b.slot, ODD);
    put();
    rig_run_ms(RIG_TRANSFER_MS * 3 / 2);
    cr_assert_eq(outcome.calls, 0, "%s", outcome.err.text);
    cancel();
    transfers_expire(a.peers, clock_ms()); /* as if the timer came before the answer */
    rig_run_until(&outcome.calls, 1);
    cr_assert_eq(outcome.err.code, TCK_ERR_CANCELED, "%s", outcome.err.text);
    rig_run_until(&b.stored, 1);
    cr_assert_eq(b.stored_outcome.code, TCK_ERR_CANCELED, "%s", b.stored_outcome.text);
}

Test(peer_held, a_receiver_does_not_wait_for_ever)
{
    slot_fill(&a.slot, ODD);
    slot_empty(&b.slot, ODD);
    put();
    rig_run_until(&b.stored, 1);
    cr_assert_eq(b.stored_outcome.code, TCK_ERR_TIMEDOUT, "%s", b.stored_outcome.text);
}

Test(peer_held, what_others_fetch_is_not_throttled)
{
    slot_fill(&b.slot, ODD);
    slot_empty(&a.slot, ODD);
    struct tier_item item = slot_item(&a.slot);
    item.root = b.slot.root;
    get(&item);
    rig_run_until(&outcome.calls, 1);
    cr_assert_eq(outcome.err.code, TCK_OK, "%s", outcome.err.text);
    outcome.calls = 0;
    a.slot.root = item.root;
    struct error err;
    struct tier_item back = slot_item(&b.slot);
    cr_assert_eq(peer_get(to_a, 1, &back, outcome_done, &outcome, &err), TCK_OK, "%s", err.text);
    rig_run_until(&outcome.calls, 1);
    cr_assert_eq(outcome.err.code, TCK_OK, "%s", outcome.err.text);
    cr_assert_eq(gate.asked, 0);
}

Test(peer_held, a_session_that_ends_ends_what_is_throttled)
{
    slot_fill(&a.slot, ODD);
    slot_empty(&b.slot, ODD);
    put();
    rig_run_ms(100);
    agent_close(&b);
    rig_run_until(&outcome.calls, 1);
    cr_assert_neq(outcome.err.code, TCK_OK);
}
