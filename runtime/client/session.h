/* SPDX-License-Identifier: Apache-2.0
 * One rank's connection to its agent: requests and their answers, the shared status, and reconnecting after the agent
 * restarted.
 *
 * Rule: the socket, the sequence number and the mapped slots belong to the thread that holds session.lock. There are
 * two threads: the trainer's, in a call of tierckpt.h, and the snapshot worker's (snapshot_worker.h). Each holds the
 * lock for a whole exchange: a snapshot from BEGIN to SEAL, a restore, a query, a reconnect. Only the shared status
 * (atomics at an address that never changes) and the two flags may be used without it. Nothing on the trainer's step
 * path takes the lock. A child made by fork must not use the session. */
#ifndef TCK_CLIENT_SESSION_H
#define TCK_CLIENT_SESSION_H

#include "base/ipc.h"
#include "base/message.h"
#include <pthread.h>
#include <stdatomic.h>

struct session {
    struct config config;
    uint32_t rank, world_size;
    pthread_mutex_t lock;
    int fd;   /* -1: no connection */
    bool cut; /* closed by either side; no more requests can be sent */
    uint32_t seq;
    struct shared_status *shared;
    struct rank_hello hello; /* as the agent gave it */
    struct world world;      /* after session_join; kept for reconnecting */
    bool will_ask;           /* will request a given step as soon as it is registered */
    atomic_bool connected;   /* saves may be begun; also means that the agent knows our shards */
    atomic_bool stopping;    /* ends patient waits */
};

/* Connects, starting an agent if needed, and sends HELLO. On failure nothing needs closing. */
must_check tck_status_t session_open(struct session *session, const struct config *config, uint32_t rank,
                                     uint32_t world_size, struct error *err);
void session_close(struct session *session);

/* Call everything below with the lock held, or before there is a second thread. */

#define PATIENT (-1) /* a time-out: as long as the agent lives and its loop turns */

/* Begins a request and returns its sequence number. */
uint32_t session_seq(struct session *session);
/* Sends the payload (taken over) and waits for its answer of that type, owned by the caller. MSG_ERROR and MSG_REFUSED
 * become the error they carry. After a broken connection or a malformed answer the session is disconnected. */
must_check tck_status_t session_ask(struct session *session, enum message_type type, struct writer *payload,
                                    enum message_type answer, int timeout_ms, struct ipc_frame *out, struct error *err);
/* Sends a message that has no answer. */
must_check tck_status_t session_post(struct session *session, enum message_type type, struct writer *payload,
                                     struct error *err);

/* One step of joining a term. */
typedef tck_status_t session_step_fn(void *ctx, struct error *err);
/* Runs the step. An agent that dies meanwhile is restarted by its supervisor with everything that it had kept: for
 * session_wait_ms this tries to reach its successor, sends HELLO and, with joined, also the world (session->world);
 * then it runs the step again, which must be idempotent. Not to be used once the snapshot worker's thread runs. */
must_check tck_status_t session_take_step(struct session *session, bool joined, session_step_fn *step, void *ctx,
                                          struct error *err);

/* Requests a new term; seq is filled in. TCK_ERR_EXIST: another start holds the job, TCK_ERR_DENIED: it has taken it
 * over. */
must_check tck_status_t session_claim_term(struct session *session, const struct msg_claim *claim, uint64_t *term_out,
                                           struct error *err);
/* Sends the world (session->world) to the agent. */
must_check tck_status_t session_join(struct session *session, struct error *err);
/* Sends all shards of the world. out is freed by the caller. */
must_check tck_status_t session_register(struct session *session, struct msg_segments *out, struct error *err);
/* The descriptors of a shard's two files, closed by the caller: the slots, and what ends with their seals. */
must_check tck_status_t session_segment_fds(struct session *session, struct hash128 shard, int fds_out[2],
                                            struct error *err);
/* After the connection was lost: connects to the restarted agent, joins and registers again with the world as it was.
 * Starts no agent: that is the supervisor's part. Only the snapshot worker's thread calls it, once there is one. */
must_check tck_status_t session_return(struct session *session, struct msg_segments *out, struct error *err);
/* True if the connected agent is not the one that formed the world: that one's memory is lost. */
bool session_has_other_agent(const struct session *session);
/* Shuts the connection down; the snapshot worker's thread notices. */
void session_disconnect(struct session *session);

#endif
