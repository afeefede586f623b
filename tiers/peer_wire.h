/* SPDX-License-Identifier: Apache-2.0
 * What agents say to each other over a link (docs/formats.md). The decoders are total: they take any bytes and answer
 * TCK_ERR_PROTO to what no encoder makes.
 *
 * The handshake's messages travel as they are. Everything after it travels in parts: a message of a session, split so
 * that each part fits one link message. */
#ifndef TCK_TIERS_PEER_WIRE_H
#define TCK_TIERS_PEER_WIRE_H

#include "base/schema.h"
#include "tiers/peer.h"

#define PEER_FORMAT        7
#define WIRE_MAGIC         UINT32_C(0x70636b74)    /* "tkcp" */
#define WIRE_PART_BYTES    (LINK_MESSAGE_MAX - 64) /* of payload in one part */
#define WIRE_IMAGE_MAX     (UINT64_C(1) << 45)     /* so that its CRC table fits PEER_MESSAGE_MAX */
#define WIRE_CHUNK_BYTES   12                      /* header of a chunk */
#define WIRE_HANDSHAKE_MAX 512

enum wire_kind {
    /* the handshake */
    WIRE_HELLO = 1,
    WIRE_CHALLENGE,
    WIRE_PROOF,
    WIRE_WELCOME,
    WIRE_MISMATCH,
    /* of a session */
    WIRE_BEAT = 16,
    WIRE_MESSAGE,
    WIRE_OFFER,  /* struct wire_copy with CRCs: may I send? */
    WIRE_PULL,   /* struct wire_copy: please send */
    WIRE_READY,  /* struct wire_copy with CRCs: answers a pull */
    WIRE_GRANT,  /* struct wire_grant: answers offer and ready, chunks may come */
    WIRE_ACK,    /* struct wire_ack: the receiver has it, verified */
    WIRE_REFUSE, /* struct wire_end: the receiver has given it up */
    WIRE_CANCEL, /* struct wire_end: the sender has given it up */
};

enum wire_role { WIRE_CONTROL = 1, WIRE_BULK };

/* Of another format only format and job are decoded, so that both can be named. */
struct wire_hello {
    uint16_t format;
    char job[CONFIG_NAME];
    enum wire_role role;
    uint64_t session; /* the same for the control and bulk connection of one session */
    struct node_info node;
    uint8_t nonce[NONCE_BYTES];
};

struct wire_challenge {
    struct node_info node;
    uint8_t nonce[NONCE_BYTES];
    uint8_t mac[MAC_BYTES]; /* last: it covers the rest */
};

#define PEER_MISMATCH_FIELDS(F)    \
    F(constant, u8, WIRE_MISMATCH) \
    F(constant, u32, WIRE_MAGIC)   \
    F(u16, format)                 \
    F(str, job, CONFIG_NAME)
SCHEMA_STRUCT(wire_mismatch, PEER_MISMATCH_FIELDS)
SCHEMA_DECLARE(wire_mismatch)

struct wire_part {
    enum wire_kind kind;
    uint16_t type;          /* of a WIRE_MESSAGE */
    uint32_t total, offset; /* of the whole payload */
    const uint8_t *data;
    size_t len;
};

/* Every transfer has a token on each side, made by that side. */
struct wire_copy {
    uint64_t to_token, from_token; /* to_token 0 in a request */
    struct peer_offer offer;
    const uint8_t *crcs; /* chunk_count(image_bytes) u32 LE, or NULL */
};

#define PEER_GRANT_FIELDS(F) \
    F(u64, to_token)         \
    F(u64, from_token)
SCHEMA_STRUCT(wire_grant, PEER_GRANT_FIELDS)
SCHEMA_DECLARE(wire_grant)

#define PEER_ACK_FIELDS(F) \
    F(u64, to_token)       \
    F(hash128, root)
SCHEMA_STRUCT(wire_ack, PEER_ACK_FIELDS)
SCHEMA_DECLARE(wire_ack)

struct wire_end {
    uint64_t to_token;
    tck_status_t code;
    char text[ERROR_TEXT_BYTES];
};

struct wire_chunk {
    uint64_t to_token;
    uint32_t index;
};

/* The first byte; 0 if there is none. */
uint8_t wire_kind_of(const void *data, size_t len);

void wire_hello_encode(const struct wire_hello *in, struct writer *w);
void wire_challenge_encode(const struct wire_challenge *in, struct writer *w); /* without the mac: the caller adds it */
void wire_proof_encode(const uint8_t mac[MAC_BYTES], struct writer *w);
void wire_welcome_encode(struct writer *w);
void wire_part_encode(const struct wire_part *in, struct writer *w);
/* crcs in host order, NULL for none; in->crcs is not used. */
void wire_copy_encode(const struct wire_copy *in, const uint32_t *crcs, struct writer *w);
void wire_end_encode(const struct wire_end *in, struct writer *w);
void wire_chunk_encode(const struct wire_chunk *in, uint8_t out[WIRE_CHUNK_BYTES]);

must_check tck_status_t wire_hello_decode(const void *data, size_t len, struct wire_hello *out);
must_check tck_status_t wire_challenge_decode(const void *data, size_t len, struct wire_challenge *out);
must_check tck_status_t wire_proof_decode(const void *data, size_t len, uint8_t out[MAC_BYTES]);
must_check tck_status_t wire_welcome_decode(const void *data, size_t len);
must_check tck_status_t wire_part_decode(const void *data, size_t len, struct wire_part *out);
/* crcs of the result points into data. */
must_check tck_status_t wire_copy_decode(const void *data, size_t len, bool with_crcs, struct wire_copy *out);
must_check tck_status_t wire_end_decode(const void *data, size_t len, struct wire_end *out);
must_check tck_status_t wire_chunk_decode(const void *data, size_t len, struct wire_chunk *out);

/* The decoded table, or NULL if out of memory; the caller frees it. */
uint32_t *wire_copy_crcs(const struct wire_copy *copy);

#endif
