/* SPDX-License-Identifier: Apache-2.0
 * By how much copies and drains make the steps of a training longer, and what follows from that for the spread of
 * pace.h. Pure.
 *
 * Steps come in blocks of eight, four windows of two. One window of each block, drawn by a hash of term and block, is
 * quiet: nothing is sent. All nodes of a term draw the same one, as a step takes as long as the slowest node takes. The
 * window beside it, before or after it by chance, is its pair. Each pair gives one sample: the time of a step in the
 * other window, divided by that in the quiet one, less 1. The estimate is the mean of the last samples with its 95 %
 * interval by Student's t: mean +- t(n - 1) s / sqrt(n).
 *
 * If the whole interval is above 0, so that there is a cost, and its mean above the target, the spread grows, up to
 * PACE_SPREAD_MAX: then the rate is the least that finishes a version before the next one, which comes first. If the
 * whole interval is below the target, the spread shrinks. Samples of another spread do not count any more. */
#ifndef TCK_CORE_INFLATION_H
#define TCK_CORE_INFLATION_H

#include <stdbool.h>
#include <stdint.h>

#define INFLATION_PAIRS_MIN 8u /* no estimate from fewer */
#define INFLATION_PAIRS_MAX 64u

/* Parts of a step's time; pairs 0: nothing is known yet. */
struct inflation {
    uint32_t pairs;
    double mean, low, high;
    double quiet_ns; /* mean time of a step in the quiet windows of these pairs */
};

/* What is known of a step that has ended. */
struct step_seen {
    uint64_t step, took_ns;
    bool saves;   /* a snapshot was taken in it or right before, which costs time of its own */
    bool pending; /* there was something to send all the time */
    bool sent;    /* something was sent */
};

enum window { WINDOW_ANY, WINDOW_QUIET, WINDOW_BESIDE };

struct governor {
    double spread;
    struct inflation estimate;
    /* The pair of the present block. */
    uint64_t block;
    double sum_ns[3];
    uint32_t steps[3];
    bool spoilt; /* something was sent in the quiet window */
    double samples[INFLATION_PAIRS_MAX];
    double quiet_ns[INFLATION_PAIRS_MAX]; /* of these pairs */
    uint32_t count;                       /* of samples since the spread has changed */
};

void governor_init(struct governor *g);
/* In which window of a term a step is. */
enum window inflation_window(uint64_t term, uint64_t step);
/* Takes a step into account; true if the spread has changed. */
bool governor_step(struct governor *g, uint64_t term, double target, const struct step_seen *seen);
/* Pure arithmetic: the estimate of count samples, at least 2, without quiet_ns. */
struct inflation inflation_of(const double *samples, uint32_t count);

#endif
