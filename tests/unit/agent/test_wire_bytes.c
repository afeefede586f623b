/* SPDX-License-Identifier: Apache-2.0
 * The bytes of each message between agents. Agents with the same format number are compatible only as long as these
 * bytes stay the same: a change requires a new PEER_FORMAT. */
#include "../base/codec.h"
#include "agent/state/wire.h"
#include <criterion/criterion.h>

/* The encoded message as hexadecimal digits. */
#define BYTES(name, m, hex)                    \
    do {                                       \
        struct writer bytes_w = writer_new(0); \
        wire_##name##_encode(m, &bytes_w);     \
        codec_bytes(&bytes_w, hex);            \
        writer_free(&bytes_w);                 \
    } while (0)

#define NO_VERSION "00000000000000000000000000000000"

static const struct hash128 A = {0x1122334455667788, 0x99aabbccddeeff00}, B = {0x2122334455667788, 3};

Test(wire_bytes, beat)
{
    struct wire_beat m = {.term = 3,
                          .from_coordinator = true,
                          .decision = {.term = 3, .seq = 9, .readable = true, .watermark = {3, 40}, .horizon = 61},
                          .mem_steps = 10,
                          .storage_steps = 100,
                          .from_step = 5,
                          .mem_target = 50,
                          .storage_target = 200,
                          .on_node_loss = ON_NODE_LOSS_END_TRAINERS};
    trouble_add(&m.storage_trouble, 7, &(struct error){.code = TCK_ERR_NOSPC, .text = "full"}, 1000);
    BYTES(beat, &m,
          "0300000000000000010103000000000000000900000000000000010000000000000000000000000000000000"
          "00030000000000000028000000000000003d0000000000000000000000000000000000000000000000000000"
          "000000000000000000000000000000000000000000000000000000000000000a000000000000006400000000"
          "00000005000000000000003200000000000000c8000000000000000109000000e80300000000000007000000"
          "0000000007000000000000000100000000000000040066756c6c00000000" NO_VERSION);
}

Test(wire_bytes, beat_without_a_term)
{
    BYTES(beat, (&(struct wire_beat){.mem_steps = 10}),
          "000000000000000000000a000000000000000000000000000000000000000000000000000000000000000000"
          "000000000000000000000000000000" NO_VERSION);
}

Test(wire_bytes, beat_with_a_change)
{
    struct wire_beat m = {.changes.of[2] = {.at_ms = 1000, .value = "5"}};
    BYTES(beat, &m,
          "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
          "0000000000000000000000000001e80300000000000001003500" NO_VERSION);
}

Test(wire_bytes, beat_with_a_version_to_archive)
{
    BYTES(beat, (&(struct wire_beat){.archive = {3, 40}}),
          "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
          "00000000000000000000000000000003000000000000002800000000000000");
}

Test(wire_bytes, archived)
{
    struct wire_archived m = {.term = 3, .version = {3, 40}, .ok = false, .why = "full"};
    BYTES(archived, &m, "03000000000000000300000000000000280000000000000000040066756c6c");
}

Test(wire_bytes, progress)
{
    BYTES(progress, (&(struct wire_progress){.term = 3, .version = {3, 41}}),
          "030000000000000003000000000000002900000000000000");
}

Test(wire_bytes, note)
{
    BYTES(note, (&(struct wire_note){.term = 0x1234567890}), "9078563412000000");
}

Test(wire_bytes, ready)
{
    struct wire_root roots[] = {{.shard = 1, .root = A}, {.shard = 3, .root = B}};
    struct wire_ready m = {.term = 3, .version = {3, 40}, .layout = A, .to_storage = true, .count = 2, .roots = roots};
    BYTES(ready, &m,
          "030000000000000003000000000000002800000000000000887766554433221100ffeeddccbbaa9901020000"
          "0001000000887766554433221100ffeeddccbbaa990300000088776655443322210300000000000000");
}

Test(wire_bytes, roots)
{
    struct wire_root roots[] = {{.shard = 2, .root = B}};
    BYTES(roots, (&(struct wire_roots){.term = 3, .version = {3, 41}, .count = 1, .roots = roots}),
          "0300000000000000030000000000000029000000000000000100000002000000887766554433222103000000"
          "00000000");
}

Test(wire_bytes, refused)
{
    BYTES(refused, (&(struct wire_refused){.term = 3, .version = {3, 42}, .refusal = 2}),
          "030000000000000003000000000000002a0000000000000002");
}

Test(wire_bytes, drained)
{
    uint32_t crcs[] = {0x01020304, 5};
    struct manifest_file files[] = {{.shard = A, .bytes = CHUNK_BYTES + 1, .root = B, .crcs = crcs}};
    struct wire_drained m = {
        .term = 3, .version = {3, 43}, .attempt = 6, .ok = true, .why = "no", .count = 1, .files = files};
    BYTES(drained, &m,
          "030000000000000003000000000000002b0000000000000006000000000000000102006e6f01000000887766"
          "554433221100ffeeddccbbaa9901004000000000008877665544332221030000000000000004030201050000"
          "00");
}

Test(wire_bytes, ask)
{
    BYTES(ask, (&(struct wire_ask){.term = 3, .asking = 7, .step = TCK_NEWEST, .dry = true}),
          "03000000000000000700000000000000ffffffffffffffff01");
}

Test(wire_bytes, inventory)
{
    struct known_node known[] = {{.node = {.name = "a", .domain = "r", .address = "x:1", .agent_id = 6}, .term = 2}};
    struct wire_inventory m = {
        .term = 3, .asking = 8, .known_count = 1, .known = known, .inventory_len = 3, .inventory = "abc"};
    BYTES(inventory, &m,
          "03000000000000000800000000000000010000000100610100720300783a3106000000000000000200000000"
          "0000000300000000000000616263");
}

Test(wire_bytes, fetch)
{
    struct wire_fetch m = {.term = 3,
                           .shard = 9,
                           .version = {3, 44},
                           .floor = {2, 43},
                           .fallback = {1, 42},
                           .source = SOURCE_PEER,
                           .from = {.name = "a", .domain = "r", .address = "x:1", .agent_id = 6},
                           .number = 7};
    BYTES(fetch, &m,
          "03000000000000000900000003000000000000002c0000000000000002000000000000002b00000000000000"
          "01000000000000002a00000000000000020100610100720300783a3106000000000000000700000000000000");
}

Test(wire_bytes, fetched)
{
    struct wire_fetched m = {
        .term = 3, .shard = 10, .version = {3, 45}, .outcome = TCK_ERR_CORRUPT, .reason = "bad", .number = 7};
    BYTES(fetched, &m, "03000000000000000a00000003000000000000002d00000000000000f8ffffff03006261640700000000000000");
}

Test(wire_bytes, readable)
{
    struct wire_readable m = {.term = 3,
                              .asked_step = 46,
                              .outcome = TCK_ERR_NOENT,
                              .version = {3, 45},
                              .newest_step = 47,
                              .reason = "none",
                              .passed_over = "one"};
    BYTES(readable, &m,
          "03000000000000002e00000000000000fcffffff03000000000000002d000000000000002f00000000000000"
          "04006e6f6e6503006f6e65");
}

Test(wire_bytes, change)
{
    BYTES(change, (&(struct wire_change){.term = 3, .key = "max_ckpt_num", .value = "4"}),
          "03000000000000000c006d61785f636b70745f6e756d010034");
}
