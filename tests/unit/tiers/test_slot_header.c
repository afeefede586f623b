/* SPDX-License-Identifier: Apache-2.0
 * Header pages survive a round trip, the newest complete one is used, and no damaged one is accepted. */
#include "../base/codec.h"
#include "tiers/slot_header.h"

#include <criterion/criterion.h>
#include <endian.h>
#include <string.h>

#define CRC_OFFSET    8
#define FORMAT_OFFSET 12

static struct slot_header sample(uint64_t sequence)
{
    return (struct slot_header){.sequence = sequence,
                                .job = "llama-7b",
                                .segment = {1, 2},
                                .slot = 1,
                                .slot_count = 3,
                                .slot_stride = 8u << 20,
                                .image_bytes = (8u << 20) - 4096,
                                .shard = {3, 4},
                                .layout = {5, 6},
                                .version = {7, 800},
                                .state = SLOT_VERIFIED,
                                .chunk_bytes = CHUNK_BYTES,
                                .root = {9, 10},
                                .committed = true,
                                .to_storage = true,
                                .writer = {.process = {4711, 123456789}, .rank = 6}};
}

static void put_crc(uint8_t *page)
{
    uint32_t crc = htole32(crc32c(0, page + FORMAT_OFFSET, SLOT_HEADER_BYTES - FORMAT_OFFSET));
    memcpy(page + CRC_OFFSET, &crc, sizeof(crc));
}

static tck_status_t decode_of(const struct slot_header *header)
{
    uint8_t page[SLOT_HEADER_BYTES];
    struct slot_header out;
    slot_header_encode(header, page);
    return slot_header_decode(page, &out, NULL);
}

/* A later agent reads headers that an earlier one has written: changing these bytes requires a new SLOT_FORMAT. */
Test(slot_header, has_these_bytes)
{
    struct slot_header header = sample(42);
    uint8_t page[SLOT_HEADER_BYTES];
    struct writer w = {.data = page, .len = 200};

    slot_header_encode(&header, page);
    for (size_t i = w.len; i < sizeof(page); i++) {
        cr_assert_eq(page[i], 0);
    }
    codec_bytes(&w, "54636b536c6f7431f785fad7030000002a0000000000000008006c6c616d612d376201000000000000000200"
                    "0000000000000100000003000000000080000000000000f07f00000000000300000000000000040000000000"
                    "0000050000000000000006000000000000000700000000000000200300000000000004000040000900000000"
                    "0000000a0000000000000001016712000015cd5b070000000006000000000000000000000000000000000000"
                    "000000000000000000000000000000000000000000000000");
}

Test(slot_header, survives_a_round_trip)
{
    struct slot_header want = sample(42), got;
    struct error err = {0};
    uint8_t page[SLOT_HEADER_BYTES];

    slot_header_encode(&want, page);
    cr_assert_eq(slot_header_decode(page, &got, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(got.sequence, want.sequence);
    cr_assert_str_eq(got.job, want.job);
    cr_assert(hash128_is(got.segment, want.segment));
    cr_assert_eq(got.slot, want.slot);
    cr_assert_eq(got.slot_count, want.slot_count);
    cr_assert_eq(got.slot_stride, want.slot_stride);
    cr_assert_eq(got.image_bytes, want.image_bytes);
    cr_assert(hash128_is(got.shard, want.shard));
    cr_assert(hash128_is(got.layout, want.layout));
    cr_assert(version_is(got.version, want.version));
    cr_assert_eq(got.state, want.state);
    cr_assert_eq(got.chunk_bytes, want.chunk_bytes);
    cr_assert(hash128_is(got.root, want.root));
    cr_assert_eq(got.committed, want.committed);
    cr_assert_eq(got.to_storage, want.to_storage);
    cr_assert_eq(got.writer.process.pid, want.writer.process.pid);
    cr_assert_eq(got.writer.process.start, want.writer.process.start);
    cr_assert_eq(got.writer.rank, want.writer.rank);
}

Test(slot_header, refuses_every_flipped_bit)
{
    struct slot_header want = sample(1), got;
    uint8_t page[SLOT_HEADER_BYTES];

    slot_header_encode(&want, page);
    for (size_t bit = 0; bit < 8 * sizeof(page); bit++) {
        page[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert_eq(slot_header_decode(page, &got, NULL), TCK_ERR_CORRUPT, "bit %zu", bit);
        page[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

Test(slot_header, names_both_formats_of_a_newer_one)
{
    struct slot_header want = sample(1), got;
    struct error err = {0};
    uint8_t page[SLOT_HEADER_BYTES];

    slot_header_encode(&want, page);
    page[FORMAT_OFFSET] = 9;
    put_crc(page);
    cr_assert_eq(slot_header_decode(page, &got, &err), TCK_ERR_PROTO);
    cr_assert_not_null(strstr(err.text, "format 9, this build reads format 3"), "%s", err.text);
}

#define ASSERT_REFUSED(change)                                      \
    do {                                                            \
        struct slot_header header = sample(1);                      \
        change;                                                     \
        cr_assert_eq(decode_of(&header), TCK_ERR_CORRUPT, #change); \
    } while (0)

Test(slot_header, refuses_contradictory_fields_with_a_correct_crc)
{
    ASSERT_REFUSED(header.slot = 3);
    ASSERT_REFUSED(header.slot_count = CORE_SLOTS_MAX + 1);
    ASSERT_REFUSED(header.image_bytes = header.slot_stride + 1);
    ASSERT_REFUSED(header.image_bytes = 0);
    ASSERT_REFUSED(header.slot_stride = SLOT_STRIDE_MAX + 4096);
    ASSERT_REFUSED(header.chunk_bytes = 1);
    ASSERT_REFUSED(header.state = SLOT_STATES);
    ASSERT_REFUSED(header.writer.process.pid = -1);
    ASSERT_REFUSED(strcpy(header.job, "../job"));
}

static uint64_t newest_of(uint64_t sequence_a, uint64_t sequence_b)
{
    struct slot_header a = sample(sequence_a), b = sample(sequence_b), got;
    uint8_t page_a[SLOT_HEADER_BYTES], page_b[SLOT_HEADER_BYTES];
    slot_header_encode(&a, page_a);
    slot_header_encode(&b, page_b);
    cr_assert_eq(slot_header_newest(page_a, page_b, &got, NULL), TCK_OK);
    return got.sequence;
}

Test(slot_header, takes_the_page_with_the_higher_sequence)
{
    cr_assert_eq(newest_of(5, 6), 6);
    cr_assert_eq(newest_of(6, 5), 6);
}

Test(slot_header, takes_the_older_page_if_the_newer_one_is_torn)
{
    struct slot_header older = sample(5), newer = sample(6), got;
    uint8_t page_a[SLOT_HEADER_BYTES], page_b[SLOT_HEADER_BYTES];

    slot_header_encode(&older, page_a);
    slot_header_encode(&newer, page_b);
    memset(page_b + 64, 0, 32);
    cr_assert_eq(slot_header_newest(page_a, page_b, &got, NULL), TCK_OK);
    cr_assert_eq(got.sequence, 5);
    cr_assert_eq(slot_header_newest(page_b, page_a, &got, NULL), TCK_OK);
    cr_assert_eq(got.sequence, 5);
}

Test(slot_header, reports_why_neither_page_is_complete)
{
    struct slot_header header = sample(5), got;
    struct error err = {0};
    uint8_t page_a[SLOT_HEADER_BYTES] = {0}, page_b[SLOT_HEADER_BYTES];

    slot_header_encode(&header, page_b);
    page_b[100] ^= 1;
    cr_assert_eq(slot_header_newest(page_a, page_b, &got, &err), TCK_ERR_CORRUPT);
    cr_assert_not_null(strstr(err.text, "first: not a slot header, second: the CRC"), "%s", err.text);
}

Test(slot_header, does_not_fall_back_to_an_old_page_beside_one_of_another_format)
{
    struct slot_header older = sample(5), newer = sample(6), got;
    uint8_t page_a[SLOT_HEADER_BYTES], page_b[SLOT_HEADER_BYTES];

    slot_header_encode(&older, page_a);
    slot_header_encode(&newer, page_b);
    page_b[FORMAT_OFFSET] = SLOT_FORMAT + 1;
    put_crc(page_b);
    cr_assert_eq(slot_header_newest(page_a, page_b, &got, NULL), TCK_ERR_PROTO);
}
