/* SPDX-License-Identifier: Apache-2.0
 * A hash table with open addressing, at most half full. */
#include "base/id_map.h"

#include <stdlib.h>

#define FIRST_CAP 16

/* Where the id is, or the free entry where it would be. There is always a free one. */
static struct id_map_entry *entry_of(struct id_map_entry *entries, uint32_t cap, uint64_t id)
{
    uint32_t at = (uint32_t)(((id ^ (id >> 32)) * 0x9E3779B97F4A7C15u) >> 32) & (cap - 1);
    while (entries[at].place != ID_MAP_NONE && entries[at].id != id) {
        at = (at + 1) & (cap - 1);
    }
    return &entries[at];
}

static bool grow(struct id_map *map)
{
    uint32_t cap = map->cap == 0 ? FIRST_CAP : 2 * map->cap;
    struct id_map_entry *entries = cap > map->cap ? calloc(cap, sizeof(*entries)) : NULL;
    if (entries == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < cap; i++) {
        entries[i].place = ID_MAP_NONE;
    }
    for (uint32_t i = 0; i < map->cap; i++) {
        if (map->entries[i].place != ID_MAP_NONE) {
            *entry_of(entries, cap, map->entries[i].id) = map->entries[i];
        }
    }
    free(map->entries);
    map->entries = entries;
    map->cap = cap;
    return true;
}

uint32_t id_map_find(const struct id_map *map, uint64_t id)
{
    return map->count == 0 ? ID_MAP_NONE : entry_of(map->entries, map->cap, id)->place;
}

bool id_map_put(struct id_map *map, uint64_t id, uint32_t place)
{
    if (2 * map->count >= map->cap && !grow(map)) {
        return false;
    }
    struct id_map_entry *entry = entry_of(map->entries, map->cap, id);
    map->count += entry->place == ID_MAP_NONE;
    *entry = (struct id_map_entry){.id = id, .place = place};
    return true;
}

void id_map_free(struct id_map *map)
{
    free(map->entries);
    *map = (struct id_map){0};
}
