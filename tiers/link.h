/* SPDX-License-Identifier: Apache-2.0
 * Messages and bulk chunks between two agents. The interface is small on purpose, so that another transport can be
 * added beside UCX (link_ucx.c, so far the only one). Everything runs in the loop's thread; no call invokes a
 * callback directly. */
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
    const char *device;  /* network interfaces, a list (address_list.h); "": any */
    const char *address; /* to listen on and to announce, one of each; "": see link_address.h */
    uint16_t port;       /* of each address; 0: any */
    uint8_t tos;         /* class of its TCP sockets (link_mark.h); 0: the system's */
    void *ctx;
    /* A connection was accepted; it has no identity before the handshake of peer_session.c. */
    void (*accepted)(void *ctx, struct link_conn *conn);
    void (*message)(void *ctx, struct link_conn *conn, const void *data, size_t len);
    /* A chunk of len bytes arrives: returns its buffer, valid until chunk_done, or NULL to refuse it (the sender's push
     * then fails). */
    void *(*chunk)(void *ctx, struct link_conn *conn, const void *header, size_t header_len, size_t len);
    void (*chunk_done)(void *ctx, struct link_conn *conn, const void *header, size_t header_len, bool ok);
    /* The connection is dead (closed, reset, refused, failed to connect). The owner must still call link_close. */
    void (*down)(void *ctx, struct link_conn *conn, const char *why);
};

must_check tck_status_t link_new(const struct link_setup *setup, struct link **out, struct error *err);
void link_free(struct link *link); /* closes all; every pending callback has run when it returns */
/* The list of all "address:port" for other agents. */
const char *link_address(const struct link *link);
/* False: no agent can connect any more, and only restarting this process repairs that. */
bool link_is_listening(const struct link *link);

/* Begins to connect to one "address:port", the number-th of another agent (from 0); a failure is reported by down. user
 * is returned by link_user. */
must_check tck_status_t link_connect(struct link *link, const char *address, size_t number, void *user,
                                     struct link_conn **out, struct error *err);
/* The host at the other end of a connection that was accepted: one of its addresses, with some port; "": unknown. */
const char *link_remote(struct link_conn *conn);
/* How a connection is made, as far as it is known; "": unknown. */
struct link_route {
    char transports[128]; /* transport and device: "tcp/eth0", "rc_mlx5/mlx5_0:1", with blanks between several */
    char local[ADDRESS_TEXT], remote[ADDRESS_TEXT];
};
void link_route(const struct link_conn *conn, struct link_route *out);
void link_set_user(struct link_conn *conn, void *user);
void *link_user(const struct link_conn *conn);
/* Forced: pending pushes end with false. Once they have ended, there are no more callbacks for this conn. */
void link_close(struct link_conn *conn);

/* Copies the message. TCK_ERR_UNREACHABLE on a dead connection. */
must_check tck_status_t link_send(struct link_conn *conn, const void *data, size_t len);

typedef void link_pushed_fn(void *ctx, bool ok);
/* Sends a chunk by rendezvous, straight from data, which must stay valid until pushed(ctx). ok means only that the
 * buffer may be reused, never that the other side has the bytes. The header is copied.
 *
 * Over RDMA (by UCX's sources; it has not been run) the memory of each chunk, at both ends, is registered for that
 * chunk alone, so its pages are pinned only while it moves. Registering a segment once would cost less, but its pages
 * would stay pinned, and giving back a slot (segment_give_back) would leave the adapter with pages that are no longer
 * the slot's. That needs a registration per slot, which ends before the slot's pages are removed or the segment is
 * unmapped.
 */
must_check tck_status_t link_push(struct link_conn *conn, const void *header, size_t header_len, const void *data,
                                  size_t len, link_pushed_fn *pushed, void *ctx);

/* Sets the UCX variables that are known to be safe (docs/operations.md), unless the user has set them. Must run before
 * the process that uses libucs loads it. Sets the limit of open files to what is allowed and UCX
 * supports. */
void link_environment(const char *device);
/* The same for the family of all addresses: a connection between two agents that are not set to one family would abort
 * both, so link_connect refuses it. */
void link_environment_family(bool ipv6);
/* The same for the class of traffic over RDMA; dscp and service_level 0: what UCX chooses. */
void link_environment_class(uint32_t dscp, uint32_t service_level);

/* The version of the library below: three numbers. */
void link_version(unsigned out[3]);

#endif
