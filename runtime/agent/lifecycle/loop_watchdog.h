/* SPDX-License-Identifier: Apache-2.0
 * Does something if what it watches has not ended in time: for the few places where the agent's only thread may hang.
 */
#ifndef TCK_AGENT_WATCHDOG_H
#define TCK_AGENT_WATCHDOG_H

#include <stdint.h>

struct watchdog;

/* Calls late(ctx) in a thread of its own after so many milliseconds. NULL: there is no thread to be had. */
struct watchdog *watchdog_start(uint32_t ms, void (*late)(void *ctx), void *ctx);
/* It has ended. Waits for a late that is running; NULL is allowed. */
void watchdog_stop(struct watchdog *watchdog);

#endif
