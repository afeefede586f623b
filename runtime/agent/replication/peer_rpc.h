/* SPDX-License-Identifier: Apache-2.0
 * Messages with other agents: beats and decisions, reports to the coordinator, offers and pulls of copies. */
#ifndef TCK_AGENT_PEER_RPC_H
#define TCK_AGENT_PEER_RPC_H

#include "agent/state/context.h"

void rpc_send(struct term_context *tc, uint32_t node, uint16_t type, struct writer *w);
/* To the coordinator, which may be this agent itself (then it is handled at once). */
void rpc_send_coordinator(struct term_context *tc, uint16_t type, struct writer *w);
void rpc_announce(struct term_context *tc);
/* The node index of a peer in the term context; NONE32 if it is not part of it. */
uint32_t rpc_node_of(const struct term_context *tc, const struct peer *peer);
/* Reports to the coordinator that this node has its memory; repeated at ticks until the coordinator's messages show
 * that it knows. */
void rpc_send_registered(struct term_context *tc);
void rpc_registered_tick(struct term_context *tc);
/* Fills in the next beat of this agent. */
void rpc_make_beat(struct agent *agent, struct wire_beat *out);
/* The open term context of this term, or NULL; newer terms are adopted, senders of older ones get WIRE_STALE. */
struct term_context *rpc_term_context(struct agent *agent, struct peer *peer, uint64_t term);
void rpc_send_stale(struct agent *agent, struct peer *peer);
void rpc_send_gone(struct peer *peer, uint64_t term);

#endif
