/* SPDX-License-Identifier: Apache-2.0
 * Copies of shard images between two agents. One machine serves put and get, on both sides:
 *
 *     put   sender: OFFER   receiver: GRANT   sender: chunks   receiver: (COPIED, WANT) ACK
 *     get   receiver: PULL  sender: READY     receiver: GRANT  sender: chunks  receiver: ACK
 *
 * What is pulled may still be arriving at the sender. Then READY is sent once its digests are known there, and each
 * chunk once it has been checked there; so a copy passes through a row of agents at once. If it does not arrive, the
 * sender ends the transfer.
 *
 * The receiver can end a transfer by REFUSE, the sender by CANCEL. A put that is canceled has ended when the receiver
 * has confirmed that by REFUSE: then it writes into its buffer no longer. OFFER and READY carry the chunk CRC table,
 * which must have the announced root; each chunk is checked against it in the pool while the next ones arrive. An OFFER
 * may name a base. If the receiver has it, its GRANT says so, and the pool copies from there what is the same, and
 * checks it like what is sent. COPIED tells the sender of that, and WANT asks for a chunk that is damaged there. A
 * transfer that has ended gets its last callback only when nothing refers to its buffers any more: no push, no receive,
 * no check.
 *
 * peer_transfer_life.c has their life from begin to last callback, peer_transfer_send.c the outgoing messages,
 * peer_transfer_protocol.c the incoming ones, peer_transfer_data.c the bytes, peer_transfer_pass_on.c copies that are
 * sent while they arrive. */
#ifndef TCK_TIERS_PEER_TRANSFER_H
#define TCK_TIERS_PEER_TRANSFER_H

#include "base/same_chunks.h"
#include "tiers/peer_internal.h"

#define TRANSFERS_MAX   4096 /* with one peer */
#define PUSHES_PER_PEER 4

enum transfer_state {
    ASKED,  /* OFFER, PULL or READY was sent */
    MOVING, /* GRANT was sent or received */
    ENDED,
};

struct transfer {
    struct transfer *next;
    struct peer *peer;
    enum transfer_state state;
    bool sending;
    bool own; /* requested by this agent: ends with done, not with stored or pull_done */
    uint64_t token, remote_token;
    struct peer_offer offer;
    struct tier_item item;
    struct tier_item *result; /* own get: the caller's */
    tier_done_fn *done;
    void *ctx;
    uint32_t count;      /* of chunks */
    uint8_t *todo;       /* one bit per chunk: it is still to be sent, or at the receiver to be copied from the base */
    uint32_t left;       /* bits of it that are set, */
    uint32_t next_chunk; /* none of them below this chunk */
    uint32_t pushed[PUSHES_PER_PEER]; /* the chunks that were sent last, */
    uint32_t pushes, landed;          /* how many were sent, and have ended */
    bool has_base;                    /* what is the same in the base is not sent */
    bool warned;                      /* that a chunk does not match there */
    uint64_t copied;                  /* bytes from the base; at the sender as reported last */
    uint64_t reported_ms;             /* when the receiver last reported them */
    uint32_t copying;                 /* jobs in the pool that copy from the base, of those in `checking` */
    uint32_t verified;                /* chunks checked */
    uint32_t moving;                  /* pushes or receives in flight */
    uint32_t checking;                /* jobs in the pool */
    bool held;                        /* a put's next chunk may not be sent yet */
    bool unready; /* at the sender: READY is sent once the digests of the copy, which still arrives here, are known */
    uint32_t awaited; /* chunks of it that have yet to arrive here */
    bool over;        /* an own get that ends as soon as nothing comes for a moment */
    bool canceled;    /* a put: CANCEL was sent or received, or is to answer GRANT; its receiver ends it with REFUSE */
    bool stalled;     /* a push failed: the other side's reason or the end of the session will follow */
    uint8_t *seen;    /* one bit per chunk received */
    uint64_t progress_ms;
    struct error outcome;
};

/* ---- peer_transfer_life.c ---- */

/* Not in the list yet. NULL: no memory. */
struct transfer *transfer_new(struct peer *peer, const struct peer_offer *offer, bool sending);
void transfer_free(struct transfer *transfer);
/* Adds it to the list: from here on it gets its last callback in any case. */
void transfer_link(struct peers *peers, struct transfer *transfer);
struct transfer *transfer_find(const struct peers *peers, uint64_t token);
/* The live transfer that this peer may refer to by the token, or NULL. */
struct transfer *transfer_find_live(const struct peer *peer, uint64_t token, bool sending);
/* Its name in errors and log lines. */
void transfer_name(const struct transfer *transfer, char out[ERROR_TEXT_BYTES]);
void transfer_note_progress(struct transfer *transfer);
void transfer_succeed(struct transfer *transfer);
/* Ends the transfer; does nothing if it has ended already. */
void transfer_fail(struct transfer *transfer, tck_status_t code, const char *why);
/* Fails it for a local reason, and notifies the other side. */
void transfer_give_up(struct transfer *transfer, tck_status_t code, const char *why);

/* ---- peer_transfer_data.c ---- */

/* Sends as many chunks as the window allows. */
void transfers_pump(struct peer *peer);
/* Begins with as many chunks that are to be copied from the base as are copied at once. */
void transfer_copy_base(struct transfer *transfer);

/* ---- peer_transfer_pass_on.c ---- */

/* A pulled copy: some of its chunks may still be arriving here, and its digests. */
void transfer_await(struct transfer *transfer);
/* Whether nothing of it can be sent before more has arrived here. */
bool transfer_waits_for_source(const struct transfer *transfer);

/* ---- peer_transfer_send.c ---- */

/* Frees what w holds. If the message is lost with its session, the session's end fails the transfer. */
void transfer_send(struct peer *peer, enum wire_kind kind, struct writer *w);
void transfer_send_end(struct peer *peer, enum wire_kind kind, uint64_t to_token, tck_status_t code, const char *text);
void transfer_send_ack(struct peer *peer, uint64_t to_token, struct hash128 root);
void transfer_send_grant(const struct transfer *transfer);
void transfer_send_cancel(const struct transfer *transfer);
void transfer_send_copied(const struct transfer *transfer);
void transfer_send_want(const struct transfer *transfer, uint32_t chunk);
/* OFFER, PULL or READY. */
void transfer_send_copy(const struct transfer *transfer, enum wire_kind kind);

#endif
