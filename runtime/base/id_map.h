/* SPDX-License-Identifier: Apache-2.0
 * From random 64-bit ids to places in an array: what else would be a scan of the array for each of its items. Ids are
 * never removed one by one. */
#ifndef TCK_BASE_ID_MAP_H
#define TCK_BASE_ID_MAP_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define ID_MAP_NONE UINT32_MAX

struct id_map_entry {
    uint64_t id;
    uint32_t place; /* ID_MAP_NONE: the entry is free */
};

/* Empty if zeroed. */
struct id_map {
    uint32_t count, cap;          /* cap is 0 or a power of two */
    struct id_map_entry *entries; /* owned */
};

/* ID_MAP_NONE if the id is not there. */
uint32_t id_map_find(const struct id_map *map, uint64_t id);
/* Adds the id, or gives it another place. False, and nothing changed: out of memory. */
must_check bool id_map_put(struct id_map *map, uint64_t id, uint32_t place);
/* Empties it. */
void id_map_free(struct id_map *map);

#endif
