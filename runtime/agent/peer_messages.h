/* SPDX-License-Identifier: Apache-2.0
 * Dispatches messages, beats and session changes of other agents to the parts that handle them. */
#ifndef TCK_AGENT_PEER_MESSAGES_H
#define TCK_AGENT_PEER_MESSAGES_H

#include "agent/state/context.h"

/* Opens the peer tier; from then on the messages of other agents are handled. */
must_check tck_status_t peer_messages_open(struct agent *agent, struct error *err);
void peer_messages_handle(struct term_context *tc, uint32_t node, uint16_t type, const void *data, size_t len);
void peer_messages_handle_beat(struct agent *agent, const struct wire_beat *m);

#endif
