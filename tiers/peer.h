/* SPDX-License-Identifier: Apache-2.0
 * Other agents: authenticated sessions over a link, their heartbeats, and transfers of shard images (the peer tier).
 *
 * Two connections per pair, control and bulk, opened by the agent with the smaller id. HELLO, CHALLENGE, PROOF, WELCOME
 * (HMAC-SHA256 with the job's secret over both nonces, both agent ids, job and role) come before anything else; an
 * unauthenticated connection takes a bounded amount of memory and lives two seconds. A peer whose heartbeats are
 * missing for timeout_ms is down: both connections are closed by force and its transfers fail. As long as it is wanted,
 * it is reconnected: its addresses are tried in turn (peer_addresses.h), with jittered back-off after each round.
 *
 * A session may also be relayed: its control connection is replaced by messages that a third agent passes on, with
 * which both have sessions. Handshake and heartbeats are those of the two agents, so the third one can only drop what
 * it should pass on, which ends the session as a broken connection does. It has no bulk connection and carries no
 * copies. */
#ifndef TCK_TIERS_PEER_H
#define TCK_TIERS_PEER_H

#include "base/address_list.h"
#include "base/secret.h"
#include "tiers/link.h"
#include "tiers/rate_meter.h"
#include "tiers/tier.h"

struct peers;
struct peer;

#define PEER_MESSAGE_MAX (64u << 20) /* split over link messages by this module */
#define PEER_BEAT_MAX    1024

/* A transfer requested by another agent, into our memory or out of it. */
struct peer_offer {
    uint64_t term;
    struct version version;
    struct hash128 shard;
    uint64_t image_bytes;
    struct hash128 root;
    struct version base; /* of an offer: part of the copy is the same in this version; VERSION_NONE: there is none */
    struct hash128 base_root;
    uint64_t from_base; /* of a copy that has arrived: its bytes that were copied from the base */
};

struct peers_setup {
    struct loop *loop;
    struct pool *pool; /* checks chunk CRCs */
    const char *job;
    struct node_info self; /* address is filled in by peers_new */
    struct secret secret;
    const char *device, *address; /* of this agent: lists (base/address_list.h) */
    uint16_t port;
    uint8_t tos; /* of all TCP sockets; 0: the system's */
    uint32_t heartbeat_ms, timeout_ms;
    uint32_t round_ms;            /* of a peer with several addresses, each is tried once within this time */
    uint32_t transfer_timeout_ms; /* without progress a transfer fails */
    uint32_t held_timeout_ms;     /* the same of a copy that another agent may be throttling; 0: as above */
    struct tier_pace pace;        /* of puts; gets and what others get are never throttled */
    void *ctx;
    /* Beat: an opaque payload carried by every heartbeat we send (the decision); len at most PEER_BEAT_MAX, 0 for none.
     * A heartbeat without one is not reported. */
    size_t (*beat)(void *ctx, struct peer *to, uint8_t *out, size_t cap);
    void (*beat_got)(void *ctx, struct peer *from, const uint8_t *data, size_t len);
    /* An agent that was not wanted (peers_want) may come up, too, if it has proved the secret. Unless it is wanted by
     * then, it is removed after down, which invalidates its pointer. */
    void (*up)(void *ctx, struct peer *peer);
    void (*down)(void *ctx, struct peer *peer, const char *why);
    void (*message)(void *ctx, struct peer *peer, uint16_t type, const void *data, size_t len);
    /* Another agent offers a copy. Fill item (image, crcs, ...) and return TCK_OK to receive it, TCK_ERR_EXIST to
     * acknowledge one that is here already; anything else refuses with err's text. Its chunk CRCs come with the
     * transfer. With base_image filled in, what is the same in offer->base is copied from there; those bytes may not
     * be reused before stored. */
    tck_status_t (*offered)(void *ctx, struct peer *from, const struct peer_offer *offer, struct tier_item *item_out,
                            struct error *err);
    /* The offered copy has arrived, and every chunk and the root were checked (or it failed: outcome). Return TCK_OK
     * once the header is written: only then is the copy acknowledged to its owner. */
    tck_status_t (*stored)(void *ctx, struct peer *from, const struct peer_offer *offer, const struct error *outcome);
    /* A chunk that should be the same in the base does not have the CRC that the offer says: the other agent sends it.
     * Returns whether the base is damaged. */
    bool (*base_bad)(void *ctx, struct peer *from, const struct tier_item *item, uint32_t chunk);
    /* Another agent pulls a copy: fill item and return TCK_OK; it stays pinned until pull_done, which gets it again.
     * One that is still arriving has `here`, and no crcs as long as its digests are unknown; the rest is reported
     * below. */
    tck_status_t (*pulled)(void *ctx, struct peer *from, const struct peer_offer *want, struct tier_item *item_out,
                           struct error *err);
    void (*pull_done)(void *ctx, struct peer *from, const struct tier_item *item);
    /* Whether messages of `from` are passed on to the agent `to`. NULL: nothing is passed on. */
    bool (*relays)(void *ctx, uint64_t from, uint64_t to);
};

must_check tck_status_t peers_new(const struct peers_setup *setup, struct peers **out, struct error *err);
/* When it returns, every transfer has ended and had its callback. Not to be called from a callback. */
void peers_free(struct peers *peers);
const struct node_info *peers_self(const struct peers *peers); /* with the address to publish */
/* Puts that were throttled ask again. */
void peers_resume(struct peers *peers);
bool peers_are_listening(const struct peers *peers); /* link_is_listening */

/* Keeps up a session with this agent from now on (finds an existing one); agents are distinguished by agent_id. A new
 * address of a known agent ends the session at the old one. The peer is owned by peers. */
must_check tck_status_t peers_want(struct peers *peers, const struct node_info *node, struct peer **out,
                                   struct error *err);
/* The same, by this route from now on: through the agent `via`, or, if that cannot be reached or does not pass messages
 * on, and if via is 0, directly. A session that exists stays, except that a direct one replaces one that is not wanted
 * relayed any more. */
must_check tck_status_t peers_want_via(struct peers *peers, const struct node_info *node, uint64_t via,
                                       struct peer **out, struct error *err);
/* The same as peers_want, for copies: the session has to be direct. One that is relayed is replaced: if the other agent
 * wants that as well (both), one of them leaves it to the other for a while. */
must_check tck_status_t peers_want_copies(struct peers *peers, const struct node_info *node, bool both,
                                          struct peer **out, struct error *err);
/* No more copies are exchanged with it, so its session may be relayed again. */
void peer_unwant_copies(struct peer *peer);
/* Ends the session without calling down, and fails its transfers. The peer must not be used any more, but still appears
 * in the callbacks that end its transfers. */
void peers_unwant(struct peers *peers, struct peer *peer);
bool peer_is_wanted(const struct peer *peer);
bool peer_is_up(const struct peer *peer);
/* True if it is up and carries copies: it is not relayed. */
bool peer_takes_copies(const struct peer *peer);
/* True if it is up and should take copies, but is relayed: a direct session has not been made yet, or cannot be. */
bool peer_lacks_direct(const struct peer *peer);
/* The agent that relays its session; NULL: none. */
const struct node_info *peer_relay(const struct peer *peer);
/* Why there is no session with it; "" if unknown, or if there is one. */
const char *peer_trouble(const struct peer *peer);
const struct node_info *peer_node(const struct peer *peer);
/* The address of its session; all of its addresses if that is not known, or if there is no session. */
const char *peer_address(const struct peer *peer);

/* What is known of one of its addresses. */
struct peer_reach {
    const char *address; /* good as long as the peer */
    bool in_use;         /* by the session */
    bool failed;         /* it did not answer when it was tried last */
};
/* In the peer's order; returns their number. */
size_t peer_reach(const struct peer *peer, struct peer_reach out[ADDRESSES_MAX]);
size_t peers_count(const struct peers *peers);
struct peer *peers_at(const struct peers *peers, size_t i);
struct peer *peers_find(const struct peers *peers, uint64_t agent_id); /* NULL: there is none */

/* Ordered, at most once; lost with the session. TCK_ERR_UNREACHABLE if it is down. */
must_check tck_status_t peer_send(struct peer *peer, uint16_t type, const void *data, size_t len);

/* The other side accepts or refuses the transfer by its term. done as in tier.h. */
must_check tck_status_t peer_put(struct peer *peer, uint64_t term, const struct tier_item *item, tier_done_fn *done,
                                 void *ctx, struct error *err);
/* The version of this put is over: no more chunks are sent, and it ends with TCK_ERR_CANCELED, unless the other side
 * has acknowledged or refused it, the session ends, or the transfer times out. When done runs with TCK_ERR_CANCELED,
 * the other side has had stored, and can take another copy in its place. */
void peer_cancel_put(struct peer *peer, uint64_t term, struct version version, struct hash128 shard);
must_check tck_status_t peer_get(struct peer *peer, uint64_t term, struct tier_item *item, tier_done_fn *done,
                                 void *ctx, struct error *err);

/* Of an image whose copies are pulled while it arrives (peers_setup.pulled). Its digests are known, if they were not
 * when it was pulled; crcs is read before this returns, and was checked with root. */
void peers_arriving_digests(struct peers *peers, const uint8_t *image, uint32_t *crcs, struct hash128 root);
/* This chunk is in place and matches its digest. Reported once, unless it was `here` already. */
void peers_arriving_chunk(struct peers *peers, const uint8_t *image, uint32_t chunk);
/* The rest does not come: the other agents' gets end with this error. */
void peers_arriving_failed(struct peers *peers, const uint8_t *image, tck_status_t code, const char *why);
/* The get into this image is of no use any more: it ends with an error once nothing has come for a heartbeat, since its
 * source may itself be waiting for it. */
void peers_end_get(struct peers *peers, const uint8_t *image);

typedef void peer_measured_fn(void *ctx, const struct rate *rate, const struct error *outcome);
/* Measures how fast this agent sends to the peer: at most METER_BYTES, for METER_NS, and for 5 s with all else. done as
 * in tier.h. TCK_ERR_BUSY, from here or as the outcome: one of the two agents is copying or measuring, so it can be
 * tried again. TCK_ERR_NOENT: the peer is relayed and carries no copies. */
must_check tck_status_t peer_measure(struct peer *peer, peer_measured_fn *done, void *ctx, struct error *err);
/* By which way copies are sent to it. False: there is no direct session. */
bool peer_route(const struct peer *peer, struct link_route *out);

#endif
