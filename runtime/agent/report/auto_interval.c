/* SPDX-License-Identifier: Apache-2.0
 * Intervals that are "auto". */
#include "agent/report/auto_interval.h"

#include "agent/report/derived.h"
#include "agent/trainers/trainer_control.h"

#define SAVES_MIN 5 /* so many give a mean stall */

struct tune_costs auto_interval_costs(const struct report *r)
{
    uint64_t count = report_saves(r);
    return (struct tune_costs){.step = (double)r->trainers.step_ns / 1e9,
                               .stall = count > 0 ? (double)r->trainers.stalls.total_ns / 1e9 / (double)count : 0,
                               .commit = (double)r->tally.commit_ms / 1e3,
                               .drain = (double)r->tally.drain_ms / 1e3};
}

struct tune_counts auto_interval_counts(const struct report *r)
{
    return (struct tune_counts){.restarts = r->tally.restarts,
                                .nodes = r->tally.node_losses,
                                .several = r->tally.several_losses,
                                .node_seconds = (double)tally_node_ms(&r->tally, report_nodes(r), r->now_ms) / 1e3};
}

void auto_interval_set(struct trainers *trainers, const struct report *r)
{
    const struct interval *memory = &r->config->save_mem_interval, *storage = &r->config->save_storage_interval;
    struct tune_intervals in_force = {.mem_steps = memory->steps,
                                      .storage_steps = storage->steps,
                                      .mem_auto = memory->automatic,
                                      .storage_auto = storage->automatic,
                                      .mem_seconds = memory->at_most_seconds,
                                      .storage_seconds = storage->at_most_seconds};
    if (!(in_force.mem_auto || in_force.storage_auto) || report_saves(r) < SAVES_MIN) {
        return;
    }
    struct tune_costs costs = auto_interval_costs(r);
    struct tune_failures assumed = tune_assumed((uint32_t)report_nodes(r), r->config->copies);
    struct tune_counts counts = auto_interval_counts(r);
    struct tune_failures failures = tune_counted(&assumed, &counts);
    struct tune_intervals next = tune_choose(&in_force, &costs, &failures);
    trainers_choose(trainers, next.mem_steps, next.storage_steps);
}
