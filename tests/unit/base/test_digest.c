/* SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* An image whose chunks all differ. Caller frees. */
static uint8_t *new_image(size_t len)
{
    uint8_t *image = malloc(len + 1);

    cr_assert_not_null(image);
    for (size_t i = 0; i < len; i++) {
        image[i] = (uint8_t)(i ^ i >> 8 ^ i >> 17);
    }
    return image;
}

Test(digest, crc32c_gives_the_published_values)
{
    static const uint8_t zeros[32];
    uint8_t ones[32];

    memset(ones, 0xff, sizeof(ones));
    cr_assert_eq(crc32c(0, "123456789", 9), 0xE3069283);
    cr_assert_eq(crc32c(0, zeros, 32), 0x8A9136AA); /* RFC 3720, B.4 */
    cr_assert_eq(crc32c(0, ones, 32), 0x62A8AB43);
    cr_assert_eq(crc32c(0, NULL, 0), 0);
}

Test(digest, crc32c_continues_from_an_earlier_result)
{
    for (size_t cut = 0; cut <= 9; cut++) {
        cr_assert_eq(crc32c(crc32c(0, "123456789", cut), "123456789" + cut, 9 - cut), 0xE3069283);
    }
}

Test(digest, hash128_is_xxh3)
{
    struct hash128 empty = hash128_of("", 0);

    cr_assert_eq(empty.hi, 0x99aa06d3014798d8); /* from the xxHash specification */
    cr_assert_eq(empty.lo, 0x6001c324468d497f);
}

Test(digest, chunks_cover_the_image)
{
    cr_assert_eq(chunk_count(0), 0);
    cr_assert_eq(chunk_count(1), 1);
    cr_assert_eq(chunk_count(CHUNK_BYTES), 1);
    cr_assert_eq(chunk_count(CHUNK_BYTES + 1), 2);
    cr_assert_eq(chunk_size(CHUNK_BYTES + 1, 0), CHUNK_BYTES);
    cr_assert_eq(chunk_size(CHUNK_BYTES + 1, 1), 1);
    cr_assert_eq(chunk_size(2 * (uint64_t)CHUNK_BYTES, 1), CHUNK_BYTES);
}

/* The root as the header defines it, computed in one piece. */
static struct hash128 expected_root(const uint32_t *crcs, uint64_t len)
{
    struct writer w = writer_new(0);
    struct hash128 root;

    write_u64(&w, len);
    for (uint32_t i = 0; i < chunk_count(len); i++) {
        write_u32(&w, crcs[i]);
    }
    root = hash128_of(w.data, w.len);
    writer_free(&w);
    return root;
}

static void check_image(uint64_t len)
{
    uint32_t crcs[4] = {0};
    uint8_t *image = new_image(len);
    struct hash128 root = digest_image(image, len, crcs);

    for (uint32_t i = 0; i < chunk_count(len); i++) {
        cr_assert_eq(crcs[i], crc32c(0, image + (size_t)i * CHUNK_BYTES, chunk_size(len, i)));
    }
    cr_assert(hash128_is(root, expected_root(crcs, len)));
    cr_assert(hash128_is(root, digest_root(crcs, len)));
    free(image);
}

Test(digest, root_is_the_hash_of_length_and_chunk_crcs)
{
    check_image(0);
    check_image(1);
    check_image(CHUNK_BYTES);
    check_image(2 * (uint64_t)CHUNK_BYTES + 12345);
}

Test(digest, one_flipped_bit_changes_its_chunk_and_the_root_only)
{
    uint64_t len = 2 * (uint64_t)CHUNK_BYTES + 100;
    uint32_t before[3], after[3];
    uint8_t *image = new_image(len);
    struct hash128 root = digest_image(image, len, before);

    image[CHUNK_BYTES + 77] ^= 0x10;
    cr_assert_not(hash128_is(root, digest_image(image, len, after)));
    cr_assert_eq(before[0], after[0]);
    cr_assert_neq(before[1], after[1]);
    cr_assert_eq(before[2], after[2]);
    free(image);
}

Test(digest, root_differs_for_images_that_differ_only_in_length)
{
    static const uint32_t crcs[1] = {0};

    cr_assert_not(hash128_is(digest_root(crcs, 1), digest_root(crcs, 2)));
}

Test(digest, the_crc_of_pieces_in_a_row_follows_from_theirs)
{
    static const size_t sizes[] = {1, 2, 31, 4096, 100000};
    static unsigned char bytes[100001];
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (unsigned char)(i * 7 + (i >> 8));
    }
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        uint32_t first = crc32c(0, bytes, 1), second = crc32c(0, bytes + 1, sizes[s]);
        cr_assert_eq(crc32c_join(first, second, sizes[s]), crc32c(0, bytes, 1 + sizes[s]));
    }
}

Test(digest, the_crc_of_a_part_follows_from_its_chunks)
{
    const uint64_t bytes = (3u * (uint64_t)CHUNK_BYTES) + 12345;
    uint8_t *image = malloc(bytes);
    uint32_t crcs[4];
    cr_assert_not_null(image);
    for (uint64_t i = 0; i < bytes; i++) {
        image[i] = (uint8_t)(i * 31 + (i >> 13));
    }
    (void)digest_image(image, bytes, crcs);
    cr_assert_eq(crc32c_of_chunks(crcs, bytes, 0, 4), crc32c(0, image, bytes));
    cr_assert_eq(crc32c_of_chunks(crcs, bytes, 1, 2), crc32c(0, image + CHUNK_BYTES, 2 * CHUNK_BYTES));
    cr_assert_eq(crc32c_of_chunks(crcs, bytes, 2, 2), crc32c(0, image + 2 * CHUNK_BYTES, CHUNK_BYTES + 12345));
    cr_assert_eq(crc32c_of_chunks(crcs, bytes, 3, 1), crcs[3]);
    free(image);
}
