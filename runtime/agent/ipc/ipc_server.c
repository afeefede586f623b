/* SPDX-License-Identifier: Apache-2.0
 * The agent's socket: trainers and commands of this node connect here. */
#include "agent/agent.h"

#include "base/lock.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SOCKET_NAME  "agent.sock"
#define CLIENTS_MAX  1024
#define SEND_WAIT_MS 200 /* a client that does not read for so long is dropped: the loop serves others */

static void client_unlink(struct client *client)
{
    struct client **at = &client->agent->clients;
    while (*at != client) {
        at = &(*at)->next;
    }
    *at = client->next;
}

static void client_free(struct client *client)
{
    if (client->source) {
        loop_fd_remove(client->source);
    }
    if (client->pid_source) {
        loop_fd_remove(client->pid_source);
    }
    if (client->shared) {
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
    struct agent *agent = client->agent;
    struct term_context *tc = agent->term_context;
    client_unlink(client);
    if (client->trainer) {
        log_info("trainer of rank %u (pid %d) is gone: %s", client->rank, (int)client->process.pid, why);
    }
    int64_t local =
        tc && client->trainer && client->term == tc->world.term ? term_context_local_rank(tc, client->rank) : -1;
    if (local >= 0 && !client_of_rank(agent, client->term, client->rank)) {
        term_context_take_seal(tc, (uint32_t)local);
        struct event event = {.type = EVENT_RANK_LOST, .rank = (uint32_t)local};
        driver_step_node(tc, &event);
        writers_look(agent);
    }
    client_free(client);
}

void client_cut(struct client *client, const char *why)
{
    log_warn("connection of rank %u (pid %d) is cut: %s", client->rank, (int)client->process.pid, why);
    shutdown(client->fd, SHUT_RDWR);
}

void client_send_fds(struct client *client, uint32_t type, const struct writer *w, const int *fds, uint32_t count)
{
    struct error err;
    (void)error_set(&err, TCK_ERR_NOMEM, "no memory for an answer");
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

struct client *client_of_rank(const struct agent *agent, uint64_t term, uint32_t rank)
{
    for (struct client *c = agent->clients; c; c = c->next) {
        if (c->trainer && c->term == term && c->rank == rank) {
            return c;
        }
    }
    return NULL;
}

struct client *client_by_id(const struct agent *agent, uint64_t id)
{
    struct client *c = agent->clients;
    while (c && c->id != id) {
        c = c->next;
    }
    return c;
}

uint32_t clients_trainers(const struct agent *agent)
{
    uint32_t count = 0;
    for (const struct client *c = agent->clients; c; c = c->next) {
        count += c->trainer && !c->done;
    }
    return count;
}

void clients_term_over(struct agent *agent, uint64_t term)
{
    struct error err;
    (void)error_set(&err, TCK_ERR_DENIED, "refused: %s", refusal_text(REFUSAL_TERM_CLOSED));
    for (struct client *c = agent->clients; c; c = c->next) {
        if (c->term >= term) {
            continue;
        }
        if (c->join_seq != 0 || c->register_seq != 0) {
            membership_reply(c, &err);
        }
        if (c->restoring) {
            c->restoring = false;
            client_error(c, MSG_ERROR, c->restore_seq, &err);
        }
    }
}

/* ---- the save path ------------------------------------------------------------------------------------------- */

/* The term context this trainer saves into, or an answer that says why there is none. */
static struct term_context *formation_of(struct client *client, uint32_t seq, uint32_t answer)
{
    struct term_context *tc = client->agent->term_context;
    struct error err;
    if (client->term == 0 || !tc || tc->world.term < client->term) {
        (void)error_set(&err, TCK_ERR_BUSY, "refused: %s", refusal_text(REFUSAL_NOT_JOINED));
    } else if (tc->world.term != client->term || tc->closed) {
        (void)error_set(&err, TCK_ERR_DENIED, "refused: %s", refusal_text(REFUSAL_TERM_CLOSED));
    } else if (term_context_local_rank(tc, client->rank) < 0) {
        (void)error_set(&err, TCK_ERR_PROTO, "the registered world does not have rank %u on this node", client->rank);
    } else {
        return tc;
    }
    if (answer) {
        client_error(client, answer, seq, &err);
    }
    return NULL;
}

static void on_begin(struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_begin m;
    if (msg_begin_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed BEGIN");
        return;
    }
    struct term_context *tc = formation_of(client, m.seq, MSG_REFUSED);
    if (!tc) {
        return;
    }
    client->begin_seq = m.seq;
    struct event event = {.type = EVENT_BEGIN,
                          .rank = (uint32_t)term_context_local_rank(tc, client->rank),
                          .version = {tc->world.term, m.step},
                          .to_storage = m.to_storage};
    driver_step_coordinator(tc, &event);
    driver_step_node(tc, &event);
}

static void on_step(struct client *client, const uint8_t *payload, size_t len, enum event_type type)
{
    struct msg_step m;
    if (msg_step_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed SEAL or ABANDON");
        return;
    }
    struct term_context *tc = formation_of(client, 0, 0);
    writers_handle_step(client, m.step);
    if (tc) {
        struct event event = {.type = type,
                              .rank = (uint32_t)term_context_local_rank(tc, client->rank),
                              .version = {tc->world.term, m.step}};
        driver_step_node(tc, &event);
    }
}

static void on_roots(struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_roots m;
    if (msg_roots_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed ROOTS");
        return;
    }
    struct term_context *tc = formation_of(client, 0, 0);
    if (tc) {
        driver_handle_roots(tc, (uint32_t)term_context_local_rank(tc, client->rank), &m);
    }
    free(m.roots);
}

/* Nothing is pinned for a restore: a newer commit needs this rank's own save. */
static void on_restore_done(struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_step m;
    if (msg_step_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed RESTORE_DONE");
        return;
    }
    struct term_context *tc = formation_of(client, 0, 0);
    bool resharded = tc && tc->readable.outcome == TCK_ERR_LAYOUT && !version_none(tc->readable.version);
    bool restored = tc && tc->readable_known && (tc->readable.outcome == TCK_OK || resharded);
    if (restored && tc->readable.version.step == m.step) {
        metadata_note_restored(tc, tc->readable.version);
    }
}

/* Memory is kept while it has the only copy of what was to come to storage. */
static bool may_end(const struct agent *agent, const struct msg_detach *m)
{
    const struct trouble *trouble = health_storage(agent);
    if (!m->last_failed && trouble->steps == 0) {
        return true;
    }
    log_error(
        "the job is said to be done, but its last step is not in storage (%s): memory is kept for %u s (linger_s). "
        "Repair storage and start the job again: it restores from memory, and tck_save_last brings it to storage",
        trouble->code == TCK_OK ? "see above" : trouble->text, agent->config.linger_s);
    return false;
}

static void on_detach(struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_detach m;
    if (msg_detach_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed DETACH");
        return;
    }
    struct term_context *tc = client->agent->term_context;
    /* A trainer whose job another start has taken over does not end it. */
    bool job_done = m.job_done && client->trainer && client->term != 0 &&
                    client->term == hard_state_get(client->agent->state)->term.adopted;
    client->done = true;
    if (job_done && tc && !tc->closed && client->term == tc->world.term) {
        metadata_note_end(tc);
        reservation_release(tc);
    }
    if (job_done && may_end(client->agent, &m)) {
        client->agent->job_done = true;
    }
    writers_detached(client);
    log_info("trainer of rank %u detached%s", client->rank, job_done ? ", the job is done" : "");
    client_ok(client, m.seq);
}

/* ---- dispatch ------------------------------------------------------------------------------------------------ */

static void dispatch(struct client *client, const struct ipc_frame *frame)
{
    const uint8_t *p = frame->payload;
    size_t len = frame->len;
    switch (frame->type) {
    case MSG_HELLO:
        membership_handle_hello(client, p, len);
        break;
    case MSG_CLAIM_TERM:
        claim_handle_request(client, p, len);
        break;
    case MSG_JOIN:
        membership_handle_join(client, p, len);
        break;
    case MSG_REGISTER:
        membership_handle_register(client, p, len);
        break;
    case MSG_SEGMENT_GET:
        membership_handle_segment_get(client, p, len);
        break;
    case MSG_BEGIN:
        on_begin(client, p, len);
        break;
    case MSG_SEAL:
        on_step(client, p, len, EVENT_SEAL);
        break;
    case MSG_ABANDON:
        on_step(client, p, len, EVENT_ABANDON);
        break;
    case MSG_ROOTS:
        on_roots(client, p, len);
        break;
    case MSG_RESTORE:
        restore_client(client, p, len);
        break;
    case MSG_RESTORE_DONE:
        on_restore_done(client, p, len);
        break;
    case MSG_QUERY:
        restore_query(client, p, len);
        break;
    case MSG_DETACH:
        on_detach(client, p, len);
        break;
    case MSG_CONTROL:
        control_request(client, p, len);
        break;
    default:
        client_cut(client, "unknown message type");
    }
}

/* Takes one frame. False: none is there, or the connection is over and the client gone. */
static bool take_frame(struct client *client)
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
    dispatch(client, &frame);
    ipc_frame_free(&frame);
    return true;
}

static void on_readable(void *ctx, uint32_t events)
{
    (void)events;
    (void)take_frame(ctx);
}

/* A child that it forked may hold the socket open for long; what the process itself still said comes first. */
static void on_process_ended(void *ctx, uint32_t events)
{
    (void)events;
    struct client *client = ctx;
    struct agent *agent = client->agent;
    uint64_t id = client->id;
    while (take_frame(client)) {
        /* the last words */
    }
    if (client_by_id(agent, id)) {
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
    if (client->pidfd < 0 || loop_fd_add(client->agent->loop, client->pidfd, EPOLLIN, on_process_ended, client,
                                         &client->pid_source) != TCK_OK) {
        log_warn("process %d cannot be watched: only the end of its connection will show that it has ended",
                 (int)client->process.pid);
    }
}

static uint32_t connections(const struct agent *agent)
{
    uint32_t count = 0;
    for (const struct client *c = agent->clients; c; c = c->next) {
        count++;
    }
    return count;
}

/* Ever more rarely: whoever makes thousands of connections shall not fill the log. */
static void complain(struct agent *agent, const char *what)
{
    uint64_t count = ++agent->refused_clients;
    if ((count & (count - 1)) == 0) {
        log_warn("%s (%llu connections ended for want of room so far)", what, (unsigned long long)count);
    }
}

/* The oldest connection that is no trainer's ends: trainers and commands say at once who they are and what they want.
 * False: there are only trainers. */
static bool make_room(struct agent *agent)
{
    struct client *oldest = NULL;
    for (struct client *c = agent->clients; c; c = c->next) {
        oldest = c->trainer ? oldest : c;
    }
    if (!oldest) {
        return false;
    }
    complain(agent, "too many connections: the oldest one that is no trainer's is ended");
    client_drop(oldest, "made room");
    return true;
}

/* No descriptor is left to accept with. Somebody goes, be it the one who came: a waiting connection would wake the loop
 * again and again. */
static void no_descriptor(struct agent *agent)
{
    int fd;
    pid_t pid;
    struct error err;
    if (make_room(agent)) {
        return;
    }
    complain(agent, "a connection is refused: no descriptor is left");
    if (agent->spare_fd >= 0) {
        close(agent->spare_fd);
    }
    if (ipc_accept(agent->listen_fd, &fd, &pid, &err) == TCK_OK) {
        close(fd);
    }
    agent->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void on_connection(void *ctx, uint32_t events)
{
    (void)events;
    struct agent *agent = ctx;
    int fd = -1;
    pid_t pid;
    struct error err;
    tck_status_t status = ipc_accept(agent->listen_fd, &fd, &pid, &err);
    if (status == TCK_ERR_NOMEM) {
        no_descriptor(agent);
        return;
    }
    if (status != TCK_OK) {
        if (status != TCK_ERR_TIMEDOUT && status != TCK_ERR_BUSY) {
            log_warn("connection refused: %s", err.text);
        }
        return;
    }
    bool room = connections(agent) < CLIENTS_MAX || make_room(agent);
    struct client *client = room ? calloc(1, sizeof *client) : NULL;
    if (!client) {
        complain(agent, "a connection is refused: there are too many");
        close(fd);
        return;
    }
    *client = (struct client){
        .agent = agent, .id = ++agent->last_client_id, .fd = fd, .process.pid = pid, .pidfd = PIDFD_NONE};
    if (loop_fd_add(agent->loop, fd, EPOLLIN, on_readable, client, &client->source) != TCK_OK) {
        client_free(client);
        return;
    }
    client->next = agent->clients;
    agent->clients = client;
}

static void agent_dir(const struct config *config, char *out, size_t cap)
{
    snprintf(out, cap, "%s/%s/%s", config->runtime_dir, config->job, config->node);
}

/* One that answers may be of a build that takes no lock. */
static bool somebody_answers(const char *dir)
{
    char path[(size_t)2 * CONFIG_PATH + sizeof SOCKET_NAME + 1];
    struct error ignored;
    int fd = -1;
    snprintf(path, sizeof path, "%s/" SOCKET_NAME, dir);
    tck_status_t status = ipc_connect(path, &fd, &ignored);
    if (status == TCK_OK) {
        close(fd);
    }
    return status == TCK_OK || status == TCK_ERR_BUSY;
}

tck_status_t ipc_server_lock(struct agent *agent, struct error *err)
{
    char dir[(size_t)2 * CONFIG_PATH];
    int dir_fd = -1;
    agent_dir(&agent->config, dir, sizeof dir);
    tck_status_t status = ipc_open_dir(dir, &dir_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    status = lock_take(dir_fd, AGENT_LOCK_FILE, &agent->lock_fd, err);
    close(dir_fd);
    if (status == TCK_ERR_EXIST || (status == TCK_OK && somebody_answers(dir))) {
        return error_set(err, TCK_ERR_EXIST, "an agent of job %s serves node %s already", agent->config.job,
                         agent->config.node);
    }
    return status;
}

tck_status_t ipc_server_listen(struct agent *agent, struct error *err)
{
    char dir[(size_t)2 * CONFIG_PATH];
    agent_dir(&agent->config, dir, sizeof dir);
    tck_status_t status = ipc_listen(dir, SOCKET_NAME, &agent->listen_fd, err);
    if (status != TCK_OK) {
        return error_prefix(err, "agent socket");
    }
    agent->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    status = loop_fd_add(agent->loop, agent->listen_fd, EPOLLIN, on_connection, agent, &agent->listen_source);
    return status == TCK_OK ? TCK_OK : error_set(err, status, "agent socket: event loop refused it");
}

void ipc_server_close(struct agent *agent)
{
    while (agent->clients) {
        struct client *client = agent->clients;
        agent->clients = client->next;
        client_free(client);
    }
    if (agent->listen_source) {
        loop_fd_remove(agent->listen_source);
        close(agent->listen_fd);
        agent->listen_source = NULL;
    }
    if (agent->spare_fd >= 0) {
        close(agent->spare_fd);
        agent->spare_fd = -1;
    }
}
