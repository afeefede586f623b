/* SPDX-License-Identifier: Apache-2.0
 * The bytes of each message between client, command and agent: programs with the same format number are compatible only
 * as long as these bytes stay the same: a change requires a new MESSAGE_FORMAT. */
#include "base/message.h"
#include "codec.h"
#include <criterion/criterion.h>
#include <string.h>

/* The encoded message as hexadecimal digits. */
#define BYTES(name, m, hex)                    \
    do {                                       \
        struct writer bytes_w = writer_new(0); \
        msg_##name##_encode(m, &bytes_w);      \
        codec_bytes(&bytes_w, hex);            \
        writer_free(&bytes_w);                 \
    } while (0)

static const struct hash128 A = {0x1122334455667788, 0x99aabbccddeeff00}, B = {0x2122334455667788, 3};

Test(message_bytes, seq)
{
    BYTES(seq, (&(struct msg_seq){.seq = 0x01020304}), "04030201");
}

Test(message_bytes, hello)
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
    BYTES(hello, &m,
          "010000000b0000000300000008000000671200000500747261696e010c00000000000000a5a5a5a5a5a5a5a5"
          "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a508006c61756e6368657201020000007b7d");
}

Test(message_bytes, welcome)
{
    struct msg_welcome m = {
        .seq = 2,
        .format = MESSAGE_FORMAT,
        .hello = {.node = {.name = "a", .domain = "rack", .address = "10.0.0.1:1", .agent_id = 77}, .term_seen = 5}};
    BYTES(welcome, &m,
          "020000000b000000610000000000000000000000000000000000000000000000000000000000000000000000"
          "000000000000000000000000000000000000000000000000000000007261636b000000000000000000000000"
          "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
          "0000000031302e302e302e313a31000000000000000000000000000000000000000000000000000000000000"
          "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
          "0000000000000000000000004d000000000000000500000000000000");
}

Test(message_bytes, term)
{
    BYTES(term, (&(struct msg_term){.seq = 3, .term = 0x1234567890}), "030000009078563412000000");
}

Test(message_bytes, claim)
{
    struct claim_agent agents[] = {{.node = "a", .agent_id = 1}, {.node = "bc", .agent_id = 2}};
    struct msg_claim m = {.seq = 4, .count = 2, .at_least = 9, .after = 8, .agents = agents};
    BYTES(claim, &m,
          "0400000009000000000000000800000000000000020000000100610100000000000000020062630200000000"
          "000000");
}

Test(message_bytes, world)
{
    struct node_info nodes[] = {{.name = "a", .domain = "r", .address = "x:1", .agent_id = 6}};
    uint32_t node_of_rank[] = {0, 0}, shard_ranks[] = {0, 1};
    struct world_shard shards[] = {{.id = A, .image_bytes = 4096, .rank_count = 2}};
    struct msg_world m = {.seq = 5,
                          .rank = 1,
                          .will_ask = true,
                          .world = {.term = 7,
                                    .world_size = 2,
                                    .node_count = 1,
                                    .nodes = nodes,
                                    .node_of_rank = node_of_rank,
                                    .shard_count = 1,
                                    .shards = shards,
                                    .shard_ranks = shard_ranks,
                                    .layout = B}};
    BYTES(world, &m,
          "0500000001000000070000000000000002000000010000000100610100720300783a31060000000000000000"
          "000000000000000100000002000000887766554433221100ffeeddccbbaa9900100000000000000200000000"
          "0000000100000001");
}

Test(message_bytes, segments)
{
    struct msg_segment segments[] = {
        {.shard = A, .slot_stride = 8192, .slot_count = 3, .page_bytes = 4096, .stored_here = true},
        {.shard = B, .slot_stride = 4096, .slot_count = 2, .page_bytes = 2 << 20}};
    struct msg_segments m = {.seq = 6, .count = 2, .segments = segments};
    BYTES(segments, &m,
          "0600000002000000887766554433221100ffeeddccbbaa990020000000000000030000000010000001887766"
          "554433222103000000000000000010000000000000020000000000200000");
}

Test(message_bytes, segment_get)
{
    BYTES(segment_get, (&(struct msg_segment_get){.seq = 7, .shard = A}), "07000000887766554433221100ffeeddccbbaa99");
}

Test(message_bytes, begin)
{
    BYTES(begin, (&(struct msg_begin){.seq = 8, .step = 100, .to_storage = true}), "0800000064000000000000000100");
    BYTES(begin, (&(struct msg_begin){.seq = 8, .step = 100, .to_storage = true, .last = true}),
          "0800000064000000000000000101");
}

Test(message_bytes, grant)
{
    uint32_t slots[] = {1, 0, 2};
    BYTES(grant, (&(struct msg_grant){.seq = 9, .count = 3, .step = 101, .slots = slots}),
          "09000000650000000000000003000000010000000000000002000000");
}

Test(message_bytes, step)
{
    BYTES(step, (&(struct msg_step){.seq = 10, .step = 102}), "0a0000006600000000000000");
}

Test(message_bytes, roots)
{
    struct msg_root roots[] = {{.shard = A, .root = B}};
    BYTES(roots, (&(struct msg_roots){.seq = 11, .count = 1, .step = 103, .roots = roots}),
          "0b000000670000000000000001000000887766554433221100ffeeddccbbaa99887766554433222103000000"
          "00000000");
}

Test(message_bytes, restore)
{
    struct msg_restore m = {.seq = 12, .step = TCK_NEWEST, .may_lack = true, .failed = "no way"};
    BYTES(restore, &m, "0c000000ffffffffffffffff0106006e6f20776179");
}

Test(message_bytes, restored)
{
    struct restored_shard shards[] = {{.slot = 1, .source = SOURCE_PEER, .root = A}, {.slot = NONE32, .root = B}};
    uint32_t crcs[] = {0x01020304, 0xa0b0c0d0};
    struct msg_restored m = {.seq = 13,
                             .count = 2,
                             .version = {4, 104},
                             .newest_step = 105,
                             .other_layout = true,
                             .passed_over = "one",
                             .shards = shards,
                             .crc_count = 2,
                             .crcs = crcs};
    BYTES(restored, &m,
          "0d0000000400000000000000680000000000000069000000000000000103006f6e6502000000010000000288"
          "7766554433221100ffeeddccbbaa99ffffffff0088776655443322210300000000000000"
          "0200000004030201d0c0b0a0");
}

Test(message_bytes, version)
{
    BYTES(version, (&(struct msg_version){.seq = 14, .version = {5, 106}}), "0e00000005000000000000006a00000000000000");
}

Test(message_bytes, detach)
{
    BYTES(detach, (&(struct msg_detach){.seq = 15, .job_done = true}), "0f0000000100");
}

Test(message_bytes, error)
{
    struct msg_error m = {.seq = 16, .error = {.code = TCK_ERR_NOSPC, .text = "full"}};
    BYTES(error, &m, "1000000009000000040066756c6c");
}
