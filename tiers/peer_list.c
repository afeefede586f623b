/* SPDX-License-Identifier: Apache-2.0
 * The list of peers, by the ids of their agents. */
#include "tiers/peer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The agent's index, or where it would be inserted. Sorted by id, since thousands are looked up when a term forms. */
static size_t position(const struct peers *peers, uint64_t agent_id)
{
    size_t low = 0, high = peers->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (peers->list[middle]->node.agent_id < agent_id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct peer *peers_find(const struct peers *peers, uint64_t agent_id)
{
    size_t at = position(peers, agent_id);
    bool found = at < peers->count && peers->list[at]->node.agent_id == agent_id;

    return found ? peers->list[at] : NULL;
}

uint32_t peer_yield_ms(const struct peer *peer)
{
    if (peer->peers->self.agent_id < peer->node.agent_id) {
        return 0;
    }
    return peer->addresses.count > 1 ? PEER_YIELD_FEW_MS : PEER_YIELD_MS;
}

bool peer_wants_direct(const struct peer *peer)
{
    return peer->via == 0 || peer->copies;
}

bool peer_lacks_direct(const struct peer *peer)
{
    return peer->up != NULL && peer->up->relayed && peer->copies;
}

uint32_t peer_number_of(const struct peer *peer, const char *at)
{
    size_t i = address_list_host(&peer->list, at);

    return i < peer->list.count ? (uint32_t)i : ADDRESS_NONE;
}

void peer_set_node(struct peer *peer, const struct node_info *node)
{
    bool known = peer->list.count > 0 && strcmp(peer->node.address, node->address) == 0;

    peer->node = *node;
    if (known) {
        return;
    }
    if (address_list_read(node->address, &peer->list, NULL) != TCK_OK || peer->list.count == 0) {
        peer->list.count = 1; /* connecting to it fails, and the error then shows the text */
        snprintf(peer->list.of[0], sizeof(peer->list.of[0]), "%.*s", ADDRESS_ITEM - 1, node->address);
    }
    peer->addresses = (struct peer_addresses){.count = (uint32_t)peer->list.count, .in_use = ADDRESS_NONE};
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
    peer_set_node(peer, node);
    peer->backoff_ms = PEER_BACKOFF_MIN_MS;
    size_t at = position(peers, node->agent_id);
    memmove(&peers->list[at + 1], &peers->list[at], (peers->count - at) * sizeof(struct peer *));
    peers->list[at] = peer;
    peers->count++;
    return peer;
}
