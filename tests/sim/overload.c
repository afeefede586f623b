/* SPDX-License-Identifier: Apache-2.0
 * Far more is saved than can be copied, until the end of the training; or the copies of each version take longer than
 * version_timeout_ms. Versions must be committed nevertheless, and the last step must be saved to storage. */
#include "sim.h"

#include <stdlib.h>

#define LIMIT_US (100 * S) /* within this time COMMITS versions must be committed, without faults */
#define COMMITS  4
/* Less than a transfer may stand still (three times peer_timeout_ms), while two of them, the least that a host sends to
 * another one, take longer than version_timeout_ms. */
#define CHUNK_US (2700 * MS)

/* ---- saves ------------------------------------------------------------------------------------------------------- */

struct begin {
    struct rank *rank;
    uint64_t step;
    bool to_storage;
};

static void begin_save(void *ctx)
{
    struct begin *b = ctx;
    if (!b->rank->launch->dead && !b->rank->launch->rests) {
        rank_save(b->rank, b->step, b->to_storage, false);
    }
    free(b);
}

/* The ranks begin at different times, so that the versions in their nodes' slots differ. */
void overload_save(struct rank *rank, uint64_t step, bool to_storage)
{
    if (!sim_trait(TRAIT_OVERLOADED)) {
        rank_save(rank, step, to_storage, false);
        return;
    }
    struct begin *b = malloc(sizeof(*b));
    if (b == NULL) {
        abort();
    }
    *b = (struct begin){rank, step, to_storage};
    sim_after(sim_between(0, 3000), NULL, begin_save, b);
}

/* ---- how long ---------------------------------------------------------------------------------------------------- */

static bool is_held_back(const struct launch *launch)
{
    const struct agent *agent = launch->ranks[0].host->agent;
    const struct term_context *tc = agent != NULL ? agent->term_context : NULL;
    return tc != NULL && tc->coordinator != NULL &&
           coordinator_decision(tc->coordinator)->not_before > launch->step + 1;
}

static bool is_to_commit(const struct launch *launch)
{
    return (sim_trait(TRAIT_OVERLOADED) || sim_trait(TRAIT_LONG_COPIES)) && launch->calm.commits < COMMITS;
}

/* After the last fault, because each restore would take that long, too. */
uint64_t overload_chunk_us(void)
{
    const struct launch *launch = job.launch;
    bool is_long = sim_trait(TRAIT_LONG_COPIES) && launch != NULL && launch->calm.since_us > 0;
    return is_long && is_to_commit(launch) ? CHUNK_US : 0;
}

/* The last step must be saved while saves are held back and other versions occupy the slots. */
bool overload_lasts(const struct launch *launch)
{
    bool waits = sim_trait(TRAIT_OVERLOADED) && sim_trait(TRAIT_LAST_STEP) && !is_held_back(launch) &&
                 (launch->calm.since_us == 0 || sim.us < launch->calm.since_us + LIMIT_US / 2);
    return is_to_commit(launch) || waits;
}

/* Counts versions that were begun after the last fault. */
void overload_count(struct launch *launch)
{
    if (!is_to_commit(launch) || launch != job.launch || sim.us <= faults.until_us || sim.us <= faults.last_us) {
        return;
    }
    if (launch->calm.since_us == 0) {
        launch->calm.since_us = sim.us;
        launch->calm.newest = launch->step;
    }
    if (job.committed > launch->calm.newest) {
        launch->calm.newest = job.committed;
        launch->calm.commits++;
    }
    if (sim.us > launch->calm.since_us + LIMIT_US) {
        sim_violation("%u versions are committed in %.0f s, while %s", launch->calm.commits,
                      (double)LIMIT_US / (double)S,
                      sim_trait(TRAIT_OVERLOADED) ? "more is saved than can be copied" : "copies take long");
    }
}
