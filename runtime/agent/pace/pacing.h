/* SPDX-License-Identifier: Apache-2.0
 * Throttles copies and drains as core/pace.h, inflation.h, net_phase.h and net_steps.h decide: it knows the trainers'
 * step times and the network's counters, and a timer lets those that were throttled ask again. Restores and repairs are
 * never throttled, and nothing is while no trainer makes a step, before a second version was saved, or once the system
 * has asked the agent to end. */
#ifndef TCK_AGENT_PACING_H
#define TCK_AGENT_PACING_H

#include "base/status.h"
#include "base/version.h"
#include "core/inflation.h"

#include <stdbool.h>

struct client;
struct config;
struct loop;
struct pacing;
struct term_context;

enum lane { LANE_COPIES, LANE_DRAIN, LANES };

/* Dependencies. */
struct pacing_setup {
    const struct config *config;
    struct loop *loop;
    struct client *const *clients;    /* the current list */
    struct term_context *const *term; /* the current term */
    /* What this lane throttles may ask again. */
    void (*resume)(void *ctx, enum lane lane);
    /* Whether the agent has no time to lose. */
    bool (*hurries)(const void *ctx);
    void *ctx;
};

must_check tck_status_t pacing_new(const struct pacing_setup *setup, struct pacing **out, struct error *err);
void pacing_free(struct pacing *p);

/* A trainer has begun to save this step. */
void pacing_saves(struct pacing *p, uint64_t step);
/* So many bytes of a version are about to be sent; and that has ended, well or not, with so many of them unsent. */
void pacing_begin(struct pacing *p, enum lane lane, struct version version, uint64_t bytes);
void pacing_end(struct pacing *p, enum lane lane, uint64_t unsent);
/* tier_pace.more: so many more bytes than were expected, of something that has begun and not ended. */
void pacing_more(struct pacing *p, enum lane lane, uint64_t bytes);
/* tier_pace.less: so many fewer. */
void pacing_less(struct pacing *p, enum lane lane, uint64_t bytes);
/* tier_pace.take. */
bool pacing_take(struct pacing *p, enum lane lane, uint64_t bytes);

/* For what the next bytes of a lane wait. */
enum pacing_wait {
    PACING_GOES,
    PACING_RATE,    /* the rate */
    PACING_QUIET,   /* the end of steps that are measured without copies and drains */
    PACING_NETWORK, /* a pause of the network */
};

/* For reports. */
struct pacing_figures {
    double target;                /* 0: nothing is throttled */
    double spread;                /* part of an interval that a version's bytes are spread over */
    double rate[LANES];           /* bytes per second, the last one that was in force; 0: none was */
    uint64_t left[LANES];         /* bytes that are not sent yet */
    enum pacing_wait wait[LANES]; /* for what they wait now */
    bool gated;                   /* the network's counters are read */
    struct inflation inflation;
};
struct pacing_figures pacing_figures(const struct pacing *p);

#endif
