/* SPDX-License-Identifier: Apache-2.0
 * Intervals that are "auto": the coordinator's agent measures what saves cost, counts failures, and sets the intervals
 * that core/tune.h advises. */
#ifndef TCK_AGENT_AUTO_INTERVAL_H
#define TCK_AGENT_AUTO_INTERVAL_H

#include "core/tune.h"

struct report;
struct trainers;

/* From one look at the costs to the next. */
#define AUTO_INTERVAL_MS 5000

/* What is measured and counted on this node; zeros where nothing is yet. */
struct tune_costs auto_interval_costs(const struct report *r);
struct tune_counts auto_interval_counts(const struct report *r);

/* Coordinator: changes intervals that are "auto" (tune_choose). */
void auto_interval_set(struct trainers *trainers, const struct report *r);

#endif
