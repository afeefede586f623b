/* SPDX-License-Identifier: Apache-2.0
 * The agent's socket: trainers and commands of this node connect here. The server keeps the list agent->clients, which
 * all parts may read; frames and ends of connections go to hooks->client_frame and hooks->client_gone. */
#ifndef TCK_AGENT_IPC_SERVER_H
#define TCK_AGENT_IPC_SERVER_H

#include "agent/state/context.h"

/* Called before storage, catalog and network are opened. TCK_ERR_EXIST: another agent serves this job and node. */
must_check tck_status_t ipc_server_lock(const struct config *config, int *lock_fd_out, struct error *err);
must_check tck_status_t ipc_server_listen(struct agent *agent, struct ipc_server **out, struct error *err);
/* Ends all connections, without a call of hooks->client_gone. */
void ipc_server_close(struct ipc_server *server);
/* Sends one frame of an encoded payload with descriptors beside it. Closes the connection if the frame cannot be sent,
 * so that the client does not wait for ever. */
void client_send_fds(struct client *client, uint32_t type, const struct writer *w, const int *fds, uint32_t count);
void client_send(struct client *client, uint32_t type, const struct writer *w);
/* Ends the connection through its own event, so that the client stays valid for the caller. */
void client_cut(struct client *client, const char *why);
/* Watches the client's process, whose end is then noticed even if a child keeps the socket open. */
void client_watch_process(struct client *client);
/* NULL if that connection has ended. */
struct client *client_by_id(struct client *clients, uint64_t id);
void client_error(struct client *client, uint32_t type, uint32_t seq, const struct error *err);
void client_ok(struct client *client, uint32_t seq);
/* The connected trainer of a rank in this term, NULL if none. */
struct client *client_of_rank(struct client *clients, uint64_t term, uint32_t rank);
uint32_t clients_trainers(const struct client *clients);

#endif
