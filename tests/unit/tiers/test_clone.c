/* SPDX-License-Identifier: Apache-2.0
 * Which chunks a file shares with an older one, and which older files are remembered. */
#include "base/same_chunks.h"
#include "tiers/clone_choice.h"
#include "tiers/clone_past.h"
#include "tiers/clone_put.h"
#include "tiers/persistent_impl.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define CHUNKS 5u
#define BYTES  ((CHUNKS - 1) * (uint64_t)CHUNK_BYTES + 8192)

/* ---- the choice ------------------------------------------------------------------------------------------------ */

static struct hash128 hashes[2][CHUNKS];
static uint32_t crcs[2][CHUNKS];
static const struct hashed image = {BYTES, crcs[0], hashes[0]}, base = {BYTES, crcs[1], hashes[1]};

static void set_up(void)
{
    for (uint32_t i = 0; i < CHUNKS; i++) {
        hashes[0][i] = hashes[1][i] = (struct hash128){7, i};
        crcs[0][i] = crcs[1][i] = 100 + i % 2; /* some are equal by chance */
    }
}

TestSuite(clone_choice, .init = set_up);

Test(clone_choice, all_chunks_are_the_same)
{
    uint8_t bits[1] = {0};
    cr_assert_eq(clone_choose(&image, &base, bits), BYTES);
    cr_assert_eq(bits[0], 0x1f);
}

Test(clone_choice, either_half_of_a_hash_makes_a_chunk_another)
{
    uint8_t bits[1] = {0};
    hashes[0][1].hi++;
    hashes[0][3].lo++;
    cr_assert_eq(clone_choose(&image, &base, bits), BYTES - 2 * CHUNK_BYTES);
    cr_assert_eq(bits[0], 0x15);
}

Test(clone_choice, another_crc_makes_a_chunk_another)
{
    uint8_t bits[1] = {0};
    crcs[0][2]++;
    cr_assert_not(clone_may_be_same(&image, &base, 2));
    cr_assert(clone_may_be_same(&image, &base, 3));
    cr_assert_eq(clone_choose(&image, &base, bits), BYTES - CHUNK_BYTES);
    cr_assert_eq(bits[0], 0x1b);
}

Test(clone_choice, a_hash_that_was_not_made_equals_none)
{
    uint8_t bits[1] = {0};
    hashes[0][0] = hashes[0][1] = hashes[1][1] = hashes[1][2] = (struct hash128){0, 0};
    cr_assert_eq(clone_choose(&image, &base, bits), BYTES - 3 * CHUNK_BYTES);
    cr_assert_eq(bits[0], 0x18);
}

Test(clone_choice, a_chunk_elsewhere_is_not_the_same)
{
    uint8_t bits[1] = {0};
    hashes[0][0] = hashes[1][2];
    hashes[0][2] = hashes[1][0];
    cr_assert_eq(clone_choose(&image, &base, bits), BYTES - 2 * CHUNK_BYTES);
    cr_assert_eq(bits[0], 0x1a);
}

Test(clone_choice, the_last_chunk_counts_with_its_own_bytes)
{
    uint8_t bits[1] = {0};
    for (uint32_t i = 0; i + 1 < CHUNKS; i++) {
        hashes[0][i].lo += 100;
    }
    cr_assert_eq(clone_choose(&image, &base, bits), 8192);
    cr_assert_eq(bits[0], 0x10);
}

Test(clone_choice, images_of_different_sizes_share_nothing)
{
    uint8_t bits[1] = {0};
    const struct hashed shorter = {BYTES - 4096, crcs[1], hashes[1]};
    cr_assert_eq(clone_choose(&image, &shorter, bits), 0);
    cr_assert_eq(bits[0], 0);
}

Test(clone_choice, one_in_so_many_is_whole)
{
    for (uint32_t one_in = 0; one_in < 2; one_in++) {
        cr_assert_not(clone_may_share(0, one_in));
        cr_assert_not(clone_may_share(UINT32_MAX, one_in));
    }
    cr_assert(clone_may_share(0, 2));
    cr_assert_not(clone_may_share(1, 2));
    cr_assert(clone_may_share(6, 8));
    cr_assert_not(clone_may_share(7, 8));
}

Test(clone_choice, runs_cover_all_chunks_once)
{
    for (uint32_t mask = 0; mask < 1u << CHUNKS; mask++) {
        const uint8_t bits[1] = {(uint8_t)mask};
        uint32_t seen = 0;
        for (int set = 0; set < 2; set++) {
            struct chunk_run run = chunk_run_next(bits, CHUNKS, 0, set);
            while (run.count > 0) {
                for (uint32_t i = run.first; i < run.first + run.count; i++) {
                    cr_assert_eq(bit_is_set(bits, i), set);
                    cr_assert_eq(seen >> i & 1, 0);
                    seen |= 1u << i;
                }
                cr_assert(run.first + run.count == CHUNKS || bit_is_set(bits, run.first + run.count) != set);
                run = chunk_run_next(bits, CHUNKS, run.first + run.count, set);
            }
        }
        cr_assert_eq(seen, (1u << CHUNKS) - 1);
    }
}

/* ---- what is remembered ---------------------------------------------------------------------------------------- */

static struct clone_past *list;

static void forget(void)
{
    clone_past_free(list);
}

TestSuite(clone_past, .fini = forget);

/* A file of a shard was written: as a put does. Returns what was remembered of the shard before. */
static void write_file(uint64_t shard, uint64_t step, int base_was)
{
    struct clone_past *past = clone_past_take(&list, (struct hash128){0, shard});
    clone_past_add(past, clone_base_new((struct version){1, step}, 4096, crcs[0]),
                   base_was < 0 ? NULL : past->of[base_was]);
    clone_past_return(&list, past);
}

static void check_past(uint64_t shard, uint64_t newest, uint64_t older)
{
    struct clone_past *past = clone_past_take(&list, (struct hash128){0, shard});
    cr_assert_eq(past->of[0] != NULL ? past->of[0]->version.step : 0, newest);
    cr_assert_eq(past->of[1] != NULL ? past->of[1]->version.step : 0, older);
    clone_past_return(&list, past);
}

Test(clone_past, the_last_two_files_are_remembered)
{
    write_file(1, 10, -1);
    check_past(1, 10, 0);
    write_file(1, 20, 0);
    write_file(1, 30, 0);
    check_past(1, 30, 20);
}

Test(clone_past, a_file_that_was_shared_with_outlives_one_that_was_never_published)
{
    write_file(1, 10, -1);
    write_file(1, 20, 0);
    write_file(1, 30, 1);
    check_past(1, 30, 10);
}

Test(clone_past, what_is_dropped_is_not_found_again)
{
    write_file(1, 10, -1);
    write_file(1, 20, 0);
    struct clone_past *past = clone_past_take(&list, (struct hash128){0, 1});
    clone_past_drop(past, past->of[0]);
    clone_past_return(&list, past);
    check_past(1, 10, 0);
    past = clone_past_take(&list, (struct hash128){0, 1});
    clone_past_drop(past, past->of[0]);
    clone_past_return(&list, past);
    cr_assert_null(list, "nothing is left to remember");
}

Test(clone_past, a_shard_that_is_no_longer_written_here_is_forgotten)
{
    write_file(1, 10, -1);
    write_file(2, 10, -1);
    write_file(1, 20, 0);
    check_past(2, 10, 0);
    write_file(1, 30, 0);
    check_past(2, 0, 0);
    check_past(1, 30, 20);
}

Test(clone_past, of_two_puts_at_once_one_is_remembered)
{
    struct clone_past *first = clone_past_take(&list, (struct hash128){0, 1});
    struct clone_past *second = clone_past_take(&list, (struct hash128){0, 1});
    clone_past_add(first, clone_base_new((struct version){1, 10}, 4096, crcs[0]), NULL);
    clone_past_add(second, clone_base_new((struct version){1, 20}, 4096, crcs[0]), NULL);
    clone_past_return(&list, second);
    clone_past_return(&list, first);
    check_past(1, 20, 0);
}

/* ---- hashing --------------------------------------------------------------------------------------------------- */

/* Hashes the image of a shard whose last file had the same CRCs. Returns when the tier last moved; 0: never. */
static uint64_t digest_all(struct persistent *p, uint64_t epoch)
{
    static uint8_t bytes[2 * CHUNK_BYTES];
    static uint32_t same[2];
    const struct config config = {.storage_clone = 8, .storage_verify = SWITCH_ON};
    const struct tier_item item = {.version = {1, 2}, .image_bytes = sizeof(bytes), .image = bytes, .crcs = same};
    p->job.fd = 0; /* any: nothing is opened */
    p->config = &config;
    p->clones.state = CLONES_WORK;
    struct clone_past *past = clone_past_take(&p->clones.past, item.shard);
    clone_past_add(past, clone_base_new((struct version){1, 1}, sizeof(bytes), same), NULL);
    clone_past_return(&p->clones.past, past);
    struct clone_put *c = clone_put_begin(p, &item);
    cr_assert_not_null(c);
    clone_put_digest(c, p, epoch);
    clone_put_end(p, c);
    clone_past_free(p->clones.past);
    return persistent_moved_ms(p);
}

/* Else a big shard of which little has changed looks like storage that hangs. */
Test(clone_put, hashing_counts_as_progress)
{
    struct persistent p = {0};
    cr_assert_gt(digest_all(&p, 0), 0);
}

Test(clone_put, hashing_ends_when_the_tier_closes_or_the_put_is_given_up)
{
    struct persistent closing = {.canceled = true}, open = {0};
    cr_assert_eq(digest_all(&closing, 0), 0);
    cr_assert_eq(digest_all(&open, 1), 0);
}
