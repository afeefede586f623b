/* SPDX-License-Identifier: Apache-2.0
 * The decision per step: a few loads and two divisions. */
#include "client/interval.h"

#include <stdatomic.h>

#define SMOOTHING 8 /* a step's time counts one eighth */

static bool divides(uint64_t interval, uint64_t step)
{
    return interval != 0 && step % interval == 0;
}

static uint64_t load(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_acquire);
}

static void adopt_intervals(struct pacer *pacer, const struct shared_status *shared, uint64_t step)
{
    /* In this order: a reader of the new intervals also sees the step from which they count. */
    uint64_t mem_steps = load(&shared->mem_interval_steps);
    uint64_t storage_steps = load(&shared->storage_interval_steps);

    if (step >= load(&shared->interval_from_step)) {
        pacer->mem_steps = mem_steps;
        pacer->storage_steps = storage_steps;
    }
}

tck_due_t pacer_due(struct pacer *pacer, const struct shared_status *shared, uint64_t step)
{
    if (step == 0) {
        return TCK_DUE_NOTHING;
    }
    adopt_intervals(pacer, shared, step);
    if (divides(pacer->storage_steps, step) || step == load(&shared->storage_target_step)) {
        return TCK_DUE_STORAGE;
    }
    if (divides(pacer->mem_steps, step) || step == load(&shared->mem_target_step)) {
        return TCK_DUE_MEMORY;
    }
    return TCK_DUE_NOTHING;
}

void pacer_tick(struct pacer *pacer, struct shared_status *shared, uint64_t step, uint64_t now_ns)
{
    uint64_t took_ns = now_ns - pacer->last_call_ns;

    if (pacer->last_call_ns != 0) {
        pacer->step_ns =
            pacer->step_ns == 0 ? took_ns : pacer->step_ns - pacer->step_ns / SMOOTHING + took_ns / SMOOTHING;
        atomic_store_explicit(&shared->step_ns, pacer->step_ns, memory_order_relaxed);
    }
    pacer->last_call_ns = now_ns;
    atomic_store_explicit(&shared->step_at_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&shared->current_step, step, memory_order_release);
}
