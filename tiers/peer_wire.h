/* SPDX-License-Identifier: Apache-2.0
 * The messages between agents over a link (docs/formats.md). The decoders accept any bytes and return TCK_ERR_PROTO for
 * those that no encoder produces.
 *
 * The handshake's messages are sent as they are. Everything after it is sent in parts: a message of a session, split so
 * that each part fits one link message. */
#ifndef TCK_TIERS_PEER_WIRE_H
#define TCK_TIERS_PEER_WIRE_H

#include "base/schema.h"
#include "tiers/peer.h"

#define PEER_FORMAT        16
#define WIRE_MAGIC         UINT32_C(0x70636b74)    /* "tkcp" */
#define WIRE_PART_BYTES    (LINK_MESSAGE_MAX - 64) /* of payload in one part */
#define WIRE_IMAGE_MAX     (UINT64_C(1) << 45)     /* so that its CRC table fits PEER_MESSAGE_MAX */
#define WIRE_HANDSHAKE_MAX 512

enum wire_kind {
    /* the handshake */
    WIRE_HELLO = 1, /* struct wire_hello */
    WIRE_CHALLENGE, /* struct wire_challenge */
    WIRE_PROOF,     /* struct wire_proof */
    WIRE_WELCOME,   /* nothing */
    WIRE_MISMATCH,  /* struct wire_mismatch: sent instead of CHALLENGE if job or format differ */
    /* of a session, each in parts: struct wire_part */
    WIRE_BEAT = 16, /* bytes: the agent's payload of a heartbeat, or none */
    WIRE_MESSAGE,   /* bytes: the agent's payload, by type */
    WIRE_OFFER,     /* struct wire_copy with CRCs: offers to send */
    WIRE_PULL,      /* struct wire_copy: asks for a copy */
    WIRE_READY,     /* struct wire_copy with CRCs: answers a pull */
    WIRE_GRANT,     /* struct wire_grant: answers offer and ready; chunks may be sent */
    WIRE_ACK,       /* struct wire_ack: the receiver has it, verified */
    WIRE_REFUSE,    /* struct wire_end: the receiver has given it up */
    WIRE_CANCEL,    /* struct wire_end: the sender has given it up */
    WIRE_COPIED,    /* struct wire_copied: how far the receiver has come with what it copies from the base */
    WIRE_WANT,      /* struct wire_chunk: this chunk is damaged in the receiver's base, so it has to be sent, too */
    WIRE_RELAY,     /* struct wire_relay: for another agent, or from one */
    /* of a direct session, to measure how fast it is: peer_measure.c */
    WIRE_MEASURE,     /* struct wire_measure: asks to receive what is sent for that */
    WIRE_MEASURED,    /* struct wire_measure: it can be sent; then, how much has arrived */
    WIRE_MEASURE_END, /* struct wire_end: it is over, was refused or given up */
};

enum wire_role { WIRE_CONTROL = 1, WIRE_BULK };

/* ---- what each message holds (base/schema.h) ----------------------------------------------------------------- */

/* The beginning of HELLO in every format, so that an error can name both sides' formats and jobs. */
#define PEER_HELLO_HEAD_FIELDS(F) \
    F(constant, u8, WIRE_HELLO)   \
    F(constant, u32, WIRE_MAGIC)  \
    F(u16, format)                \
    F(str, job, CONFIG_NAME)
SCHEMA_STRUCT(wire_hello_head, PEER_HELLO_HEAD_FIELDS)
SCHEMA_DECLARE_PART(wire_hello_head, PEER_HELLO_HEAD_FIELDS)

#define PEER_NODE_FIELDS(F)          \
    F(u64, node.agent_id)            \
    F(str, node.name, CONFIG_NAME)   \
    F(str, node.domain, CONFIG_NAME) \
    F(str, node.address, ADDRESS_TEXT)

struct wire_hello {
    uint16_t format;
    char job[CONFIG_NAME];
    enum wire_role role;
    uint64_t session; /* the same for the control and bulk connection of one session */
    struct node_info node;
    uint8_t nonce[NONCE_BYTES];
};
#define PEER_HELLO_FIELDS(F)                       \
    PEER_HELLO_HEAD_FIELDS(F)                      \
    F(choice, enum wire_role, role, WIRE_BULK + 1) \
    F(u64, session)                                \
    PEER_NODE_FIELDS(F)                            \
    F(bytes, nonce, NONCE_BYTES)

struct wire_challenge {
    struct node_info node;
    uint8_t nonce[NONCE_BYTES];
    uint8_t mac[MAC_BYTES]; /* last: it covers the rest */
};
#define PEER_CHALLENGE_FIELDS(F)    \
    F(constant, u8, WIRE_CHALLENGE) \
    PEER_NODE_FIELDS(F)             \
    F(bytes, nonce, NONCE_BYTES)    \
    F(bytes, mac, MAC_BYTES)

#define PEER_PROOF_FIELDS(F)    \
    F(constant, u8, WIRE_PROOF) \
    F(bytes, mac, MAC_BYTES)
SCHEMA_STRUCT(wire_proof, PEER_PROOF_FIELDS)

#define PEER_MISMATCH_FIELDS(F)    \
    F(constant, u8, WIRE_MISMATCH) \
    F(constant, u32, WIRE_MAGIC)   \
    F(u16, format)                 \
    F(str, job, CONFIG_NAME)
SCHEMA_STRUCT(wire_mismatch, PEER_MISMATCH_FIELDS)

#define PEER_PART_FIELDS(F)                               \
    F(choice, enum wire_kind, kind, WIRE_MEASURE_END + 1) \
    F(u16, type)  /* of a WIRE_MESSAGE */                 \
    F(u32, total) /* of the whole payload */              \
    F(u32, offset)                                        \
    F(rest, uint8_t, data, len)
SCHEMA_STRUCT(wire_part, PEER_PART_FIELDS)

/* Every transfer has a token on each side, assigned by that side. */
struct wire_copy {
    uint64_t to_token, from_token; /* to_token 0 in a request */
    struct peer_offer offer;
    uint32_t same_bytes; /* 0, or of a bit per chunk: whether it is the same in offer.base */
    const uint8_t *same;
    size_t crcs_bytes; /* 0, or of chunk_count(image_bytes) u32 */
    const uint8_t *crcs;
};
#define PEER_COPY_FIELDS(F)                 \
    F(u64, to_token)                        \
    F(u64, from_token)                      \
    F(u64, offer.term)                      \
    F(version, offer.version)               \
    F(hash128, offer.shard)                 \
    F(u64, offer.image_bytes)               \
    F(hash128, offer.root)                  \
    F(version, offer.base)                  \
    F(hash128, offer.base_root)             \
    F(view, u32, same_bytes, uint8_t, same) \
    F(rest, uint8_t, crcs, crcs_bytes)

#define PEER_GRANT_FIELDS(F) \
    F(u64, to_token)         \
    F(u64, from_token)       \
    F(bool, has_base) /* what is the same in the base is not to be sent */
SCHEMA_STRUCT(wire_grant, PEER_GRANT_FIELDS)

#define PEER_ACK_FIELDS(F) \
    F(u64, to_token)       \
    F(hash128, root)
SCHEMA_STRUCT(wire_ack, PEER_ACK_FIELDS)

#define PEER_END_FIELDS(F) \
    F(u64, to_token)       \
    F(error, error)
SCHEMA_STRUCT(wire_end, PEER_END_FIELDS)

/* What two agents send each other through a third one: the handshake of a control connection, then parts. */
#define PEER_RELAY_FIELDS(F)                                                \
    F(u64, to)      /* agent_id */                                          \
    F(u64, from)    /* the same */                                          \
    F(u64, session) /* of HELLO: tells one attempt of a pair from others */ \
    F(bool, ended)  /* it is over, or the receiver cannot be reached */     \
    F(rest, uint8_t, data, len)
SCHEMA_STRUCT(wire_relay, PEER_RELAY_FIELDS)

#define PEER_CHUNK_FIELDS(F) \
    F(u64, to_token)         \
    F(u32, index)
SCHEMA_STRUCT(wire_chunk, PEER_CHUNK_FIELDS)

#define PEER_COPIED_FIELDS(F) \
    F(u64, to_token)          \
    F(u64, bytes) /* so far */
SCHEMA_STRUCT(wire_copied, PEER_COPIED_FIELDS)

#define PEER_MEASURE_FIELDS(F) \
    F(u64, to_token)           \
    F(u64, from_token)         \
    F(u64, bytes) /* received so far */
SCHEMA_STRUCT(wire_measure, PEER_MEASURE_FIELDS)

enum { WIRE_CHUNK_BYTES = SCHEMA_LEAST_BYTES(PEER_CHUNK_FIELDS) }; /* of each */

/* M(name, fields, what must hold): struct wire_name with wire_name_encode, wire_name_decode and wire_name_free. */
#define PEER_MESSAGES(M)                                    \
    M(hello, PEER_HELLO_FIELDS, hello_is_valid)             \
    M(challenge, PEER_CHALLENGE_FIELDS, challenge_is_valid) \
    M(proof, PEER_PROOF_FIELDS, schema_any)                 \
    M(mismatch, PEER_MISMATCH_FIELDS, schema_any)           \
    M(part, PEER_PART_FIELDS, part_is_valid)                \
    M(copy, PEER_COPY_FIELDS, copy_is_valid)                \
    M(grant, PEER_GRANT_FIELDS, schema_any)                 \
    M(ack, PEER_ACK_FIELDS, schema_any)                     \
    M(end, PEER_END_FIELDS, schema_any)                     \
    M(relay, PEER_RELAY_FIELDS, schema_any)                 \
    M(chunk, PEER_CHUNK_FIELDS, schema_any)                 \
    M(copied, PEER_COPIED_FIELDS, schema_any)               \
    M(measure, PEER_MEASURE_FIELDS, schema_any)
#define PEER_DECLARE(name, FIELDS, is_valid) SCHEMA_DECLARE(wire_##name)
PEER_MESSAGES(PEER_DECLARE)
#undef PEER_DECLARE

/* WELCOME consists of its kind alone, so it has no struct and no table. */
void wire_welcome_encode(struct writer *w);
must_check tck_status_t wire_welcome_decode(const void *data, size_t len);

/* The first byte; 0 if there is none. */
uint8_t wire_kind_of(const void *data, size_t len);

/* A copy's CRCs, written after wire_copy_encode of a copy without CRCs. */
void wire_crcs_encode(const uint32_t *crcs, uint32_t count, struct writer *w);
/* The CRCs of a decoded copy, or NULL if out of memory; the caller frees them. */
uint32_t *wire_copy_crcs(const struct wire_copy *copy);

#endif
