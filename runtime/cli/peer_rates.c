/* SPDX-License-Identifier: Apache-2.0
 * Rates to other nodes, compared with each other. */
#include "cli/peer_rates.h"

#include <stdlib.h>
#include <string.h>

static int by_urgency(const void *a, const void *b)
{
    const struct peer_rate *x = a, *y = b;
    if (x->state != y->state) {
        return x->state < y->state ? -1 : 1;
    }
    if (x->state == RATE_MEASURED && (x->rate < y->rate || x->rate > y->rate)) {
        return x->rate < y->rate ? -1 : 1;
    }
    return strcmp(x->node, y->node);
}

void peer_rates_sort(struct peer_rate *rates, size_t count)
{
    if (count > 0) {
        qsort(rates, count, sizeof(*rates), by_urgency);
    }
}

double peer_rates_judge(struct peer_rate *rates, size_t count)
{
    size_t first = 0, measured = 0;
    peer_rates_sort(rates, count);
    while (first < count && rates[first].state == RATE_UNREACHABLE) {
        first++;
    }
    while (first + measured < count && rates[first + measured].state == RATE_MEASURED) {
        measured++;
    }
    double median = measured > 0 ? rates[first + measured / 2].rate : 0;
    for (size_t i = first; i < first + measured; i++) {
        rates[i].slow = rates[i].rate < median / 2;
    }
    return median;
}

static bool all_tcp(const char *transports)
{
    while (*transports != '\0') {
        if (strncmp(transports, "tcp/", 4) != 0) {
            return false;
        }
        transports += strcspn(transports, " ");
        transports += *transports == ' ';
    }
    return true;
}

bool peer_rates_are_tcp(const struct peer_rate *rates, size_t count)
{
    bool known = false;
    for (size_t i = 0; i < count; i++) {
        known = known || rates[i].transports[0] != '\0';
        if (!all_tcp(rates[i].transports)) {
            return false;
        }
    }
    return known;
}
