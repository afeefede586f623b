/* SPDX-License-Identifier: Apache-2.0
 * Shared by the files of the peer tier. Each calls only those above it in this list: peer_list.c, peer_send.c,
 * peer_pending.c (connections), peer_relay.c, peer_check.c (addresses), the transfers (peer_transfer.h),
 * peer_measure.c, peer_fragments.c (receiving), peer_session.c (handshake, sessions), peer_transfer_late.c, peers.c
 * (the set of peers and its clock). */
#ifndef TCK_TIERS_PEER_INTERNAL_H
#define TCK_TIERS_PEER_INTERNAL_H

#include "base/pool.h"
#include "tiers/peer_addresses.h"
#include "tiers/peer_auth.h"

#define PEER_BACKOFF_MIN_MS 100
#define PEER_BACKOFF_MAX_MS 3000
#define PEER_YIELD_MS       1000 /* the larger id gives the smaller one this long to connect; */
#define PEER_YIELD_FEW_MS   300  /* less if there are several addresses, since it may have to try them all in time */

/* One connection, or what takes the place of one when another agent relays it. Before its handshake is done, it is in
 * peers->strangers, or belongs to a session that we open or to a check of an address. */
struct channel {
    struct peers *peers;
    struct link_conn *conn; /* NULL: relayed, */
    uint64_t relay;         /* by this agent, */
    uint64_t relay_session; /* in its session of this number, with which it ends; */
    uint64_t far;           /* the agent at the other end; */
    uint64_t tunnel;        /* what distinguishes it from others between the same two */
    bool cut;               /* the other end knows that it has ended */
    struct auth auth;
    struct session *session; /* NULL: stranger, or a check */
    struct peer *checks;     /* whose address; NULL: this is no check */
    uint64_t deadline_ms;    /* of a stranger */
    bool refused;            /* beyond the limit: its messages are ignored until it is closed */
    struct channel *next;    /* stranger */
};

/* A control and a bulk connection with one agent. In the making until both are authenticated and, on the accepting
 * side, the other's first message has arrived: only then is the other side known to listen. */
struct session {
    struct peer *peer;
    uint64_t id;
    bool relayed;          /* it has no bulk connection */
    bool relay_refused;    /* something that the other agent wanted to have passed on; logged once */
    bool ours;             /* we connect, */
    char at[ADDRESS_ITEM]; /* to this address */
    struct channel *control, *bulk;
    uint64_t deadline_ms; /* to be up */
    uint64_t heard_ms;    /* last sign of life */
    uint64_t beat_ms;     /* last heartbeat sent */
    /* A message whose parts are coming in. */
    struct wire_part first;
    uint8_t *assembly;
    uint32_t assembled;
};

#define PEER_TROUBLE 192

struct peer {
    struct peers *peers;
    struct node_info node;
    bool wanted;
    bool stale;              /* new address, or half a message was sent: the next tick ends the session */
    struct session *up;      /* NULL: down */
    struct session *making;  /* may exist beside one that is up, to replace it */
    uint64_t via;            /* agent that relays; 0: none */
    bool copies;             /* only a direct session will do */
    bool relay_failed;       /* in the last attempt, so that the next one is direct */
    uint64_t relay_until_ms; /* until then, the relay is waited for: for its session with us, or with the peer */
    uint64_t relay_back_ms;  /* not before that, a direct session that is not needed is replaced by a relayed one */
    uint64_t connect_at_ms;  /* not before */
    uint32_t backoff_ms;
    struct address_list list; /* its addresses, */
    struct peer_addresses addresses;
    struct channel *check; /* of one of them, under way; NULL: none */
    char check_at[ADDRESS_ITEM];
    uint64_t check_at_ms, check_deadline_ms;
    bool check_broke;           /* the last check did; it counts only if the next one does, too */
    uint32_t pushing;           /* chunks in flight to it */
    uint32_t transfer_count;    /* transfers and measurements that have not had their last callback */
    uint64_t progress_ms;       /* when a transfer with it last made progress */
    char trouble[PEER_TROUBLE]; /* why the last attempt to make a session failed; "" */
    struct peer *next;          /* in peers->leaving */
};

struct peers {
    struct peers_setup setup;
    struct node_info self;
    struct auth_self auth;
    struct link *link;
    struct loop_timer *tick;
    uint64_t tick_ms, ticked_ms;
    struct peer **list;
    size_t count, cap;
    struct peer *leaving; /* not in list any more, freed once their transfers have ended */
    tck_status_t (*relayed)(struct peer *from, const void *data, size_t len); /* takes a WIRE_RELAY */
    struct channel *strangers;
    size_t stranger_count, refused_count;
    uint64_t complain_from_ms; /* the window of the log lines about strangers */
    unsigned complaints;
    struct transfer *transfers; /* oldest first */
    struct transfer **transfers_end;
    struct crc_job *jobs;
    struct measure *measuring; /* of this agent: how fast it sends; NULL: none */
    struct measure *measured;  /* of another one, which sends to this one; the same */
    uint64_t last_token;
    bool ended_any; /* a transfer may be ready for its last callback */
};

/* ---- peer_list.c ---- */

/* Adds it, not wanted yet. NULL: no memory. */
struct peer *peers_add(struct peers *peers, const struct node_info *node);
/* Of another node_info of the same agent. What is known of its addresses is forgotten if they have changed. */
void peer_set_node(struct peer *peer, const struct node_info *node);
/* How long this agent waits for the other one to connect. */
uint32_t peer_yield_ms(const struct peer *peer);
/* Which of its addresses this is (the port does not count), or ADDRESS_NONE. */
uint32_t peer_number_of(const struct peer *peer, const char *at);

/* True if its session has to be direct. */
bool peer_wants_direct(const struct peer *peer);

/* ---- peer_send.c ---- */

/* Sends in parts. TCK_ERR_UNREACHABLE if the peer is not up. */
must_check tck_status_t session_send(struct peer *peer, enum wire_kind kind, uint16_t type, const void *data,
                                     size_t len);
void session_beat(struct peer *peer, uint64_t now_ms);
/* An empty heartbeat, in a relayed session that is not up yet: the other agent comes up, and answers. */
must_check tck_status_t session_greet(const struct session *session);
/* Over the connection, or through the agent that relays it. */
must_check tck_status_t channel_send(const struct channel *channel, const void *data, size_t len);
/* True if the session is over through which this channel is relayed. */
bool channel_is_cut(const struct channel *channel);
/* Lets the other end of a relayed channel know that it has ended. */
void channel_end(const struct channel *channel);

/* ---- peer_pending.c ---- */

/* The link's callback; ctx is the peers. */
void channel_accepted(void *ctx, struct link_conn *conn);
uint64_t peers_random(void); /* jitters what would otherwise happen everywhere at once, and names sessions */
/* Connects to an address of the peer and begins the handshake. NULL: it failed. */
struct channel *channel_open(struct peer *peer, const char *at, enum wire_role role, uint64_t session,
                             struct error *err);
/* The same through another agent, which is up and not relayed itself. */
struct channel *channel_open_relayed(struct peer *peer, const struct peer *relay, uint64_t session, struct error *err);
/* What another agent begins through this one becomes a stranger. NULL: no memory. */
struct channel *channel_accept_relayed(const struct peer *relay, uint64_t far, uint64_t tunnel);
void channel_free(struct channel *channel); /* closes its connection */
/* Removes the channel from the strangers after its handshake. */
void channel_introduced(struct peers *peers, struct channel *channel);
void channel_drop_stranger(struct channel *channel);
void strangers_expire(struct peers *peers, uint64_t now_ms);
void strangers_close(struct peers *peers);
/* Limits log lines about strangers, since anyone who reaches the port can cause them. False: too many recently. */
bool peers_may_complain(struct peers *peers);
/* The session that is up and whose bulk connection this is, or NULL. */
struct session *session_of_bulk(const struct link_conn *conn);

/* ---- peer_relay.c ---- */

/* Passes on what this peer sends to another agent. If that cannot be done, the peer learns that it has ended. */
void relay_pass_on(struct peer *from, const struct wire_relay *m);
/* A message came through this peer that belongs to no channel: its sender learns that its channel has ended. */
void relay_refuse(struct peer *relay, const struct wire_relay *m);
/* The channel at this end that a message belongs to, a new one if it begins one. NULL: there is none. */
struct channel *relay_channel(const struct peer *relay, const struct wire_relay *m);

/* ---- peer_check.c ---- */

/* How long one of its addresses is tried. */
uint32_t peer_try_ms(const struct peer *peer);
/* What a session or an attempt to make one has shown. Logged if it is news and the peer has several addresses. */
/* True: it is tried again soon. */
bool peer_address_refused(struct peer *peer, const char *at);
void peer_address_failed(struct peer *peer, const char *at, const char *why);
void peer_address_answered(struct peer *peer, const char *at);
/* A session has begun: the first check follows after a random time, since many sessions may begin at once. */
void check_plan(struct peer *peer, uint64_t now_ms);
/* Begins and ends checks of the addresses that are not in use. */
void check_tick(struct peer *peer, uint64_t now_ms);
/* A message came on a check's connection, or the connection broke: ends the check. */
void check_message(struct channel *channel, const void *data, size_t len);
void check_broke(struct channel *channel, const char *why);
void check_stop(struct peer *peer);

/* ---- peer_measure.c ---- */

/* WIRE_MEASURE, WIRE_MEASURED or WIRE_MEASURE_END, of a direct session. */
must_check tck_status_t measure_handle_message(struct peer *peer, enum wire_kind kind, const void *data, size_t len);
/* Whether this chunk was sent for a measurement; then the two below take it, as those of transfers. */
bool measure_owns_chunk(const struct peers *peers, const void *header, size_t header_len);
void *measure_chunk(struct peers *peers, const struct link_conn *conn, const void *header, size_t header_len,
                    size_t len);
void measure_chunk_done(struct peers *peers, const void *header, size_t header_len, bool ok);
/* Fails those with this peer. */
void measures_fail(const struct peer *peer, tck_status_t code, const char *why);
/* Runs the last callback of those that have ended, outside of any call. */
void measures_finish(struct peers *peers);
/* Ends those that take too long. Returns a peer whose session has to end, since nothing else ends what is in flight, or
 * NULL. */
struct peer *measures_expire(const struct peers *peers, uint64_t now_ms);

/* ---- peer_fragments.c ---- */

/* Passes on the message that this part completes. Its callbacks may end the session, which must not be touched
 * afterwards unless it is still the peer's. */
must_check tck_status_t session_handle_fragment(struct session *session, const struct wire_part *part);

/* ---- peer_session.c ---- */

/* The link's callbacks; ctx is the peers. */
void session_message(void *ctx, struct link_conn *conn, const void *data, size_t len);
void session_conn_down(void *ctx, struct link_conn *conn, const char *why);
/* A WIRE_RELAY of this peer, for another agent or for this one. */
must_check tck_status_t session_relayed(struct peer *from, const void *data, size_t len);

void session_connect(struct peer *peer); /* begins one; a failure shows as a later connect_at_ms */
/* The same beside one that is up, to replace it. */
void session_move(struct peer *peer, uint32_t number);
/* When a session that is direct, but need not be, is replaced by a relayed one. */
void session_plan_move_back(struct peer *peer);
/* Begins a relayed one beside one that is direct only because the other agent could not be reached by its relay. */
void session_move_back(struct peer *peer, uint64_t now_ms);
/* The peer has not answered in time; ends the session. */
void session_silent(struct session *session, tck_status_t code, const char *why);
/* Closes and frees it. If it is the peer's session that is up, calls down (unless quiet) and fails transfers with code.
 */
void session_end(struct session *session, tck_status_t code, const char *why, bool quiet);

/* ---- peer_transfer_data.c ---- */

/* The link's callbacks; ctx is the peers. */
void *transfer_chunk(void *ctx, struct link_conn *conn, const void *header, size_t header_len, size_t len);
void transfer_chunk_done(void *ctx, struct link_conn *conn, const void *header, size_t header_len, bool ok);
/* Waits for checks that still read buffers. */
void transfers_join(struct peers *peers);

/* ---- peer_transfer_protocol.c ---- */

/* A message of kind WIRE_OFFER or above. TCK_ERR_PROTO ends the session. */
must_check tck_status_t transfer_handle_message(struct peer *peer, enum wire_kind kind, const void *data, size_t len);

/* ---- peer_transfer_life.c ---- */

/* Fails all transfers with this peer. */
void transfers_fail(struct peer *peer, tck_status_t code, const char *why);
/* Runs the last callback of transfers that have ended, outside of any call. False if there were none. */
bool transfers_finish(struct peers *peers);

/* ---- peer_transfer_late.c ---- */

/* Gives up transfers that make no progress. */
void transfers_expire(struct peers *peers, uint64_t now_ms);

#endif
