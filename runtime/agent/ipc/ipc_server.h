/* SPDX-License-Identifier: Apache-2.0
 * The agent's socket: trainers and commands of this node connect here. The server keeps the list of clients, which all
 * parts may read. */
#ifndef TCK_AGENT_IPC_SERVER_H
#define TCK_AGENT_IPC_SERVER_H

#include "agent/ipc/client.h"
#include "base/config.h"
#include "base/ipc.h"

#define IPC_SERVER_SOCKET "agent.sock"
#define IPC_SERVER_DIR    (2 * (size_t)CONFIG_PATH)

struct loop;

/* The directory of the agent's socket. */
void ipc_server_dir(const struct config *config, char out[IPC_SERVER_DIR]);

/* Dependencies. */
struct ipc_server_setup {
    const struct config *config;
    struct loop *loop;
    struct client **clients; /* the list, empty at first */
    void (*frame)(void *ctx, struct client *client, const struct ipc_frame *frame);
    /* The connection has been removed from the list, and is freed when this returns. */
    void (*gone)(void *ctx, struct client *client);
    void *ctx;
};

must_check tck_status_t ipc_server_listen(const struct ipc_server_setup *setup, struct ipc_server **out,
                                          struct error *err);
/* Creates a new socket in the directory in place of one that was deleted. Existing connections stay open. */
must_check tck_status_t ipc_server_listen_again(struct ipc_server *server, struct error *err);
/* Accepts connections to this listening socket, too; the descriptor stays the caller's. */
must_check tck_status_t ipc_server_serve(struct ipc_server *server, int listen_fd, struct error *err);
/* Closes all connections without calling `gone`. */
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
