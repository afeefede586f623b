/* SPDX-License-Identifier: Apache-2.0
 * Random numbers, the queue of things to come, the log. Same seed, same order, same story. */
#include "sim.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* splitmix64 (Steele, Lea, Flood 2014) */
static uint64_t next_of(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t sim_random(struct sim *s, uint64_t below)
{
    return next_of(&s->random) % below;
}

bool sim_chance(struct sim *s, uint32_t per_mille)
{
    return sim_random(s, 1000) < per_mille;
}

uint64_t sim_between(struct sim *s, uint64_t low, uint64_t high)
{
    return low + sim_random(s, high - low + 1);
}

bool sim_trait(const struct sim *s, enum trait trait, uint32_t per_mille)
{
    uint64_t state = ~s->seed * (2 * (uint64_t)trait + 1);
    return next_of(&state) % 1000 < per_mille;
}

void sim_queue_clear(struct sim *s)
{
    s->heap_count = 0;
    s->unused_count = SIM_TASKS;
    for (uint32_t i = 0; i < SIM_TASKS; i++) {
        s->unused[i] = i;
    }
}

static bool sooner(const struct queued *x, const struct queued *y)
{
    return x->at != y->at ? x->at < y->at : x->order < y->order;
}

static void push(struct sim *s, struct queued q)
{
    uint32_t i = s->heap_count++;
    while (i > 0 && sooner(&q, &s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = q;
}

static struct queued pop(struct sim *s)
{
    struct queued top = s->heap[0], last = s->heap[--s->heap_count];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < s->heap_count; i = child) {
        if (child + 1 < s->heap_count && sooner(&s->heap[child + 1], &s->heap[child])) {
            child++;
        }
        if (!sooner(&s->heap[child], &last)) {
            break;
        }
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    return top;
}

/* The caller fills the task in. */
struct task *sim_after(struct sim *s, uint64_t after, enum task_type type, uint32_t machine)
{
    static struct task nowhere;
    if (s->unused_count == 0) {
        sim_fail(s, "more than %d things under way: something repeats itself without end", SIM_TASKS);
        return &nowhere;
    }
    uint32_t index = s->unused[--s->unused_count];
    struct task *t = &s->tasks[index];
    memset(t, 0, sizeof(*t));
    t->type = type;
    t->machine = machine;
    t->agent = NONE32;
    push(s, (struct queued){s->now + after, s->order++, index});
    return t;
}

void sim_again(struct sim *s, const struct task *from, uint64_t after)
{
    *sim_after(s, after, from->type, from->machine) = *from;
}

bool sim_next(struct sim *s, struct task *out)
{
    if (s->heap_count == 0) {
        return false;
    }
    struct queued first = pop(s);
    *out = s->tasks[first.task];
    s->unused[s->unused_count++] = first.task;
    s->now = first.at;
    return true;
}

static void print_line(const struct sim *s, const char *mark, const char *fmt, va_list args)
{
    printf("%6" PRIu64 " %s", s->now, mark);
    vprintf(fmt, args);
    printf("\n");
}

void sim_log(const struct sim *s, const char *fmt, ...)
{
    if (s->verbose) {
        va_list args;
        va_start(args, fmt);
        print_line(s, "", fmt, args);
        va_end(args);
    }
}

void sim_fail(struct sim *s, const char *fmt, ...)
{
    if (!s->failed) {
        va_list args;
        va_start(args, fmt);
        printf("seed %" PRIu64 ": ", s->seed);
        print_line(s, "VIOLATION: ", fmt, args);
        va_end(args);
    }
    s->failed = true;
}
