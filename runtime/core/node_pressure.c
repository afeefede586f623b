/* SPDX-License-Identifier: Apache-2.0
 * The order in which slots are given back. */
#include "core/node_pressure.h"

#include "core/node_state.h"

#define SAVING_SLOTS 2 /* the newest committed version, and the version that is being saved */

const char *give_back_text(enum give_back step)
{
    static const char *const texts[] = {[GIVE_BACK_NOTHING] = "nothing",
                                        [GIVE_BACK_UNUSED] = "a slot that this node does not use",
                                        [GIVE_BACK_SPARE] = "a spare slot",
                                        [GIVE_BACK_STORED_COPY] = "another node's copy, which storage has, too",
                                        [GIVE_BACK_LAST_FREE_SLOT] = "a free slot, without which nothing is saved",
                                        [GIVE_BACK_OTHERS_COPY] = "another node's copy",
                                        [GIVE_BACK_OWN_COPY] = "a copy that only storage has now"};
    return (unsigned)step < sizeof(texts) / sizeof(*texts) ? texts[step] : "unknown";
}

static uint32_t without_pages(const struct node *n, uint32_t shard)
{
    uint32_t first = n->first_slot[shard];
    uint32_t count = 0;
    for (uint32_t i = first; i < first + n->setup->shards[shard].slot_count; i++) {
        count += n->slots[i].withheld;
    }
    return count;
}

/* How many of the slots that this node uses. */
static uint32_t given_back(const struct node *n, uint32_t shard)
{
    uint32_t unused = n->setup->shards[shard].slot_count - node_slots_used(n, shard);
    uint32_t without = without_pages(n, shard);
    return without > unused ? without - unused : 0;
}

/* How many slots are left of those that this node needs. One that is used instead of another is none of them. */
static uint32_t slots_left(const struct node *n, uint32_t shard)
{
    return node_slots_needed(n, shard) - given_back(n, shard);
}

static enum give_back step_of_free(const struct node *n, uint32_t shard)
{
    const struct node_shard *s = &n->setup->shards[shard];
    if (s->slot_count - without_pages(n, shard) > node_slots_used(n, shard)) {
        return GIVE_BACK_UNUSED;
    }
    bool spare = s->world_shard == NONE32 || slots_left(n, shard) > SAVING_SLOTS;
    return spare ? GIVE_BACK_SPARE : GIVE_BACK_LAST_FREE_SLOT;
}

/* Only versions that this term has committed itself: trainers may still be restoring an older one. */
static enum give_back step_of_copy(const struct node *n, const struct slot *slot)
{
    const struct node_shard *s = &n->setup->shards[slot->shard];
    const struct decision *d = &n->decision;
    bool committed = slot->version.term == d->term && version_is(slot->version, d->watermark);
    if (!committed || slot->doomed || version_is(slot->version, d->drain) || s->world_shard == NONE32) {
        return GIVE_BACK_NOTHING;
    }
    bool stored = version_is(d->published, d->watermark);
    if (s->source == n->setup->self || s->drains_here) {
        return stored ? GIVE_BACK_OWN_COPY : GIVE_BACK_NOTHING;
    }
    return stored ? GIVE_BACK_STORED_COPY : GIVE_BACK_OTHERS_COPY;
}

enum give_back node_give_back_step(const struct node *n, uint32_t slot)
{
    const struct slot *s = &n->slots[slot];
    if (s->withheld || s->pins > 0) {
        return GIVE_BACK_NOTHING;
    }
    enum give_back step = GIVE_BACK_NOTHING;
    if (s->state == SLOT_FREE) {
        step = step_of_free(n, s->shard);
    } else if (s->state == SLOT_VERIFIED) {
        step = step_of_copy(n, s);
    }
    return step == GIVE_BACK_UNUSED || decision_is_recovered(&n->decision) ? step : GIVE_BACK_NOTHING;
}

/* What costs nothing is given back early, so that the rest need not be. */
static enum give_back last_step(enum memory_level level)
{
    switch (level) {
    case MEMORY_ENOUGH:
        return GIVE_BACK_UNUSED;
    case MEMORY_LOW:
        return GIVE_BACK_SPARE;
    case MEMORY_CRITICAL:
        return GIVE_BACK_OWN_COPY;
    }
    return GIVE_BACK_NOTHING;
}

static bool within(enum give_back step, const struct give_back_limits *limits)
{
    return step != GIVE_BACK_NOTHING && step <= last_step(limits->level) &&
           !(limits->alone && step == GIVE_BACK_OTHERS_COPY);
}

uint32_t node_give_back_next(const struct node *n, const struct give_back_limits *limits)
{
    enum give_back best_step = GIVE_BACK_NOTHING;
    uint32_t best = NONE32;
    for (uint32_t i = 0; i < n->slot_total; i++) {
        enum give_back step = limits->fixed[n->slots[i].shard] ? GIVE_BACK_NOTHING : node_give_back_step(n, i);
        if (within(step, limits) && (best == NONE32 || step < best_step)) {
            best = i;
            best_step = step;
        }
    }
    return best;
}

uint32_t node_take_back_next(const struct node *n)
{
    uint32_t best = NONE32, fewest = 0;
    for (uint32_t i = 0; i < n->slot_total; i++) {
        uint32_t shard = n->slots[i].shard, left = slots_left(n, shard);
        if (n->slots[i].withheld && given_back(n, shard) > 0 && (best == NONE32 || left < fewest)) {
            best = i;
            fewest = left;
        }
    }
    return best;
}

bool node_has_given_back(const struct node *n, uint32_t shard)
{
    return given_back(n, shard) > 0;
}

bool node_lacks_slots(const struct node *n, uint32_t shard)
{
    return given_back(n, shard) > 0 && slots_left(n, shard) < SAVING_SLOTS;
}

/* The newest committed version keeps its slot until the next one is committed. */
static bool shard_lacks_memory(const struct node *n, uint32_t shard)
{
    uint32_t first = n->first_slot[shard];
    uint32_t usable = 0;
    for (uint32_t i = first; i < first + n->setup->shards[shard].slot_count; i++) {
        const struct slot *s = &n->slots[i];
        bool kept = s->state == SLOT_VERIFIED && version_is(s->version, n->decision.watermark);
        usable += !s->withheld && !kept;
    }
    return given_back(n, shard) > 0 && usable == 0;
}

bool node_saving_suspended(const struct node *n)
{
    for (uint32_t i = 0; i < n->setup->shard_count; i++) {
        if (n->setup->shards[i].world_shard != NONE32 && shard_lacks_memory(n, i)) {
            return true;
        }
    }
    return false;
}
