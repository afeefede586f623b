/* SPDX-License-Identifier: Apache-2.0
 * Measures how fast this agent sends to another one, over the connection that copies use:
 *
 *     sender: MEASURE   receiver: MEASURED   sender: chunks   receiver: MEASURED after each   sender: MEASURE_END
 *
 * The receiver can refuse, or give up, by MEASURE_END, too. All chunks are received into one buffer, which nothing
 * reads and which is freed at the end, so they can neither be taken for a copy nor end up in one. An agent sends to one
 * other agent at a time or receives from one, and does neither while it has copies to send or to receive: what has
 * begun sends no more chunks when a copy begins (rate_meter.h says how little is on its way then).
 *
 * A measurement counts among the transfers of its peer, so that its session is not moved meanwhile. */
#include "base/clock.h"
#include "tiers/peer_transfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEASURE_MS 5000 /* after this, a measurement ends with what it has */

struct measure {
    struct peer *peer;
    uint64_t token, remote_token; /* remote_token 0: not known yet */
    uint8_t *buffer;              /* METER_CHUNK_MOST bytes */
    uint32_t moving;              /* pushes or receives in flight */
    uint64_t begun_ms, progress_ms;
    bool ended;
    uint64_t received; /* bytes, of the other agent's */
    /* Of this agent's own: */
    struct rate_meter meter;
    peer_measured_fn *done; /* NULL once it has been called */
    void *ctx;
    struct error outcome;
};

/* ---- life ---- */

static struct measure *measure_new(struct peer *peer)
{
    struct measure *m = calloc(1, sizeof(*m));

    if (m == NULL) {
        return NULL;
    }
    m->buffer = malloc(METER_CHUNK_MOST);
    if (m->buffer == NULL) {
        free(m);
        return NULL;
    }
    memset(m->buffer, 0x5a, METER_CHUNK_MOST);
    m->peer = peer;
    m->token = ++peer->peers->last_token;
    m->begun_ms = m->progress_ms = clock_ms();
    peer->transfer_count++;
    return m;
}

static void measure_free(struct measure *m)
{
    m->peer->transfer_count--;
    free(m->buffer);
    free(m);
}

static void end(struct measure *m, tck_status_t code, const char *why)
{
    if (m->ended) {
        return;
    }
    m->ended = true;
    error_set(&m->outcome, code, "%s", why);
    if (m->remote_token != 0) {
        transfer_send_end(m->peer, WIRE_MEASURE_END, m->remote_token, code, why);
    }
}

/* Ends with what has been measured, if that is enough. */
static void conclude(struct measure *m, tck_status_t code, const char *why)
{
    bool enough = code == TCK_ERR_BUSY ? meter_suffices(&m->meter) : meter_rate(&m->meter).ns > 0;

    end(m, enough ? TCK_OK : code, enough ? "the measurement is complete" : why);
}

/* Its last callback may come before all that was sent has arrived. */
static void finish(struct measure **at)
{
    struct measure *m = *at;
    peer_measured_fn *done;

    if (m == NULL || !m->ended) {
        return;
    }
    done = m->done;
    m->done = NULL;
    if (done != NULL) {
        struct rate rate = meter_rate(&m->meter);

        done(m->ctx, &rate, &m->outcome);
    }
    if (m->moving == 0) {
        *at = NULL;
        measure_free(m);
    }
}

void measures_finish(struct peers *peers)
{
    finish(&peers->measuring);
    finish(&peers->measured);
}

void measures_fail(const struct peer *peer, tck_status_t code, const char *why)
{
    struct measure *both[] = {peer->peers->measuring, peer->peers->measured};

    for (size_t i = 0; i < sizeof(both) / sizeof(*both); i++) {
        if (both[i] != NULL && both[i]->peer == peer) {
            both[i]->remote_token = 0; /* a later session knows nothing of it */
            end(both[i], code, why);
        }
    }
}

/* The peer whose session has to end, since nothing else ends what is in flight; NULL: there is none. */
static struct peer *expire(struct measure *m, uint64_t now_ms, bool own)
{
    if (m == NULL) {
        return NULL;
    }
    if (own && now_ms - m->begun_ms >= MEASURE_MS) {
        conclude(m, TCK_ERR_TIMEDOUT, "next to nothing arrived within 5 s");
    } else if (!own && m->moving == 0 && now_ms - m->progress_ms >= MEASURE_MS) {
        end(m, TCK_ERR_TIMEDOUT, "nothing came within 5 s");
    } else if (!own && now_ms - m->begun_ms >= UINT64_C(2) * MEASURE_MS) {
        end(m, TCK_ERR_TIMEDOUT, "it was still sending after 10 s");
    }
    if (m->moving == 0 || m->peer->up == NULL || now_ms - m->progress_ms < m->peer->peers->setup.transfer_timeout_ms) {
        return NULL;
    }
    m->progress_ms = now_ms;
    return m->peer;
}

struct peer *measures_expire(const struct peers *peers, uint64_t now_ms)
{
    struct peer *sending = expire(peers->measuring, now_ms, true), *receiving = expire(peers->measured, now_ms, false);

    return sending != NULL ? sending : receiving;
}

/* Why none can begin now; NULL: one can. */
static const char *obstacle(const struct peers *peers)
{
    if (peers->transfers != NULL) {
        return "copies are being sent or received";
    }
    return peers->measuring != NULL || peers->measured != NULL ? "another measurement is under way" : NULL;
}

/* ---- sending ---- */

static void send_measure(const struct measure *m, enum wire_kind kind)
{
    struct wire_measure message = {.to_token = m->remote_token, .from_token = m->token, .bytes = m->received};
    struct writer w = writer_new(0);

    wire_measure_encode(&message, &w);
    transfer_send(m->peer, kind, &w);
}

static void pump(struct measure *m);

static void on_pushed(void *ctx, bool ok)
{
    struct measure *m = ctx;

    m->moving--;
    m->progress_ms = clock_ms();
    if (!ok) {
        end(m, TCK_ERR_UNREACHABLE, "a chunk could not be sent");
    }
    pump(m);
}

static bool push(struct measure *m)
{
    uint32_t bytes = meter_send(&m->meter);
    struct wire_chunk chunk = {.to_token = m->remote_token, .index = bytes};
    uint8_t header[WIRE_CHUNK_BYTES];
    struct writer w = writer_over(header, sizeof(header));
    tck_status_t status;

    wire_chunk_encode(&chunk, &w);
    m->moving++;
    status = link_push(m->peer->up->bulk->conn, header, sizeof(header), m->buffer, bytes, on_pushed, m);
    if (status != TCK_OK) {
        m->moving--;
        end(m, status, "a chunk could not be sent");
    }
    return status == TCK_OK;
}

/* Sends what the window allows, and ends the measurement when all of it has arrived. */
static void pump(struct measure *m)
{
    bool copying = m->peer->peers->transfers != NULL;

    while (!m->ended && !copying && m->moving < PUSHES_PER_PEER && meter_wants_more(&m->meter, clock_ns())) {
        if (!push(m)) {
            return;
        }
    }
    if (!m->ended && meter_is_quiet(&m->meter) && copying) {
        conclude(m, TCK_ERR_BUSY, "a copy has begun");
    } else if (!m->ended && meter_is_quiet(&m->meter) && !meter_wants_more(&m->meter, clock_ns())) {
        end(m, TCK_OK, "the measurement is complete");
    }
}

tck_status_t peer_measure(struct peer *peer, peer_measured_fn *done, void *ctx, struct error *err)
{
    const char *why = obstacle(peer->peers);
    struct measure *m;

    if (peer->up == NULL) {
        return error_set(err, TCK_ERR_UNREACHABLE, "no session at %s: %s", peer_address(peer),
                         peer->trouble[0] != '\0' ? peer->trouble : "it does not answer");
    }
    if (peer_lacks_direct(peer)) {
        return error_set(err, TCK_ERR_UNREACHABLE, "copies need a direct session with it, and there is none: %s",
                         peer->trouble[0] != '\0' ? peer->trouble : "it is reached through another node");
    }
    if (peer->up->relayed) {
        return error_set(err, TCK_ERR_NOENT, "it is reached through another node and carries no copies");
    }
    if (why != NULL) {
        return error_set(err, TCK_ERR_BUSY, "on this node %s", why);
    }
    m = measure_new(peer);
    if (m == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a measurement");
    }
    m->done = done;
    m->ctx = ctx;
    peer->peers->measuring = m;
    send_measure(m, WIRE_MEASURE);
    return TCK_OK;
}

/* ---- receiving ---- */

/* The measurement that this chunk of a peer belongs to; NULL: to none. */
static struct measure *find(const struct peers *peers, const void *header, size_t len, struct wire_chunk *out)
{
    struct measure *m = peers->measured;

    return m != NULL && wire_chunk_decode(header, len, out) == TCK_OK && out->to_token == m->token ? m : NULL;
}

bool measure_owns_chunk(const struct peers *peers, const void *header, size_t header_len)
{
    struct wire_chunk chunk;

    return find(peers, header, header_len, &chunk) != NULL;
}

void *measure_chunk(struct peers *peers, const struct link_conn *conn, const void *header, size_t header_len,
                    size_t len)
{
    const struct session *session = session_of_bulk(conn);
    struct wire_chunk chunk;
    struct measure *m = find(peers, header, header_len, &chunk);

    if (m == NULL || m->ended || session == NULL || session->peer != m->peer || len != chunk.index || len == 0 ||
        len > METER_CHUNK_MOST) {
        return NULL;
    }
    m->moving++;
    m->progress_ms = clock_ms();
    return m->buffer;
}

void measure_chunk_done(struct peers *peers, const void *header, size_t header_len, bool ok)
{
    struct wire_chunk chunk;
    struct measure *m = find(peers, header, header_len, &chunk);

    m->moving--;
    m->progress_ms = clock_ms();
    if (!ok) {
        end(m, TCK_ERR_UNREACHABLE, "a chunk was cut off");
    } else if (!m->ended) {
        m->received += chunk.index;
        send_measure(m, WIRE_MEASURED);
    }
    if (peers->transfers != NULL) {
        end(m, TCK_ERR_BUSY, "a copy has begun");
    }
}

/* ---- messages ---- */

static void refuse(struct peer *peer, uint64_t to_token, tck_status_t code, const char *why)
{
    char text[ERROR_TEXT_BYTES];

    snprintf(text, sizeof(text), "on node %s %s", peer->peers->self.name, why);
    transfer_send_end(peer, WIRE_MEASURE_END, to_token, code, text);
}

static tck_status_t take_measure(struct peer *peer, const struct wire_measure *message)
{
    struct peers *peers = peer->peers;
    const char *why = obstacle(peers);
    struct measure *m = why == NULL ? measure_new(peer) : NULL;

    if (why != NULL) {
        refuse(peer, message->from_token, TCK_ERR_BUSY, why);
    } else if (m == NULL) {
        refuse(peer, message->from_token, TCK_ERR_NOMEM, "there is no memory for a measurement");
    } else {
        m->remote_token = message->from_token;
        peers->measured = m;
        send_measure(m, WIRE_MEASURED);
    }
    return TCK_OK;
}

static tck_status_t take_measured(const struct peer *peer, const struct wire_measure *message)
{
    struct measure *m = peer->peers->measuring;

    if (m == NULL || m->peer != peer || m->token != message->to_token || m->ended) {
        return TCK_OK; /* it has ended here */
    }
    m->progress_ms = clock_ms();
    if (m->remote_token == 0) {
        m->remote_token = message->from_token;
    } else if (!meter_arrived(&m->meter, message->bytes, clock_ns())) {
        return TCK_ERR_PROTO;
    }
    pump(m);
    return TCK_OK;
}

static tck_status_t take_end(const struct peer *peer, const struct wire_end *message)
{
    struct measure *both[] = {peer->peers->measuring, peer->peers->measured};

    for (size_t i = 0; i < sizeof(both) / sizeof(*both); i++) {
        if (both[i] != NULL && both[i]->peer == peer && both[i]->token == message->to_token) {
            both[i]->remote_token = 0; /* it knows */
            conclude(both[i], message->error.code, message->error.text);
        }
    }
    return TCK_OK;
}

tck_status_t measure_handle_message(struct peer *peer, enum wire_kind kind, const void *data, size_t len)
{
    struct wire_measure message;
    struct wire_end over;

    if (kind == WIRE_MEASURE_END) {
        return wire_end_decode(data, len, &over) == TCK_OK ? take_end(peer, &over) : TCK_ERR_PROTO;
    }
    if (wire_measure_decode(data, len, &message) != TCK_OK || message.from_token == 0 ||
        (kind == WIRE_MEASURE) != (message.to_token == 0)) {
        return TCK_ERR_PROTO;
    }
    return kind == WIRE_MEASURE ? take_measure(peer, &message) : take_measured(peer, &message);
}
