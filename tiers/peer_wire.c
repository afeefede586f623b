/* SPDX-License-Identifier: Apache-2.0
 * Encoders and decoders of the messages between agents, side by side. */
#include "tiers/peer_wire.h"

#include <stdlib.h>
#include <string.h>

static void expect(struct reader *r, bool condition)
{
    r->failed = r->failed || !condition;
}

uint8_t wire_kind_of(const void *data, size_t len)
{
    struct reader r = reader_of(data, len);

    return read_u8(&r);
}

/* ---- the handshake ---- */

static void write_node(struct writer *w, const struct node_info *node)
{
    write_u64(w, node->agent_id);
    write_str(w, node->name);
    write_str(w, node->domain);
    write_str(w, node->address);
}

static void read_node(struct reader *r, struct node_info *node)
{
    node->agent_id = read_u64(r);
    read_str(r, node->name, sizeof(node->name));
    read_str(r, node->domain, sizeof(node->domain));
    read_str(r, node->address, sizeof(node->address));
    expect(r, name_is_safe(node->name));
}

void wire_hello_encode(const struct wire_hello *in, struct writer *w)
{
    write_u8(w, WIRE_HELLO);
    write_u32(w, WIRE_MAGIC);
    write_u16(w, in->format);
    write_str(w, in->job);
    write_u8(w, (uint8_t)in->role);
    write_u64(w, in->session);
    write_node(w, &in->node);
    write_bytes(w, in->nonce, sizeof(in->nonce));
}

tck_status_t wire_hello_decode(const void *data, size_t len, struct wire_hello *out)
{
    struct wire_hello hello = {0};
    struct reader r = reader_of(data, len);

    expect(&r, read_u8(&r) == WIRE_HELLO);
    expect(&r, read_u32(&r) == WIRE_MAGIC);
    hello.format = read_u16(&r);
    read_str(&r, hello.job, sizeof(hello.job));
    if (!r.failed && hello.format != PEER_FORMAT) {
        *out = hello;
        return TCK_OK;
    }
    hello.role = read_u8(&r);
    hello.session = read_u64(&r);
    read_node(&r, &hello.node);
    read_into(&r, hello.nonce, sizeof(hello.nonce));
    expect(&r, hello.role == WIRE_CONTROL || hello.role == WIRE_BULK);
    if (reader_done(&r)) {
        *out = hello;
    }
    return reader_status(&r);
}

void wire_challenge_encode(const struct wire_challenge *in, struct writer *w)
{
    write_u8(w, WIRE_CHALLENGE);
    write_node(w, &in->node);
    write_bytes(w, in->nonce, sizeof(in->nonce));
}

tck_status_t wire_challenge_decode(const void *data, size_t len, struct wire_challenge *out)
{
    struct wire_challenge challenge = {0};
    struct reader r = reader_of(data, len);

    expect(&r, read_u8(&r) == WIRE_CHALLENGE);
    read_node(&r, &challenge.node);
    read_into(&r, challenge.nonce, sizeof(challenge.nonce));
    read_into(&r, challenge.mac, sizeof(challenge.mac));
    if (reader_done(&r)) {
        *out = challenge;
    }
    return reader_status(&r);
}

void wire_proof_encode(const uint8_t mac[MAC_BYTES], struct writer *w)
{
    write_u8(w, WIRE_PROOF);
    write_bytes(w, mac, MAC_BYTES);
}

tck_status_t wire_proof_decode(const void *data, size_t len, uint8_t out[MAC_BYTES])
{
    struct reader r = reader_of(data, len);

    expect(&r, read_u8(&r) == WIRE_PROOF);
    read_into(&r, out, MAC_BYTES);
    return reader_status(&r);
}

void wire_welcome_encode(struct writer *w)
{
    write_u8(w, WIRE_WELCOME);
}

tck_status_t wire_welcome_decode(const void *data, size_t len)
{
    struct reader r = reader_of(data, len);

    expect(&r, read_u8(&r) == WIRE_WELCOME);
    return reader_status(&r);
}

SCHEMA_CODEC(wire_mismatch, PEER_MISMATCH_FIELDS, schema_any)

/* ---- parts ---- */

void wire_part_encode(const struct wire_part *in, struct writer *w)
{
    write_u8(w, (uint8_t)in->kind);
    write_u16(w, in->type);
    write_u32(w, in->total);
    write_u32(w, in->offset);
    write_bytes(w, in->data, in->len);
}

tck_status_t wire_part_decode(const void *data, size_t len, struct wire_part *out)
{
    struct wire_part part;
    struct reader r = reader_of(data, len);
    uint8_t kind = read_u8(&r);

    part.kind = kind;
    part.type = read_u16(&r);
    part.total = read_u32(&r);
    part.offset = read_u32(&r);
    part.len = reader_left(&r);
    part.data = read_bytes(&r, part.len);
    expect(&r, kind >= WIRE_BEAT && kind <= WIRE_CANCEL);
    expect(&r, part.total <= PEER_MESSAGE_MAX && part.offset <= part.total);
    expect(&r, part.len <= part.total - part.offset);
    expect(&r, part.len > 0 || part.total == 0);
    if (r.failed) {
        return TCK_ERR_PROTO;
    }
    *out = part;
    return TCK_OK;
}

/* ---- transfers ---- */

void wire_copy_encode(const struct wire_copy *in, const uint32_t *crcs, struct writer *w)
{
    write_u64(w, in->to_token);
    write_u64(w, in->from_token);
    write_u64(w, in->offer.term);
    write_version(w, in->offer.version);
    write_hash128(w, in->offer.shard);
    write_u64(w, in->offer.image_bytes);
    write_hash128(w, in->offer.root);
    for (uint32_t i = 0; crcs != NULL && i < chunk_count(in->offer.image_bytes); i++) {
        write_u32(w, crcs[i]);
    }
}

tck_status_t wire_copy_decode(const void *data, size_t len, bool with_crcs, struct wire_copy *out)
{
    struct wire_copy copy = {0};
    struct reader r = reader_of(data, len);

    copy.to_token = read_u64(&r);
    copy.from_token = read_u64(&r);
    copy.offer.term = read_u64(&r);
    copy.offer.version = read_version(&r);
    copy.offer.shard = read_hash128(&r);
    copy.offer.image_bytes = read_u64(&r);
    copy.offer.root = read_hash128(&r);
    expect(&r, copy.offer.image_bytes > 0 && copy.offer.image_bytes <= WIRE_IMAGE_MAX);
    if (with_crcs && !r.failed) {
        copy.crcs = read_bytes(&r, chunk_count(copy.offer.image_bytes) * sizeof(uint32_t));
    }
    if (reader_done(&r)) {
        *out = copy;
    }
    return reader_status(&r);
}

uint32_t *wire_copy_crcs(const struct wire_copy *copy)
{
    uint32_t count = chunk_count(copy->offer.image_bytes);
    struct reader r = reader_of(copy->crcs, count * sizeof(uint32_t));
    uint32_t *crcs = calloc(count, sizeof(*crcs));

    for (uint32_t i = 0; crcs != NULL && i < count; i++) {
        crcs[i] = read_u32(&r);
    }
    return crcs;
}

SCHEMA_CODEC(wire_grant, PEER_GRANT_FIELDS, schema_any)
SCHEMA_CODEC(wire_ack, PEER_ACK_FIELDS, schema_any)

void wire_end_encode(const struct wire_end *in, struct writer *w)
{
    write_u64(w, in->to_token);
    write_u32(w, (uint32_t)-in->code);
    write_str(w, in->text);
}

tck_status_t wire_end_decode(const void *data, size_t len, struct wire_end *out)
{
    struct reader r = reader_of(data, len);
    uint32_t code;

    out->to_token = read_u64(&r);
    code = read_u32(&r);
    read_str(&r, out->text, sizeof(out->text));
    expect(&r, code > 0 && code <= -(int)TCK_ERR_INTERNAL);
    if (r.failed) {
        return TCK_ERR_PROTO;
    }
    out->code = (tck_status_t) - (int)code;
    return reader_status(&r);
}

void wire_chunk_encode(const struct wire_chunk *in, uint8_t out[WIRE_CHUNK_BYTES])
{
    for (unsigned i = 0; i < sizeof(in->to_token); i++) {
        out[i] = (uint8_t)(in->to_token >> (8 * i));
    }
    for (unsigned i = 0; i < sizeof(in->index); i++) {
        out[sizeof(in->to_token) + i] = (uint8_t)(in->index >> (8 * i));
    }
}

tck_status_t wire_chunk_decode(const void *data, size_t len, struct wire_chunk *out)
{
    struct reader r = reader_of(data, len);

    out->to_token = read_u64(&r);
    out->index = read_u32(&r);
    return reader_status(&r);
}
