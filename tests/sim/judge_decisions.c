/* SPDX-License-Identifier: Apache-2.0
 * Checks that a coordinator's decisions about a version are final. */
#include "sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LOOKED_BACK 64 /* number of steps below the horizon that are checked; older steps are superseded */

/* The fates of one term's steps according to its coordinator's decisions. */
struct fates {
    uint64_t term;
    uint64_t committed;    /* newest step */
    uint8_t *of_step;      /* enum fate, */
    bool *reported_failed; /* true if it was reported to trainers as failed */
    bool *was_committed;   /* true even if a newer one has been committed since */
    uint64_t steps;
};

static struct fates *all;
static size_t count;

static struct fates *fates_of(uint64_t term)
{
    for (size_t i = count; i-- > 0;) {
        if (all[i].term == term) {
            return &all[i];
        }
    }
    all = realloc(all, (count + 1) * sizeof(*all));
    if (all == NULL) {
        abort();
    }
    all[count] = (struct fates){.term = term};
    return &all[count++];
}

static void grow(struct fates *f, uint64_t steps)
{
    if (steps <= f->steps) {
        return;
    }
    f->of_step = realloc(f->of_step, 2 * steps);
    f->reported_failed = realloc(f->reported_failed, 2 * steps);
    f->was_committed = realloc(f->was_committed, 2 * steps);
    if (f->of_step == NULL || f->reported_failed == NULL || f->was_committed == NULL) {
        abort();
    }
    memset(f->of_step + f->steps, FATE_UNDECIDED, 2 * steps - f->steps);
    memset(f->reported_failed + f->steps, 0, 2 * steps - f->steps);
    memset(f->was_committed + f->steps, 0, 2 * steps - f->steps);
    f->steps = 2 * steps;
}

static void check_fates(struct fates *f, const struct decision *d)
{
    uint64_t low = d->horizon > LOOKED_BACK ? d->horizon - LOOKED_BACK : 0;
    low = f->committed < low ? f->committed : low;
    grow(f, d->horizon);
    for (uint64_t step = low; step < d->horizon; step++) {
        enum fate was = (enum fate)f->of_step[step], is = decision_fate(d, (struct version){d->term, step});
        bool superseded =
            was == FATE_COMMITTED && is == FATE_OVER && d->watermark.term == d->term && d->watermark.step > step;
        if (was != FATE_UNDECIDED && is != was && !superseded) {
            sim_violation("step %" PRIu64 " of term %" PRIu64 " is decided twice", step, d->term);
        }
        if (is == FATE_COMMITTED && was != is && f->reported_failed[step]) {
            sim_violation("step %" PRIu64 " of term %" PRIu64 " is committed, but was reported to trainers as failed",
                          step, d->term);
        }
        if (is == FATE_COMMITTED && !f->was_committed[step]) {
            judge_commit((struct version){d->term, step});
            f->was_committed[step] = true;
        }
        f->of_step[step] = (uint8_t)is;
    }
    f->committed = d->watermark.term == d->term ? d->watermark.step : f->committed;
}

bool judge_is_over(struct version version)
{
    const struct fates *f = fates_of(version.term);
    return version.step < f->steps && f->of_step[version.step] == FATE_OVER;
}

bool judge_is_committed(struct version version)
{
    const struct fates *f = fates_of(version.term);
    return version.step < f->steps && f->of_step[version.step] == FATE_COMMITTED;
}

bool judge_was_committed(struct version version)
{
    const struct fates *f = fates_of(version.term);
    return version.step < f->steps && f->was_committed[version.step];
}

void judge_reported_failed(struct version version)
{
    struct fates *f = fates_of(version.term);
    grow(f, version.step + 1);
    f->reported_failed[version.step] = true;
}

void judge_decision(struct host *host)
{
    const struct term_context *tc = host->agent->term_context;
    const struct decision *d = tc != NULL && tc->coordinator != NULL ? coordinator_decision(tc->coordinator) : NULL;
    if (d == NULL || (d->seq == host->judged_seq && d->term == host->judged_term)) {
        return;
    }
    host->judged_seq = d->seq;
    host->judged_term = d->term;
    if (!version_none(d->drain) && version_is(d->drain, d->published)) {
        sim_violation("step %" PRIu64 " of term %" PRIu64 " is published, but its drain does not end", d->drain.step,
                      d->drain.term);
    }
    check_fates(fates_of(d->term), d);
    judge_base(d);
}

void judge_decisions(void)
{
    for (uint32_t i = 0; i < sim.host_count; i++) {
        if (sim.hosts[i].agent != NULL) {
            judge_decision(&sim.hosts[i]);
        }
    }
}
