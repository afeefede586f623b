/* SPDX-License-Identifier: Apache-2.0
 * Between the pure machines and the world: events go in one after the other, each event's actions are carried out in
 * order before the next. */
#ifndef TCK_AGENT_PROTOCOL_DRIVER_H
#define TCK_AGENT_PROTOCOL_DRIVER_H

#include "agent/state/context.h"

/* Feeds an event; its actions, and those of the events they cause, are carried out before it returns (or, called from
 * inside an action, before the outer call returns). Term and time are filled in. */
void driver_step_node(struct term_context *tc, const struct event *event);
void driver_step_coordinator(struct term_context *tc, const struct event *event);
/* Feeds an event that is a question, and returns the answer. None is given inside an action, where the event waits. */
struct node_answer driver_ask_node(struct term_context *tc, const struct event *event);
void driver_tick(struct term_context *tc);

#endif
