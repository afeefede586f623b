/* SPDX-License-Identifier: Apache-2.0
 * Messages: each one is decoded as it was encoded, and malformed ones are refused. */
#include "base/message.h"
#include "codec.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define CODEC(name, FIELDS, is_valid) CODEC_OF(msg_##name)
MESSAGES(CODEC)

/* Encodes m and decodes it into back, both of type struct msg_<name>. */
#define PASS(name, m, back)                                                       \
    do {                                                                          \
        struct writer pass_w = writer_new(0);                                     \
        msg_##name##_encode(m, &pass_w);                                          \
        cr_assert_eq(msg_##name##_decode(pass_w.data, pass_w.len, back), TCK_OK); \
        writer_free(&pass_w);                                                     \
    } while (0)

#define REFUSED(name, m)                                                                               \
    do {                                                                                               \
        struct msg_##name refused_out;                                                                 \
        struct writer refused_w = writer_new(0);                                                       \
        msg_##name##_encode(m, &refused_w);                                                            \
        cr_assert_eq(msg_##name##_decode(refused_w.data, refused_w.len, &refused_out), TCK_ERR_PROTO); \
        writer_free(&refused_w);                                                                       \
    } while (0)

static struct msg_hello some_hello(void)
{
    struct msg_hello m = {.seq = 1,
                          .format = MESSAGE_FORMAT,
                          .rank = 3,
                          .world_size = 8,
                          .pid = 4711,
                          .job = "train",
                          .returning = true,
                          .term = 12,
                          .run_id = "launcher",
                          .takeover = true,
                          .settings = "{}",
                          .settings_len = 2};
    memset(m.proof, 0xa5, sizeof(m.proof));
    return m;
}

Test(message, hello_round_trips)
{
    struct msg_hello m = some_hello(), back;
    codec_check(&msg_hello_codec, &m);
    PASS(hello, &m, &back);
    cr_assert_eq(back.rank, 3);
    cr_assert_eq(back.world_size, 8);
    cr_assert_str_eq(back.job, "train");
    cr_assert(back.returning);
    cr_assert_str_eq(back.run_id, "launcher");
    cr_assert(back.takeover);
    cr_assert_eq(back.settings_len, 2);
    cr_assert_eq(memcmp(back.proof, m.proof, MAC_BYTES), 0);
}

Test(message, hello_of_another_format_is_refused)
{
    struct msg_hello m = some_hello();
    m.format++;
    REFUSED(hello, &m);
}

Test(message, hello_of_any_format_tells_which)
{
    struct msg_hello m = some_hello();
    struct writer w = writer_new(0);
    uint32_t seq = 0, format = 0;
    m.format++;
    msg_hello_encode(&m, &w);
    cr_assert(msg_hello_format(w.data, w.len, &seq, &format));
    cr_assert_eq(seq, m.seq);
    cr_assert_eq(format, MESSAGE_FORMAT + 1);
    cr_assert(msg_hello_format(w.data, 8, &seq, &format));
    cr_assert_not(msg_hello_format(w.data, 7, &seq, &format));
    writer_free(&w);
}

Test(message, hello_of_an_impossible_rank_or_job_is_refused)
{
    struct msg_hello m = some_hello();
    m.rank = m.world_size;
    REFUSED(hello, &m);
    m = some_hello();
    m.world_size = WORLD_RANKS_MAX + 1;
    REFUSED(hello, &m);
    m = some_hello();
    strcpy(m.job, "../other");
    REFUSED(hello, &m);
}

static struct rank_hello some_rank_hello(void)
{
    return (struct rank_hello){
        .node = {.name = "n0", .domain = "r0", .address = "10.0.0.1:4000", .agent_id = UINT64_MAX}, .term_seen = 5};
}

Test(message, welcome_round_trips)
{
    struct msg_welcome m = {.seq = 2, .format = MESSAGE_FORMAT, .hello = some_rank_hello()}, back;
    codec_check(&msg_welcome_codec, &m);
    PASS(welcome, &m, &back);
    cr_assert_str_eq(back.hello.node.address, "10.0.0.1:4000");
    cr_assert_eq(back.hello.term_seen, 5);
}

Test(message, claim_round_trips)
{
    struct claim_agent agents[] = {{"a", 1}, {"b", UINT64_MAX}};
    const struct msg_claim m = {.seq = 8, .count = 2, .at_least = 4, .after = 3, .agents = agents};
    struct msg_claim back;
    codec_check(&msg_claim_codec, &m);
    PASS(claim, &m, &back);
    cr_assert_eq(back.count, 2);
    cr_assert_eq(back.at_least, 4);
    cr_assert_eq(back.after, 3);
    cr_assert_str_eq(back.agents[1].node, "b");
    cr_assert_eq(back.agents[1].agent_id, UINT64_MAX);
    free(back.agents);
    strcpy(agents[0].node, "../x");
    REFUSED(claim, &m);
}

Test(message, term_step_restore_detach_and_version_round_trip)
{
    const struct msg_term term = {.seq = 3, .term = 9};
    const struct msg_step step = {.seq = 4, .step = 1000};
    const struct msg_restore restore = {.seq = 5, .step = TCK_NEWEST, .may_lack = true, .failed = "no wire"};
    const struct msg_detach detach = {.seq = 6, .job_done = true, .last_failed = true};
    const struct msg_version version = {.seq = 7, .version = {2, 300}};
    codec_check(&msg_term_codec, &term);
    codec_check(&msg_step_codec, &step);
    codec_check(&msg_restore_codec, &restore);
    codec_check(&msg_detach_codec, &detach);
    codec_check(&msg_version_codec, &version);
    struct msg_restore back;
    PASS(restore, &restore, &back);
    cr_assert_eq(back.step, TCK_NEWEST);
    cr_assert(back.may_lack);
    cr_assert_str_eq(back.failed, "no wire");
}

Test(message, begin_and_segment_get_round_trip)
{
    const struct msg_begin begin = {.seq = 8, .step = 77, .to_storage = true, .last = true};
    const struct msg_segment_get get = {.seq = 9, .shard = {1, 2}};
    struct msg_begin begin_back;
    struct msg_segment_get get_back;
    codec_check(&msg_begin_codec, &begin);
    codec_check(&msg_segment_get_codec, &get);
    PASS(begin, &begin, &begin_back);
    PASS(segment_get, &get, &get_back);
    cr_assert(begin_back.to_storage && begin_back.last && begin_back.step == 77);
    cr_assert(hash128_is(get_back.shard, get.shard));
}

Test(message, world_round_trips)
{
    const struct rank_hello hellos[] = {some_rank_hello(), some_rank_hello()};
    const uint32_t counts[] = {1, 1};
    const struct shard_info infos[] = {{.id = {1, 1}, .image_bytes = 4096}, {.id = {1, 1}, .image_bytes = 4096}};
    struct msg_world m = {.seq = 10, .rank = 1, .will_ask = true}, back;
    struct error err = {0};
    cr_assert_eq(world_build(4, hellos, 2, &m.world, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(world_add_shards(&m.world, infos, counts, &err), TCK_OK, "%s", err.text);
    codec_check(&msg_world_codec, &m);
    PASS(world, &m, &back);
    cr_assert_eq(back.rank, 1);
    cr_assert(back.will_ask);
    cr_assert(hash128_is(back.world.layout, m.world.layout));
    world_free(&back.world);
    m.rank = 2;
    REFUSED(world, &m);
    world_free(&m.world);
}

Test(message, the_ranks_of_a_world_send_the_same_bytes_of_it)
{
    const struct rank_hello hello = some_rank_hello();
    struct msg_world m = {.seq = 10, .rank = 0, .will_ask = true};
    struct writer whole = writer_new(0), world = writer_new(0);
    struct msg_world_parts parts;
    struct error err = {0};
    cr_assert_eq(world_build(4, &hello, 1, &m.world, &err), TCK_OK, "%s", err.text);
    msg_world_encode(&m, &whole);
    world_encode(&m.world, &world);
    cr_assert(msg_world_parts(whole.data, whole.len, &parts));
    cr_assert(parts.seq == 10 && parts.rank == 0 && parts.will_ask);
    cr_assert_eq(parts.world_len, world.len);
    cr_assert_eq(memcmp(parts.world, world.data, world.len), 0);
    for (size_t len = 0; len < 9; len++) {
        cr_assert_not(msg_world_parts(whole.data, len, &parts), "%zu bytes", len);
    }
    writer_free(&whole);
    writer_free(&world);
    world_free(&m.world);
}

Test(message, segments_round_trip)
{
    struct msg_segment list[] = {{{1, 1}, 8192, 3, 4096, true}, {{1, 2}, 4096, 3, 2 << 20, false}};
    struct msg_segments m = {.seq = 11, .count = 2, .segments = list}, back;
    codec_check(&msg_segments_codec, &m);
    PASS(segments, &m, &back);
    cr_assert_eq(back.segments[0].slot_stride, 8192);
    cr_assert(back.segments[0].stored_here && !back.segments[1].stored_here);
    free(back.segments);
    m.count = 0;
    codec_check(&msg_segments_codec, &m);
}

Test(message, segments_out_of_order_or_out_of_bounds_are_refused)
{
    struct msg_segment list[] = {{{1, 2}, 8192, 3, 4096, true}, {{1, 2}, 8192, 3, 4096, true}};
    struct msg_segments m = {.seq = 11, .count = 2, .segments = list};
    REFUSED(segments, &m);
    m.count = 1;
    list[0].slot_count = MESSAGE_SLOTS_MAX + 1;
    REFUSED(segments, &m);
    list[0].slot_count = 3;
    list[0].slot_stride = UINT64_MAX / 2;
    REFUSED(segments, &m);
}

Test(message, grant_round_trips)
{
    uint32_t slots[] = {2, 0, 1};
    struct msg_grant m = {.seq = 12, .count = 3, .step = 40, .slots = slots}, back;
    codec_check(&msg_grant_codec, &m);
    PASS(grant, &m, &back);
    cr_assert_eq(memcmp(back.slots, slots, sizeof(slots)), 0);
    free(back.slots);
}

Test(message, roots_round_trip)
{
    struct msg_root roots[] = {{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}};
    struct msg_roots m = {.seq = 3, .count = 2, .step = 40, .roots = roots}, back;
    codec_check(&msg_roots_codec, &m);
    PASS(roots, &m, &back);
    cr_assert_eq(back.step, 40);
    cr_assert(hash128_is(back.roots[1].shard, (struct hash128){5, 6}));
    cr_assert(hash128_is(back.roots[1].root, (struct hash128){7, 8}));
    free(back.roots);
}

Test(message, restored_round_trips)
{
    struct restored_shard shards[] = {
        {0, SOURCE_LOCAL, {1, 2}}, {2, SOURCE_STORAGE, {3, 4}}, {NONE32, SOURCE_TWIN, {0}}};
    uint32_t crcs[] = {5, 6, 7};
    struct msg_restored m = {.seq = 13, .count = 3, .version = {3, 90}, .newest_step = 95, .shards = shards}, back;
    m.crc_count = 3;
    m.crcs = crcs;
    codec_check(&msg_restored_codec, &m);
    PASS(restored, &m, &back);
    cr_assert_eq(back.newest_step, 95);
    cr_assert_eq(back.shards[1].slot, 2);
    cr_assert_eq(back.shards[1].source, SOURCE_STORAGE);
    cr_assert(hash128_is(back.shards[1].root, (struct hash128){3, 4}));
    cr_assert_eq(back.shards[2].slot, NONE32);
    cr_assert_eq(back.crc_count, 3);
    cr_assert_arr_eq(back.crcs, crcs, sizeof(crcs));
    msg_restored_free(&back);
    shards[1].source = SOURCE_KINDS;
    REFUSED(restored, &m);
}

Test(message, more_shards_than_a_rank_may_have_are_refused)
{
    enum { COUNT = MESSAGE_SHARDS_MAX + 1 };
    struct msg_grant m = {.seq = 14, .count = COUNT, .slots = calloc(COUNT, sizeof(uint32_t))}, back;
    REFUSED(grant, &m);
    m.count--;
    PASS(grant, &m, &back);
    free(back.slots);
    free(m.slots);
}

Test(message, error_round_trips_with_its_text)
{
    struct msg_error m = {.seq = 15}, back;
    (void)error_set(&m.error, TCK_ERR_NOSPC, "wanted %d, allowed %d", 2, 1);
    codec_check(&msg_error_codec, &m);
    PASS(error, &m, &back);
    cr_assert_eq(back.error.code, TCK_ERR_NOSPC);
    cr_assert_str_eq(back.error.text, "wanted 2, allowed 1");
}

Test(message, error_without_a_known_code_is_refused)
{
    struct msg_error m = {.seq = 15, .error = {.code = TCK_OK}};
    REFUSED(error, &m);
    m.error.code = (tck_status_t)-1000;
    REFUSED(error, &m);
    m.error.code = (tck_status_t)3;
    REFUSED(error, &m);
}

Test(message, seq_is_read_from_any_payload)
{
    const struct msg_step m = {.seq = 99, .step = 1};
    struct msg_seq seq;
    struct writer w = writer_new(0);
    msg_step_encode(&m, &w);
    cr_assert_eq(msg_seq_decode(w.data, w.len, &seq), TCK_OK);
    cr_assert_eq(seq.seq, 99);
    cr_assert_eq(msg_seq_decode(w.data, 3, &seq), TCK_ERR_PROTO);
    writer_free(&w);
}
