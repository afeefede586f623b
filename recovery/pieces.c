/* SPDX-License-Identifier: Apache-2.0
 * From which source each piece of the plan is requested, and when. */
#include "recovery/pieces.h"

#include <stdlib.h>

#define EARLIES_MAX 3 /* requests of a piece from an owner that still receives it; after that, it must have it */

/* Each shard is read from storage once: its owners get it from each other, along a binary tree (piece i is owner i of
 * the placement), and holders get it from an owner. If that has failed once, an owner reads storage itself, and a
 * holder tries in turn all nodes that may have the shard. Returns the place of the owner to ask, or NONE32 to follow
 * the plan. */
static uint32_t owner_to_ask(const struct recovery *r, uint32_t i)
{
    const struct plan_action *planned = &r->plan.actions[i];
    const struct shard_placement *s = &r->setup.placement->shards[planned->shard];
    uint32_t tries = r->pieces[i].tries;
    bool first = i == s->first_owner;
    return planned->source == SOURCE_STORAGE && tries == 0 && !first
               ? s->first_owner + placement_parent(i - s->first_owner)
               : NONE32;
}

bool piece_was_at(const struct recovery *r, const struct plan_action *piece, const struct inventory *inventory)
{
    const struct hash128 shard = r->setup.world->shards[piece->shard].id;
    for (uint32_t i = 0; i < inventory->count; i++) {
        const struct holding *h = &inventory->holdings[i];
        if (hash128_is(h->shard, shard) && version_is(h->version, r->plan.version)) {
            return inventory->node.agent_id != r->setup.world->nodes[piece->node].agent_id;
        }
    }
    return false;
}

bool shard_is_stored(const struct recovery *r, uint32_t shard)
{
    const struct hash128 id = r->setup.world->shards[shard].id;
    for (uint32_t i = 0; i < r->input.storage.stored_count; i++) {
        const struct stored_version *stored = &r->input.storage.stored[i];
        bool fits = version_is(stored->version, r->plan.version) && hash128_is(stored->layout, r->setup.world->layout);
        for (uint32_t k = 0; fits && k < stored->shard_count; k++) {
            if (hash128_is(stored->shards[k], id)) {
                return true;
            }
        }
    }
    return false;
}

/* The k-th other node whose inventory lists this piece; NULL if there are fewer. */
static const struct node_info *former_holder(const struct recovery *r, const struct plan_action *piece, uint32_t k)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->input.inventory_count; i++) {
        count += piece_was_at(r, piece, &r->inventories[i]);
    }
    uint32_t left = count > 0 ? k % count : 0;
    for (uint32_t i = 0; i < r->input.inventory_count; i++) {
        if (piece_was_at(r, piece, &r->inventories[i]) && left-- == 0) {
            return &r->inventories[i].node;
        }
    }
    return NULL;
}

/* The k-th owner that has it, otherwise the k-th owner; not the piece's own node if there is another one. */
static const struct node_info *owner_with_it(const struct recovery *r, const struct plan_action *piece, uint32_t k)
{
    const struct shard_placement *s = &r->setup.placement->shards[piece->shard];
    const uint32_t *owners = r->setup.placement->owners + s->first_owner;
    uint32_t other = k % s->owner_count;
    for (uint32_t j = 0; j < s->owner_count; j++) {
        uint32_t i = (k + j) % s->owner_count;
        if (owners[i] != piece->node && r->pieces[s->first_owner + i].state == PIECE_DONE) {
            return &r->setup.world->nodes[owners[i]];
        }
        other = owners[other] == piece->node ? i : other;
    }
    return &r->setup.world->nodes[owners[other]];
}

/* A holder, or an owner that comes after READY: pieces without which the base would never be protected. */
static bool is_protecting(const struct recovery *r, uint32_t i)
{
    return r->plan.actions[i].for_holder || (r->phase == RECOVERY_PROTECTING && r->pieces[i].tries > 0);
}

/* The number of sources that such a piece is requested from in turn, once the owners have theirs: each owner, each
 * holder, a former holder, and storage. */
static uint32_t turn_of(const struct recovery *r, uint32_t i, uint32_t *turns_out)
{
    const struct plan_action *planned = &r->plan.actions[i];
    const struct shard_placement *s = &r->setup.placement->shards[planned->shard];
    *turns_out = s->owner_count + s->holder_count + 2;
    return (planned->shard + r->pieces[i].tries) % *turns_out;
}

/* True if it is storage's turn and storage has the shard, whatever was planned. */
static bool fetches_from_storage(const struct recovery *r, uint32_t i)
{
    const struct plan_action *planned = &r->plan.actions[i];
    uint32_t turns, turn = turn_of(r, i, &turns), owners = r->setup.placement->shards[planned->shard].owner_count;
    return is_protecting(r, i) && r->pieces[i].tries >= owners && turn + 1 == turns &&
           shard_is_stored(r, planned->shard);
}

/* The source that such a piece is requested from; NULL: as planned. The owners come in turn. Since their copies may
 * have been damaged since they were read, the other holders and the former holder come next, and then the owners
 * again. */
static const struct node_info *holder_source(const struct recovery *r, uint32_t i)
{
    const struct plan_action *planned = &r->plan.actions[i];
    const struct shard_placement *s = &r->setup.placement->shards[planned->shard];
    const struct node_info *nodes = r->setup.world->nodes;
    uint32_t tries = r->pieces[i].tries, k = planned->shard + tries, turns, turn = turn_of(r, i, &turns);
    if (tries < s->owner_count) {
        bool ask = tries > 0 || planned->source == SOURCE_STORAGE;
        return ask ? owner_with_it(r, planned, k) : NULL;
    }
    if (turn + 2 == turns) {
        const struct node_info *node = former_holder(r, planned, k / turns);
        return node != NULL ? node : owner_with_it(r, planned, k);
    }
    if (turn + 1 == turns && planned->source != SOURCE_LOCAL) {
        return NULL;
    }
    bool other = turn >= s->owner_count && turn + 2 < turns;
    uint32_t holder = other ? s->holders[turn - s->owner_count] : planned->node;
    return holder != planned->node ? &nodes[holder] : owner_with_it(r, planned, k);
}

static const struct node_info *source_node(const struct recovery *r, uint32_t i)
{
    if (is_protecting(r, i)) {
        return holder_source(r, i);
    }
    uint32_t owner = owner_to_ask(r, i);
    return owner != NONE32 ? &r->setup.world->nodes[r->setup.placement->owners[owner]] : NULL;
}

bool piece_lacks_copy(tck_status_t outcome)
{
    return outcome == TCK_ERR_UNREACHABLE || outcome == TCK_ERR_TIMEDOUT || outcome == TCK_ERR_IO ||
           outcome == TCK_ERR_CORRUPT || outcome == TCK_ERR_NOENT;
}

/* The owner to ask for it has been requested to fetch it, and passes on what arrives. */
static bool asks_early(const struct recovery *r, uint32_t i)
{
    uint32_t owner = r->plan.actions[i].for_holder ? NONE32 : owner_to_ask(r, i);
    return owner != NONE32 && r->pieces[owner].state == PIECE_ASKED;
}

bool piece_failed_early(struct recovery *r, uint32_t i, tck_status_t outcome)
{
    struct piece *piece = &r->pieces[i];
    if (!piece->early || !piece_lacks_copy(outcome)) {
        return false;
    }
    piece->state = PIECE_WAITING;
    piece->earlies++;
    return true;
}

void piece_emit(struct recovery *r, uint32_t i)
{
    const struct plan_action *planned = &r->plan.actions[i];
    struct piece *piece = &r->pieces[i];
    struct recovery_action action = {
        .type = RECOVERY_FETCH,
        .node = planned->node,
        .shard = planned->shard,
        .source = planned->source,
        .version = r->plan.version,
    };
    bool storage = fetches_from_storage(r, i);
    const struct node_info *node = storage ? NULL : source_node(r, i);
    if (storage) {
        action.source = SOURCE_STORAGE;
    } else if (node != NULL) {
        action.source = SOURCE_TWIN;
        action.from = *node;
    } else if (planned->inventory != NONE32) {
        action.from = r->inventories[planned->inventory].node;
    }
    if (recovery_emit_fetch(r, &action)) {
        piece->state = PIECE_ASKED;
        piece->from_owner = node != NULL;
        piece->early = asks_early(r, i);
        piece->inventory = planned->inventory;
    }
}

/* Attempts of one holder until every possible source was tried once. */
static uint32_t tries_in_vain(const struct recovery *r, uint32_t shard)
{
    const struct shard_placement *s = &r->setup.placement->shards[shard];
    return 2 * s->owner_count + s->holder_count + 2;
}

bool pieces_are_in_vain(const struct recovery *r, uint32_t shard)
{
    if (!r->pressed || r->phase != RECOVERY_PROTECTING) {
        return false;
    }
    for (uint32_t i = 0; i < r->all_pieces; i++) {
        const struct piece *piece = &r->pieces[i];
        bool open = r->plan.actions[i].shard == shard && piece->state != PIECE_DONE;
        if (open && piece->tries >= tries_in_vain(r, shard)) {
            return true;
        }
    }
    return false;
}

static bool may_be_requested(const struct recovery *r, uint32_t i)
{
    uint32_t owner = r->plan.actions[i].for_holder ? NONE32 : owner_to_ask(r, i);
    bool open = r->pieces[i].state == PIECE_WAITING || r->pieces[i].state == PIECE_FAILED;
    open = open && (!r->pieces[i].late || r->phase == RECOVERY_PROTECTING);
    bool early = asks_early(r, i) && r->pieces[i].earlies < EARLIES_MAX;
    return open && (owner == NONE32 || r->pieces[owner].state == PIECE_DONE || early);
}

void pieces_emit_open(struct recovery *r, uint32_t begin, uint32_t end)
{
    for (uint32_t i = begin; i < end; i++) {
        if (may_be_requested(r, i) && !pieces_are_in_vain(r, r->plan.actions[i].shard)) {
            piece_emit(r, i);
        }
    }
}

void pieces_emit_after(struct recovery *r, uint32_t i)
{
    const struct shard_placement *s = &r->setup.placement->shards[r->plan.actions[i].shard];
    uint32_t child = 2 * (i - s->first_owner) + 1;
    for (uint32_t k = child; k < child + 2 && k < s->owner_count; k++) {
        if (may_be_requested(r, s->first_owner + k) && !pieces_are_in_vain(r, r->plan.actions[i].shard)) {
            piece_emit(r, s->first_owner + k);
        }
    }
}

uint32_t pieces_left(const struct recovery *r)
{
    uint32_t left = 0, end = r->phase == RECOVERY_FETCHING ? r->owner_pieces : r->all_pieces;
    for (uint32_t i = 0; i < end; i++) {
        bool waits = r->phase == RECOVERY_FETCHING && r->pieces[i].late;
        left += r->pieces[i].state != PIECE_DONE && !waits;
    }
    return left;
}

void pieces_finish_if_none_left(struct recovery *r)
{
    if (r->phase == RECOVERY_FETCHING && r->left == 0) {
        r->phase = RECOVERY_PROTECTING;
        r->left = pieces_left(r);
        recovery_emit(r, RECOVERY_READY);
        pieces_emit_open(r, 0, r->all_pieces);
    }
    if (r->phase == RECOVERY_PROTECTING && r->left == 0) {
        r->phase = RECOVERY_DONE;
        recovery_emit(r, RECOVERY_PROTECTED);
    }
}

static int action_cmp(const void *a, const void *b)
{
    const struct plan_action *x = a, *y = b;
    if (x->for_holder != y->for_holder) {
        return x->for_holder ? 1 : -1;
    }
    if (x->shard != y->shard) {
        return x->shard < y->shard ? -1 : 1;
    }
    return (x->node > y->node) - (x->node < y->node);
}

uint32_t pieces_find_asked(const struct recovery *r, uint32_t node, uint32_t shard)
{
    if (shard >= r->setup.placement->shard_count) {
        return NONE32;
    }
    struct plan_action key = {.shard = shard, .node = node};
    key.for_holder = placement_is_holder(r->setup.placement, shard, node);
    const struct plan_action *found = bsearch(&key, r->plan.actions, r->plan.action_count, sizeof(key), action_cmp);
    if (found == NULL) {
        return NONE32;
    }
    uint32_t i = (uint32_t)(found - r->plan.actions);
    return r->pieces[i].state == PIECE_ASKED ? i : NONE32;
}
