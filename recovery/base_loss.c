/* SPDX-License-Identifier: Apache-2.0
 * Finds out whether the base is lost. When the trainers read it, a shard of it may have had a single copy, which may be
 * damaged before a second one is made. Then the base can neither be protected nor restored again, but its slots and
 * those of older versions would stay occupied, and without a free slot nothing could be saved any longer.
 *
 * The check begins only when a save finds no slot. It checks one shard at a time, after all its holders have failed to
 * get it and while none of them is trying, so no new copy can appear unnoticed. Members check their own copies, because
 * a copy that arrives damaged may have been damaged on its way. Other nodes are asked for theirs, and may be out of
 * reach for wait_ms. One good copy, or one answer that leaves the question open, ends the check, and the holders try
 * again. */
#include "recovery/base_loss.h"
#include "recovery/pieces.h"

static const struct shard_placement *placement_of(const struct recovery *r, uint32_t shard)
{
    return &r->setup.placement->shards[shard];
}

/* A holder of the shard that lacks it, or an owner that comes after READY; NONE32 if none does. */
static uint32_t piece_in_want(const struct recovery *r, uint32_t shard)
{
    for (uint32_t i = 0; i < r->all_pieces; i++) {
        if (r->plan.actions[i].shard == shard && r->pieces[i].state != PIECE_DONE) {
            return i;
        }
    }
    return NONE32;
}

/* ---- witnesses ----------------------------------------------------------------------------------------------- */

static bool is_placed(const struct recovery *r, uint32_t shard, const struct node_info *node)
{
    const struct shard_placement *s = placement_of(r, shard);
    const struct node_info *nodes = r->setup.world->nodes;
    for (uint32_t i = 0; i < s->owner_count; i++) {
        if (nodes[r->setup.placement->owners[s->first_owner + i]].agent_id == node->agent_id) {
            return true;
        }
    }
    for (uint32_t i = 0; i < s->holder_count; i++) {
        if (nodes[s->holders[i]].agent_id == node->agent_id) {
            return true;
        }
    }
    return false;
}

/* Makes the request to this witness; false if it has nothing to check. */
static bool witness_request(const struct recovery *r, uint32_t shard, uint32_t witness, struct recovery_action *out)
{
    const struct shard_placement *s = placement_of(r, shard);
    uint32_t placed = s->owner_count + s->holder_count, piece = piece_in_want(r, shard);
    *out = (struct recovery_action){
        .type = RECOVERY_FETCH, .shard = shard, .version = r->plan.version, .source = SOURCE_LOCAL};
    if (witness < placed) {
        bool owner = witness < s->owner_count;
        out->node = owner ? r->setup.placement->owners[s->first_owner + witness] : s->holders[witness - s->owner_count];
        out->from = r->setup.world->nodes[out->node];
        return true;
    }
    out->node = r->plan.actions[piece].node;
    if (witness < placed + r->input.inventory_count) {
        const struct inventory *other = &r->inventories[witness - placed];
        out->source = SOURCE_TWIN;
        out->from = other->node;
        return piece_was_at(r, &r->plan.actions[piece], other) && !is_placed(r, shard, &other->node);
    }
    out->source = SOURCE_STORAGE;
    return shard_is_stored(r, shard);
}

static uint32_t witness_count(const struct recovery *r, uint32_t shard)
{
    const struct shard_placement *s = placement_of(r, shard);
    return s->owner_count + s->holder_count + r->input.inventory_count + 1;
}

static void call(struct recovery *r, const struct recovery_action *request)
{
    r->base_loss.node = request->node;
    r->base_loss.source = request->source;
    r->base_loss.tries++;
    if (!recovery_emit_fetch(r, request)) {
        r->base_loss.runs = false; /* no memory: a tick begins the check again */
    }
}

/* Sends the request to this witness, or the first after it that can answer; when all have answered, the base is lost.
 */
static void call_from(struct recovery *r, uint32_t witness)
{
    uint32_t shard = r->base_loss.shard, count = witness_count(r, shard);
    for (; witness < count; witness++) {
        struct recovery_action request;
        if (witness_request(r, shard, witness, &request)) {
            r->base_loss.witness = witness;
            r->base_loss.tries = 0;
            call(r, &request);
            return;
        }
    }
    r->base_loss.runs = false;
    r->phase = RECOVERY_LOST;
    recovery_emit(r, RECOVERY_BASE_LOST);
}

/* ---- beginning and end ------------------------------------------------------------------------------------------ */

static bool has_retrying_holder(const struct recovery *r, uint32_t shard)
{
    for (uint32_t i = 0; i < r->all_pieces; i++) {
        if (r->plan.actions[i].shard == shard && r->pieces[i].state == PIECE_ASKED) {
            return true;
        }
    }
    return false;
}

void base_loss_tick(struct recovery *r)
{
    if (r->base_loss.runs || recovery_lost_member(r) != NONE32) {
        return;
    }
    for (uint32_t shard = 0; shard < r->setup.placement->shard_count; shard++) {
        if (pieces_are_in_vain(r, shard) && !has_retrying_holder(r, shard)) {
            r->base_loss = (struct base_loss){.runs = true, .shard = shard};
            call_from(r, 0);
            return;
        }
    }
}

void base_loss_end(struct recovery *r)
{
    r->base_loss.runs = false;
    for (uint32_t i = 0; i < r->all_pieces; i++) {
        if (r->plan.actions[i].shard == r->base_loss.shard) {
            r->pieces[i].tries = 0;
        }
    }
}

/* ---- answers -------------------------------------------------------------------------------------------------- */

static void found(struct recovery *r)
{
    uint32_t shard = r->base_loss.shard, node = r->base_loss.node;
    base_loss_end(r);
    for (uint32_t i = 0; i < r->all_pieces; i++) {
        const struct plan_action *planned = &r->plan.actions[i];
        if (planned->shard == shard && planned->node == node && r->pieces[i].state != PIECE_DONE) {
            r->pieces[i].state = PIECE_DONE;
            r->left--;
        }
    }
    pieces_finish_if_none_left(r);
}

/* Whether this answer means that the witness has no good copy. With NOSPC, it has not even a slot with that version. */
static bool denies(const struct recovery *r, tck_status_t outcome, uint64_t now_ms)
{
    if (r->base_loss.source == SOURCE_LOCAL) {
        return outcome == TCK_ERR_CORRUPT || outcome == TCK_ERR_NOENT || outcome == TCK_ERR_NOSPC;
    }
    bool unreachable = outcome == TCK_ERR_UNREACHABLE || outcome == TCK_ERR_TIMEDOUT || outcome == TCK_ERR_IO;
    bool late = r->base_loss.source == SOURCE_TWIN && now_ms >= r->pressed_ms + r->setup.wait_ms;
    return outcome == TCK_ERR_CORRUPT || outcome == TCK_ERR_NOENT || (unreachable && late);
}

bool base_loss_asked(const struct recovery *r, uint32_t node, uint32_t shard)
{
    return r->base_loss.runs && r->base_loss.node == node && r->base_loss.shard == shard;
}

void base_loss_answered(struct recovery *r, tck_status_t outcome, uint64_t now_ms)
{
    struct recovery_action request;
    bool travelled = r->base_loss.source != SOURCE_LOCAL && outcome == TCK_ERR_CORRUPT;
    if (outcome == TCK_OK) {
        found(r);
    } else if (!denies(r, outcome, now_ms)) {
        base_loss_end(r);
    } else if (travelled && r->base_loss.tries < r->setup.max_tries &&
               witness_request(r, r->base_loss.shard, r->base_loss.witness, &request)) {
        call(r, &request);
    } else {
        call_from(r, r->base_loss.witness + 1);
    }
}
