/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a message between agents, the first one choosing which: refused, or the one encoding of what was
 * decoded. The handshake takes them too, on both sides. */
#include "fuzz.h"
#include "tiers/peer_auth.h"

#include <stdlib.h>
#include <string.h>

#define TRY(name, FIELDS, is_valid) FUZZ_CODEC(wire_##name)
PEER_MESSAGES(TRY)
#define TRY_NAME(name, FIELDS, is_valid) try_wire_##name,

/* What those who take parts, the ends of transfers and tables of CRCs rely on. */
static void try_sense(const uint8_t *data, size_t size)
{
    struct wire_part part;
    struct wire_end end;
    struct wire_copy copy;
    struct writer w = writer_new(0);
    if (wire_part_decode(data, size, &part) == TCK_OK) {
        MUST_HOLD(part.total <= PEER_MESSAGE_MAX && part.offset + part.len <= part.total);
    }
    if (wire_end_decode(data, size, &end) == TCK_OK) {
        MUST_HOLD(end.error.code < 0 && strcmp(status_text(end.error.code), status_text(TCK_OK)) != 0);
    }
    if (wire_copy_decode(data, size, &copy) == TCK_OK && copy.crcs_bytes > 0) {
        uint32_t *crcs = wire_copy_crcs(&copy);
        wire_crcs_encode(crcs, chunk_count(copy.offer.image_bytes), &w);
        MUST_HOLD(w.len == copy.crcs_bytes && memcmp(w.data, copy.crcs, w.len) == 0);
        free(crcs);
    }
    writer_free(&w);
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
    static void (*const tries[])(const uint8_t *, size_t) = {PEER_MESSAGES(TRY_NAME) try_auth};
    if (size > 0) {
        tries[data[0] % (sizeof(tries) / sizeof(tries[0]))](data + 1, size - 1);
        try_sense(data + 1, size - 1);
    }
    return 0;
}
