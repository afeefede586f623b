/* SPDX-License-Identifier: Apache-2.0
 * Calls a function if an operation takes too long, for the few places where the agent's only thread may block (main.c).
 */
#ifndef TCK_AGENT_WATCHDOG_H
#define TCK_AGENT_WATCHDOG_H

#include <stdint.h>

struct watchdog;

/* Calls late(ctx) in a thread of its own after ms milliseconds, unless it is stopped. NULL: no thread could be created.
 */
struct watchdog *watchdog_start(uint32_t ms, void (*late)(void *ctx), void *ctx);
/* The operation has ended. Waits for a running late(); NULL is allowed. */
void watchdog_stop(struct watchdog *watchdog);

#endif
