/* SPDX-License-Identifier: Apache-2.0
 * What an agent actually holds, read from the headers of its slots, and how it is encoded in messages. */
#ifndef TCK_RECOVERY_INVENTORY_H
#define TCK_RECOVERY_INVENTORY_H

#include "base/world.h"

#define INVENTORY_FORMAT       2
#define INVENTORY_HOLDINGS_MAX (1u << 26)

#define HOLDING_FIELDS(F) \
    F(hash128, shard)     \
    F(hash128, layout)    \
    F(version, version)   \
    F(hash128, root)      \
    F(u64, image_bytes)   \
    F(bool, committed) /* the holder had learned the commit */
SCHEMA_STRUCT(holding, HOLDING_FIELDS)

#define NODE_INVENTORY_FIELDS(F)                                                                                   \
    F(constant, u8, INVENTORY_FORMAT)                                                                              \
    F(part, node_info, node)                                                                                       \
    /* newest commit this agent knew, over all terms; a hint, and what "lost" is measured by */                    \
    F(version, watermark)                                                                                          \
    F(u64, newest_step)                    /* newest step any of its trainers had begun to save */                 \
    F(version, base)                       /* the version chosen last for a restore, as far as this agent knows */ \
    F(u64, base_term)                      /* the term that chose it; 0: not known */                              \
    F(str, passed_over, PASSED_TEXT_BYTES) /* the newer version passed over for it, and why; "": none was */       \
    F(list, holding, holdings, count, INVENTORY_HOLDINGS_MAX) /* owned; sorted by shard, then version */
SCHEMA_STRUCT(inventory, NODE_INVENTORY_FIELDS)
SCHEMA_DECLARE(inventory)

/* Sorts the holdings. */
void inventory_sort(struct inventory *inventory);

#endif
