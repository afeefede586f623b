/* SPDX-License-Identifier: Apache-2.0
 * See lending.h. */
#include "agent/replication/lending.h"

#include "base/same_chunks.h"
#include "tiers/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t have_bytes(const struct lending *lending)
{
    return bits_bytes(chunk_count(lending->item.image_bytes));
}

void lending_begin(struct lending *lending, struct peers *peers, const struct tier_item *item)
{
    *lending = (struct lending){.peers = peers, .item = *item};
    lending->have = calloc(have_bytes(lending), 1);
}

void lending_free(struct lending *lending)
{
    free(lending->have);
    *lending = (struct lending){0};
}

void lending_digests(struct lending *lending, uint32_t *digests, struct hash128 root)
{
    if (lending->have == NULL || !hash128_is(digest_root(digests, lending->item.image_bytes), root)) {
        return;
    }
    lending->digests = digests;
    lending->root = root;
    if (lending->count > 0) {
        peers_arriving_digests(lending->peers, lending->item.image, digests, root);
    }
}

void lending_chunk(struct lending *lending, uint32_t chunk, uint32_t crc)
{
    if (lending->have == NULL || lending->digests == NULL || lending->digests[chunk] != crc) {
        return;
    }
    bit_set(lending->have, chunk);
    if (lending->count > 0) {
        peers_arriving_chunk(lending->peers, lending->item.image, chunk);
    }
}

void lending_forget(struct lending *lending)
{
    if (lending->have != NULL) {
        memset(lending->have, 0, have_bytes(lending));
    }
}

bool lending_lend(struct lending *lending, struct tier_item *out)
{
    if (lending->have == NULL) {
        return false;
    }
    *out = (struct tier_item){.version = lending->item.version,
                              .shard = lending->item.shard,
                              .image_bytes = lending->item.image_bytes,
                              .image = lending->item.image,
                              .crcs = lending->digests,
                              .root = lending->root,
                              .here = lending->have};
    lending->count++;
    return true;
}

bool lending_returned(struct lending *lending, const uint8_t *image)
{
    if (lending->count == 0 || lending->item.image != image) {
        return false;
    }
    lending->count--;
    return true;
}

/* Those that have got everything already are not concerned. */
void lending_end(const struct lending *lending, const char *node, const char *why)
{
    char text[ERROR_TEXT_BYTES];
    if (lending->count > 0) {
        snprintf(text, sizeof(text), "node %s does not get it: %.300s", node, why);
        peers_arriving_failed(lending->peers, lending->item.image, TCK_ERR_NOENT, text);
    }
}
