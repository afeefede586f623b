/* SPDX-License-Identifier: Apache-2.0
 * A lane's rate, against a simulated link. */
#include "core/pace.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define MS      UINT64_C(1000000)
#define S       UINT64_C(1000000000)
#define MIB     (UINT64_C(1) << 20)
#define CHUNK   (4 * MIB)
#define LONGEST (30 * S)

/* Two versions that went before, 10 s apart, so that the interval is known. */
static struct pace_lane known_lane(uint64_t bytes)
{
    struct pace_lane lane = {0};
    for (uint64_t i = 1; i <= 3; i++) {
        pace_end(&lane);
        pace_begin(&lane, (struct version){1, 10 * i}, bytes, 10 * S * i);
    }
    return lane;
}

/* Sends chunks, one after the other, whenever `held` does not forbid it; returns how long it took. */
static uint64_t send_all(struct pace_lane *lane, double spread, bool (*held)(uint64_t ns))
{
    uint64_t interval = pace_interval(lane, LONGEST), now = lane->begun_ns;
    for (; lane->left > 0; now += MS) {
        bool may = pace_may(lane, interval, now) && !(held != NULL && held(now - lane->begun_ns));
        if (may || pace_must(lane, interval, now)) {
            pace_sent(lane, CHUNK, interval, spread, now);
        }
        cr_assert_lt(now - lane->begun_ns, 100 * S);
    }
    return now - lane->begun_ns;
}

Test(pace, spreads_a_version_over_its_part_of_the_interval)
{
    for (double spread = PACE_SPREAD_MIN; spread <= PACE_SPREAD_MAX; spread += 0.1) {
        struct pace_lane lane = known_lane(1024 * MIB);
        double took_s = (double)send_all(&lane, spread, NULL) / (double)S;
        cr_assert_leq(took_s, 10 * spread + 0.01);
        cr_assert_geq(took_s, 10 * spread * 0.95);
    }
}

Test(pace, keeps_an_even_rate)
{
    struct pace_lane lane = known_lane(1024 * MIB);
    uint64_t interval = pace_interval(&lane, LONGEST), sent = 0;
    for (uint64_t now = lane.begun_ns; now < lane.begun_ns + 4 * S; now += MS) {
        if (pace_may(&lane, interval, now)) {
            pace_sent(&lane, CHUNK, interval, 0.5, now);
            sent += CHUNK;
        }
        double even = 1024.0 * MIB * (double)(now - lane.begun_ns) / (5.0 * S);
        cr_assert_leq((double)sent, even + (double)PACE_BURST_BYTES + CHUNK);
        cr_assert_geq((double)sent, even - CHUNK);
    }
}

Test(pace, holds_nothing_back_while_no_interval_is_known)
{
    struct pace_lane lane = {0};
    pace_begin(&lane, (struct version){1, 10}, 1024 * MIB, S);
    cr_assert_eq(pace_interval(&lane, LONGEST), 0);
    cr_assert(pace_may(&lane, 0, S) && pace_must(&lane, 0, S));
    pace_sent(&lane, CHUNK, 0, 0.5, S);
    cr_assert(pace_may(&lane, 0, S));
}

Test(pace, sends_small_versions_at_once)
{
    struct pace_lane lane = known_lane(PACE_SMALL_BYTES);
    cr_assert_eq(pace_interval(&lane, LONGEST), 0);
}

Test(pace, takes_the_shorter_one_of_the_last_gaps)
{
    struct pace_lane lane = known_lane(64 * MIB);
    pace_begin(&lane, (struct version){1, 40}, 64 * MIB, 630 * S);
    cr_assert_eq(pace_interval(&lane, LONGEST), 10 * S, "a pause of 600 s is no interval");
    pace_begin(&lane, (struct version){1, 50}, 64 * MIB, 632 * S);
    cr_assert_eq(pace_interval(&lane, LONGEST), 2 * S, "saves come more often now");
    cr_assert_eq(pace_interval(&lane, S), S);
}

Test(pace, knows_no_interval_across_terms)
{
    struct pace_lane lane = known_lane(64 * MIB);
    pace_begin(&lane, (struct version){2, 31}, 64 * MIB, 31 * S);
    cr_assert_eq(pace_interval(&lane, LONGEST), 0);
}

Test(pace, an_older_version_that_is_sent_again_changes_no_interval)
{
    struct pace_lane lane = known_lane(64 * MIB);
    pace_begin(&lane, (struct version){1, 20}, 64 * MIB, 31 * S);
    cr_assert_eq(pace_interval(&lane, LONGEST), 10 * S);
    cr_assert_eq(lane.left, 128 * MIB);
}

static bool always(uint64_t ns)
{
    (void)ns;
    return true;
}

/* 900 of 1000 ms. */
static bool mostly(uint64_t ns)
{
    return ns % S < 900 * MS;
}

Test(pace, is_in_time_even_if_everything_holds_it_back)
{
    for (double spread = PACE_SPREAD_MIN; spread <= PACE_SPREAD_MAX; spread += 0.1) {
        struct pace_lane lane = known_lane(1024 * MIB);
        cr_assert_leq(send_all(&lane, spread, always), 9 * S + 10 * MS);
        lane = known_lane(1024 * MIB);
        cr_assert_leq(send_all(&lane, spread, mostly), 9 * S + 10 * MS);
    }
}

Test(pace, makes_up_for_pauses)
{
    struct pace_lane lane = known_lane(64 * MIB);
    uint64_t took = send_all(&lane, 0.6, mostly);
    cr_assert_leq(took, 7 * S, "throttled for nine tenths of the time, it took %llu ms",
                  (unsigned long long)(took / MS));
}

Test(pace, never_holds_back_past_its_time_whatever_happens)
{
    srand(1);
    for (int round = 0; round < 200; round++) {
        struct pace_lane lane = {0};
        uint64_t now = S;
        for (uint64_t version = 1; version < 20; version++) {
            pace_begin(&lane, (struct version){1, version}, (uint64_t)(rand() % 256 + 1) * MIB, now);
            uint64_t until = now + (uint64_t)(rand() % 5000 + 1) * MS, interval = pace_interval(&lane, LONGEST);
            for (; now < until; now += 5 * MS) {
                bool open = rand() % 4 == 0;
                if (lane.left > 0 && ((open && pace_may(&lane, interval, now)) || pace_must(&lane, interval, now))) {
                    pace_sent(&lane, CHUNK, interval, 0.5, now);
                }
                uint64_t elapsed = now - lane.begun_ns;
                cr_assert(lane.left == 0 || interval == 0 || elapsed * 10 < interval * 9 ||
                          pace_must(&lane, interval, now));
            }
        }
    }
}
