/* SPDX-License-Identifier: Apache-2.0
 * A sorted array: a recovery of a large job has tens of thousands of fetches under way, and looks up each of them when
 * it has an outcome. */
#include "agent/recovery/asked_fetches.h"

#include <stdlib.h>

#define FIRST_CAP 64

static bool grow(struct asked_fetches *asked)
{
    uint32_t cap = asked->cap == 0 ? FIRST_CAP : 2 * asked->cap;
    struct asked_fetch *items = realloc(asked->items, cap * sizeof(*items));
    asked->items = items != NULL ? items : asked->items;
    bool *flags = realloc(asked->has_outcome, cap * sizeof(*flags));
    asked->has_outcome = flags != NULL ? flags : asked->has_outcome;
    if (items == NULL || flags == NULL) {
        return false;
    }
    asked->cap = cap;
    return true;
}

/* The place of the first one whose number is not below this one. */
static uint32_t first_from(const struct asked_fetches *asked, uint64_t number)
{
    uint32_t low = 0, high = asked->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (asked->items[middle].number < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Once half of them have an outcome, so that each is moved once on average. */
static void remove_those_over(struct asked_fetches *asked)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < asked->count; i++) {
        if (!asked->has_outcome[i]) {
            asked->items[kept] = asked->items[i];
            asked->has_outcome[kept++] = false;
        }
    }
    asked->count = kept;
    asked->over = 0;
}

bool asked_add(struct asked_fetches *asked, const struct asked_fetch *fetch)
{
    if (asked->count == asked->cap && !grow(asked)) {
        return false;
    }
    asked->items[asked->count] = *fetch;
    asked->has_outcome[asked->count++] = false;
    return true;
}

bool asked_take(struct asked_fetches *asked, uint64_t number, uint32_t node)
{
    uint32_t i = first_from(asked, number);
    if (i == asked->count || asked->items[i].number != number || asked->items[i].action.node != node ||
        asked->has_outcome[i]) {
        return false;
    }
    asked->has_outcome[i] = true;
    if (2 * ++asked->over >= asked->count) {
        remove_those_over(asked);
    }
    return true;
}

bool asked_before(const struct asked_fetches *asked, uint64_t number, struct asked_fetch *out)
{
    uint32_t i = first_from(asked, number);
    while (i > 0 && asked->has_outcome[i - 1]) {
        i--;
    }
    if (i == 0) {
        return false;
    }
    *out = asked->items[i - 1];
    return true;
}

void asked_free(struct asked_fetches *asked)
{
    free(asked->items);
    free(asked->has_outcome);
    *asked = (struct asked_fetches){0};
}
