/* SPDX-License-Identifier: Apache-2.0
 * What follows from a report, for status, metrics and automatic intervals alike. Pure. */
#ifndef TCK_AGENT_DERIVED_H
#define TCK_AGENT_DERIVED_H

#include "agent/report/report.h"

/* An operation that may take long, or hang. */
struct operation {
    const char *name;
    uint64_t age_ms;         /* 0: none is under way */
    const struct wait *wait; /* how far it is; NULL: not known */
};
enum { OPERATIONS = 3 + AWAITS };
void report_operations(const struct report *r, struct operation out[OPERATIONS]);

/* Nodes of the term. */
uint64_t report_nodes(const struct report *r);
/* Saves of this node's trainers. */
uint64_t report_saves(const struct report *r);

#endif
