/* SPDX-License-Identifier: Apache-2.0
 * Sends messages to other agents, and determines which of their messages are valid: those of the current term. */
#ifndef TCK_AGENT_PEER_RPC_H
#define TCK_AGENT_PEER_RPC_H

#include "base/buf.h"
#include "base/status.h"

#include <stdint.h>

struct adopt_setup;
struct hard_state;
struct peer;
struct term_context;

struct rpc;

/* Dependencies. */
struct rpc_setup {
    const struct hard_state *state;
    const struct adopt_setup *adopt;
    struct term_context *const *term; /* the current term */
};

must_check tck_status_t rpc_new(const struct rpc_setup *setup, struct rpc **out, struct error *err);
void rpc_free(struct rpc *rpc);

void rpc_send(struct term_context *tc, uint32_t node, uint16_t type, struct writer *w);
/* To the coordinator, which may be this agent itself (then it is handled at once). */
void rpc_send_coordinator(struct term_context *tc, uint16_t type, struct writer *w);
/* Asks the coordinator to bring the newest committed version to storage. */
void rpc_ask_drain(struct term_context *tc);
/* The node index of a peer in the term context; NONE32 if it is not part of it. */
uint32_t rpc_node_of(const struct term_context *tc, const struct peer *peer);
/* Reports to the coordinator that this node has its memory; repeated at ticks until the coordinator's messages show
 * that it knows. */
void rpc_send_registered(struct term_context *tc);
void rpc_registered_tick(struct term_context *tc);
/* The open term context of this term, or NULL; newer terms are adopted, senders of older ones get WIRE_STALE. */
struct term_context *rpc_term_context(struct rpc *rpc, struct peer *peer, uint64_t term);
void rpc_send_stale(const struct rpc *rpc, struct peer *peer);
/* How many messages of older terms were dropped. */
uint64_t rpc_stale_messages(const struct rpc *rpc);
void rpc_send_gone(struct peer *peer, uint64_t term);

#endif
