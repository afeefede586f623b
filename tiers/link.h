/* SPDX-License-Identifier: Apache-2.0
 * Messages and bulk chunks between two agents. Small on purpose, so that another transport can stand beside UCX
 * (link_ucx.c, the only one now). Everything runs in the loop's thread; callbacks never come from inside a call. */
#ifndef TCK_TIERS_LINK_H
#define TCK_TIERS_LINK_H

#include "base/loop.h"
#include "base/world.h"

#define LINK_MESSAGE_MAX (64u << 10) /* one control message */
#define LINK_HEADER_MAX  64          /* of a chunk */

struct link;
struct link_conn;

struct link_setup {
    struct loop *loop;
    const char *device;  /* network interface, "" any */
    const char *address; /* to listen on and tell others, "" the device's first IPv4 address */
    uint16_t port;       /* 0: any */
    void *ctx;
    /* A connection was accepted; it has no identity before the handshake of peer_session.c. */
    void (*accepted)(void *ctx, struct link_conn *conn);
    void (*message)(void *ctx, struct link_conn *conn, const void *data, size_t len);
    /* A chunk of len bytes arrives: where to put it, or NULL to refuse it (its sender's push then fails). The buffer
     * must stay until chunk_done. */
    void *(*chunk)(void *ctx, struct link_conn *conn, const void *header, size_t header_len, size_t len);
    void (*chunk_done)(void *ctx, struct link_conn *conn, const void *header, size_t header_len, bool ok);
    /* The connection is dead (closed, reset, refused, failed to connect). link_close is still the owner's to call. */
    void (*down)(void *ctx, struct link_conn *conn, const char *why);
};

must_check tck_status_t link_new(const struct link_setup *setup, struct link **out, struct error *err);
void link_free(struct link *link); /* closes all; every pending callback has run when it returns */
/* "address:port" for other agents. */
const char *link_address(const struct link *link);
/* False: nobody can connect any more, and nothing but another process can repair that. */
bool link_is_listening(const struct link *link);

/* Begins to connect; a failure comes as down. user is returned by link_user. */
must_check tck_status_t link_connect(struct link *link, const char *address, void *user, struct link_conn **out,
                                     struct error *err);
void link_set_user(struct link_conn *conn, void *user);
void *link_user(const struct link_conn *conn);
/* Forced: pending pushes end with false. No callback for this conn comes after the pending ones have ended. */
void link_close(struct link_conn *conn);

/* Copies the message. TCK_ERR_UNREACHABLE on a dead connection. */
must_check tck_status_t link_send(struct link_conn *conn, const void *data, size_t len);

typedef void link_pushed_fn(void *ctx, bool ok);
/* Sends a chunk by rendezvous, straight from data, which must stay until pushed(ctx). ok says only that the buffer may
 * be reused, never that the other side has the bytes. Header is copied. */
must_check tck_status_t link_push(struct link_conn *conn, const void *header, size_t header_len, const void *data,
                                  size_t len, link_pushed_fn *pushed, void *ctx);

/* Sets the UCX environment that is known to be safe (docs/operations.md), for variables the user has not set. Must run
 * before libucs is loaded by the process that uses it. Lowers the limit of open files to what UCX can take. */
void link_environment(const char *device);

#endif
