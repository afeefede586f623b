/* SPDX-License-Identifier: Apache-2.0
 * The bytes of the handshake, of parts and of transfers: agents of one format number understand each other only as long
 * as these stay the same. Changing them requires a new PEER_FORMAT. */
#include "../base/codec.h"
#include "tiers/peer_wire.h"
#include <criterion/criterion.h>
#include <string.h>

/* The encoded message, as hexadecimal digits. */
#define BYTES(name, m, hex)                    \
    do {                                       \
        struct writer bytes_w = writer_new(0); \
        wire_##name##_encode(m, &bytes_w);     \
        codec_bytes(&bytes_w, hex);            \
        writer_free(&bytes_w);                 \
    } while (0)

static const struct hash128 A = {0x1122334455667788, 0x99aabbccddeeff00}, B = {0x2122334455667788, 3};
static const struct node_info NODE = {.name = "a", .domain = "r", .address = "x:1", .agent_id = 6};

Test(peer_wire_bytes, hello)
{
    struct wire_hello m = {.format = PEER_FORMAT, .job = "train", .role = WIRE_BULK, .session = 5, .node = NODE};
    memset(m.nonce, 0xa5, sizeof(m.nonce));
    BYTES(hello, &m,
          "01746b637010000500747261696e02050000000000000006000000000000000100610100720300783a31a5a5"
          "a5a5a5a5a5a5a5a5a5a5a5a5a5a5");
}

Test(peer_wire_bytes, challenge)
{
    struct wire_challenge m = {.node = NODE};
    memset(m.nonce, 0x5a, sizeof(m.nonce));
    memset(m.mac, 0x77, sizeof(m.mac));
    BYTES(challenge, &m,
          "0206000000000000000100610100720300783a315a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a"
          "7777777777777777777777777777777777777777777777777777777777777777");
}

Test(peer_wire_bytes, proof)
{
    struct wire_proof m;
    memset(m.mac, 0x33, sizeof(m.mac));
    BYTES(proof, &m, "033333333333333333333333333333333333333333333333333333333333333333");
}

Test(peer_wire_bytes, welcome)
{
    struct writer w = writer_new(0);
    wire_welcome_encode(&w);
    codec_bytes(&w, "04");
    writer_free(&w);
}

Test(peer_wire_bytes, mismatch)
{
    BYTES(mismatch, (&(struct wire_mismatch){.format = 3, .job = "train"}), "05746b637003000500747261696e");
}

Test(peer_wire_bytes, part)
{
    struct wire_part m = {
        .kind = WIRE_MESSAGE, .type = 9, .total = 10, .offset = 4, .data = (const uint8_t *)"abc", .len = 3};
    BYTES(part, &m, "1109000a00000004000000616263");
}

Test(peer_wire_bytes, copy)
{
    uint32_t crcs[] = {0x01020304, 5};
    struct wire_copy m = {.to_token = 1,
                          .from_token = 2,
                          .offer = {.term = 3,
                                    .version = {3, 40},
                                    .shard = A,
                                    .image_bytes = CHUNK_BYTES + 1,
                                    .root = B,
                                    .base = {3, 39},
                                    .base_root = A},
                          .same_bytes = 1,
                          .same = (const uint8_t[]){2}};
    struct writer w = writer_new(0);
    wire_copy_encode(&m, &w);
    wire_crcs_encode(crcs, 2, &w);
    codec_bytes(&w, "0100000000000000020000000000000003000000000000000300000000000000280000000000000088776655"
                    "4433221100ffeeddccbbaa990100400000000000887766554433222103000000000000000300000000000000"
                    "2700000000000000887766554433221100ffeeddccbbaa9901000000020403020105000000");
    writer_free(&w);
}

Test(peer_wire_bytes, grant)
{
    BYTES(grant, (&(struct wire_grant){.to_token = 1, .from_token = 0x1234567890, .has_base = true}),
          "0100000000000000907856341200000001");
}

Test(peer_wire_bytes, ack)
{
    BYTES(ack, (&(struct wire_ack){.to_token = 1, .root = A}), "0100000000000000887766554433221100ffeeddccbbaa99");
}

Test(peer_wire_bytes, end)
{
    BYTES(end, (&(struct wire_end){.to_token = 1, .error = {.code = TCK_ERR_CORRUPT, .text = "bad"}}),
          "0100000000000000080000000300626164");
}

Test(peer_wire_bytes, relay)
{
    struct wire_relay m = {
        .to = 1, .from = 0x1234567890, .session = 3, .ended = true, .data = (const uint8_t *)"abc", .len = 3};
    BYTES(relay, &m, "01000000000000009078563412000000030000000000000001616263");
}

Test(peer_wire_bytes, chunk)
{
    struct wire_chunk m = {.to_token = 0x1122334455667788, .index = 0x99aabbcc};
    BYTES(chunk, &m, "8877665544332211ccbbaa99");
    cr_assert_eq(WIRE_CHUNK_BYTES, 12);
}

Test(peer_wire_bytes, copied)
{
    BYTES(copied, (&(struct wire_copied){.to_token = 1, .bytes = 0x400000}), "01000000000000000000400000000000");
}

Test(peer_wire_bytes, measure)
{
    BYTES(measure, (&(struct wire_measure){.to_token = 1, .from_token = 0x1234567890, .bytes = 0x400000}),
          "010000000000000090785634120000000000400000000000");
}
