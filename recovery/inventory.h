/* SPDX-License-Identifier: Apache-2.0
 * What an agent really holds, read from its slots' headers; and the form in which it travels. */
#ifndef TCK_RECOVERY_INVENTORY_H
#define TCK_RECOVERY_INVENTORY_H

#include "base/world.h"

struct holding {
    struct hash128 shard;
    struct hash128 layout;
    struct version version;
    struct hash128 root;
    uint64_t image_bytes;
    bool committed; /* the holder had learned the commit */
};

struct inventory {
    struct node_info node;
    struct version
        watermark;        /* newest commit this agent knew, over all terms; a hint, and what "lost" is measured by */
    uint64_t newest_step; /* newest step any of its trainers had begun to save */
    uint32_t count;
    struct holding *holdings; /* owned; sorted by shard, then version */
};

void inventory_free(struct inventory *inventory);
/* Brings holdings into their order. */
void inventory_sort(struct inventory *inventory);
void inventory_encode(const struct inventory *inventory, struct writer *w);
must_check tck_status_t inventory_decode(const void *data, size_t len, struct inventory *out, struct error *err);

#endif
