/* SPDX-License-Identifier: Apache-2.0
 * The NCCL way over a replacement for NCCL and the CUDA runtime (tests/lib/fake_nccl.h): the destinations and the order
 * of transfers, and the effects of errors, time-outs and absent ranks. It tests neither devices nor speed. */
#include "base/clock.h"
#include "fake_nccl.h"
#include "ranks.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

extern const struct spread_module tck_spread_module;
static struct ranks ranks;

TestSuite(nccl_way, .timeout = 200);

static void all_are(tck_status_t status)
{
    for (uint32_t r = 0; r < ranks.world.world_size; r++) {
        cr_assert_eq(ranks.ranks[r].status, status, "rank %u: %d %s", r, ranks.ranks[r].status,
                     ranks.ranks[r].err.text);
    }
}

static void says(uint32_t rank, const char *text)
{
    cr_assert_not_null(strstr(ranks.ranks[rank].err.text, text), "%s", ranks.ranks[rank].err.text);
}

static void end(void)
{
    ranks_end(&ranks);
    cr_assert_eq(fake_nccl()->comms, 0, "communicators are left");
    cr_assert_eq(fake_nccl()->pieces, 0, "memory is left");
    cr_assert_eq(fake_nccl()->streams, 0, "streams are left");
}

static void begin(uint32_t count)
{
    ranks_begin(&ranks, count, tck_spread_module.ops);
    ranks.enter = fake_nccl_enter;
}

Test(nccl_way, gives_every_rank_its_shards_to_the_byte)
{
    begin(6);
    ranks_shard(&ranks, "aBcDe", 70000001);
    ranks_shard(&ranks, "Abe", 1);
    ranks_shard(&ranks, "F", 4096);
    ranks_shard(&ranks, "abcdE", 8 << 20);
    ranks_shard(&ranks, "aB", (8 << 20) + 1);
    ranks_run(&ranks);
    all_are(TCK_OK);
    cr_assert(ranks_all_whole(&ranks));
    cr_assert_eq(fake_nccl()->aborted, 0);
    end();
}

Test(nccl_way, passes_shards_both_ways_between_two_ranks_without_a_deadlock)
{
    begin(2);
    ranks_shard(&ranks, "Ab", 40000000);
    ranks_shard(&ranks, "aB", 40000000);
    ranks_shard(&ranks, "Ab", 3);
    ranks_run(&ranks);
    all_are(TCK_OK);
    cr_assert(ranks_all_whole(&ranks));
    end();
}

Test(nccl_way, makes_no_communicator_if_no_rank_lacks_a_shard)
{
    begin(3);
    ranks_shard(&ranks, "ABC", 1000);
    ranks_run(&ranks);
    all_are(TCK_OK);
    cr_assert_eq(fake_nccl()->ids, 0);
    end();
}

Test(nccl_way, leaves_ranks_without_a_part_out_of_the_communicator)
{
    begin(4);
    ranks_shard(&ranks, "Ad", 1000);
    ranks_shard(&ranks, "BC", 1000);
    ranks_run(&ranks); /* the replacement waits for as many ranks as the communicator is created with */
    all_are(TCK_OK);
    cr_assert(ranks_all_whole(&ranks));
    end();
}

Test(nccl_way, fails_on_all_ranks_when_two_have_one_gpu)
{
    begin(3);
    ranks_shard(&ranks, "Abc", 1000);
    fake_nccl()->one_gpu = true;
    ranks_run(&ranks);
    all_are(TCK_ERR_IO);
    says(0, "Duplicate GPU detected");
    end();
}

Test(nccl_way, fails_on_all_ranks_when_one_has_no_room_on_its_device)
{
    begin(3);
    ranks_shard(&ranks, "Abc", 1000);
    fake_nccl()->poor = 2;
    ranks_run(&ranks);
    all_are(TCK_ERR_IO);
    says(2, "out of memory");
    says(0, "rank 2");
    cr_assert_eq(fake_nccl()->ids, 0, "NCCL would wait for the other ranks of a communicator forever");
    end();
}

Test(nccl_way, is_not_used_where_the_calls_of_nccl_would_block)
{
    begin(3);
    ranks_shard(&ranks, "Abc", 1000);
    setenv("NCCL_COMM_BLOCKING", "1", 1);
    ranks_run(&ranks);
    all_are(TCK_ERR_UNSUPPORTED);
    says(1, "NCCL_COMM_BLOCKING=1");
    end();
}

Test(nccl_way, gives_up_in_time_when_a_rank_never_joins)
{
    begin(3);
    ranks_shard(&ranks, "Abc", 1000);
    fake_nccl()->absent = 2;
    ranks.timeout_ms = 200;
    ranks_run(&ranks);
    all_are(TCK_ERR_TIMEDOUT);
    says(0, "the communicator: no progress for 200 ms");
    cr_assert_eq(fake_nccl()->aborted, 3);
    end();
}

Test(nccl_way, aborts_in_time_when_a_rank_falls_silent_in_the_middle)
{
    begin(4);
    ranks_shard(&ranks, "Abcd", 90000000);
    fake_nccl()->silent = 2;
    ranks.timeout_ms = 300;
    ranks_run(&ranks);
    for (uint32_t r = 0; r < 4; r++) {
        cr_assert_eq(ranks.ranks[r].status, TCK_ERR_TIMEDOUT, "rank %u: %s", r, ranks.ranks[r].err.text);
    }
    cr_assert_eq(fake_nccl()->aborted, 4);
    end();
}

Test(nccl_way, waits_longer_than_the_time_out_for_a_rank_that_serves_others_first)
{
    begin(3);
    ranks_shard(&ranks, "Ab", 64000000);
    ranks_shard(&ranks, "Ac", 1000); /* rank 2 receives nothing during eight pieces of 600 ms */
    fake_nccl()->slow_ms = 600;
    ranks.timeout_ms = 4000;
    ranks.slow_bytes = 10000;
    ranks_run(&ranks);
    all_are(TCK_OK);
    cr_assert(ranks_all_whole(&ranks));
    end();
}

Test(nccl_way, waits_for_a_rank_that_serves_others_first_no_longer_than_they_should_take)
{
    uint64_t begin_ms = clock_ms();

    begin(3);
    ranks_shard(&ranks, "Ab", 20000000);
    ranks_shard(&ranks, "Ac", 1000);
    fake_nccl()->silent = 0;
    ranks.timeout_ms = 300;
    ranks_run(&ranks);
    all_are(TCK_ERR_TIMEDOUT);
    cr_assert_geq(clock_ms() - begin_ms, 300 + 200);
    cr_assert_lt(clock_ms() - begin_ms, 30000);
    end();
}

Test(nccl_way, fails_on_all_ranks_when_one_communicator_has_an_error)
{
    begin(3);
    ranks_shard(&ranks, "Abc", 90000000);
    fake_nccl()->fails = 1;
    ranks.timeout_ms = 2000;
    ranks_run(&ranks);
    for (uint32_t r = 0; r < 3; r++) {
        cr_assert_neq(ranks.ranks[r].status, TCK_OK);
    }
    cr_assert_eq(ranks.ranks[1].status, TCK_ERR_IO);
    end();
}

Test(nccl_way, detects_a_byte_that_was_damaged_in_transfer)
{
    begin(4);
    ranks_shard(&ranks, "Abcd", 20000000);
    fake_nccl()->damages = 2;
    ranks_run(&ranks);
    all_are(TCK_ERR_CORRUPT);
    says(2, "arrived damaged from rank 0");
    for (uint32_t r = 1; r < 4; r++) {
        cr_assert_null(ranks_image(&ranks, r, 0));
    }
    end();
}
