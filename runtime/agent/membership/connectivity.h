/* SPDX-License-Identifier: Apache-2.0
 * The sessions that a term needs: with its coordinator, and with the nodes that copies are sent to and received from;
 * the coordinator needs sessions with all nodes, some of which may be relayed. A JOIN or REGISTER waits for them:
 * join_reply.h answers it. */
#ifndef TCK_AGENT_CONNECTIVITY_H
#define TCK_AGENT_CONNECTIVITY_H

#include "base/status.h"
#include "base/world.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client;
struct config;
struct connectivity;
struct join_setup;
struct peer;
struct peers;
struct save_dir_check;
struct term_context;

/* Dependencies. */
struct connectivity_setup {
    const struct config *config;
    struct peers *peers;
    struct client *const *clients; /* the current list */
    struct save_dir_check *save_dir_check;
    const struct join_setup *join;
};

must_check tck_status_t connectivity_new(const struct connectivity_setup *setup, struct connectivity **out,
                                         struct error *err);
void connectivity_free(struct connectivity *cn);
/* Opens sessions with the nodes that this world requires. */
void connectivity_want_world(struct connectivity *cn, const struct world *world);
/* True if there is no session with some of these; the text names them. */
bool connectivity_missing(const struct connectivity *cn, const struct node_info *nodes, size_t count,
                          struct error *err);
/* False: a session with this agent only serves to relay messages of others, so that its end is no loss for this node.
 */
bool connectivity_is_needed(const struct connectivity *cn, uint64_t agent_id);
/* True if this agent passes on messages between these two: one is the coordinator's of the newest joined term, and this
 * node leads the other one. */
bool connectivity_relays(const struct connectivity *cn, uint64_t a, uint64_t b);
/* The nodes with which the newest joined term needs sessions. */
const struct node_info *connectivity_nodes(const struct connectivity *cn, uint64_t *term_out, size_t *count_out);
/* Replies to trainers whose nodes are connected, or have not connected in time. */
void connectivity_tick(struct connectivity *cn);
/* A trainer joins a world that names a former agent of this node, which died with its memory: notifies the other nodes,
 * so that they do not wait for it. */
void connectivity_memory_lost(struct connectivity *cn, const struct world *world);
void connectivity_notify(struct connectivity *cn, struct peer *peer); /* notifies a node that is now up, if necessary */
void connectivity_handle_gone(struct connectivity *cn, uint64_t term, const struct node_info *successor);

/* Opens the sessions that this node needs in the term, and uses existing ones. With leaders, those that only an earlier
 * term needed are ended. */
void connectivity_want_term(struct connectivity *cn, struct term_context *tc);

#endif
