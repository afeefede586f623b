/* SPDX-License-Identifier: Apache-2.0 */
#include "base/same_chunks.h"

#include "base/progress.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (2 * (uint64_t)CHUNK_BYTES + 4096)

static uint8_t *images[2];
static uint32_t crcs[2][3];
static struct digested a, b;
static uint8_t bits[1];

static void digest(void)
{
    for (int i = 0; i < 2; i++) {
        (void)digest_image(images[i], BYTES, crcs[i]);
    }
    a = (struct digested){images[0], crcs[0]};
    b = (struct digested){images[1], crcs[1]};
}

static void set_up(void)
{
    for (int i = 0; i < 2; i++) {
        images[i] = malloc(BYTES);
        memset(images[i], 7, BYTES);
    }
    digest();
}

static void tear_down(void)
{
    free(images[0]);
    free(images[1]);
}

TestSuite(same_chunks, .init = set_up, .fini = tear_down);

Test(same_chunks, has_a_bit_for_each_chunk_that_did_not_change)
{
    images[0][CHUNK_BYTES] ^= 1;
    digest();
    cr_assert_eq(same_chunks(&a, &b, BYTES, 0, 3, bits), CHUNK_BYTES + 4096);
    cr_assert_eq(bits[0], 5);
}

Test(same_chunks, compares_the_bytes_of_chunks_with_equal_crcs)
{
    images[1][BYTES - 1] ^= 1; /* and the table says that it is as before */
    cr_assert_eq(same_chunks(&a, &b, BYTES, 0, 3, bits), 2 * (uint64_t)CHUNK_BYTES);
    cr_assert_eq(bits[0], 3);
}

Test(same_chunks, reads_no_chunk_whose_crc_differs)
{
    for (uint32_t i = 0; i < 3; i++) {
        crcs[0][i] ^= 1;
    }
    a.image = b.image = NULL;
    cr_assert_not(same_chunks_possible(&a, &b, BYTES));
    cr_assert_eq(same_chunks(&a, &b, BYTES, 0, 3, bits), 0);
    cr_assert_eq(bits[0], 0);
}

Test(same_chunks, compares_a_part)
{
    cr_assert(same_chunks_possible(&a, &b, BYTES));
    cr_assert_eq(same_chunks(&a, &b, BYTES, 1, 1, bits), CHUNK_BYTES);
    cr_assert_eq(bits[0], 2);
    cr_assert_eq(same_chunks(&a, &b, BYTES, 2, 16, bits), 4096, "there are no more");
    cr_assert_eq(bits[0], 6);
    cr_assert_eq(same_chunks(&a, &b, BYTES, 3, 16, bits), 0);
}
