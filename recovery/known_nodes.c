/* SPDX-License-Identifier: Apache-2.0 */
#include "recovery/known_nodes.h"

#include "base/id_map.h"

#include <stdlib.h>
#include <string.h>

static bool map_members(const struct known_nodes_term *term, struct id_map *out)
{
    bool mapped = true;
    for (uint32_t i = 0; mapped && i < term->member_count; i++) {
        mapped = id_map_put(out, term->members[i].agent_id, i);
    }
    return mapped;
}

/* Moves the nodes that must be kept to the front; returns how many they are. */
static size_t needed_first(const struct id_map *members, uint64_t oldest_term, struct known_node *nodes, size_t count)
{
    size_t needed = 0;
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].term >= oldest_term || id_map_find(members, nodes[i].node.agent_id) != ID_MAP_NONE) {
            struct known_node node = nodes[i];
            nodes[i] = nodes[needed];
            nodes[needed++] = node;
        }
    }
    return needed;
}

static int newest_first(const void *a, const void *b)
{
    const struct known_node *x = a, *y = b;
    int by_term = (x->term < y->term) - (x->term > y->term);
    return by_term != 0 ? by_term : strcmp(x->node.name, y->node.name);
}

size_t known_nodes_keep(const struct known_nodes_term *term, struct known_node *nodes, size_t count)
{
    struct id_map members = {0};
    bool superseded = !version_none(term->base) && version_cmp(term->committed, term->base) > 0;
    if (!superseded || !map_members(term, &members)) {
        id_map_free(&members);
        return count;
    }
    size_t needed = needed_first(&members, term->base.term, nodes, count), rest = count - needed;
    id_map_free(&members);
    qsort(nodes + needed, rest, sizeof(*nodes), newest_first);
    return needed + (rest < KNOWN_NODES_KEPT ? rest : KNOWN_NODES_KEPT);
}
