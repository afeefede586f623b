/* SPDX-License-Identifier: Apache-2.0
 * How long a trainer waits for shards in flight to its node. */
#include "agent/state/restore_timeout.h"

#include <criterion/criterion.h>

#define TRIES 4
#define LIMIT 100

static struct restore_timeout restore_timeout;

static bool lasts(uint64_t now_ms, struct fetch_tally now)
{
    return restore_timeout_lasts(&restore_timeout, &now, TRIES, LIMIT, now_ms);
}

Test(restore_timeout, ends_when_nothing_is_in_flight)
{
    cr_assert(lasts(1000, (struct fetch_tally){0}));
    cr_assert(lasts(1099, (struct fetch_tally){0}));
    cr_assert_not(lasts(1100, (struct fetch_tally){0}));
}

Test(restore_timeout, lasts_as_long_as_a_fetch_takes)
{
    for (uint64_t ms = 1000; ms < 9000; ms += 50) {
        cr_assert(lasts(ms, (struct fetch_tally){.failed = 1, .under_way = true}));
    }
    cr_assert(lasts(9049, (struct fetch_tally){.failed = 1}));
    cr_assert_not(lasts(9050, (struct fetch_tally){.failed = 1}));
}

Test(restore_timeout, starts_over_with_each_shard_that_arrives)
{
    for (uint64_t ms = 1000, arrived = 0; ms < 9000; ms += 99) {
        cr_assert(lasts(ms, (struct fetch_tally){.arrived = arrived++, .failed = 3 * arrived}));
    }
}

Test(restore_timeout, ends_when_fetches_keep_failing)
{
    uint64_t ms = 1000, failed = 7;
    while (ms < 9000 && lasts(ms, (struct fetch_tally){.arrived = 5, .failed = failed++, .under_way = true})) {
        ms += 50;
    }
    cr_assert_eq(ms, 1000 + (TRIES - 1) * 50 + LIMIT, "%lu", (unsigned long)ms);
}

Test(restore_timeout, waits_for_the_owners_that_get_it_first)
{
    cr_assert_eq(restore_timeout_turn_ms(0, 1ull << 40), 0, "it reads the shard itself");
    cr_assert_eq(restore_timeout_turn_ms(1, 1ull << 40), 0, "the one before it has it at once");
    cr_assert_eq(restore_timeout_turn_ms(2, 100000000), 2000);
    cr_assert_eq(restore_timeout_turn_ms(4, 100000000), 6000);
    cr_assert_eq(restore_timeout_turn_ms(2, 99999), 0);
}

Test(restore_timeout, allows_each_shard_some_tries)
{
    cr_assert_eq(restore_timeout_tries(3), 3 * restore_timeout_tries(1));
    cr_assert_gt(restore_timeout_tries(1), 1);
}

Test(restore_shards, are_read_when_none_is_lacking_or_other_ranks_have_them)
{
    struct restore_shards here = {.lacking = 0}, elsewhere = {.lacking = 2, .may_lack = true, .progressing = true};
    cr_assert_eq(restore_judge(&here), RESTORE_READ);
    cr_assert_eq(restore_judge(&elsewhere), RESTORE_READ);
}

Test(restore_shards, are_waited_for_while_there_is_progress)
{
    struct restore_shards shards = {.lacking = 1, .progressing = true};
    cr_assert_eq(restore_judge(&shards), RESTORE_WAIT);
    shards.progressing = false;
    cr_assert_eq(restore_judge(&shards), RESTORE_LACKS);
}

Test(restore_shards, no_longer_arrive_when_the_recovery_is_over)
{
    struct restore_shards shards = {.lacking = 1, .progressing = true, .recovered = true};
    cr_assert_eq(restore_judge(&shards), RESTORE_LACKS);
}
