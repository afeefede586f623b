/* SPDX-License-Identifier: Apache-2.0
 * Connections of a link and the events on their way to its owner. */
#include "tiers/link_conn.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>

static int compare_ep(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const struct link_conn *)a)->ep;
    uintptr_t y = (uintptr_t)((const struct link_conn *)b)->ep;

    return (x > y) - (x < y);
}

bool conn_index(struct link_conn *conn)
{
    return tsearch(conn, &conn->link->by_ep, compare_ep) != NULL;
}

void conn_unindex(struct link_conn *conn)
{
    tdelete(conn, &conn->link->by_ep, compare_ep);
}

struct link_conn *conn_of_ep(struct link *link, struct ucp_ep *ep)
{
    struct link_conn key = {.ep = ep};
    struct link_conn *const *node = tfind(&key, &link->by_ep, compare_ep);

    return node == NULL ? NULL : *node;
}

struct link_conn *conn_new(struct port *port)
{
    struct link *link = port->link;
    struct link_conn *conn = calloc(1, sizeof(*conn));

    if (conn == NULL) {
        return NULL;
    }
    conn->link = link;
    conn->port = port;
    conn->next = link->conns;
    conn->at = &link->conns;
    if (conn->next != NULL) {
        conn->next->at = &conn->next;
    }
    link->conns = conn;
    return conn;
}

void conn_free(struct link_conn *conn)
{
    *conn->at = conn->next;
    if (conn->next != NULL) {
        conn->next->at = conn->at;
    }
    free(conn);
}

void conn_release(struct link_conn *conn)
{
    conn->pending--;
    if (conn->closed && conn->pending == 0) {
        conn_free(conn);
    }
}

void conn_fail(struct link_conn *conn, const char *why)
{
    if (conn->dead || conn->closed) {
        return;
    }
    conn->dead = true;
    snprintf(conn->why, sizeof(conn->why), "%s", why);
    conn->pending++;
    queue_event(conn->link, &conn->down, EVENT_DOWN, conn);
}

void queue_event(struct link *link, struct event *event, enum event_kind kind, struct link_conn *conn)
{
    *event = (struct event){.kind = kind, .conn = conn};
    *link->event_end = event;
    link->event_end = &event->next;
}

static struct event *next_event(struct link *link)
{
    struct event *event = link->first_event;

    if (event != NULL) {
        link->first_event = event->next;
        if (link->first_event == NULL) {
            link->event_end = &link->first_event;
        }
    }
    return event;
}

static void deliver_message(const struct link_setup *setup, const struct message *message)
{
    if (!message->event.conn->closed) {
        setup->message(setup->ctx, message->event.conn, message->data, message->len);
    }
}

/* Delivered even after the connection is closed: only now may the owner reuse the buffers of chunks and pushes. */
static void deliver_chunk(const struct link_setup *setup, const struct chunk *chunk)
{
    setup->chunk_done(setup->ctx, chunk->event.conn, chunk->header, chunk->header_len, chunk->ok);
}

static void deliver_down(const struct link_setup *setup, struct link_conn *conn)
{
    if (!conn->closed) {
        setup->down(setup->ctx, conn, conn->why);
    }
}

static void deliver(struct link *link, struct event *event, accept_fn *accept)
{
    switch (event->kind) {
    case EVENT_ACCEPT:
        accept(((const struct accept *)event)->port, ((const struct accept *)event)->request);
        break;
    case EVENT_MESSAGE:
        deliver_message(&link->setup, (const struct message *)event);
        break;
    case EVENT_CHUNK:
        deliver_chunk(&link->setup, (const struct chunk *)event);
        break;
    case EVENT_PUSHED:
        ((const struct push *)event)->pushed(((const struct push *)event)->ctx, ((const struct push *)event)->ok);
        break;
    case EVENT_DOWN:
        deliver_down(&link->setup, event->conn);
        return; /* the event is part of its connection */
    }
    free(event);
}

bool deliver_events(struct link *link, accept_fn *accept)
{
    bool any = false;
    struct event *event;

    while ((event = next_event(link)) != NULL) {
        struct link_conn *conn = event->conn;

        any = true;
        deliver(link, event, accept);
        if (conn != NULL) {
            conn_release(conn);
        }
    }
    return any;
}
