/* SPDX-License-Identifier: Apache-2.0
 * How short of memory a node counts as, and for how long. */
#include "core/memory_level.h"

#include <criterion/criterion.h>

#define MIB     ((uint64_t)1 << 20)
#define RESERVE (100 * MIB)

static struct memory_watch_state state;

static void begin(void)
{
    state = (struct memory_watch_state){0};
}

TestSuite(memory_level, .init = begin);

static void left_at(uint64_t mib, uint64_t now_ms)
{
    struct memory_figures figures = state.before;
    figures.available_bytes = mib * MIB;
    memory_level_take(&state, &figures, RESERVE, now_ms);
}

Test(memory_level, rises_at_once_with_what_is_left)
{
    left_at(100, 0);
    cr_assert_eq(state.level, MEMORY_ENOUGH);
    left_at(99, 1);
    cr_assert_eq(state.level, MEMORY_LOW);
    left_at(49, 2);
    cr_assert_eq(state.level, MEMORY_CRITICAL);
}

Test(memory_level, falls_only_after_a_calm_time)
{
    left_at(10, 1000);
    left_at(1000, 2000);
    cr_assert_eq(state.now, MEMORY_ENOUGH);
    cr_assert_eq(state.level, MEMORY_CRITICAL);
    left_at(1000, 999 + MEMORY_CALM_MS);
    cr_assert_eq(state.level, MEMORY_CRITICAL);
    left_at(10, 1000 + MEMORY_CALM_MS); /* it begins again */
    left_at(1000, 2000 + MEMORY_CALM_MS);
    cr_assert_eq(state.level, MEMORY_CRITICAL);
    left_at(1000, 1000 + 2 * MEMORY_CALM_MS);
    cr_assert_eq(state.level, MEMORY_ENOUGH);
}

Test(memory_level, a_failed_allocation_is_critical_whatever_is_left)
{
    struct memory_figures figures = {.available_bytes = 10000 * MIB, .failures = 3};
    memory_level_take(&state, &figures, RESERVE, 0);
    cr_assert_eq(state.level, MEMORY_ENOUGH, "what happened before the first sample does not count");
    figures.failures = 4;
    memory_level_take(&state, &figures, RESERVE, 1);
    cr_assert_eq(state.level, MEMORY_CRITICAL);
}

Test(memory_level, stalls_count_only_while_little_is_left)
{
    struct memory_figures figures = {.available_bytes = 400 * MIB};
    memory_level_take(&state, &figures, RESERVE, 0);
    figures.stalls++;
    memory_level_take(&state, &figures, RESERVE, 1);
    cr_assert_eq(state.level, MEMORY_ENOUGH, "the page cache alone may be the cause");
    figures.stalls++;
    figures.available_bytes = 399 * MIB;
    memory_level_take(&state, &figures, RESERVE, 2);
    cr_assert_eq(state.level, MEMORY_LOW);
}

Test(memory_level, the_reserve_is_a_share_of_the_memory_unless_it_is_configured)
{
    struct memory_figures figures = {.total_bytes = 100 * 1024 * MIB};
    cr_assert_eq(memory_reserve(&figures, 0), 2 * 1024 * MIB);
    cr_assert_eq(memory_reserve(&figures, 5), 5);
    figures.total_bytes = 1024 * MIB;
    cr_assert_eq(memory_reserve(&figures, 0), 64 * MIB);
}

Test(memory_level, a_slot_is_used_again_only_if_twice_the_reserve_stays_free)
{
    cr_assert_not(memory_level_allows(&state, RESERVE, 0), "nothing is known yet");
    left_at(1200, 0);
    cr_assert(memory_level_allows(&state, RESERVE, 1000 * MIB));
    cr_assert_not(memory_level_allows(&state, RESERVE, 1001 * MIB));
    cr_assert_not(memory_level_allows(&state, RESERVE, 5000 * MIB));
    left_at(99, 1);
    left_at(1200, 2);
    cr_assert_not(memory_level_allows(&state, RESERVE, 1), "not before the calm time is over");
}
