/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a message between agents, the first one choosing which: refused, or the one encoding of what was
 * decoded. The handshake takes them too, on both sides. */
#include "fuzz.h"
#include "tiers/peer_auth.h"

#include <stdlib.h>
#include <string.h>

static void same(struct writer *w, const uint8_t *data, size_t size)
{
    MUST_HOLD(!w->failed && w->len == size && memcmp(w->data, data, size) == 0);
    writer_free(w);
}

static void try_hello(const uint8_t *data, size_t size)
{
    struct wire_hello hello;
    struct writer w = writer_new(0);
    if (wire_hello_decode(data, size, &hello) == TCK_OK && hello.format == PEER_FORMAT) {
        wire_hello_encode(&hello, &w);
        same(&w, data, size);
    }
}

static void try_challenge(const uint8_t *data, size_t size)
{
    struct wire_challenge challenge;
    struct writer w = writer_new(0);
    if (wire_challenge_decode(data, size, &challenge) == TCK_OK) {
        wire_challenge_encode(&challenge, &w);
        write_bytes(&w, challenge.mac, sizeof(challenge.mac));
        same(&w, data, size);
    }
}

static void try_mismatch(const uint8_t *data, size_t size)
{
    struct wire_mismatch mismatch;
    struct writer w = writer_new(0);
    if (wire_mismatch_decode(data, size, &mismatch) == TCK_OK) {
        wire_mismatch_encode(&mismatch, &w);
        same(&w, data, size);
    }
}

static void try_part(const uint8_t *data, size_t size)
{
    struct wire_part part;
    struct writer w = writer_new(0);
    if (wire_part_decode(data, size, &part) == TCK_OK) {
        MUST_HOLD(part.total <= PEER_MESSAGE_MAX && part.offset + part.len <= part.total);
        wire_part_encode(&part, &w);
        same(&w, data, size);
    }
}

static void try_copy(const uint8_t *data, size_t size)
{
    struct wire_copy copy;
    struct writer w = writer_new(0);
    if (wire_copy_decode(data, size, false, &copy) == TCK_OK) {
        wire_copy_encode(&copy, NULL, &w);
        same(&w, data, size);
    }
}

static void try_copy_with_crcs(const uint8_t *data, size_t size)
{
    struct wire_copy copy;
    struct writer w = writer_new(0);
    if (wire_copy_decode(data, size, true, &copy) == TCK_OK) {
        uint32_t *crcs = wire_copy_crcs(&copy);
        wire_copy_encode(&copy, crcs, &w);
        same(&w, data, size);
        free(crcs);
    }
}

static void try_grant(const uint8_t *data, size_t size)
{
    struct wire_grant grant;
    struct writer w = writer_new(0);
    if (wire_grant_decode(data, size, &grant) == TCK_OK) {
        wire_grant_encode(&grant, &w);
        same(&w, data, size);
    }
}

static void try_ack(const uint8_t *data, size_t size)
{
    struct wire_ack ack;
    struct writer w = writer_new(0);
    if (wire_ack_decode(data, size, &ack) == TCK_OK) {
        wire_ack_encode(&ack, &w);
        same(&w, data, size);
    }
}

static void try_end(const uint8_t *data, size_t size)
{
    struct wire_end end;
    struct writer w = writer_new(0);
    if (wire_end_decode(data, size, &end) == TCK_OK) {
        MUST_HOLD(end.code < 0 && strcmp(status_text(end.code), status_text(TCK_OK)) != 0);
        wire_end_encode(&end, &w);
        same(&w, data, size);
    }
}

static void try_chunk(const uint8_t *data, size_t size)
{
    struct wire_chunk chunk;
    if (wire_chunk_decode(data, size, &chunk) == TCK_OK) {
        uint8_t header[WIRE_CHUNK_BYTES];
        wire_chunk_encode(&chunk, header);
        MUST_HOLD(size == sizeof(header) && memcmp(header, data, size) == 0);
    }
}

/* Without the secret no bytes may lead to the end of the handshake. */
static void try_auth(const uint8_t *data, size_t size)
{
    static const struct secret secret = {.bytes = {1}};
    static const struct node_info node = {.name = "n", .agent_id = 1};
    static const struct auth_self self = {.job = "job", .node = &node, .secret = &secret};
    struct auth connector, acceptor;
    struct writer hello = writer_new(0), answer = writer_new(0);
    struct error err;
    auth_accept(&acceptor, &self);
    (void)auth_take(&acceptor, data, size, &answer, &err);
    (void)auth_take(&acceptor, data, size, &answer, &err);
    MUST_HOLD(acceptor.awaits != AUTH_DONE);
    if (auth_connect(&connector, &self, WIRE_BULK, 1, &hello) == TCK_OK) {
        (void)auth_take(&connector, data, size, &answer, &err);
        MUST_HOLD(connector.awaits != AUTH_DONE);
    }
    writer_free(&hello);
    writer_free(&answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const tries[])(const uint8_t *, size_t) = {try_hello, try_challenge,      try_mismatch, try_part,
                                                             try_copy,  try_copy_with_crcs, try_grant,    try_ack,
                                                             try_end,   try_chunk,          try_auth};
    if (size > 0) {
        tries[data[0] % (sizeof(tries) / sizeof(tries[0]))](data + 1, size - 1);
    }
    return 0;
}
