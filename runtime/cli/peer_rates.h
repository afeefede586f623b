/* SPDX-License-Identifier: Apache-2.0
 * Rates to other nodes, compared with each other: which of them is slow. Pure.
 *
 * A node is slow if the rate to it is less than half of the median. Of an even number of nodes the median is the larger
 * one of the two in the middle, so that of two nodes the slower one is compared with the faster one. A rate alone
 * cannot be slow: what the network should achieve is not known here. */
#ifndef TCK_CLI_PEER_RATES_H
#define TCK_CLI_PEER_RATES_H

#include "base/config.h"
#include "base/world.h"

enum peer_rate_state { RATE_UNREACHABLE, RATE_MEASURED, RATE_UNKNOWN };

struct peer_rate {
    char node[CONFIG_NAME];
    enum peer_rate_state state;
    double rate; /* bytes per second */
    bool slow;
    char transports[128], from[ADDRESS_TEXT], to[ADDRESS_TEXT]; /* "": unknown */
    char why[ERROR_TEXT_BYTES];                                 /* it was not measured */
};

/* The median of the rates that were measured, 0 if there are none, and which nodes are slow. */
double peer_rates_judge(struct peer_rate *rates, size_t count);
/* What needs attention first: nodes that cannot be reached, then the slowest ones; at the end those that were not
 * measured. */
void peer_rates_sort(struct peer_rate *rates, size_t count);
/* Whether everything that was measured went over TCP. False if nothing is known of that. */
bool peer_rates_are_tcp(const struct peer_rate *rates, size_t count);

#endif
