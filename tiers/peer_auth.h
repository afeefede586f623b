/* SPDX-License-Identifier: Apache-2.0
 * The handshake on one connection between two agents, as a state machine without I/O. The one that connected speaks
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
    struct node_info node; /* the other agent; believed only when AUTH_DONE */
    size_t transcript_len;
    uint8_t transcript[2 * WIRE_HANDSHAKE_MAX];
};

/* Begins as the one that connects; out gets the message to send. */
must_check tck_status_t auth_connect(struct auth *auth, const struct auth_self *self, enum wire_role role,
                                     uint64_t session, struct writer *out);
/* Begins as the one that was connected to. */
void auth_accept(struct auth *auth, const struct auth_self *self);
/* Takes the next message; out, empty before, gets the answer if there is one, which is to be sent even when an error is
 * returned: it informs the other side of a different job or format. TCK_ERR_PROTO: not one of ours; TCK_ERR_DENIED:
 * wrong secret, job or format; the text names both. */
must_check tck_status_t auth_take(struct auth *auth, const void *data, size_t len, struct writer *out,
                                  struct error *err);

#endif
