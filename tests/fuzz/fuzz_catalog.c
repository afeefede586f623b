/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a value of each kind of the catalog's rows: refused, or the one encoding of what was read. */
#include "fuzz.h"
#include "recovery/catalog_codec.h"
#include <string.h>

static void must_be(struct writer w, const uint8_t *data, size_t size)
{
    MUST_HOLD(!w.failed && w.len == size && memcmp(w.data, data, size) == 0);
    writer_free(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct catalog_version version;
    struct catalog_shard shard;
    struct known_node node;
    struct writer w = writer_new(0);
    if (catalog_version_decode(data, size, &version) == TCK_OK) {
        catalog_version_encode(&version, &w);
        must_be(w, data, size);
    }
    w = writer_new(0);
    if (catalog_shard_decode(data, size, &shard) == TCK_OK) {
        catalog_shard_encode(&shard, &w);
        must_be(w, data, size);
    }
    w = writer_new(0);
    if (catalog_node_decode(data, size, &node) == TCK_OK) {
        catalog_node_encode(&node, &w);
        must_be(w, data, size);
    }
    return 0;
}
