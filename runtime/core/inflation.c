/* SPDX-License-Identifier: Apache-2.0
 * Pairs of windows, their estimate, and the spread that follows from it. */
#include "core/inflation.h"

#include "core/pace.h"

#include <math.h>

#define BLOCK_STEPS  8
#define WINDOW_STEPS 2
#define SPREAD_STEP  1.5
#define SAMPLE_MAX   1.0 /* a step that took longer than twice the time did so for another reason */
#define Z_975        1.959963985

void governor_init(struct governor *g)
{
    *g = (struct governor){.spread = PACE_SPREAD_FIRST};
}

/* Sebastiano Vigna's splitmix64, public domain. */
static uint64_t hash(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

enum window inflation_window(uint64_t term, uint64_t step)
{
    uint64_t quiet = hash(hash(term) ^ (step / BLOCK_STEPS)) % (BLOCK_STEPS / WINDOW_STEPS);
    uint64_t window = step % BLOCK_STEPS / WINDOW_STEPS;
    return window == quiet ? WINDOW_QUIET : window == (quiet ^ 1) ? WINDOW_BESIDE : WINDOW_ANY;
}

/* Student's t for a probability of 0.975, by the first terms of its expansion (Abramowitz and Stegun 26.7.5): right to
 * 0.2 % from 7 degrees of freedom on. */
static double student_t(double freedom)
{
    double z = Z_975, z3 = z * z * z, z5 = z3 * z * z;
    return z + (z3 + z) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom);
}

static double mean_of(const double *values, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += values[i];
    }
    return sum / count;
}

struct inflation inflation_of(const double *samples, uint32_t count)
{
    double mean = mean_of(samples, count), squares = 0;
    for (uint32_t i = 0; i < count; i++) {
        squares += (samples[i] - mean) * (samples[i] - mean);
    }
    double half = student_t(count - 1) * sqrt(squares / (count - 1) / count);
    return (struct inflation){.pairs = count, .mean = mean, .low = mean - half, .high = mean + half};
}

static bool set_spread(struct governor *g, double spread)
{
    spread = spread > PACE_SPREAD_MAX ? PACE_SPREAD_MAX : spread < PACE_SPREAD_MIN ? PACE_SPREAD_MIN : spread;
    bool changed = spread > g->spread || spread < g->spread;
    g->spread = spread;
    g->count = changed ? 0 : g->count;
    return changed;
}

static bool govern(struct governor *g, double target)
{
    uint32_t known = g->count < INFLATION_PAIRS_MAX ? g->count : INFLATION_PAIRS_MAX;
    if (known < INFLATION_PAIRS_MIN) {
        return false;
    }
    g->estimate = inflation_of(g->samples, known);
    g->estimate.quiet_ns = mean_of(g->quiet_ns, known);
    if (g->estimate.low > 0 && g->estimate.mean > target) {
        return set_spread(g, g->spread * SPREAD_STEP);
    }
    return g->estimate.high < target && set_spread(g, g->spread / SPREAD_STEP);
}

/* The block is over: its pair becomes a sample if both of its windows were measured. */
static bool close_block(struct governor *g, double target)
{
    if (g->spoilt || g->steps[WINDOW_QUIET] == 0 || g->steps[WINDOW_BESIDE] == 0) {
        return false;
    }
    double quiet = g->sum_ns[WINDOW_QUIET] / g->steps[WINDOW_QUIET];
    double sample = g->sum_ns[WINDOW_BESIDE] / g->steps[WINDOW_BESIDE] / quiet - 1;
    sample = sample > SAMPLE_MAX ? SAMPLE_MAX : sample;
    g->samples[g->count % INFLATION_PAIRS_MAX] = sample;
    g->quiet_ns[g->count++ % INFLATION_PAIRS_MAX] = quiet;
    return govern(g, target);
}

static void begin_block(struct governor *g, uint64_t block)
{
    g->block = block;
    g->spoilt = false;
    for (int i = 0; i < 3; i++) {
        g->sum_ns[i] = 0;
        g->steps[i] = 0;
    }
}

bool governor_step(struct governor *g, uint64_t term, double target, const struct step_seen *seen)
{
    uint64_t block = seen->step / BLOCK_STEPS;
    enum window window = inflation_window(term, seen->step);
    bool changed = false;
    if (block != g->block) {
        changed = close_block(g, target);
        begin_block(g, block);
    }
    g->spoilt = g->spoilt || (window == WINDOW_QUIET && seen->sent);
    if (!seen->saves && seen->took_ns > 0 && (window == WINDOW_QUIET || seen->pending)) {
        g->sum_ns[window] += (double)seen->took_ns;
        g->steps[window]++;
    }
    return changed;
}
