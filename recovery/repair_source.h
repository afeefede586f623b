/* SPDX-License-Identifier: Apache-2.0
 * The places from which a node fetches a copy that it lacks, one after the other. Pure. */
#ifndef TCK_RECOVERY_REPAIR_SOURCE_H
#define TCK_RECOVERY_REPAIR_SOURCE_H

#include "recovery/placement.h"

struct repair_source {
    enum source_kind kind; /* SOURCE_TWIN, SOURCE_PEER, SOURCE_STORAGE */
    uint32_t node;         /* NONE32: storage */
};

/* The place with this number at which a copy of this shard should be, other than on `self`: owners, holders, and
 * finally storage. False after the last. */
bool repair_source_at(const struct placement *placement, uint32_t shard, uint32_t self, uint32_t place,
                      struct repair_source *out);

#endif
