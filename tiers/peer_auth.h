/* SPDX-License-Identifier: Apache-2.0
 * The handshake on one connection between two agents, as a state machine without I/O. The connecting agent sends
 * first: HELLO, CHALLENGE, PROOF, WELCOME. Both MACs cover every byte of HELLO and CHALLENGE: format, job, role,
 * session, both agents and both nonces. */
#ifndef TCK_TIERS_PEER_AUTH_H
#define TCK_TIERS_PEER_AUTH_H

#include "tiers/peer_wire.h"

/* Shared by all handshakes of this agent; must outlive them. */
struct auth_self {
    const char *job;
    const struct node_info *node;
    const struct secret *secret;
};

enum auth_step { AUTH_HELLO, AUTH_CHALLENGE, AUTH_PROOF, AUTH_WELCOME, AUTH_DONE, AUTH_FAILED };

struct auth {
    const struct auth_self *self;
    enum auth_step awaits; /* the next message */
    enum wire_role role;
    uint64_t session;
    struct node_info node; /* the other agent; trusted only once AUTH_DONE */
    size_t transcript_len;
    uint8_t transcript[2 * WIRE_HANDSHAKE_MAX];
};

/* Begins as the connecting agent; out gets the message to send. */
must_check tck_status_t auth_connect(struct auth *auth, const struct auth_self *self, enum wire_role role,
                                     uint64_t session, struct writer *out);
/* Begins as the accepting agent. */
void auth_accept(struct auth *auth, const struct auth_self *self);
/* Takes the next message. out, empty before, gets the answer, if any, which must be sent even when this fails: it tells
 * the other side that job or format differ. TCK_ERR_PROTO: not a valid message; TCK_ERR_DENIED: wrong secret, job or
 * format; the text names both. */
must_check tck_status_t auth_take(struct auth *auth, const void *data, size_t len, struct writer *out,
                                  struct error *err);

#endif
