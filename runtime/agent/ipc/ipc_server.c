/* SPDX-License-Identifier: Apache-2.0
 * The agent's socket: trainers and commands of this node connect here. */
#include "agent/ipc/ipc_server.h"

#include "base/log.h"
#include "base/loop.h"
#include "base/message.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CLIENTS_MAX  1024
#define SEND_WAIT_MS 200 /* a client that does not read for this long is dropped, since it blocks the event loop */

/* A listening socket. */
struct listener {
    struct ipc_server *server;
    int fd; /* -1: none */
    struct loop_fd *source;
};

struct ipc_server {
    struct ipc_server_setup needs;
    struct listener socket; /* owns its descriptor */
    struct listener other;
    int spare_fd; /* closed for a moment to refuse a connection at EMFILE */
    struct log_limit refusals;
    uint64_t last_client_id;
    uint64_t refused_clients; /* including connections dropped to make room */
};

static void client_unlink(struct client *client)
{
    struct client **at = client->server->needs.clients;
    while (*at != client) {
        at = &(*at)->next;
    }
    *at = client->next;
}

static void client_free(struct client *client)
{
    if (client->source != NULL) {
        loop_fd_remove(client->source);
    }
    if (client->pid_source != NULL) {
        loop_fd_remove(client->pid_source);
    }
    if (client->shared != NULL) {
        munmap(client->shared, 4096);
    }
    if (client->pidfd >= 0) {
        close(client->pidfd);
    }
    close(client->fd);
    free(client->settings);
    free(client);
}

/* The connection is over: the trainer died, detached, or broke the protocol. */
static void client_drop(struct client *client, const char *why)
{
    const struct ipc_server_setup *needs = &client->server->needs;
    client_unlink(client);
    if (client->trainer) {
        log_info("trainer of rank %u (pid %d) disconnected: %s", client->rank, (int)client->process.pid, why);
    }
    needs->gone(needs->ctx, client);
    client_free(client);
}

void client_cut(struct client *client, const char *why)
{
    log_warn("closing the connection of rank %u (pid %d): %s", client->rank, (int)client->process.pid, why);
    shutdown(client->fd, SHUT_RDWR);
}

void client_send_fds(struct client *client, uint32_t type, const struct writer *w, const int *fds, uint32_t count)
{
    struct error err;
    (void)error_set(&err, TCK_ERR_NOMEM, "out of memory for a reply");
    if (w->failed || ipc_send(client->fd, type, w->data, w->len, fds, count, SEND_WAIT_MS, &err) != TCK_OK) {
        client_cut(client, err.text);
    }
}

void client_send(struct client *client, uint32_t type, const struct writer *w)
{
    client_send_fds(client, type, w, NULL, 0);
}

void client_error(struct client *client, uint32_t type, uint32_t seq, const struct error *err)
{
    struct msg_error m = {.seq = seq, .error = *err};
    struct writer w = writer_new(0);
    msg_error_encode(&m, &w);
    client_send(client, type, &w);
    writer_free(&w);
}

void client_ok(struct client *client, uint32_t seq)
{
    struct msg_term m = {.seq = seq, .term = client->term};
    struct writer w = writer_new(0);
    msg_term_encode(&m, &w);
    client_send(client, MSG_OK, &w);
    writer_free(&w);
}

struct client *client_of_rank(struct client *clients, uint64_t term, uint32_t rank)
{
    for (struct client *c = clients; c != NULL; c = c->next) {
        if (c->trainer && c->term == term && c->rank == rank) {
            return c;
        }
    }
    return NULL;
}

struct client *client_by_id(struct client *clients, uint64_t id)
{
    struct client *c = clients;
    while (c != NULL && c->id != id) {
        c = c->next;
    }
    return c;
}

uint32_t clients_trainers(const struct client *clients)
{
    uint32_t count = 0;
    for (const struct client *c = clients; c != NULL; c = c->next) {
        count += c->trainer && !c->done;
    }
    return count;
}

/* Handles one frame. False: none is pending, or the connection has ended and the client is freed. */
static bool handle_frame(struct client *client)
{
    struct ipc_frame frame;
    struct error err;
    tck_status_t status = ipc_recv(client->fd, 0, &frame, &err);
    if (status == TCK_ERR_TIMEDOUT) {
        return false;
    }
    if (status != TCK_OK) {
        client_drop(client, status == TCK_ERR_UNREACHABLE ? "its socket closed" : err.text);
        return false;
    }
    const struct ipc_server_setup *needs = &client->server->needs;
    needs->frame(needs->ctx, client, &frame);
    ipc_frame_free(&frame);
    return true;
}

static void on_readable(void *ctx, uint32_t events)
{
    (void)events;
    (void)handle_frame(ctx);
}

/* A forked child may keep the socket open, so the process is watched, too. Its pending frames are handled first. */
static void on_process_ended(void *ctx, uint32_t events)
{
    (void)events;
    struct client *client = ctx;
    struct client *const *clients = client->server->needs.clients;
    uint64_t id = client->id;
    while (handle_frame(client)) {
        /* frames that it sent before it ended */
    }
    if (client_by_id(*clients, id) != NULL) {
        client_drop(client, "its process ended"); /* NOLINT(clang-analyzer-unix.Malloc): a freed one has no id */
    }
}

void client_watch_process(struct client *client)
{
    if (client->pidfd >= 0) {
        return;
    }
    client->pidfd = (int)syscall(SYS_pidfd_open, client->process.pid, 0);
    client->process = process_of(client->process.pid);
    if (client->pidfd < 0 || loop_fd_add(client->server->needs.loop, client->pidfd, EPOLLIN, on_process_ended, client,
                                         &client->pid_source) != TCK_OK) {
        log_warn("cannot watch process %d: its end will be noticed only when its connection closes",
                 (int)client->process.pid);
    }
}

static uint32_t connections(const struct client *clients)
{
    uint32_t count = 0;
    for (const struct client *c = clients; c != NULL; c = c->next) {
        count++;
    }
    return count;
}

/* Logged at powers of two, so that a flood of connections cannot fill the log. */
static void log_dropped(struct ipc_server *server, const char *what)
{
    uint64_t count = ++server->refused_clients;
    if ((count & (count - 1)) == 0) {
        log_warn("%s (%" PRIu64 " connections dropped so far)", what, count);
    }
}

/* Drops the oldest connection that does not belong to a trainer; trainers and commands identify themselves at once.
 * False: there are only trainers. */
static bool drop_oldest(struct ipc_server *server)
{
    struct client *oldest = NULL;
    for (struct client *c = *server->needs.clients; c != NULL; c = c->next) {
        oldest = c->trainer ? oldest : c;
    }
    if (oldest == NULL) {
        return false;
    }
    log_dropped(server, "too many connections: dropping the oldest one that does not belong to a trainer");
    client_drop(oldest, "too many connections");
    return true;
}

/* EMFILE: drops one connection, possibly the new one; a connection that stays pending would make epoll spin. */
static void handle_emfile(const struct listener *listener)
{
    struct ipc_server *server = listener->server;
    int fd;
    pid_t pid;
    struct error err;
    if (drop_oldest(server)) {
        return;
    }
    log_dropped(server, "connection refused: out of file descriptors");
    if (server->spare_fd >= 0) {
        close(server->spare_fd);
    }
    if (ipc_accept(listener->fd, &fd, &pid, &err) == TCK_OK) {
        close(fd);
    }
    server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void add_client(struct ipc_server *server, int fd, pid_t pid)
{
    struct client **clients = server->needs.clients;
    bool room = connections(*clients) < CLIENTS_MAX || drop_oldest(server);
    struct client *client = room ? calloc(1, sizeof(*client)) : NULL;
    if (client == NULL) {
        log_dropped(server, "connection refused: too many connections");
        close(fd);
        return;
    }
    *client = (struct client){
        .server = server, .id = ++server->last_client_id, .fd = fd, .process.pid = pid, .pidfd = PIDFD_NONE};
    if (loop_fd_add(server->needs.loop, fd, EPOLLIN, on_readable, client, &client->source) != TCK_OK) {
        client_free(client);
        return;
    }
    client->next = *clients;
    *clients = client;
}

/* False: no connection is pending. */
static bool accept_connection(const struct listener *listener)
{
    struct ipc_server *server = listener->server;
    int fd = -1;
    pid_t pid;
    struct error err;
    tck_status_t status = ipc_accept(listener->fd, &fd, &pid, &err);
    if (status == TCK_OK) {
        add_client(server, fd, pid);
    } else if (status == TCK_ERR_NOMEM) {
        handle_emfile(listener);
    } else if (status != TCK_ERR_TIMEDOUT && status != TCK_ERR_BUSY && log_limit_pass(&server->refusals)) {
        log_warn("connection refused: %s", err.text); /* from another user, who may retry without limit */
    }
    return status == TCK_OK;
}

static void on_connection(void *ctx, uint32_t events)
{
    (void)events;
    (void)accept_connection(ctx);
}

void ipc_server_dir(const struct config *config, char out[IPC_SERVER_DIR])
{
    snprintf(out, IPC_SERVER_DIR, "%s/%s/%s", config->runtime_dir, config->job, config->node);
}

static tck_status_t watch(struct ipc_server *server, struct listener *listener, int fd, struct error *err)
{
    struct loop_fd *source = NULL;
    tck_status_t status = loop_fd_add(server->needs.loop, fd, EPOLLIN, on_connection, listener, &source);
    if (status != TCK_OK) {
        return error_set(err, status, "agent socket: the event loop cannot watch it");
    }
    *listener = (struct listener){.server = server, .fd = fd, .source = source};
    return TCK_OK;
}

static tck_status_t listen_in(struct ipc_server *server, struct error *err)
{
    char dir[IPC_SERVER_DIR];
    int fd = -1;
    ipc_server_dir(server->needs.config, dir);
    tck_status_t status = ipc_listen(dir, IPC_SERVER_SOCKET, &fd, err);
    if (status != TCK_OK) {
        return error_prefix(err, "agent socket");
    }
    status = watch(server, &server->socket, fd, err);
    if (status != TCK_OK) {
        close(fd);
    }
    return status;
}

tck_status_t ipc_server_listen_again(struct ipc_server *server, struct error *err)
{
    const struct listener old = server->socket;
    while (accept_connection(&old)) {
        /* connected before the socket was deleted */
    }
    tck_status_t status = listen_in(server, err);
    if (status == TCK_OK) {
        loop_fd_remove(old.source);
        close(old.fd);
    }
    return status;
}

tck_status_t ipc_server_serve(struct ipc_server *server, int listen_fd, struct error *err)
{
    return watch(server, &server->other, listen_fd, err);
}

tck_status_t ipc_server_listen(const struct ipc_server_setup *setup, struct ipc_server **out, struct error *err)
{
    struct ipc_server *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    *server = (struct ipc_server){.needs = *setup, .socket.fd = -1, .other.fd = -1, .spare_fd = -1};
    tck_status_t status = listen_in(server, err);
    if (status != TCK_OK) {
        ipc_server_close(server);
        return status;
    }
    server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    *out = server;
    return TCK_OK;
}

void ipc_server_close(struct ipc_server *server)
{
    if (server == NULL) {
        return;
    }
    struct client **clients = server->needs.clients;
    while (*clients != NULL) {
        struct client *client = *clients;
        *clients = client->next;
        client_free(client);
    }
    if (server->other.source != NULL) {
        loop_fd_remove(server->other.source);
    }
    if (server->socket.source != NULL) {
        loop_fd_remove(server->socket.source);
        close(server->socket.fd);
    }
    if (server->spare_fd >= 0) {
        close(server->spare_fd);
    }
    free(server);
}
