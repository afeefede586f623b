/* SPDX-License-Identifier: Apache-2.0
 * Connects the pure state machines with the outside world: it feeds in one event after the other, and carries out the
 * actions of each event in order before the next one. */
#ifndef TCK_AGENT_PROTOCOL_DRIVER_H
#define TCK_AGENT_PROTOCOL_DRIVER_H

#include "agent/driver/term.h"

/* Feeds an event; its actions, and those of the events they cause, are carried out before it returns (or, called from
 * inside an action, before the outer call returns). Term and time are filled in. */
void driver_step_node(struct term_context *tc, const struct event *event);
void driver_step_coordinator(struct term_context *tc, const struct event *event);
/* Feeds an event that requires an answer, and returns the answer. If it is called from inside an action there is none,
 * because the event is queued until the action has ended. */
struct node_answer driver_ask_node(struct term_context *tc, const struct event *event);
void driver_tick(struct term_context *tc);

#endif
