/* SPDX-License-Identifier: Apache-2.0
 * The messages between agents: the rules that their tables cannot express. */
#include "tiers/peer_wire.h"

#include "base/same_chunks.h"

#include <stdlib.h>

uint8_t wire_kind_of(const void *data, size_t len)
{
    struct reader r = reader_of(data, len);

    return read_u8(&r);
}

/* ---- the handshake ---- */

SCHEMA_SHARED_PART(wire_hello_head, PEER_HELLO_HEAD_FIELDS, schema_any)

static bool hello_is_valid(const struct wire_hello *m)
{
    return m->format == PEER_FORMAT && m->role >= WIRE_CONTROL && name_is_safe(m->node.name);
}

static bool challenge_is_valid(const struct wire_challenge *m)
{
    return name_is_safe(m->node.name);
}

void wire_welcome_encode(struct writer *w)
{
    write_u8(w, WIRE_WELCOME);
}

tck_status_t wire_welcome_decode(const void *data, size_t len)
{
    return len == 1 && wire_kind_of(data, len) == WIRE_WELCOME ? TCK_OK : TCK_ERR_PROTO;
}

/* ---- parts and transfers ---- */

static bool part_is_valid(const struct wire_part *m)
{
    return m->kind >= WIRE_BEAT && m->total <= PEER_MESSAGE_MAX && m->offset <= m->total &&
           m->len <= m->total - m->offset && (m->len > 0 || m->total == 0);
}

static size_t crcs_bytes(const struct wire_copy *m)
{
    return chunk_count(m->offer.image_bytes) * sizeof(uint32_t);
}

/* Only an offer, which has a table, names a base. */
static bool base_is_valid(const struct wire_copy *m)
{
    bool none = version_none(m->offer.base);
    return none ? m->same_bytes == 0
                : m->same_bytes == bits_bytes(chunk_count(m->offer.image_bytes)) && m->crcs_bytes > 0;
}

static bool copy_is_valid(const struct wire_copy *m)
{
    return m->offer.image_bytes > 0 && m->offer.image_bytes <= WIRE_IMAGE_MAX &&
           (m->crcs_bytes == 0 || m->crcs_bytes == crcs_bytes(m)) && base_is_valid(m);
}

void wire_crcs_encode(const uint32_t *crcs, uint32_t count, struct writer *w)
{
    for (uint32_t i = 0; i < count; i++) {
        write_u32(w, crcs[i]);
    }
}

uint32_t *wire_copy_crcs(const struct wire_copy *copy)
{
    uint32_t count = chunk_count(copy->offer.image_bytes);
    struct reader r = reader_of(copy->crcs, copy->crcs_bytes);
    uint32_t *crcs = calloc(count, sizeof(*crcs));

    for (uint32_t i = 0; crcs != NULL && i < count; i++) {
        crcs[i] = read_u32(&r);
    }
    return crcs;
}

#define PEER_CODEC(name, FIELDS, is_valid) SCHEMA_CODEC(wire_##name, FIELDS, is_valid)
PEER_MESSAGES(PEER_CODEC)
