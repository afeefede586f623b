/* SPDX-License-Identifier: Apache-2.0
 * Restarts an agent that others can no longer connect to (tiers/ucx_listeners.h). */
#ifndef TCK_AGENT_LISTENER_WATCHDOG_H
#define TCK_AGENT_LISTENER_WATCHDOG_H

#include <stdint.h>

struct fdstore;
struct idle_exit;
struct peers;

struct listener_watchdog {
    struct peers *peers;
    struct fdstore *fdstore;
    const struct idle_exit *idle_exit;
    uint64_t unreachable_ms; /* since when other agents cannot connect; 0: they can */
};

void listener_watchdog_tick(struct listener_watchdog *w);

#endif
