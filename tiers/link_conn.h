/* SPDX-License-Identifier: Apache-2.0
 * The state of link_ucx.c: its connections, and the queue of events between UCX's callbacks and the link's owner. Knows
 * UCX's handles only as incomplete types.
 *
 * A connection is freed once its owner has closed it and nothing refers to it any more: no message or chunk on its way,
 * no event in the queue, no close request. pending counts those. */
#ifndef TCK_TIERS_LINK_CONN_H
#define TCK_TIERS_LINK_CONN_H

#include "tiers/link.h"
#include "tiers/link_address.h"
#include "tiers/ucx_listeners.h"

#define LINK_WHY_BYTES 96

struct ucp_ep;
struct ucp_conn_request;
struct ucp_context;
struct ucp_worker;
struct ucp_listener;

enum event_kind { EVENT_ACCEPT, EVENT_MESSAGE, EVENT_CHUNK, EVENT_PUSHED, EVENT_DOWN };

struct event {
    enum event_kind kind;
    struct link_conn *conn;
    struct event *next;
};

/* The event is the first member of the four below, so that a pointer to one is a pointer to the other. All are freed
 * when they have been delivered. */

struct accept {
    struct event event;
    struct port *port;
    struct ucp_conn_request *request;
};

struct message {
    struct event event;
    size_t len;
    uint8_t data[];
};

struct chunk {
    struct event event;
    bool ok;
    size_t header_len;
    uint8_t header[LINK_HEADER_MAX];
};

struct push {
    struct event event;
    bool ok;
    link_pushed_fn *pushed;
    void *ctx;
    uint8_t header[LINK_HEADER_MAX]; /* UCX reads it until the push has ended */
};

struct link_conn {
    struct link *link;
    struct port *port;
    struct ucp_ep *ep;
    void *user;
    size_t pending;
    bool closed; /* by its owner */
    bool dead;   /* down was queued */
    char why[LINK_WHY_BYTES];
    char remote[ADDRESS_TEXT]; /* of an accepted one; "": unknown */
    struct ip peer;            /* the other side's; none: unknown */
    struct event down;
    struct link_conn *next, **at; /* in link->conns */
};

/* UCX at one of the link's addresses. Each has a context of its own, which knows one network interface: a connection
 * then stays on the interface on which it was made, and fails with that one alone. */
struct port {
    struct link *link;
    struct ucp_context *context;
    struct ucp_worker *worker;
    struct ucp_listener *listener;
    struct loop_fd *source;
};

struct link {
    struct link_setup setup;
    struct link_places places;
    struct port port[ADDRESSES_MAX]; /* one for each place */
    size_t port_count;
    struct link_conn *conns;
    void *by_ep; /* tree of the connections that are not closed */
    struct event *first_event;
    struct event **event_end;
    bool ending; /* accepts no more */
    char address[ADDRESS_TEXT];
    struct listeners listeners; /* UCX's */
    struct loop_timer *marker;  /* runs while there are connections; NULL: no sockets are marked */
    uint32_t marks_left;
    bool mark_failed;
};

struct link_conn *conn_new(struct port *port); /* NULL: no memory */
void conn_free(struct link_conn *conn);
/* Makes conn_of_ep find it; false if out of memory. */
bool conn_index(struct link_conn *conn);
void conn_unindex(struct link_conn *conn);
struct link_conn *conn_of_ep(struct link *link, struct ucp_ep *ep); /* NULL if unknown or closed */
/* Decrements pending; may free the connection. */
void conn_release(struct link_conn *conn);
/* Queues the down event, once. */
void conn_fail(struct link_conn *conn, const char *why);

/* Appends to the queue. The event holds one count of conn's pending, which the caller has added. conn may be NULL. */
void queue_event(struct link *link, struct event *event, enum event_kind kind, struct link_conn *conn);

typedef void accept_fn(struct port *port, struct ucp_conn_request *request);
/* Delivers all queued events to the link's owner, connection requests to accept. False if there were none. */
bool deliver_events(struct link *link, accept_fn *accept);

#endif
