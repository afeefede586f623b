/* SPDX-License-Identifier: Apache-2.0
 * The agent's socket: trainers and commands of this node connect here. */
#ifndef TCK_AGENT_IPC_SERVER_H
#define TCK_AGENT_IPC_SERVER_H

#include "agent/state/context.h"

/* Before storage, catalog and network are touched. TCK_ERR_EXIST if there is another agent of this job and node. */
must_check tck_status_t ipc_server_lock(struct agent *agent, struct error *err);
must_check tck_status_t ipc_server_listen(struct agent *agent, struct error *err);
void ipc_server_close(struct agent *agent);
/* Sends one frame of an encoded payload with descriptors beside it. What cannot be sent cuts the connection: better
 * than a client that waits for ever. */
void client_send_fds(struct client *client, uint32_t type, const struct writer *w, const int *fds, uint32_t count);
void client_send(struct client *client, uint32_t type, const struct writer *w);
/* Ends the connection through its own event, so that the client stays valid for the caller. */
void client_cut(struct client *client, const char *why);
/* From now on notices the end of the client's process, even if a child of it keeps the socket open. */
void client_watch_process(struct client *client);
/* NULL if that connection is over. */
struct client *client_by_id(const struct agent *agent, uint64_t id);
void client_error(struct client *client, uint32_t type, uint32_t seq, const struct error *err);
void client_ok(struct client *client, uint32_t seq);
/* The connected trainer of a rank in this term, NULL if none. */
struct client *client_of_rank(const struct agent *agent, uint64_t term, uint32_t rank);
uint32_t clients_trainers(const struct agent *agent);
#endif
