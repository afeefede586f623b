/* SPDX-License-Identifier: Apache-2.0
 * Agents of earlier terms that are not members of the present world: which of them the recovery waits for. An agent
 * that was lost with its machine never answers, so the recovery waits only for agents whose answer can change the
 * plan. */
#include "recovery/outsiders.h"

#include <stdlib.h>

static struct outsider *find_outsider(struct recovery *r, uint64_t agent_id)
{
    uint32_t i = id_map_find(&r->outsider_of, agent_id);
    return i != ID_MAP_NONE ? &r->outsiders[i] : NULL;
}

/* NULL if out of memory. */
static struct outsider *add_outsider(struct recovery *r, uint64_t agent_id)
{
    if (r->outsider_count == r->outsider_cap) {
        uint32_t cap = r->outsider_cap == 0 ? 16 : 2 * r->outsider_cap;
        struct outsider *grown = realloc(r->outsiders, cap * sizeof(*grown));
        if (grown == NULL) {
            return NULL;
        }
        r->outsiders = grown;
        r->outsider_cap = cap;
    }
    if (!id_map_put(&r->outsider_of, agent_id, r->outsider_count)) {
        return NULL;
    }
    struct outsider *added = &r->outsiders[r->outsider_count++];
    *added = (struct outsider){.agent_id = agent_id};
    return added;
}

void outsiders_add(struct recovery *r, const struct known_node *known)
{
    if (world_find_agent(r->setup.world, known->node.agent_id) >= 0) {
        return;
    }
    struct outsider *outsider = find_outsider(r, known->node.agent_id);
    if (outsider == NULL) {
        outsider = add_outsider(r, known->node.agent_id);
    }
    if (outsider != NULL && known->term > outsider->term) {
        outsider->term = known->term;
    }
}

static bool has_answered(const struct recovery *r, uint64_t agent_id)
{
    return id_map_find(&r->inventory_of, agent_id) != ID_MAP_NONE;
}

/* Counts those that took part in this term or a later one, because only they can have what it saved. */
static uint32_t count_silent_since(const struct recovery *r, uint64_t term)
{
    uint32_t silent = 0;
    for (uint32_t i = 0; i < r->outsider_count; i++) {
        silent += r->outsiders[i].term >= term && !has_answered(r, r->outsiders[i].agent_id);
    }
    return silent;
}

/* Nodes that have a copy of each shard, of the shard that has the fewest. */
static uint32_t copies_of_each(const struct placement *placement)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < placement->shard_count; i++) {
        const struct shard_placement *s = &placement->shards[i];
        uint32_t copies = s->owner_count + s->holder_count;
        least = copies < least ? copies : least;
    }
    return least;
}

/* An agent that has not answered may have this version, which is newer than the chosen one. It may be the only one: a
 * base may have been lost before it was protected. */
static bool may_be_outside(const struct recovery *r, struct version known, struct version chosen)
{
    const struct plan_input *input = &r->input;
    bool newer = known.step == 0 ? known.term > chosen.term : version_cmp(known, chosen) > 0;
    bool counts = input->step == TCK_NEWEST && version_none(input->only) && known.term > input->storage.forgotten;
    return newer && counts && !version_is(known, input->storage.give_up) && count_silent_since(r, known.term) > 0;
}

/* A version that was restored before, or whose commit is noted. */
static bool has_newer_outside(const struct recovery *r, struct version chosen)
{
    for (uint32_t i = 0; i < r->input.inventory_count; i++) {
        if (may_be_outside(r, r->inventories[i].base, chosen)) {
            return true;
        }
    }
    return may_be_outside(r, r->input.storage.noted, chosen);
}

bool outsiders_may_know_better(const struct recovery *r, const struct plan *plan)
{
    struct version chosen = version_none(plan->version) ? plan->reshard : plan->version;
    if (version_none(chosen)) {
        return count_silent_since(r, 0) > 0;
    }
    if (has_newer_outside(r, chosen)) {
        return true;
    }
    /* So many nodes had each shard of a committed version. If fewer nodes are silent, they cannot be the reason that it
     * is incomplete. */
    uint32_t needed = copies_of_each(r->setup.placement);
    for (uint32_t i = 0; i < plan->passed_count; i++) {
        const struct passed_over *passed = &plan->passed[i];
        if (passed->missing > 0 && count_silent_since(r, passed->version.term) >= needed) {
            return true;
        }
    }
    return false;
}
