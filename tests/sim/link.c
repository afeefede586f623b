/* SPDX-License-Identifier: Apache-2.0
 * Connections between agents (tiers/link.h). Messages of a connection never overtake each other; a connection may die
 * at any time, with everything in flight. Sessions, their handshake and transfers above it are the product's own code.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_NETWORK 10        /* what its addresses begin with */
#define WAKE_US       (60 * MS) /* after this time, an agent that was stopped has received everything */

struct link {
    struct link_setup setup;
    struct host *host;
    char address[ADDRESS_TEXT];
    struct link_conn *conns;
    struct message *pushes;   /* not ended */
    struct message *arriving; /* with a place */
    uint64_t busy_until_us;   /* receiving chunks, if too many arrive at once */
    bool closed;
};

/* One end of a connection; two ends form a pair. Ends are not freed, because an event may point to them. */
struct link_conn {
    struct link *link;
    struct link_conn *other; /* NULL until it is accepted */
    struct link_conn *next;
    unsigned network;
    void *user;
    bool closed, dying, dead; /* dying: the `down` event is in flight */
    uint64_t arrives_us;
    uint64_t busy_until_us; /* receiving chunks that take long */
};

struct message {
    struct message *next;
    struct link_conn *to, *from;
    size_t len, header_len;
    const void *chunk; /* its sender's; NULL: a message */
    link_pushed_fn *pushed;
    void *ctx;
    void *place; /* of a chunk's bytes while they arrive */
    struct message *next_arriving;
    uint64_t slow_us;
    bool ok;
    uint8_t header[LINK_HEADER_MAX];
    uint8_t data[];
};

static uint64_t latency_us(void)
{
    if (sim_trait(TRAIT_OVERLOADED)) {
        return sim_between(1000, 10000); /* several saves may begin before anybody learns of a refusal */
    }
    return sim_chance(2) ? sim_between(1000, 30000) : sim_between(20, 400);
}

/* The arrival time at the other end, in order. */
static uint64_t arrival(struct link_conn *to)
{
    uint64_t at = sim.us + latency_us();
    to->arrives_us = at > to->arrives_us ? at : to->arrives_us + 1;
    return to->arrives_us - sim.us;
}

/* ---- links ------------------------------------------------------------------------------------------------------- */

tck_status_t link_new(const struct link_setup *setup, struct link **out, struct error *err)
{
    (void)err;
    struct link *link = calloc(1, sizeof(*link));
    *link = (struct link){.setup = *setup, .host = sim.current};
    for (unsigned n = 0; n < (sim_trait(TRAIT_NETWORKS) ? NETWORKS : 1); n++) {
        char address[ADDRESS_ITEM];
        /* Each agent gets a new port unless it requests the previous one. */
        snprintf(address, sizeof(address), "%u.%u.%u.%u:%u", FIRST_NETWORK + n, sim.current->index >> 16,
                 sim.current->index >> 8 & 255, sim.current->index & 255,
                 setup->port ? setup->port : 10000 + sim.current->life % 50000);
        if (!address_list_add(link->address, sizeof(link->address), address)) {
            abort();
        }
    }
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

void link_environment_class(uint32_t dscp, uint32_t service_level)
{
    (void)dscp, (void)service_level;
}

void link_environment(const char *device)
{
    (void)device;
}

static bool is_at(const struct link *link, unsigned network, const char *address)
{
    struct address_list list;
    return address_list_read(link->address, &list, NULL) == TCK_OK && network < list.count &&
           strcmp(list.of[network], address) == 0;
}

static struct host *host_at(const char *address, unsigned *network_out)
{
    unsigned network = 0, a = 0, b = 0, c = 0;
    if (sscanf(address, "%u.%u.%u.%u:", &network, &a, &b, &c) != 4 || network < FIRST_NETWORK ||
        network >= FIRST_NETWORK + NETWORKS || (a << 16 | b << 8 | c) >= sim.host_count) {
        return NULL;
    }
    *network_out = network - FIRST_NETWORK;
    return &sim.hosts[a << 16 | b << 8 | c];
}

/* ---- the end of a connection ------------------------------------------------------------------------------------- */

static void deliver_down(void *ctx)
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
        at = at > conn->arrives_us ? at : conn->arrives_us + 1; /* not before the connection was accepted */
        sim_after(at - sim.us, conn->link->host, deliver_down, conn);
    }
}

void link_route(const struct link_conn *conn, struct link_route *out)
{
    (void)conn;
    *out = (struct link_route){0};
}

void link_close(struct link_conn *conn)
{
    conn->closed = true;
    if (conn->other != NULL) {
        conn_die(conn->other, latency_us());
    }
}

void link_lost(struct link *link)
{
    link->closed = true;
    for (struct link_conn *conn = link->conns; conn != NULL; conn = conn->next) {
        link_close(conn);
    }
}

void link_free(struct link *link)
{
    if (link == NULL) {
        return;
    }
    link_lost(link);
    link->host->link = NULL;
    while (link->arriving != NULL) {
        struct message *m = link->arriving;
        link->arriving = m->next_arriving;
        m->place = NULL;
        slot_use_end(&m->place);
        link->setup.chunk_done(link->setup.ctx, m->to, m->header, m->header_len, false);
    }
    for (struct message *m = link->pushes; m != NULL; m = m->next) {
        slot_use_end(m);
        m->pushed(m->ctx, false);
    }
}

void link_cut(struct host *a, struct host *b)
{
    for (struct link_conn *conn = a->link != NULL ? a->link->conns : NULL; conn != NULL; conn = conn->next) {
        if (conn->other != NULL && conn->other->link->host == b && !conn->closed) {
            conn_die(conn, latency_us());
            conn_die(conn->other, latency_us());
        }
    }
}

void link_isolate(struct host *host, uint64_t for_us)
{
    sim_log("%s is out of reach for %.3f s", host->name, (double)for_us / (double)S);
    host->isolated_until_us = sim.us + for_us;
    for (uint32_t i = 0; i < sim.host_count; i++) {
        link_cut(host, &sim.hosts[i]);
    }
}

static bool is_cut(const struct host *host, unsigned network)
{
    return host->isolated_until_us > sim.us || host->cut_until_us[network] > sim.us;
}

static bool reaches(const struct host *a, const struct host *b, unsigned network)
{
    return a == b || (!is_cut(a, network) && !is_cut(b, network));
}

uint32_t link_endpoints(const struct host *host)
{
    uint32_t count = 0;
    for (const struct link_conn *conn = host->link != NULL ? host->link->conns : NULL; conn != NULL;
         conn = conn->next) {
        count += !conn->closed && !conn->dead;
    }
    return count;
}

static void hold(struct link_conn *conn, uint64_t until_us)
{
    conn->arrives_us = conn->arrives_us > until_us ? conn->arrives_us : until_us;
}

void link_network_fails(struct host *host, uint64_t for_us)
{
    unsigned network = (unsigned)sim_between(0, NETWORKS - 1);
    host->is_cut_silently = sim_chance(50);
    sim_log("network %u of %s fails%s for %.3f s", network, host->name, host->is_cut_silently ? " silently" : "",
            (double)for_us / (double)S);
    host->cut_until_us[network] = sim.us + for_us;
    for (struct link_conn *conn = host->link != NULL ? host->link->conns : NULL; conn != NULL; conn = conn->next) {
        if (conn->other == NULL || conn->closed || conn->network != network) {
            continue;
        }
        if (host->is_cut_silently) {
            hold(conn, sim.us + for_us);
            hold(conn->other, sim.us + for_us);
        } else {
            conn_die(conn, latency_us());
            conn_die(conn->other, latency_us());
        }
    }
}

void link_stall(struct host *a, struct host *b, uint64_t for_us)
{
    for (struct link_conn *conn = a->link != NULL ? a->link->conns : NULL; conn != NULL; conn = conn->next) {
        if (conn->other != NULL && conn->other->link->host == b && !conn->closed) {
            hold(conn, sim.us + for_us);
            hold(conn->other, sim.us + for_us);
        }
    }
}

/* ---- the beginning ----------------------------------------------------------------------------------------------- */

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

tck_status_t link_connect(struct link *link, const char *address, size_t number, void *user, struct link_conn **out,
                          struct error *err)
{
    (void)number, (void)err;
    unsigned network = 0;
    struct host *host = host_at(address, &network);
    struct link *to = host != NULL ? host->link : NULL;
    struct link_conn *conn = conn_new(link);
    conn->user = user;
    conn->network = network;
    *out = conn;
    if (host != NULL && !reaches(link->host, host, network)) {
        if (!link->host->is_cut_silently && !host->is_cut_silently) {
            conn_die(conn, latency_us());
        }
        return TCK_OK;
    }
    if (to == NULL || to->closed || !is_at(to, network, address)) {
        conn_die(conn, latency_us());
        return TCK_OK;
    }
    conn->other = conn_new(to);
    conn->other->network = network;
    conn->other->other = conn;
    sim_after(arrival(conn->other), to->host, accepted, conn->other);
    return TCK_OK;
}

const char *link_remote(struct link_conn *conn)
{
    struct address_list list;
    const struct link *from = conn->other != NULL ? conn->other->link : NULL;
    if (from == NULL || address_list_read(from->address, &list, NULL) != TCK_OK || conn->network >= list.count) {
        return "";
    }
    return strstr(from->address, list.of[conn->network]);
}

void link_set_user(struct link_conn *conn, void *user)
{
    conn->user = user;
}

void *link_user(const struct link_conn *conn)
{
    return conn->user;
}

/* ---- messages and chunks ----------------------------------------------------------------------------------------- */

/* When the host handles what arrived while its agent was stopped: at once, or after the timers that were due. */
static uint64_t takes_from_us(const struct host *host)
{
    bool later = host->stopped_until_us > 0 && sim_trait(TRAIT_TIMERS_FIRST);
    return host->stopped_until_us + (later ? WAKE_US : 0);
}

static void got_message(void *ctx)
{
    struct message *m = ctx;
    const struct link_setup *setup = &m->to->link->setup;
    struct host *host = m->to->link->host;
    if (takes_from_us(host) > sim.us) {
        sim_after(takes_from_us(host) - sim.us, host, got_message, m);
        return;
    }
    if (!m->to->closed && !m->to->dying) {
        host->counts.received++;
        host->counts.received_bytes += m->len;
        setup->message(setup->ctx, m->to, m->data, m->len);
    }
    free(m);
}

tck_status_t link_send(struct link_conn *conn, const void *data, size_t len)
{
    struct host *host = conn->link->host;
    host_does_something();
    if (conn->dead || conn->closed || conn->other == NULL) {
        return conn->dead ? TCK_ERR_UNREACHABLE : TCK_OK; /* lost in flight */
    }
    struct message *m = malloc(sizeof(*m) + len);
    if (m == NULL) {
        abort();
    }
    *m = (struct message){.to = conn->other, .from = conn, .len = len};
    memcpy(m->data, data, len);
    host->counts.messages++;
    host->counts.bytes += len;
    sim_after(arrival(conn->other), conn->other->link->host, got_message, m);
    return TCK_OK;
}

static bool is_open(const struct message *m)
{
    return !m->to->closed && !m->to->dying && !m->from->closed && !m->from->dying;
}

static void was_pushed(void *ctx)
{
    struct message *m = ctx, **at = &m->from->link->pushes;
    while (*at != m) {
        at = &(*at)->next;
    }
    *at = m->next;
    slot_use_end(m);
    m->pushed(m->ctx, m->ok);
    free(m);
}

/* Copies the bytes that arrived: half of them if the sender is gone. */
static void fill_place(struct message *m, bool whole)
{
    if (m->from->link->host->link == m->from->link) {
        memcpy(m->place, m->chunk, whole ? m->len : m->len / 2);
    } else {
        memset(m->place, 0, m->len / 2);
    }
    if (m->to->link->host->noisy && sim_chance(10)) {
        *((uint8_t *)m->place + sim_between(0, m->len - 1)) ^= 1;
    }
    judge_bytes_changed(m->to->link->host, m->place, m->len);
}

static void take_from_arriving(struct message *m)
{
    struct message **at = &m->to->link->arriving;
    while (*at != m) {
        at = &(*at)->next_arriving;
    }
    *at = m->next_arriving;
    slot_use_end(&m->place);
}

/* Runs as the receiver, which owns its buffer again even if the connection is gone. */
static void take_bytes(void *ctx)
{
    struct message *m = ctx;
    const struct link_setup *setup = &m->to->link->setup;
    m->ok = is_open(m) && m->from->link->host->link == m->from->link;
    fill_place(m, m->ok);
    take_from_arriving(m);
    setup->chunk_done(setup->ctx, m->to, m->header, m->header_len, m->ok);
}

/* Runs as the receiver, or as the world if the receiver is gone; the sender is notified in either case. */
static void take_chunk(void *ctx)
{
    struct message *m = ctx;
    struct link *to = m->to->link;
    m->place = is_open(m) ? to->setup.chunk(to->setup.ctx, m->to, m->header, m->header_len, m->len) : NULL;
    if (m->place == NULL) {
        return;
    }
    m->next_arriving = to->arriving;
    to->arriving = m;
    slot_use_begin(&m->place, m->place, "bytes of another node still arrive there", to->host);
    if (m->slow_us == 0) {
        take_bytes(m);
    }
}

/* Runs fn as the receiver when its agent does; false: later. */
static bool receive(struct message *m, sim_fn *fn, sim_fn *again)
{
    struct link *to = m->to->link;
    if (to->host->link == to && takes_from_us(to->host) > sim.us) {
        sim_after(takes_from_us(to->host) - sim.us, NULL, again, m);
        return false;
    }
    if (to->host->link == to) {
        host_run(to->host, fn, m);
    }
    return true;
}

static void notify_sender(struct message *m)
{
    const struct link *from = m->from->link;
    if (from->host->link == from) {
        sim_after(latency_us(), from->host, was_pushed, m);
    }
}

static void got_bytes(void *ctx)
{
    struct message *m = ctx;
    if (m->place == NULL || receive(m, take_bytes, got_bytes)) {
        notify_sender(m);
    }
}

static void got_chunk(void *ctx)
{
    struct message *m = ctx;
    const struct link *from = m->from->link;
    if (from->host->link != from) {
        return; /* the sender's memory may be gone as well */
    }
    if (!receive(m, take_chunk, got_chunk)) {
        return;
    }
    if (m->place != NULL && m->slow_us > 0) {
        sim_after(m->slow_us, NULL, got_bytes, m);
    } else {
        notify_sender(m);
    }
}

/* How long the bytes of a chunk are in flight once there is a place for them. */
static uint64_t slowness_us(struct link_conn *conn, const void *chunk)
{
    struct host *from = conn->link->host;
    if (from->interrupts && sim.us < faults.until_us) {
        return faults_interrupt(from, conn->other->link->host, chunk);
    }
    uint64_t slow_us = bases_slowness_us();
    if (slow_us > 0) {
        return slow_us;
    }
    return sim_trait(TRAIT_SLOW) && sim_chance(20) ? sim_between(20, sim_chance(10) ? 200000 : 5000) : 0;
}

/* The time until the previous chunks have arrived. */
static uint64_t queued_us(struct link_conn *conn)
{
    bool overloaded = sim_trait(TRAIT_OVERLOADED);
    uint64_t chunk_us = overloaded ? 60 * MS : sim.measure ? sim.chunk_us : overload_chunk_us();
    uint64_t *busy_until_us = overloaded ? &conn->link->busy_until_us : &conn->busy_until_us;
    if (chunk_us == 0) {
        return 0;
    }
    uint64_t from_us = *busy_until_us > sim.us ? *busy_until_us : sim.us;
    *busy_until_us = from_us + chunk_us;
    return *busy_until_us - sim.us;
}

tck_status_t link_push(struct link_conn *conn, const void *header, size_t header_len, const void *data, size_t len,
                       link_pushed_fn *pushed, void *ctx)
{
    if (conn->dead || conn->closed || conn->other == NULL) {
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
    m->slow_us = slowness_us(conn, data);
    slot_use_begin(m, data, "it is still sent to another node", conn->link->host);
    judge_passed_on(conn->link->host, data, len);
    conn->link->host->counts.transferred += len;
    sim_after(arrival(conn->other) + queued_us(conn->other), NULL, got_chunk, m);
    return TCK_OK;
}
