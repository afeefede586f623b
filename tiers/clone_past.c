/* SPDX-License-Identifier: Apache-2.0
 * See clone_past.h. */
#include "tiers/clone_past.h"

#include <stdlib.h>
#include <string.h>

struct clone_base *clone_base_new(struct version version, uint64_t image_bytes, const uint32_t *crcs)
{
    uint32_t chunks = chunk_count(image_bytes);
    struct clone_base *base = calloc(1, sizeof(*base) + chunks * (sizeof(base->hashes[0]) + sizeof(*crcs)));
    if (base != NULL) {
        uint32_t *own = (uint32_t *)(void *)(base->hashes + chunks);
        memcpy(own, crcs, chunks * sizeof(*crcs));
        base->version = version;
        base->hashed = (struct hashed){image_bytes, own, base->hashes};
    }
    return base;
}

static void past_free(struct clone_past *past)
{
    free(past->of[0]);
    free(past->of[1]);
    free(past);
}

static struct clone_past **find(struct clone_past **list, struct hash128 shard)
{
    struct clone_past **at = list;
    while (*at != NULL && !hash128_is((*at)->shard, shard)) {
        at = &(*at)->next;
    }
    return at;
}

struct clone_past *clone_past_take(struct clone_past **list, struct hash128 shard)
{
    struct clone_past **at = find(list, shard);
    struct clone_past *past = *at;
    if (past == NULL) {
        past = calloc(1, sizeof(*past));
        if (past != NULL) {
            past->shard = shard;
        }
        return past;
    }
    *at = past->next;
    past->next = NULL;
    return past;
}

/* Every shard that this agent writes has a file of that version or of a newer one, unless its drain failed. */
static void drop_older(struct clone_past **list, struct version than)
{
    struct clone_past **at = list;
    while (*at != NULL) {
        struct clone_past *past = *at;
        if (past->of[0] == NULL || version_cmp(past->of[0]->version, than) < 0) {
            *at = past->next;
            past_free(past);
        } else {
            at = &past->next;
        }
    }
}

void clone_past_return(struct clone_past **list, struct clone_past *past)
{
    if (past->of[0] == NULL || *find(list, past->shard) != NULL) {
        past_free(past);
        return;
    }
    if (past->of[1] != NULL) {
        drop_older(list, past->of[1]->version);
    }
    past->next = *list;
    *list = past;
}

void clone_past_add(struct clone_past *past, struct clone_base *written, const struct clone_base *base)
{
    if (base != NULL && base == past->of[1]) {
        free(past->of[0]);
        past->of[0] = past->of[1];
    } else {
        free(past->of[1]);
    }
    past->of[1] = past->of[0];
    past->of[0] = written;
}

void clone_past_drop(struct clone_past *past, const struct clone_base *base)
{
    if (base == past->of[0]) {
        free(past->of[0]);
        past->of[0] = past->of[1];
        past->of[1] = NULL;
    } else if (base == past->of[1]) {
        free(past->of[1]);
        past->of[1] = NULL;
    }
}

void clone_past_free(struct clone_past *list)
{
    while (list != NULL) {
        struct clone_past *next = list->next;
        past_free(list);
        list = next;
    }
}
