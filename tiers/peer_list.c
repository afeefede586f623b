/* SPDX-License-Identifier: Apache-2.0
 * The list of peers. */
#include "tiers/peer_internal.h"

#include <stdlib.h>

struct peer *peers_find(const struct peers *peers, uint64_t agent_id)
{
    for (size_t i = 0; i < peers->count; i++) {
        if (peers->list[i]->node.agent_id == agent_id) {
            return peers->list[i];
        }
    }
    return NULL;
}

struct peer *peers_add(struct peers *peers, const struct node_info *node)
{
    struct peer *peer;

    if (peers->count == peers->cap) {
        size_t cap = peers->cap == 0 ? 16 : peers->cap * 2;
        struct peer **list = reallocarray(peers->list, cap, sizeof(struct peer *));

        if (list == NULL) {
            return NULL;
        }
        peers->list = list;
        peers->cap = cap;
    }
    peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return NULL;
    }
    peer->peers = peers;
    peer->node = *node;
    peer->backoff_ms = PEER_BACKOFF_MIN_MS;
    peers->list[peers->count++] = peer;
    return peer;
}
