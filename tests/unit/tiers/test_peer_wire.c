/* SPDX-License-Identifier: Apache-2.0
 * Messages between agents survive a round trip; truncated, lengthened and invented ones are refused. */
#include "tiers/peer_wire.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct node_info node = {.name = "n1", .domain = "r1", .address = "10.0.0.1:4000", .agent_id = 42};

static struct wire_hello sample_hello(void)
{
    return (struct wire_hello){.format = PEER_FORMAT, .job = "job", .role = WIRE_BULK, .session = 77, .node = node};
}

static struct wire_copy sample_copy(void)
{
    return (struct wire_copy){
        .to_token = 1,
        .from_token = 2,
        .offer = {
            .term = 3, .version = {3, 900}, .shard = {5, 6}, .image_bytes = 2 * CHUNK_BYTES + 4096, .root = {7, 8}}};
}

Test(peer_wire, hello_survives_a_round_trip)
{
    struct wire_hello in = sample_hello(), out;
    struct writer w = writer_new(0);
    wire_hello_encode(&in, &w);
    cr_assert_eq(wire_hello_decode(w.data, w.len, &out), TCK_OK);
    cr_expect_str_eq(out.job, "job");
    cr_expect_eq(out.role, WIRE_BULK);
    cr_expect_eq(out.session, 77);
    cr_expect_eq(out.node.agent_id, 42);
    cr_expect_str_eq(out.node.address, node.address);
    writer_free(&w);
}

Test(peer_wire, hello_of_another_format_still_has_format_and_job)
{
    struct wire_hello in = sample_hello();
    struct writer w = writer_new(0);
    in.format = PEER_FORMAT + 1;
    wire_hello_encode(&in, &w);
    write_u64(&w, 1); /* what a later format may add */
    struct reader r = reader_of(w.data, w.len);
    struct wire_hello_head head = read_wire_hello_head(&r);
    cr_assert_not(r.failed);
    cr_expect_eq(head.format, PEER_FORMAT + 1);
    cr_expect_str_eq(head.job, "job");
    writer_free(&w);
}

Test(peer_wire, hello_cut_anywhere_is_refused)
{
    struct wire_hello in = sample_hello(), out;
    struct writer w = writer_new(0);
    wire_hello_encode(&in, &w);
    for (size_t len = 0; len < w.len; len++) {
        cr_expect_eq(wire_hello_decode(w.data, len, &out), TCK_ERR_PROTO, "%zu bytes", len);
    }
    writer_free(&w);
}

Test(peer_wire, hello_with_an_invalid_name_is_refused)
{
    struct wire_hello in = sample_hello(), out;
    struct writer w = writer_new(0);
    strcpy(in.node.name, "../x");
    wire_hello_encode(&in, &w);
    cr_expect_eq(wire_hello_decode(w.data, w.len, &out), TCK_ERR_PROTO);
    writer_free(&w);
}

Test(peer_wire, copy_survives_a_round_trip_with_its_table)
{
    static const uint32_t table[] = {11, 22, 33};
    struct wire_copy in = sample_copy(), out;
    struct writer w = writer_new(0);
    uint32_t *crcs;
    wire_copy_encode(&in, &w);
    wire_crcs_encode(table, 3, &w);
    cr_assert_eq(wire_copy_decode(w.data, w.len, &out), TCK_OK);
    cr_expect_eq(out.crcs_bytes, sizeof(table));
    cr_expect_eq(out.from_token, 2);
    cr_expect(version_is(out.offer.version, in.offer.version));
    cr_expect(hash128_is(out.offer.root, in.offer.root));
    crcs = wire_copy_crcs(&out);
    cr_expect_eq(memcmp(crcs, table, sizeof(table)), 0);
    free(crcs);
    writer_free(&w);
}

Test(peer_wire, copy_with_a_table_of_another_length_is_refused)
{
    static const uint32_t table[] = {11, 22, 33};
    struct wire_copy in = sample_copy(), out;
    struct writer w = writer_new(0);
    wire_copy_encode(&in, &w);
    size_t without = w.len;
    wire_crcs_encode(table, 3, &w);
    write_u32(&w, 44);
    for (size_t len = 0; len <= w.len; len++) {
        tck_status_t want = len == without || len == without + sizeof(table) ? TCK_OK : TCK_ERR_PROTO;
        cr_expect_eq(wire_copy_decode(w.data, len, &out), want, "%zu bytes", len);
    }
    writer_free(&w);
}

static tck_status_t copy_on(struct version base, uint32_t same_bytes, bool with_table)
{
    static const uint8_t same[2] = {5};
    static const uint32_t table[] = {11, 22, 33};
    struct wire_copy in = sample_copy(), out;
    struct writer w = writer_new(0);
    in.offer.base = base;
    in.same = same;
    in.same_bytes = same_bytes;
    wire_copy_encode(&in, &w);
    wire_crcs_encode(table, with_table ? 3 : 0, &w);
    tck_status_t status = wire_copy_decode(w.data, w.len, &out);
    if (status == TCK_OK) {
        cr_expect(version_is(out.offer.base, base));
        cr_expect(same_bytes == 0 || out.same[0] == 5);
    }
    writer_free(&w);
    return status;
}

Test(peer_wire, an_offer_with_a_base_has_a_bit_for_each_chunk)
{
    const struct version base = {1, 1};
    cr_expect_eq(copy_on(base, 1, true), TCK_OK);
    cr_expect_eq(copy_on(base, 0, true), TCK_ERR_PROTO);
    cr_expect_eq(copy_on(base, 2, true), TCK_ERR_PROTO);
    cr_expect_eq(copy_on(VERSION_NONE, 1, true), TCK_ERR_PROTO);
    cr_expect_eq(copy_on(VERSION_NONE, 0, true), TCK_OK);
    cr_expect_eq(copy_on(base, 1, false), TCK_ERR_PROTO, "what is asked for has none");
}

Test(peer_wire, copy_of_an_impossible_size_is_refused)
{
    static const uint64_t sizes[] = {0, WIRE_IMAGE_MAX + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct wire_copy in = sample_copy(), out;
        struct writer w = writer_new(0);
        in.offer.image_bytes = sizes[i];
        wire_copy_encode(&in, &w);
        cr_expect_eq(wire_copy_decode(w.data, w.len, &out), TCK_ERR_PROTO);
        writer_free(&w);
    }
}

static tck_status_t part(enum wire_kind kind, uint32_t total, uint32_t offset, size_t len)
{
    static const uint8_t payload[64];
    struct wire_part in = {.kind = kind, .type = 9, .total = total, .offset = offset, .data = payload, .len = len};
    struct wire_part out;
    struct writer w = writer_new(0);
    tck_status_t status;
    wire_part_encode(&in, &w);
    status = wire_part_decode(w.data, w.len, &out);
    writer_free(&w);
    return status;
}

Test(peer_wire, parts_lie_inside_their_message)
{
    cr_expect_eq(part(WIRE_MESSAGE, 64, 0, 64), TCK_OK);
    cr_expect_eq(part(WIRE_MESSAGE, 64, 60, 4), TCK_OK);
    cr_expect_eq(part(WIRE_MESSAGE, 0, 0, 0), TCK_OK);
    cr_expect_eq(part(WIRE_MESSAGE, 64, 61, 4), TCK_ERR_PROTO);
    cr_expect_eq(part(WIRE_MESSAGE, 64, 65, 0), TCK_ERR_PROTO);
    cr_expect_eq(part(WIRE_MESSAGE, 64, 10, 0), TCK_ERR_PROTO);
    cr_expect_eq(part(WIRE_MESSAGE, PEER_MESSAGE_MAX + 1, 0, 64), TCK_ERR_PROTO);
    cr_expect_eq(part(WIRE_HELLO, 64, 0, 64), TCK_ERR_PROTO);
    cr_expect_eq(part(WIRE_MEASURE_END + 1, 64, 0, 64), TCK_ERR_PROTO);
}

Test(peer_wire, ends_carry_only_real_errors)
{
    struct wire_end in = {.to_token = 5, .error = {.code = TCK_ERR_CORRUPT, .text = "why"}}, out;
    struct writer w = writer_new(0);
    wire_end_encode(&in, &w);
    cr_assert_eq(wire_end_decode(w.data, w.len, &out), TCK_OK);
    cr_expect_eq(out.error.code, TCK_ERR_CORRUPT);
    cr_expect_str_eq(out.error.text, "why");
    w.data[8] = 0;
    cr_expect_eq(wire_end_decode(w.data, w.len, &out), TCK_ERR_PROTO);
    w.data[8] = 200;
    cr_expect_eq(wire_end_decode(w.data, w.len, &out), TCK_ERR_PROTO);
    writer_free(&w);
}

Test(peer_wire, chunk_headers_survive_a_round_trip)
{
    struct wire_chunk in = {.to_token = 0x1122334455667788, .index = 0x99aabbcc}, out;
    uint8_t header[WIRE_CHUNK_BYTES];
    struct writer w = writer_over(header, sizeof(header));
    wire_chunk_encode(&in, &w);
    cr_assert_eq(wire_chunk_decode(header, sizeof(header), &out), TCK_OK);
    cr_expect_eq(out.to_token, in.to_token);
    cr_expect_eq(out.index, in.index);
    cr_expect_eq(wire_chunk_decode(header, sizeof(header) - 1, &out), TCK_ERR_PROTO);
}
