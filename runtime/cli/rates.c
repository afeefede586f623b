/* SPDX-License-Identifier: Apache-2.0
 * Differences of counters. */
#include "cli/rates.h"

#include "cli/cli.h"

static uint64_t member(const json_t *answer, const char *object, const char *key)
{
    return answer != NULL ? number_of(json_get(answer, object), key) : 0;
}

static uint64_t since(const json_t *before, const json_t *now, const char *object, const char *key)
{
    uint64_t was = member(before, object, key), is = member(now, object, key);
    return before == NULL ? 0 : is >= was ? is - was : is;
}

static double rate(const json_t *before, const json_t *now, const char *key, double seconds)
{
    return seconds > 0 ? (double)since(before, now, "transfer", key) / seconds : 0;
}

static uint64_t newest_step(const json_t *answer)
{
    uint64_t newest = 0;
    for (const json_t *t = json_first(json_get(answer, "trainers")); t != NULL; t = json_next(t)) {
        newest = number_of(t, "step") > newest ? number_of(t, "step") : newest;
    }
    return newest;
}

static uint64_t behind(uint64_t step, uint64_t saved)
{
    return step > saved ? step - saved : 0;
}

struct rates rates_between(const json_t *before, const json_t *now, double seconds)
{
    uint64_t step = newest_step(now), was = before != NULL ? newest_step(before) : step;
    uint64_t saves = since(before, now, "training", "saves"), stall_ns = since(before, now, "training", "stall_ns");
    return (struct rates){.step = step,
                          .step_ms = (double)member(now, "training", "step_ns") / 1e6,
                          .unsaved = behind(step, member(now, "committed", "step")),
                          .undrained = behind(step, member(now, "published", "step")),
                          .steps = seconds > 0 && step > was ? (double)(step - was) / seconds : 0,
                          .saves = seconds > 0 ? (double)saves / seconds : 0,
                          .digested = rate(before, now, "digested_bytes", seconds),
                          .copied = rate(before, now, "copied_bytes", seconds),
                          .received = rate(before, now, "received_bytes", seconds),
                          .stored = rate(before, now, "stored_bytes", seconds),
                          .stall_ms = saves > 0 ? (double)stall_ns / 1e6 / (double)saves : -1};
}
