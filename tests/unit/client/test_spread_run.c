/* SPDX-License-Identifier: Apache-2.0
 * Shards passed among ranks that are threads, over their allgather and over transports that fail. */
#include "ranks.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(spread_run, .timeout = 200);

static struct ranks ranks;

static void all_are(tck_status_t status)
{
    for (uint32_t r = 0; r < ranks.world.world_size; r++) {
        cr_assert_eq(ranks.ranks[r].status, status, "rank %u: %s", r, ranks.ranks[r].err.text);
    }
}

/* Nothing has changed: received images are freed, and existing ones are untouched. */
static void nothing_came(void)
{
    for (uint32_t r = 0; r < ranks.world.world_size; r++) {
        for (uint32_t k = 0; k < ranks.ranks[r].own.count; k++) {
            bool here = ranks.ranks[r].roots[k].hi != 0 || ranks.ranks[r].roots[k].lo != 0;
            cr_assert_eq(ranks.ranks[r].images[k] != NULL, here);
            cr_assert_not(ranks.ranks[r].came[k]);
        }
    }
}

Test(spread_run, gives_every_rank_its_shards_to_the_byte)
{
    ranks_begin(&ranks, 5, &spread_oob);
    ranks_shard(&ranks, "aBcD", 9000001);
    ranks_shard(&ranks, "Abe", 1);
    ranks_shard(&ranks, "E", 4096);
    ranks_shard(&ranks, "abcdE", 4 << 20);
    ranks_run(&ranks);
    all_are(TCK_OK);
    cr_assert(ranks_all_whole(&ranks));
    ranks_end(&ranks);
}

Test(spread_run, leaves_images_that_are_here_where_they_are)
{
    ranks_begin(&ranks, 3, &spread_oob);
    ranks_shard(&ranks, "Abc", 100000);
    ranks_run(&ranks);
    all_are(TCK_OK);
    cr_assert_eq(ranks_image(&ranks, 0, 0), ranks.images[0]);
    cr_assert_not(ranks.ranks[0].came[0]);
    cr_assert(ranks.ranks[1].came[0] && ranks.ranks[2].came[0]);
    ranks_end(&ranks);
}

Test(spread_run, sends_no_bytes_where_nobody_lacks_any)
{
    ranks_begin(&ranks, 3, &spread_oob);
    ranks_shard(&ranks, "ABC", 100000000);
    ranks_run(&ranks);
    all_are(TCK_OK);
    cr_assert_eq(ranks.ranks[0].gathers, 2, "%u", ranks.ranks[0].gathers);
    ranks_end(&ranks);
}

Test(spread_run, fails_on_all_ranks_alike_when_nobody_has_a_shard)
{
    ranks_begin(&ranks, 3, &spread_oob);
    ranks_shard(&ranks, "ab", 1000);
    ranks_shard(&ranks, "C", 1000);
    ranks_run(&ranks);
    all_are(TCK_ERR_NOENT);
    nothing_came();
    ranks_end(&ranks);
}

Test(spread_run, fails_on_all_that_are_left_when_a_rank_dies_in_the_middle)
{
    ranks_begin(&ranks, 4, &spread_oob);
    ranks_shard(&ranks, "Abcd", 9000000);
    ranks.dies = 2;
    ranks.dies_at = 6;
    ranks_run(&ranks);
    for (uint32_t r = 0; r < 4; r++) {
        cr_assert(r == 2 || ranks.ranks[r].status == TCK_ERR_UNREACHABLE, "rank %u: %d", r, ranks.ranks[r].status);
    }
    ranks_end(&ranks);
}

/* ---- ways that go wrong ------------------------------------------------------------------------------------------ */

/* The allgather transport, with one deviation at one rank. */
static struct wrong {
    uint32_t rank;
    bool damages, fails_in_pass, fails_in_finish;
} wrong;
static _Atomic int opened, aborted, closed;

/* One per rank, because a transport does not know its rank. */
static _Thread_local uint32_t way_rank;

static tck_status_t wrong_open(const struct spread_params *params, struct spread_way **out, struct error *err)
{
    way_rank = params->oob->rank;
    opened++;
    return spread_oob.open(params, out, err);
}

static tck_status_t wrong_pass(struct spread_way *way, const struct spread_route *route, uint8_t *image,
                               struct error *err)
{
    tck_status_t status = spread_oob.pass(way, route, image, err);

    if (way_rank == wrong.rank && wrong.damages && route->root != way_rank) {
        image[4321] ^= 1;
    }
    if (way_rank == wrong.rank && wrong.fails_in_pass) {
        return error_set(err, TCK_ERR_IO, "the wire is cut");
    }
    return status;
}

static tck_status_t wrong_finish(struct spread_way *way, struct error *err)
{
    (void)way;
    if (way_rank == wrong.rank && wrong.fails_in_finish) {
        return error_set(err, TCK_ERR_TIMEDOUT, "nothing came");
    }
    return TCK_OK;
}

static void wrong_abort(struct spread_way *way)
{
    aborted++;
    spread_oob.abort(way);
}

static void wrong_close(struct spread_way *way)
{
    closed++;
    spread_oob.close(way);
}

static const struct spread_ops wrong_ops = {
    "a way that goes wrong", wrong_open, wrong_pass, wrong_finish, wrong_abort, wrong_close};

static void run_wrong(struct wrong how)
{
    wrong = how;
    ranks_begin(&ranks, 3, &wrong_ops);
    ranks_shard(&ranks, "Abc", 5000000);
    ranks_run(&ranks);
}

Test(spread_run, finds_a_damaged_byte_and_no_rank_gets_anything)
{
    run_wrong((struct wrong){.rank = 2, .damages = true});
    all_are(TCK_ERR_CORRUPT);
    cr_assert_not_null(strstr(ranks.ranks[2].err.text, "arrived damaged from rank 0"), "%s", ranks.ranks[2].err.text);
    cr_assert_not_null(strstr(ranks.ranks[0].err.text, "rank 2: a way that goes wrong: shard"), "%s",
                       ranks.ranks[0].err.text);
    nothing_came();
    cr_assert(aborted == 3 && closed == 3);
    ranks_end(&ranks);
}

Test(spread_run, gives_up_on_all_ranks_when_one_cannot_pass)
{
    run_wrong((struct wrong){.rank = 0, .fails_in_pass = true});
    all_are(TCK_ERR_IO);
    nothing_came();
    cr_assert(opened == 3 && closed == 3);
    cr_assert_eq(aborted, 3, "%d", aborted);
    ranks_end(&ranks);
}

Test(spread_run, gives_up_on_all_ranks_when_one_waits_too_long)
{
    run_wrong((struct wrong){.rank = 1, .fails_in_finish = true});
    all_are(TCK_ERR_TIMEDOUT);
    nothing_came();
    cr_assert(opened == 3 && closed == 3);
    cr_assert_eq(aborted, 3, "%d", aborted);
    ranks_end(&ranks);
}
