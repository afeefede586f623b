/* SPDX-License-Identifier: Apache-2.0
 * The bytes of the catalog's values: a later agent reads what an earlier one has written. */
#include "../base/codec.h"
#include "recovery/catalog_codec.h"
#include <criterion/criterion.h>

/* The encoded value, as hexadecimal digits. */
#define BYTES(name, m, hex)                    \
    do {                                       \
        struct writer bytes_w = writer_new(0); \
        catalog_##name##_encode(m, &bytes_w);  \
        codec_bytes(&bytes_w, hex);            \
        writer_free(&bytes_w);                 \
    } while (0)

Test(catalog_bytes, version)
{
    struct catalog_version m = {.version = {3, 40},
                                .state = CATALOG_COMMITTED,
                                .wall_ms = 0x1234567890,
                                .shard_count = 5,
                                .bytes = 6,
                                .drained_shards = 7};
    BYTES(version, &m, "010300000000000000280000000000000002907856341200000005000000060000000000000007000000");
}

Test(catalog_bytes, shard)
{
    struct catalog_shard m = {
        .version = {3, 40}, .shard = {1, 2}, .root = {3, 4}, .bytes = 5, .holder_count = 2, .holders = {"a", "bc"}};
    BYTES(shard, &m,
          "0103000000000000002800000000000000010000000000000002000000000000000300000000000000040000"
          "000000000005000000000000000201006102006263");
}

Test(catalog_bytes, node)
{
    struct known_node m = {.node = {.name = "a", .domain = "r", .address = "x:1", .agent_id = 6}, .term = 8};
    BYTES(node, &m, "010100610100720300783a3106000000000000000800000000000000");
}
