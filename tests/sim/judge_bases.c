/* SPDX-License-Identifier: Apache-2.0
 * Checks the decisions about the base of a term: its owners have it when trainers may read it, it stays the same, and
 * it is lost only if a part of it is lost. */
#include "sim.h"

#include <inttypes.h>
#include <stdlib.h>

/* The base of one term according to its coordinator's decisions. */
struct based {
    struct based *next;
    uint64_t term;
    struct version version;
    bool lost;
};

static struct based *all;

static struct based *based_of(uint64_t term)
{
    struct based *b = all;
    while (b != NULL && b->term != term) {
        b = b->next;
    }
    return b;
}

/* ---- readable ---------------------------------------------------------------------------------------------------- */

/* True if the host has that shard, or a fault has happened to it since the launch began. */
static bool has_or_is_excused(const struct host *host, const struct shard_info *shard, struct version version)
{
    bool lost = host->agent == NULL || host->lost_us >= job.launch->began_us || host->adopted > job.launch->term;
    return lost || damage_is_known(host, shard->id, version) || judge_has_copy(host, shard, version);
}

/* True if the shard is on rank r's machine or, if trainers pass shards on to each other, on that of one of its twins.
 */
static bool is_at_owner(const struct launch *launch, uint32_t r, const struct shard_info *shard, bool shared,
                        struct version version)
{
    uint32_t groups = launch->shape->ranks / launch->shape->twins;
    if (has_or_is_excused(launch->ranks[r].host, shard, version)) {
        return true;
    }
    for (uint32_t twin = r % groups; twin < launch->count && shared && sim_trait(TRAIT_SPREADS); twin += groups) {
        if (has_or_is_excused(launch->ranks[twin].host, shard, version)) {
            return true;
        }
    }
    return false;
}

static void check_readable(const struct decision *d)
{
    const struct launch *launch = job.launch;
    bool known = launch != NULL && launch->term == d->term && launch->phase == PHASE_RESTORE;
    for (uint32_t r = 0; known && !version_none(d->base) && r < launch->count; r++) {
        struct shard_info infos[2];
        rank_shard_ids(launch->shape, r, infos);
        for (uint32_t i = 0; i < job.shards; i++) {
            if (!is_at_owner(launch, r, &infos[i], i == 0, d->base)) {
                sim_violation("trainers may read step %" PRIu64 " of term %" PRIu64
                              ", although the machine of rank %u does not have its shard %u",
                              d->base.step, d->base.term, r, i);
            }
        }
    }
}

/* ---- lost -------------------------------------------------------------------------------------------------------- */

/* True if some machine has, or may have, a good copy. */
static bool is_somewhere(const struct shard_info *shard, struct version version)
{
    for (uint32_t i = 0; i < sim.host_count; i++) {
        const struct host *host = &sim.hosts[i];
        if (host->agent != NULL && judge_has_copy(host, shard, version)) {
            return true;
        }
    }
    return false;
}

/* True if a host keeps receiving damaged bytes, which it cannot use. */
static bool any_host_is_noisy(void)
{
    uint32_t i = 0;
    while (i < sim.host_count && !sim.hosts[i].noisy) {
        i++;
    }
    return i < sim.host_count;
}

static void check_lost(const struct decision *d)
{
    const struct launch *launch = job.launch;
    bool known = launch != NULL && launch->term == d->term && !any_host_is_noisy();
    bool all_there = known;
    for (uint32_t r = 0; known && r < launch->count; r++) {
        struct shard_info infos[2];
        rank_shard_ids(launch->shape, r, infos);
        for (uint32_t i = 0; i < job.shards; i++) {
            all_there = all_there && is_somewhere(&infos[i], d->base);
        }
    }
    if (all_there) {
        sim_violation("step %" PRIu64 " of term %" PRIu64 ", the base of term %" PRIu64
                      ", is reported as lost, although there are copies of all its shards",
                      d->base.step, d->base.term, d->term);
    }
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

void judge_base(const struct decision *d)
{
    struct based *b = based_of(d->term);
    if (!d->readable) {
        return;
    }
    if (b == NULL) {
        b = calloc(1, sizeof(*b));
        if (b == NULL) {
            abort();
        }
        *b = (struct based){.next = all, .term = d->term, .version = d->base};
        all = b;
        check_readable(d);
        if (launch_asked_step_in(d->term)) {
            judge_gone_back(d->base);
        }
    }
    if (!version_is(b->version, d->base)) {
        sim_violation("term %" PRIu64 " restored step %" PRIu64 " and then step %" PRIu64, d->term, b->version.step,
                      d->base.step);
    }
    if (d->base_lost && !b->lost) {
        check_lost(d);
    }
    b->lost = d->base_lost;
}

bool judge_is_base(struct version version)
{
    const struct based *b = all;
    while (b != NULL && !version_is(b->version, version)) {
        b = b->next;
    }
    return b != NULL;
}

/* A commit needs all nodes of its term, and a node that takes part in a newer one does not agree to it any more. A
 * launch that requested a step gives up newer versions on purpose. */
void judge_commit(struct version version)
{
    for (const struct based *b = all; b != NULL; b = b->next) {
        bool newer = version_cmp(version, b->version) > 0 && !launch_asked_step_in(b->term);
        if (b->term > version.term && newer && (launch_hosts_in(version.term) & launch_hosts_in(b->term)) != 0) {
            sim_violation("step %" PRIu64 " of term %" PRIu64 " is committed, although term %" PRIu64
                          " has gone on from step %" PRIu64 " of term %" PRIu64,
                          version.step, version.term, b->term, b->version.step, b->version.term);
        }
    }
}
