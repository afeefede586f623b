/* SPDX-License-Identifier: Apache-2.0
 * Requests and answers over the agent's socket. */
#include "client/session.h"
#include "base/clock.h"
#include "base/log.h"
#include "client/spawn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MS      10000  /* for answers that the agent gives without waiting for others */
#define SLICE_MS       100    /* slice of a long wait: then check whether to go on */
#define STALL_MS       120000 /* an agent whose loop does not turn for this long is given up */
#define HELLO_AGAIN_MS 10000  /* retries with an agent that dies during HELLO */
#define HELLO_PAUSE_NS 50000000

/* ---- requests ------------------------------------------------------------------------------------------------ */

/* The descriptor stays open: the snapshot worker's thread may be polling it, sees the hang-up, and closes it when it
 * returns. */
void session_disconnect(struct session *session)
{
    atomic_store(&session->connected, false);
    session->cut = true;
    if (session->fd >= 0) {
        shutdown(session->fd, SHUT_RDWR);
    }
}

static void close_socket(struct session *session)
{
    session_disconnect(session);
    if (session->fd >= 0) {
        close(session->fd);
        session->fd = -1;
    }
}

uint32_t session_seq(struct session *session)
{
    return ++session->seq;
}

/* Waits at most timeout_ms for room in the socket; an agent that leaves none for that long is disconnected. */
static tck_status_t send_payload(struct session *session, enum message_type type, struct writer *payload,
                                 int timeout_ms, struct error *err)
{
    tck_status_t status;

    if (payload->failed) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for a message to the agent");
    } else if (session->fd < 0) {
        status = error_set(err, TCK_ERR_UNREACHABLE, "the connection to the agent is lost");
    } else {
        status = ipc_send(session->fd, type, payload->data, payload->len, NULL, 0, timeout_ms, err);
        if (status == TCK_ERR_UNREACHABLE || status == TCK_ERR_TIMEDOUT) {
            session_disconnect(session);
        }
    }
    writer_free(payload);
    return status;
}

tck_status_t session_post(struct session *session, enum message_type type, struct writer *payload, struct error *err)
{
    return send_payload(session, type, payload, (int)session->config.block_time_ms, err);
}

/* A wait for an answer; a patient one also tracks whether the agent's loop still turns. */
struct restore_timeout {
    uint64_t deadline_ms; /* 0: patient */
    uint64_t beat, beat_ms;
};

static struct restore_timeout patience_begin(const struct session *session, int timeout_ms)
{
    struct restore_timeout p = {.beat_ms = clock_ms()};

    if (timeout_ms != PATIENT) {
        p.deadline_ms = clock_ms() + (uint64_t)timeout_ms;
    } else if (session->shared != NULL) {
        p.beat = atomic_load(&session->shared->agent_beat);
    }
    return p;
}

/* How long to wait next; 0: no longer. */
static int patience_slice(struct restore_timeout *p, const struct session *session)
{
    uint64_t now_ms = clock_ms(), beat;

    if (atomic_load(&session->stopping)) {
        return 0;
    }
    if (p->deadline_ms != 0) {
        uint64_t left = p->deadline_ms > now_ms ? p->deadline_ms - now_ms : 0;

        return left < SLICE_MS ? (int)left : SLICE_MS;
    }
    beat = session->shared == NULL ? 0 : atomic_load(&session->shared->agent_beat);
    if (beat != p->beat) {
        p->beat = beat;
        p->beat_ms = now_ms;
    }
    return now_ms - p->beat_ms > STALL_MS ? 0 : SLICE_MS;
}

/* Receives the next frame, of any type. */
static tck_status_t receive(struct session *session, struct restore_timeout *p, struct ipc_frame *out,
                            struct error *err)
{
    for (;;) {
        int slice_ms = patience_slice(p, session);
        tck_status_t status = ipc_recv(session->fd, slice_ms, out, err);

        if (status != TCK_ERR_TIMEDOUT) {
            return status;
        }
        if (slice_ms == 0) {
            return error_set(err, TCK_ERR_TIMEDOUT, "the agent does not answer");
        }
    }
}

/* The error that the answer carries; an answer of an unexpected type is a protocol error, and ends the connection. */
static tck_status_t answer_error(struct session *session, const struct ipc_frame *frame, enum message_type answer,
                                 struct error *err)
{
    struct msg_error carried;

    if (frame->type != MSG_ERROR && frame->type != MSG_REFUSED) {
        session_disconnect(session);
        return error_set(err, TCK_ERR_PROTO, "the agent answers with message %u instead of %u", frame->type, answer);
    }
    if (msg_error_decode(frame->payload, frame->len, &carried) != TCK_OK || carried.error.code == TCK_OK) {
        session_disconnect(session);
        return error_set(err, TCK_ERR_PROTO, "malformed error from the agent");
    }
    *err = carried.error;
    return carried.error.code;
}

/* Skips late answers to requests that were given up. */
static tck_status_t receive_answer(struct session *session, enum message_type answer, struct restore_timeout *p,
                                   struct ipc_frame *out, struct error *err)
{
    for (;;) {
        struct ipc_frame frame;
        struct msg_seq head;
        tck_status_t status = receive(session, p, &frame, err);

        if (status == TCK_ERR_UNREACHABLE || status == TCK_ERR_PROTO) {
            session_disconnect(session);
        }
        if (status != TCK_OK) {
            return status;
        }
        if (msg_seq_decode(frame.payload, frame.len, &head) == TCK_OK && head.seq != session->seq) {
            ipc_frame_free(&frame);
            continue;
        }
        if (frame.type == answer) {
            *out = frame;
            return TCK_OK;
        }
        status = answer_error(session, &frame, answer, err);
        ipc_frame_free(&frame);
        return status;
    }
}

tck_status_t session_ask(struct session *session, enum message_type type, struct writer *payload,
                         enum message_type answer, int timeout_ms, struct ipc_frame *out, struct error *err)
{
    struct restore_timeout restore_timeout = patience_begin(session, timeout_ms);
    struct error local;
    struct error *text = err == NULL ? &local : err;
    int send_ms = timeout_ms == PATIENT ? ANSWER_MS : timeout_ms;
    tck_status_t status = send_payload(session, type, payload, send_ms, text);

    if (status != TCK_OK) {
        return status;
    }
    return receive_answer(session, answer, &restore_timeout, out, text);
}

/* ---- hello --------------------------------------------------------------------------------------------------- */

/* A later shared status replaces the first one at its address, which the trainer reads without a lock. */
static tck_status_t map_board(struct session *session, int fd, struct error *err)
{
    int fixed = session->shared == NULL ? 0 : MAP_FIXED;
    struct stat st;
    void *shared;

    if (fstat(fd, &st) < 0 || st.st_size < (off_t)sizeof(struct shared_status)) {
        return error_set(err, TCK_ERR_PROTO, "the agent's shared status is too small");
    }
    shared = mmap(session->shared, sizeof(struct shared_status), PROT_READ | PROT_WRITE, MAP_SHARED | fixed, fd, 0);
    if (shared == MAP_FAILED) {
        return error_set(err, status_of_errno(errno), "map the agent's shared status: %m");
    }
    if (session->shared == NULL) {
        session->shared = shared;
    }
    return TCK_OK;
}

static tck_status_t prove(const struct config *config, uint8_t proof[MAC_BYTES], struct error *err)
{
    struct secret secret;
    tck_status_t status;

    memset(proof, 0, MAC_BYTES);
    if (config->token_file[0] == '\0') {
        return TCK_OK;
    }
    status = secret_load(config->token_file, &secret, err);
    if (status != TCK_OK) {
        return error_prefix(err, "token_file");
    }
    secret_mac(&secret, "client", config->job, strlen(config->job), proof);
    secret_wipe(&secret);
    return TCK_OK;
}

static tck_status_t handle_welcome(struct session *session, const struct ipc_frame *frame, struct error *err)
{
    struct msg_welcome welcome;

    if (msg_welcome_decode(frame->payload, frame->len, &welcome) != TCK_OK || frame->fd_count != 1) {
        return error_set(err, TCK_ERR_PROTO, "the agent's welcome is malformed or of another format");
    }
    session->hello = welcome.hello;
    return map_board(session, frame->fds[0], err);
}

/* This start's settings, so that the agent notices if it was started with others. The caller frees. */
static char *settings_text(const struct config *config)
{
    json_t *json = config_json(config);
    char *text = json == NULL ? NULL : json_print(json, false);

    json_free(json);
    return text;
}

static tck_status_t send_hello(struct session *session, bool returning, struct error *err)
{
    char *settings = returning ? NULL : settings_text(&session->config);
    struct msg_hello hello = {.seq = session_seq(session),
                              .format = MESSAGE_FORMAT,
                              .rank = session->rank,
                              .world_size = session->world_size,
                              .pid = (uint32_t)getpid(),
                              .returning = returning,
                              .term = returning ? session->world.term : 0,
                              .takeover = session->config.takeover == SWITCH_ON};
    struct writer w = writer_new(0);
    struct ipc_frame frame;
    tck_status_t status = prove(&session->config, hello.proof, err);

    if (status != TCK_OK) {
        free(settings);
        return status;
    }
    memcpy(hello.job, session->config.job, sizeof(hello.job));
    memcpy(hello.run_id, session->config.run_id, sizeof(hello.run_id));
    hello.settings = settings;
    hello.settings_len = settings == NULL ? 0 : (uint32_t)strlen(settings);
    msg_hello_encode(&hello, &w);
    free(settings);
    status = session_ask(session, MSG_HELLO, &w, MSG_WELCOME, ANSWER_MS, &frame, err);
    if (status != TCK_OK) {
        return status;
    }
    status = handle_welcome(session, &frame, err);
    ipc_frame_free(&frame);
    return status;
}

static tck_status_t greet(struct session *session, struct error *err)
{
    tck_status_t status;

    session->cut = false;
    status = send_hello(session, false, err);
    if (status != TCK_OK) {
        close_socket(session);
        return error_prefix(err, "hello to the agent");
    }
    return TCK_OK;
}

static void pause_a_little(void)
{
    nanosleep(&(struct timespec){.tv_nsec = HELLO_PAUSE_NS}, NULL);
}

/* An agent that dies between connect and welcome is started again by its supervisor: worth another try. So is one that
 * other trainers still use with another configuration, for they may be ending. One that cannot be started is not. */
tck_status_t session_open(struct session *session, const struct config *config, uint32_t rank, uint32_t world_size,
                          struct error *err)
{
    uint64_t give_up_ms = clock_ms() + HELLO_AGAIN_MS;
    tck_status_t status;

    *session = (struct session){.config = *config, .rank = rank, .world_size = world_size, .fd = -1};
    for (;;) {
        status = agent_connect_or_start(config, &session->fd, err);
        if (status != TCK_OK) {
            return status;
        }
        status = greet(session, err);
        if ((status != TCK_ERR_UNREACHABLE && status != TCK_ERR_BUSY) || clock_ms() >= give_up_ms) {
            break;
        }
        pause_a_little();
    }
    if (status == TCK_ERR_BUSY) {
        err->code = status = TCK_ERR_CONFIG; /* the text names the key and the trainers that use the agent */
    }
    if (status == TCK_OK) {
        pthread_mutex_init(&session->lock, NULL);
    }
    return status;
}

void session_close(struct session *session)
{
    close_socket(session);
    if (session->shared != NULL) {
        munmap(session->shared, sizeof(*session->shared));
        session->shared = NULL;
    }
    world_free(&session->world);
    pthread_mutex_destroy(&session->lock);
}

/* ---- term, world, shards ------------------------------------------------------------------------------------- */

tck_status_t session_claim_term(struct session *session, const struct msg_claim *claim, uint64_t *term_out,
                                struct error *err)
{
    struct msg_claim asked = *claim;
    struct msg_term term;
    struct writer w = writer_new(0);
    struct ipc_frame frame;
    tck_status_t status;

    asked.seq = session_seq(session);
    msg_claim_encode(&asked, &w);
    status = session_ask(session, MSG_CLAIM_TERM, &w, MSG_TERM, PATIENT, &frame, err);
    if (status != TCK_OK) {
        return error_prefix(err, "claim a term");
    }
    status = msg_term_decode(frame.payload, frame.len, &term);
    ipc_frame_free(&frame);
    if (status != TCK_OK || term.term < claim->at_least) {
        return error_set(err, TCK_ERR_PROTO, "malformed term from the agent");
    }
    *term_out = term.term;
    return TCK_OK;
}

/* Sends the world and waits for the agent's answer. */
static tck_status_t send_world(struct session *session, const struct world *world, enum message_type type,
                               enum message_type answer, struct ipc_frame *out, struct error *err)
{
    struct msg_world message = {.seq = session_seq(session),
                                .world = *world,
                                .rank = session->rank,
                                .will_ask = type == MSG_REGISTER && session->will_ask};
    struct writer w = writer_new(IPC_MAX_BYTES);

    msg_world_encode(&message, &w);
    return session_ask(session, type, &w, answer, PATIENT, out, err);
}

tck_status_t session_join(struct session *session, struct error *err)
{
    struct world bare = session->world;
    struct ipc_frame frame;
    tck_status_t status;

    bare.shard_count = 0;
    bare.layout = (struct hash128){0};
    status = send_world(session, &bare, MSG_JOIN, MSG_OK, &frame, err);
    if (status != TCK_OK) {
        return error_prefix(err, "join the world");
    }
    ipc_frame_free(&frame);
    return TCK_OK;
}

tck_status_t session_register(struct session *session, struct msg_segments *out, struct error *err)
{
    struct ipc_frame frame;
    tck_status_t status = send_world(session, &session->world, MSG_REGISTER, MSG_SEGMENTS, &frame, err);

    if (status != TCK_OK) {
        return error_prefix(err, "register");
    }
    if (msg_segments_decode(frame.payload, frame.len, out) != TCK_OK) {
        status = error_set(err, TCK_ERR_PROTO, "malformed segments from the agent");
    }
    ipc_frame_free(&frame);
    return status;
}

static tck_status_t meet_successor(struct session *session, bool joined, struct error *err)
{
    tck_status_t status;

    close_socket(session);
    status = agent_connect_or_start(&session->config, &session->fd, err);
    if (status == TCK_OK) {
        status = greet(session, err);
    }
    if (status == TCK_OK && joined) {
        status = session_join(session, err);
    }
    if (status == TCK_OK) {
        log_info("rank %u has reconnected to its agent while joining the term", session->rank);
    }
    return status;
}

tck_status_t session_take_step(struct session *session, bool joined, session_step_fn *step, void *ctx,
                               struct error *err)
{
    uint64_t give_up_ms = clock_ms() + session->config.session_wait_ms;

    for (;;) {
        tck_status_t status = session->cut ? meet_successor(session, joined, err) : TCK_OK;

        if (status == TCK_OK) {
            status = step(ctx, err);
        }
        if (status != TCK_ERR_UNREACHABLE || !session->cut) {
            return status;
        }
        if (clock_ms() >= give_up_ms) {
            return error_prefix(err, "the agent died and did not come back in %u ms", session->config.session_wait_ms);
        }
        pause_a_little();
    }
}

tck_status_t session_segment_fds(struct session *session, struct hash128 shard, int fds_out[2], struct error *err)
{
    struct msg_segment_get get = {.seq = session_seq(session), .shard = shard};
    struct writer w = writer_new(0);
    struct ipc_frame frame;
    tck_status_t status;

    msg_segment_get_encode(&get, &w);
    status = session_ask(session, MSG_SEGMENT_GET, &w, MSG_SEGMENT, ANSWER_MS, &frame, err);
    if (status != TCK_OK) {
        return error_prefix(err, "segment of a shard");
    }
    if (frame.fd_count != 2) {
        status = error_set(err, TCK_ERR_PROTO, "the agent sent %u descriptors of a segment", frame.fd_count);
    }
    for (int i = 0; i < 2 && status == TCK_OK; i++) {
        fds_out[i] = frame.fds[i];
        frame.fds[i] = -1;
    }
    ipc_frame_free(&frame);
    return status;
}

bool session_has_other_agent(const struct session *session)
{
    const struct world *world = &session->world;

    return world->nodes[world->node_of_rank[session->rank]].agent_id != session->hello.node.agent_id;
}

tck_status_t session_return(struct session *session, struct msg_segments *out, struct error *err)
{
    tck_status_t status;

    close_socket(session);
    session->cut = false;
    status = agent_connect(&session->config, &session->fd, err);
    if (status == TCK_OK) {
        status = send_hello(session, true, err);
    }
    if (status == TCK_OK) {
        status = session_join(session, err);
    }
    if (status == TCK_OK) {
        status = session_register(session, out, err);
    }
    if (status != TCK_OK) {
        session_disconnect(session);
        return status;
    }
    log_info("rank %u has reconnected to its agent", session->rank);
    return TCK_OK;
}
