/* SPDX-License-Identifier: Apache-2.0
 * The network's pauses, against a simulated training on a simulated link of 100 MB/s. */
#include "core/net_phase.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define MS         UINT64_C(1000000)
#define LINK_BYTES 100000u /* a millisecond */
#define CHUNK      (4u << 20)

struct wire {
    struct net_phase phase;
    uint64_t now_ms, counter;
    uint64_t training, ours; /* bytes that wait to leave */
    uint64_t late_ms;        /* ours wait for so long before the first of them leaves */
    uint64_t begins_ms;
    uint64_t chunks, collided_bytes, free_ms;
};

/* A millisecond: the link serves whatever waits, half and half if both do. */
static void tick(struct wire *w)
{
    uint64_t ours = w->now_ms < w->begins_ms ? 0 : w->training > 0 && w->ours > 0 ? LINK_BYTES / 2 : LINK_BYTES;
    ours = w->ours < ours ? w->ours : ours;
    uint64_t training = w->training < LINK_BYTES - ours ? w->training : LINK_BYTES - ours;
    w->collided_bytes += training > 0 ? ours : 0;
    w->free_ms += training == 0;
    w->counter += ours + training;
    w->ours -= ours;
    w->training -= training;
    w->now_ms++;
    phase_sample(&w->phase, w->counter, w->now_ms * MS);
}

static void offer(struct wire *w)
{
    if (w->ours == 0 && phase_fits(&w->phase, CHUNK, w->now_ms * MS)) {
        w->ours = CHUNK;
        w->begins_ms = w->now_ms + w->late_ms;
        w->chunks++;
        phase_sent(&w->phase, CHUNK, w->now_ms * MS);
    }
}

/* Steps of compute_ms and then an all-reduce of comm_ms. */
static void train(struct wire *w, uint64_t steps, uint64_t compute_ms, uint64_t comm_ms)
{
    for (uint64_t i = 0; i < steps; i++) {
        for (uint64_t ms = 0; ms < compute_ms; ms++) {
            offer(w);
            tick(w);
        }
        w->training += comm_ms * LINK_BYTES;
        while (w->training > 0) {
            offer(w);
            tick(w);
        }
    }
}

Test(net_phase, is_quiet_if_nothing_else_is_sent)
{
    struct wire w = {0};
    train(&w, 10, 500, 0);
    cr_assert_geq(w.chunks, 100, "our own traffic is not taken for the training's: %llu", (unsigned long long)w.chunks);
}

Test(net_phase, sends_only_what_fits_into_a_pause)
{
    struct wire w = {0};
    train(&w, 20, 200, 100); /* learns */
    w.chunks = w.collided_bytes = w.free_ms = 0;
    train(&w, 100, 200, 100);
    cr_assert_leq((double)w.collided_bytes, 0.02 * (double)w.chunks * CHUNK);
    cr_assert_geq((double)w.chunks * CHUNK, 0.5 * (double)w.free_ms * LINK_BYTES, "the pauses are used");
}

Test(net_phase, leaves_pauses_alone_that_are_too_short)
{
    struct wire w = {0};
    train(&w, 40, 30, 100); /* a chunk takes 42 ms */
    w.chunks = 0;
    train(&w, 100, 30, 100);
    cr_assert_leq(w.chunks, 2);
}

Test(net_phase, tells_long_pauses_from_short_ones)
{
    struct wire w = {0};
    for (int i = 0; i < 20; i++) { /* gradients in three buckets */
        train(&w, 1, 200, 40);
        train(&w, 2, 10, 40);
    }
    w.chunks = w.collided_bytes = 0;
    for (int i = 0; i < 100; i++) {
        train(&w, 1, 200, 40);
        train(&w, 2, 10, 40);
    }
    cr_assert_geq(w.chunks, 200);
    cr_assert_leq((double)w.collided_bytes, 0.05 * (double)w.chunks * CHUNK);
}

Test(net_phase, knows_nothing_of_the_present_after_a_gap_in_sampling)
{
    struct wire w = {0};
    train(&w, 20, 200, 100);
    phase_restart(&w.phase);
    cr_assert_not(phase_fits(&w.phase, CHUNK, (w.now_ms + 1) * MS), "the training may be about to send");
    w.training = 20 * LINK_BYTES;
    while (w.training > 0) {
        tick(&w);
    }
    for (int i = 0; i < 5; i++) {
        tick(&w);
    }
    cr_assert(phase_fits(&w.phase, CHUNK, w.now_ms * MS));
}

Test(net_phase, goes_on_when_the_training_rests)
{
    struct wire w = {0};
    train(&w, 20, 200, 100);
    w.chunks = 0;
    train(&w, 1, 5000, 0);
    cr_assert_geq(w.chunks, 80);
}

/* Steps that are never equal: some take a little longer than usual, and some wait for something else, as for data. */
static void train_unevenly(struct wire *w, uint64_t steps)
{
    for (uint64_t i = 0; i < steps; i++) {
        train(w, 1, i % 12 == 11 ? 600 : i % 20 == 18 ? 230 : 190 + i * 7 % 10, 100);
    }
}

Test(net_phase, a_few_long_pauses_say_nothing_of_one_that_is_a_little_longer_than_usual)
{
    struct wire w = {0};
    train_unevenly(&w, 60);
    w.chunks = w.collided_bytes = 0;
    train_unevenly(&w, 300);
    cr_assert_geq(w.chunks, 600, "%llu", (unsigned long long)w.chunks);
    cr_assert_leq((double)w.collided_bytes, 0.001 * (double)w.chunks * CHUNK, "%.4f of the bytes collide",
                  (double)w.collided_bytes / ((double)w.chunks * CHUNK));
}

Test(net_phase, a_gap_in_the_trainings_traffic_is_no_pause_yet)
{
    struct wire w = {0};
    for (int i = 0; i < 200; i++) {
        train(&w, 1, 200, 10);
        train(&w, 1, 2, 90);
        w.collided_bytes = i == 20 ? 0 : w.collided_bytes;
    }
    cr_assert_eq(w.collided_bytes, 0, "%llu bytes collide", (unsigned long long)w.collided_bytes);
}

Test(net_phase, a_chunk_that_leaves_late_is_not_taken_for_the_trainings_traffic)
{
    struct wire w = {.late_ms = 30};
    train(&w, 20, 200, 100);
    for (uint64_t ms = 0; ms < 150; ms++) {
        offer(&w);
        tick(&w);
        cr_assert(ms < 5 || !w.phase.busy, "after %llu ms", (unsigned long long)ms);
    }
}
