/* SPDX-License-Identifier: Apache-2.0
 * Dispatches messages, heartbeats and session changes from other agents to the parts that handle them. */
#ifndef TCK_AGENT_PEER_MESSAGES_H
#define TCK_AGENT_PEER_MESSAGES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct agent;
struct term_context;

/* Opens the peer tier; from then on the messages of other agents are handled. */
must_check tck_status_t peer_messages_open(struct agent *agent, struct error *err);
/* From another agent of the term, or from this node to itself as the coordinator. */
void peer_messages_handle(struct term_context *tc, uint32_t node, uint16_t type, const void *data, size_t len);
/* The coordinator sends the decision and the settings to all nodes at once, ahead of the next heartbeat. */
void peer_messages_announce(struct term_context *tc);
/* Sends the newest decision to this node, which learns of it before what is sent to it afterwards. */
void peer_messages_show_decision(struct term_context *tc, uint32_t node);

#endif
