/* SPDX-License-Identifier: Apache-2.0
 * Connections between agents (tiers/link.h). Within a connection nothing overtakes anything; each dies at any moment,
 * with what is on its way. Sessions, their handshake and transfers above it are the product's own. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

struct link {
    struct link_setup setup;
    struct host *host;
    char address[ADDRESS_TEXT];
    struct link_conn *conns;
    struct message *pushes; /* not ended */
    bool closed;
};

/* Either end; a pair. Ends are not freed: an event may point to them. */
struct link_conn {
    struct link *link;
    struct link_conn *other; /* NULL until it is accepted */
    struct link_conn *next;
    void *user;
    bool closed, dying, dead; /* dying: down is on its way */
    uint64_t arrives_us;
};

struct message {
    struct message *next;
    struct link_conn *to, *from;
    size_t len, header_len;
    const void *chunk; /* its sender's; NULL: a message */
    link_pushed_fn *pushed;
    void *ctx;
    bool ok;
    uint8_t header[LINK_HEADER_MAX];
    uint8_t data[];
};

static uint64_t latency_us(void)
{
    return sim_chance(2) ? sim_between(1000, 30000) : sim_between(20, 400);
}

/* In order, at the other end. */
static uint64_t arrival(struct link_conn *to)
{
    uint64_t at = sim.us + latency_us();
    to->arrives_us = at > to->arrives_us ? at : to->arrives_us + 1;
    return to->arrives_us - sim.us;
}

/* ---- links
 * ----------------------------------------------------------------------------------------------------------- */

tck_status_t link_new(const struct link_setup *setup, struct link **out, struct error *err)
{
    (void)err;
    struct link *link = calloc(1, sizeof(*link));
    *link = (struct link){.setup = *setup, .host = sim.current};
    /* Another port for another agent, unless it asks for the one before. */
    snprintf(link->address, sizeof(link->address), "10.%u.%u.%u:%u", sim.current->index >> 16,
             sim.current->index >> 8 & 255, sim.current->index & 255,
             setup->port ? setup->port : 10000 + sim.current->life % 50000);
    sim.current->link = link;
    *out = link;
    return TCK_OK;
}

const char *link_address(const struct link *link)
{
    return link->address;
}

bool link_is_listening(const struct link *link)
{
    (void)link;
    return true;
}

void link_environment(const char *device)
{
    (void)device;
}

static struct link *link_at(const char *address)
{
    unsigned a = 0, b = 0, c = 0;
    if (sscanf(address, "10.%u.%u.%u:", &a, &b, &c) != 3 || (a << 16 | b << 8 | c) >= sim.host_count) {
        return NULL;
    }
    struct link *link = sim.hosts[a << 16 | b << 8 | c].link;
    return link && !link->closed && strcmp(link->address, address) == 0 ? link : NULL;
}

/* ---- the end of a connection
 * ------------------------------------------------------------------------------------------ */

static void tell_down(void *ctx)
{
    struct link_conn *conn = ctx;
    conn->dead = true;
    if (!conn->closed) {
        conn->link->setup.down(conn->link->setup.ctx, conn, "the connection was lost");
    }
}

static void conn_die(struct link_conn *conn, uint64_t in_us)
{
    if (!conn->dying) {
        uint64_t at = sim.us + in_us;
        conn->dying = true;
        at = at > conn->arrives_us ? at : conn->arrives_us + 1; /* not before it was accepted */
        sim_after(at - sim.us, conn->link->host, tell_down, conn);
    }
}

void link_close(struct link_conn *conn)
{
    conn->closed = true;
    if (conn->other) {
        conn_die(conn->other, latency_us());
    }
}

void link_lost(struct link *link)
{
    link->closed = true;
    for (struct link_conn *conn = link->conns; conn; conn = conn->next) {
        link_close(conn);
    }
}

void link_free(struct link *link)
{
    if (!link) {
        return;
    }
    link_lost(link);
    link->host->link = NULL;
    for (struct message *m = link->pushes; m; m = m->next) {
        m->pushed(m->ctx, false);
    }
}

void link_cut(struct host *a, struct host *b)
{
    for (struct link_conn *conn = a->link ? a->link->conns : NULL; conn; conn = conn->next) {
        if (conn->other && conn->other->link->host == b && !conn->closed) {
            conn_die(conn, latency_us());
            conn_die(conn->other, latency_us());
        }
    }
}

static void hold(struct link_conn *conn, uint64_t until_us)
{
    conn->arrives_us = conn->arrives_us > until_us ? conn->arrives_us : until_us;
}

void link_stall(struct host *a, struct host *b, uint64_t for_us)
{
    for (struct link_conn *conn = a->link ? a->link->conns : NULL; conn; conn = conn->next) {
        if (conn->other && conn->other->link->host == b && !conn->closed) {
            hold(conn, sim.us + for_us);
            hold(conn->other, sim.us + for_us);
        }
    }
}

/* ---- the beginning
 * ------------------------------------------------------------------------------------------------------ */

static struct link_conn *conn_new(struct link *link)
{
    struct link_conn *conn = calloc(1, sizeof(*conn));
    *conn = (struct link_conn){.link = link, .next = link->conns};
    link->conns = conn;
    return conn;
}

static void accepted(void *ctx)
{
    struct link_conn *conn = ctx;
    if (!conn->closed) {
        conn->link->setup.accepted(conn->link->setup.ctx, conn);
    }
}

tck_status_t link_connect(struct link *link, const char *address, void *user, struct link_conn **out, struct error *err)
{
    (void)err;
    struct link *to = link_at(address);
    struct link_conn *conn = conn_new(link);
    conn->user = user;
    *out = conn;
    if (!to) {
        conn_die(conn, latency_us());
        return TCK_OK;
    }
    conn->other = conn_new(to);
    conn->other->other = conn;
    sim_after(arrival(conn->other), to->host, accepted, conn->other);
    return TCK_OK;
}

void link_set_user(struct link_conn *conn, void *user)
{
    conn->user = user;
}

void *link_user(const struct link_conn *conn)
{
    return conn->user;
}

/* ---- messages and chunks
 * -------------------------------------------------------------------------------------------------- */

static void got_message(void *ctx)
{
    struct message *m = ctx;
    const struct link_setup *setup = &m->to->link->setup;
    if (!m->to->closed && !m->to->dying) {
        setup->message(setup->ctx, m->to, m->data, m->len);
    }
    free(m);
}

tck_status_t link_send(struct link_conn *conn, const void *data, size_t len)
{
    struct host *host = conn->link->host;
    host_does_something();
    if (conn->dead || conn->closed || !conn->other) {
        return conn->dead ? TCK_ERR_UNREACHABLE : TCK_OK; /* lost on its way */
    }
    struct message *m = calloc(1, sizeof(*m) + len);
    *m = (struct message){.to = conn->other, .from = conn, .len = len};
    memcpy(m->data, data, len);
    host->counts.messages++;
    host->counts.bytes += len;
    sim_after(arrival(conn->other), conn->other->link->host, got_message, m);
    return TCK_OK;
}

static void was_pushed(void *ctx)
{
    struct message *m = ctx, **at = &m->from->link->pushes;
    while (*at != m) {
        at = &(*at)->next;
    }
    *at = m->next;
    m->pushed(m->ctx, m->ok);
    free(m);
}

/* As the receiver, or as the world if it is gone: its sender hears of it in any case. */
static void take_chunk(void *ctx)
{
    struct message *m = ctx;
    const struct link_setup *setup = &m->to->link->setup;
    bool open = !m->to->closed && !m->to->dying && !m->from->closed && !m->from->dying;
    void *place = open ? setup->chunk(setup->ctx, m->to, m->header, m->header_len, m->len) : NULL;
    if (place) {
        memcpy(place, m->chunk, m->len);
        if (m->to->link->host->noisy && sim_chance(10)) {
            *((uint8_t *)place + sim_between(0, m->len - 1)) ^= 1;
        }
        setup->chunk_done(setup->ctx, m->to, m->header, m->header_len, true);
    }
    m->ok = place != NULL;
}

static void got_chunk(void *ctx)
{
    struct message *m = ctx;
    struct link *to = m->to->link, *from = m->from->link;
    if (from->host->link != from) {
        return; /* its sender's memory may be gone, too */
    }
    if (to->host->link == to && to->host->stopped_until_us > sim.us) {
        sim_after(to->host->stopped_until_us - sim.us, NULL, got_chunk, m);
        return;
    }
    if (to->host->link == to) {
        host_run(to->host, take_chunk, m);
    }
    sim_after(latency_us(), from->host, was_pushed, m);
}

tck_status_t link_push(struct link_conn *conn, const void *header, size_t header_len, const void *data, size_t len,
                       link_pushed_fn *pushed, void *ctx)
{
    if (conn->dead || conn->closed || !conn->other) {
        return TCK_ERR_UNREACHABLE;
    }
    struct message *m = calloc(1, sizeof(*m));
    *m = (struct message){.to = conn->other,
                          .from = conn,
                          .chunk = data,
                          .len = len,
                          .header_len = header_len,
                          .pushed = pushed,
                          .ctx = ctx};
    memcpy(m->header, header, header_len);
    m->next = conn->link->pushes;
    conn->link->pushes = m;
    conn->link->host->counts.transferred += len;
    sim_after(arrival(conn->other), NULL, got_chunk, m);
    return TCK_OK;
}
