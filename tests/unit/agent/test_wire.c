/* SPDX-License-Identifier: Apache-2.0 */
#include "../base/codec.h"
#include "agent/state/wire.h"
#include "tiers/peer.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define CODEC(name, FIELDS, is_valid) CODEC_OF(wire_##name)
WIRE_MESSAGES(CODEC)

static const struct hash128 some_hash = {0x0123456789abcdef, 0xfedcba9876543210};

Test(wire, beat_passes_the_checks_of_a_codec)
{
    struct wire_beat m = {.term = 3, .from_coordinator = true, .mem_steps = 10, .storage_steps = 100, .from_step = 5};
    m.decision =
        (struct decision){.term = 3, .seq = 9, .readable = true, .based = true, .watermark = {3, 40}, .horizon = 61};
    m.decision.open_count = 2;
    m.decision.open[0] = 50;
    m.decision.open[1] = 60;
    codec_check(&wire_beat_codec, &m);
}

Test(wire, beat_of_an_agent_without_a_term_passes_them_too)
{
    struct wire_beat m = {.term = 3};
    codec_check(&wire_beat_codec, &m);
}

Test(wire, beat_fits_in_a_heartbeat)
{
    struct wire_beat m = {.term = 3, .decision = {.term = 3, .seq = 1, .horizon = 100, .open_count = CORE_OPEN_MAX}};
    for (uint64_t i = 0; i < CORE_OPEN_MAX; i++) {
        m.decision.open[i] = 10 + i;
    }
    m.storage_trouble = (struct trouble){.code = TCK_ERR_NOSPC, .steps = 1};
    memset(m.storage_trouble.text, 'x', sizeof(m.storage_trouble.text) - 1);
    for (size_t i = 0; i < CHANGES_COUNT; i++) {
        m.changes.of[i].at_ms = 1000 + i;
        memset(m.changes.of[i].value, '9', sizeof(m.changes.of[i].value) - 1);
    }
    struct writer w = writer_new(0);
    wire_beat_encode(&m, &w);
    cr_assert_leq(w.len, PEER_BEAT_MAX);
    writer_free(&w);
}

Test(wire, notes_and_questions_pass_the_checks_of_a_codec)
{
    struct wire_note note = {.term = 7};
    struct wire_ask ask = {.term = 7, .asking = 2, .step = TCK_NEWEST, .dry = true};
    struct wire_change change = {.term = 7, .key = "save_mem_interval", .value = "30s"};
    struct wire_refused refused = {.term = 7, .version = {7, 8}, .refusal = REFUSAL_NO_SLOT};
    struct wire_archived archived = {.term = 7, .version = {7, 40}, .ok = true, .why = ""};
    struct wire_progress progress = {.term = 7, .version = {7, 40}};
    codec_check(&wire_note_codec, &note);
    codec_check(&wire_progress_codec, &progress);
    codec_check(&wire_archived_codec, &archived);
    codec_check(&wire_ask_codec, &ask);
    codec_check(&wire_change_codec, &change);
    codec_check(&wire_refused_codec, &refused);
}

Test(wire, the_question_about_the_holder_and_its_answer_pass_the_checks_of_a_codec)
{
    struct wire_holder_ask ask = {.term = 7, .asking = 3, .run_id = "torchelastic:x", .at_least = 8};
    struct wire_holder holder = {
        .term = 7, .asking = 3, .held = true, .rank = 1, .world_size = 8, .pid = 4711, .adopted = 7, .offer = 8};
    struct wire_term_ask term_ask = {.at_least = 8, .asking = 3, .adopted = 7};
    struct wire_term_grant term_grant = {.term = 8, .asking = 3, .last = 11, .follows = 7};
    codec_check(&wire_holder_ask_codec, &ask);
    codec_check(&wire_holder_codec, &holder);
    codec_check(&wire_term_ask_codec, &term_ask);
    codec_check(&wire_term_grant_codec, &term_grant);
}

Test(wire, ready_carries_the_roots_of_twins)
{
    struct wire_root roots[2] = {{.shard = 1, .root = some_hash}, {.shard = 4, .root = some_hash}};
    struct wire_ready m = {.term = 2, .version = {2, 30}, .layout = some_hash, .to_storage = true, .count = 2};
    m.roots = roots;
    codec_check(&wire_ready_codec, &m);
}

Test(wire, roots_go_ahead_of_ready)
{
    struct wire_root roots[2] = {{.shard = 0, .root = some_hash}, {.shard = 7, .root = some_hash}};
    struct wire_roots m = {.term = 2, .version = {2, 30}, .count = 2, .roots = roots};
    codec_check(&wire_roots_codec, &m);
}

Test(wire, drained_carries_the_chunk_digests_of_each_file)
{
    uint32_t crcs[3] = {1, 2, 3};
    struct manifest_file file = {
        .shard = some_hash, .bytes = 2ull * CHUNK_BYTES + 4096, .root = some_hash, .crcs = crcs};
    struct wire_drained m = {.term = 2, .version = {2, 30}, .ok = true, .count = 1, .files = &file};
    codec_check(&wire_drained_codec, &m);
}

Test(wire, drained_carries_the_reason_of_a_failure)
{
    struct wire_drained m = {.term = 2, .version = {2, 30}, .why = "/save/job: No space left on device"};
    codec_check(&wire_drained_codec, &m);
}

Test(wire, beat_carries_the_coordinators_trouble_with_storage)
{
    struct wire_beat m = {.term = 3, .from_coordinator = true};
    m.storage_trouble = (struct trouble){TCK_ERR_NOSPC, 1234, 10, 30, 3, "/save/job: No space left on device"};
    codec_check(&wire_beat_codec, &m);
}

Test(wire, beat_carries_changes_of_settings)
{
    struct wire_beat m = {.term = 3};
    m.changes.of[0] = (struct key_change){1234, "20"};
    m.changes.of[3] = (struct key_change){5678, "end_trainers"};
    codec_check(&wire_beat_codec, &m);
}

Test(wire, inventory_carries_remembered_nodes)
{
    struct known_node known = {{.name = "a", .domain = "r1", .address = "10.0.0.1:400", .agent_id = 5}, .term = 7};
    struct wire_inventory m = {.term = 2, .asking = 3, .known_count = 1, .known = &known, .inventory_len = 4};
    m.inventory = "body";
    codec_check(&wire_inventory_codec, &m);
}

Test(wire, fetch_and_its_answers_pass_the_checks_of_a_codec)
{
    struct wire_fetch fetch = {.term = 2, .shard = 3, .version = {1, 9}, .source = SOURCE_PEER};
    strcpy(fetch.from.name, "b");
    struct wire_fetched fetched = {.term = 2, .shard = 3, .version = {1, 9}, .outcome = TCK_ERR_CORRUPT};
    struct wire_readable readable = {.term = 2, .asked_step = 9, .outcome = TCK_ERR_NOENT, .reason = "nothing"};
    codec_check(&wire_fetch_codec, &fetch);
    codec_check(&wire_fetched_codec, &fetched);
    codec_check(&wire_readable_codec, &readable);
}
