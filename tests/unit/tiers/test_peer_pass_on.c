/* SPDX-License-Identifier: Apache-2.0
 * Copies that are pulled while they still arrive: what has arrived is sent, and nothing else. */
#include "base/same_chunks.h"
#include "peer_rig.h"
#include "tiers/peer_internal.h"

#include <string.h>

#define MIB    ((uint64_t)1 << 20)
#define BYTES  (9 * MIB + 4096)
#define CHUNKS 3

static struct agent child, middle, source; /* whose slots are filled in the opposite order */
static struct peer *to_middle, *to_child;
static struct outcome outcome;
static struct tier_item item;
static uint8_t here[1];

static void set_up(void)
{
    rig_open();
    agent_open(&child, 1, NULL, 7);
    agent_open(&middle, 2, NULL, 7);
    agents_meet(&child, &middle, &to_middle, &to_child);
    slot_empty(&child.slot, BYTES);
    slot_fill(&middle.slot, BYTES);
    here[0] = 0;
    middle.here = here;
}

static void tear_down(void)
{
    agent_close(&child);
    agent_close(&middle);
    rig_close();
}

static void get(void)
{
    struct error err;
    item = slot_item(&child.slot);
    item.root = (struct hash128){0, 0};
    cr_assert_eq(peer_get(to_middle, 1, &item, outcome_done, &outcome, &err), TCK_OK, "%s", err.text);
    rig_run_until(&middle.pulled, 1);
}

static void arrives(uint32_t chunk)
{
    peers_arriving_chunk(middle.peers, middle.slot.image, chunk);
}

static bool child_has(uint32_t chunk)
{
    uint64_t at = (uint64_t)chunk * CHUNK_BYTES;
    return memcmp(child.slot.image + at, middle.slot.image + at, chunk_size(BYTES, chunk)) == 0;
}

static void wait_for_chunk(uint32_t chunk)
{
    for (uint32_t i = 0; i < 1000 && !child_has(chunk); i++) {
        rig_run_ms(10);
    }
    cr_assert(child_has(chunk));
}

static void expect_arrived(void)
{
    rig_run_until(&outcome.calls, 1);
    cr_assert_eq(outcome.err.code, TCK_OK, "%s", outcome.err.text);
    cr_assert_eq(memcmp(child.slot.image, middle.slot.image, BYTES), 0);
    cr_assert(hash128_is(item.root, middle.slot.root));
    rig_run_until(&middle.pull_dones, 1);
}

TestSuite(peer_pass_on, .init = set_up, .fini = tear_down, .timeout = 200);

Test(peer_pass_on, each_chunk_is_sent_when_it_has_arrived_and_none_before)
{
    get();
    arrives(2);
    wait_for_chunk(2);
    rig_run_ms(5 * RIG_HEARTBEAT_MS);
    cr_assert(!child_has(0) && !child_has(1));
    arrives(0);
    wait_for_chunk(0);
    cr_assert(!child_has(1));
    cr_assert_eq(outcome.calls, 0);
    arrives(1);
    expect_arrived();
}

Test(peer_pass_on, what_is_there_is_sent_at_once)
{
    bit_set(here, 1);
    get();
    wait_for_chunk(1);
    cr_assert(!child_has(0) && !child_has(2));
    arrives(0);
    arrives(2);
    expect_arrived();
}

Test(peer_pass_on, the_digests_are_sent_once_they_are_known)
{
    middle.undigested = true;
    get();
    arrives(0); /* cannot be before its digest is known, but does no harm */
    rig_run_ms(5 * RIG_HEARTBEAT_MS);
    cr_assert(!child_has(0));
    peers_arriving_digests(middle.peers, middle.slot.image, middle.slot.crcs, middle.slot.root);
    arrives(1);
    arrives(2);
    expect_arrived();
}

Test(peer_pass_on, other_images_are_not_concerned)
{
    uint8_t other[1];
    get();
    peers_arriving_chunk(middle.peers, other, 0);
    peers_arriving_failed(middle.peers, other, TCK_ERR_NOENT, "another one");
    rig_run_ms(5 * RIG_HEARTBEAT_MS);
    cr_assert(!child_has(0));
    for (uint32_t i = 0; i < CHUNKS; i++) {
        arrives(i);
    }
    expect_arrived();
}

Test(peer_pass_on, ends_with_the_reason_if_the_rest_does_not_arrive)
{
    bit_set(here, 0);
    get();
    wait_for_chunk(0);
    peers_arriving_failed(middle.peers, middle.slot.image, TCK_ERR_NOENT, "the test loses it");
    rig_run_until(&outcome.calls, 1);
    cr_assert_eq(outcome.err.code, TCK_ERR_NOENT);
    cr_assert(strstr(outcome.err.text, "the test loses it") != NULL);
    rig_run_until(&middle.pull_dones, 1);
}

Test(peer_pass_on, ends_with_the_reason_if_not_even_the_digests_become_known)
{
    middle.undigested = true;
    get();
    peers_arriving_failed(middle.peers, middle.slot.image, TCK_ERR_NOENT, "the test loses it");
    rig_run_until(&outcome.calls, 1);
    cr_assert_eq(outcome.err.code, TCK_ERR_NOENT);
    rig_run_until(&middle.pull_dones, 1);
}

Test(peer_pass_on, what_has_arrived_as_a_whole_is_sent_whatever_becomes_of_its_fetch)
{
    get();
    for (uint32_t i = 0; i < CHUNKS; i++) {
        arrives(i);
    }
    peers_arriving_failed(middle.peers, middle.slot.image, TCK_ERR_NOENT, "the test loses it");
    expect_arrived();
}

Test(peer_pass_on, the_slot_is_given_back_when_the_receiver_ends)
{
    bit_set(here, 0);
    get();
    wait_for_chunk(0);
    agent_close(&child);
    rig_run_until(&middle.pull_dones, 1);
    arrives(1);
}

Test(peer_pass_on, a_receiver_does_not_wait_for_ever)
{
    get();
    rig_run_until(&outcome.calls, 1);
    cr_assert_eq(outcome.err.code, TCK_ERR_TIMEDOUT);
    rig_run_until(&middle.pull_dones, 1);
}

Test(peer_pass_on, the_time_for_which_the_sender_waits_for_its_source_does_not_count)
{
    get();
    rig_run_ms(RIG_TRANSFER_MS / 4 * 3);
    arrives(0);
    wait_for_chunk(0);
    rig_run_ms(RIG_TRANSFER_MS / 4 * 3);
    arrives(1);
    arrives(2);
    expect_arrived();
}

Test(peer_pass_on, a_get_of_no_use_ends_when_nothing_comes)
{
    get();
    peers_end_get(child.peers, child.slot.image);
    rig_run_ms(RIG_TRANSFER_MS / 2);
    cr_assert_eq(outcome.calls, 1);
    cr_assert_eq(outcome.err.code, TCK_ERR_TIMEDOUT);
    rig_run_until(&middle.pull_dones, 1);
}

/* ---- three in a row -------------------------------------------------------------------------------------------- */

static struct peer *to_source;
static struct outcome middle_outcome;
static struct tier_item middle_item;

static void middle_digests(void *ctx, struct hash128 root)
{
    (void)ctx;
    middle.slot.root = root;
    peers_arriving_digests(middle.peers, middle.slot.image, middle.slot.crcs, root);
}

static void middle_chunk(void *ctx, uint32_t i)
{
    (void)ctx;
    peers_arriving_chunk(middle.peers, middle.slot.image, i);
}

static const struct tier_watch watch = {.digests = middle_digests, .chunk = middle_chunk};

static void middle_done(void *ctx, const struct error *err)
{
    outcome_done(ctx, err);
    peers_arriving_failed(middle.peers, middle.slot.image, TCK_ERR_NOENT, err->text);
}

/* The child has asked before the one in the middle has. */
static void begin_row(void)
{
    struct error err;
    agent_open(&source, 3, NULL, 7);
    to_source = agent_want(&middle, &source);
    agent_want(&source, &middle);
    rig_run_until(&source.ups, 1);
    rig_run_until(&middle.ups, 2);
    slot_fill(&source.slot, BYTES);
    slot_free(&middle.slot);
    slot_empty(&middle.slot, BYTES);
    middle.undigested = true;
    get();
    middle_item = slot_item(&middle.slot);
    middle_item.watch = &watch;
    cr_assert_eq(peer_get(to_source, 1, &middle_item, middle_done, &middle_outcome, &err), TCK_OK, "%s", err.text);
}

Test(peer_pass_on, a_copy_passes_through_a_row_of_agents)
{
    begin_row();
    expect_arrived();
    cr_assert_eq(middle_outcome.err.code, TCK_OK, "%s", middle_outcome.err.text);
    cr_assert_eq(memcmp(child.slot.image, source.slot.image, BYTES), 0);
    agent_close(&source);
}

Test(peer_pass_on, what_arrives_damaged_in_the_middle_is_not_passed_on)
{
    begin_row();
    source.slot.image[5 * MIB] ^= 1;
    rig_run_until(&outcome.calls, 1);
    cr_assert_eq(middle_outcome.err.code, TCK_ERR_CORRUPT, "%s", middle_outcome.err.text);
    cr_assert_eq(outcome.err.code, TCK_ERR_NOENT, "%s", outcome.err.text);
    for (uint64_t i = CHUNK_BYTES; i < 2 * (uint64_t)CHUNK_BYTES; i++) {
        cr_assert_eq(child.slot.image[i], 0);
    }
    agent_close(&source);
}

Test(peer_pass_on, ends_when_the_source_of_its_source_ends)
{
    begin_row();
    agent_close(&source);
    rig_run_until(&outcome.calls, 1);
    rig_run_until(&middle_outcome.calls, 1);
    cr_assert_eq(middle_outcome.err.code, TCK_ERR_UNREACHABLE, "%s", middle_outcome.err.text);
    cr_assert_eq(outcome.err.code, TCK_ERR_NOENT, "%s", outcome.err.text);
}
