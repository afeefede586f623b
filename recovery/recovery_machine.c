/* SPDX-License-Identifier: Apache-2.0
 * The recovery machine. Each action of the plan is a piece of work. Pieces keep their place in new plans for the
 * same world, so a new plan for the same version keeps completed work. */
#include "recovery/base_loss.h"
#include "recovery/outsiders.h"
#include "recovery/pieces.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_PAUSE_MS 100 /* before storage is listed again; doubled each time */
#define LIST_NEWEST   2 /* versions whose content is read at first: the newest, and one before it if that is damaged */
#define LIST_MORE     8 /* times as many, if none of these can be taken */

/* ---- time ---------------------------------------------------------------------------------------------------- */

uint64_t recovery_clock_at(struct recovery_clock *clock, uint64_t now_ms)
{
    uint64_t passed = clock->seen_ms > 0 && now_ms > clock->seen_ms ? now_ms - clock->seen_ms : 0;
    clock->seen_ms = now_ms;
    clock->counted_ms += passed < RECOVERY_STEP_MS ? passed : RECOVERY_STEP_MS;
    return clock->counted_ms;
}

/* ---- ends ---------------------------------------------------------------------------------------------------- */

static void end_with_nothing(struct recovery *r)
{
    r->phase = RECOVERY_FAILED;
    r->replan_due = false;
    recovery_emit(r, RECOVERY_NOTHING);
}

/* The plan cannot be carried out, for this reason. */
static void give_up(struct recovery *r, tck_status_t failure, const char *fmt, ...) printf_like(3, 4);
static void give_up(struct recovery *r, tck_status_t failure, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->plan.reason, sizeof(r->plan.reason), fmt, args);
    va_end(args);
    r->failure = failure;
    r->plan.version = r->plan.reshard = VERSION_NONE;
    r->plan.nothing_saved = false;
    r->planned = true;
    end_with_nothing(r);
}

static tck_status_t block_failure(const struct plan *plan)
{
    return plan->blocked == BLOCK_FOREIGN ? TCK_ERR_PROTO : TCK_ERR_IO;
}

/* ---- plans --------------------------------------------------------------------------------------------------- */

/* Decides which owners' pieces may come after READY. A node that has a shard itself only needs to check it, and can
 * then pass it on. */
static void choose_late(struct recovery *r)
{
    for (uint32_t shard = 0; shard < r->setup.placement->shard_count; shard++) {
        const struct shard_placement *s = &r->setup.placement->shards[shard];
        bool first = true;
        for (uint32_t i = s->first_owner; i < s->first_owner + s->owner_count; i++) {
            bool here = r->pieces[i].state == PIECE_DONE || r->plan.actions[i].source == SOURCE_LOCAL;
            first = first && !here;
        }
        for (uint32_t i = s->first_owner; i < s->first_owner + s->owner_count; i++) {
            bool here = r->pieces[i].state == PIECE_DONE || r->plan.actions[i].source == SOURCE_LOCAL;
            r->pieces[i].late = r->setup.first_owner_suffices && !here && !(first && i == s->first_owner);
        }
    }
}

static void adopt_plan(struct recovery *r, struct plan *next)
{
    bool same = r->planned && version_is(r->plan.version, next->version);
    plan_free(&r->plan);
    r->plan = *next;
    r->planned = true;
    if (version_none(r->plan.version)) {
        r->failure = r->plan.blocked == BLOCK_NONE ? r->failure : block_failure(&r->plan);
        end_with_nothing(r);
        return;
    }
    if (!same) {
        r->second_chances = 0;
        memset(r->pieces, 0, r->all_pieces * sizeof(*r->pieces));
    }
    r->phase = RECOVERY_FETCHING;
    choose_late(r);
    r->left = pieces_left(r);
    pieces_emit_open(r, 0, r->owner_pieces);
    pieces_finish_if_none_left(r);
}

/* Only for the version that is being fetched. A version that was passed over stays so, because otherwise two versions
 * could alternate forever. */
static bool may_return(const struct recovery *r, uint32_t i)
{
    return r->bad_may_return[i] && version_is(r->bad[i].version, r->plan.version);
}

static bool a_copy_may_return(const struct recovery *r)
{
    for (uint32_t i = 0; i < r->input.bad_count; i++) {
        if (may_return(r, i)) {
            return true;
        }
    }
    return false;
}

static void count_in_copies_out_of_reach(struct recovery *r)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->input.bad_count; i++) {
        if (!may_return(r, i)) {
            r->bad_may_return[kept] = r->bad_may_return[i];
            r->bad[kept++] = r->bad[i];
        }
    }
    r->input.bad_count = kept;
}

/* A copy that is out of reach, or that arrived damaged, is not lost: before an older version is chosen, such copies are
 * tried again, repeatedly for wait_ms, and as long as a member is down. */
static bool has_a_chance_left(struct recovery *r, uint64_t now_ms)
{
    if (r->second_chances == 0) {
        r->older_ms = now_ms + r->setup.wait_ms;
    }
    bool in_time = now_ms < r->older_ms || recovery_lost_member(r) != NONE32;
    return a_copy_may_return(r) && (in_time || r->second_chances < r->setup.max_tries);
}

static bool is_unread(const struct recovery *r, uint32_t i)
{
    return r->bad[i].inventory == NONE32 && may_return(r, i);
}

/* Shards on storage that cannot be read now are not lost: then the recovery ends, and no older version is taken. */
static bool may_be_older(struct recovery *r)
{
    struct version v = r->plan.version;
    for (uint32_t i = 0; i < r->input.bad_count; i++) {
        if (is_unread(r, i)) {
            char shard[HASH128_TEXT];
            hash128_text(r->bad[i].shard, shard);
            give_up(r, TCK_ERR_IO,
                    "shard %s of version %" PRIu64 ".%" PRIu64
                    " cannot be read from storage; an older version is not taken in its place",
                    shard, v.term, v.step);
            return false;
        }
    }
    return true;
}

/* As if storage had not answered yet: the next plan is made of what it has then. */
static void forget_listing(struct recovery *r)
{
    r->list_again_ms = 0;
    r->listed = false;
    r->input.storage = (struct storage_view){0};
    recovery_emit(r, RECOVERY_LIST);
}

static void allow_time_for_storage(struct recovery *r, uint64_t now_ms)
{
    r->storage_due_ms = now_ms + r->setup.storage_wait_ms;
    r->storage_hang_ms = r->setup.storage_hang_ms > 0 ? now_ms + r->setup.storage_hang_ms : UINT64_MAX;
    r->list_pause_ms = LIST_PAUSE_MS;
}

static void list_deeper(struct recovery *r, uint64_t now_ms)
{
    struct storage_view known = {.forgotten = r->input.storage.forgotten, .give_up = r->input.storage.give_up};
    r->list_newest = r->list_newest < UINT32_MAX / LIST_MORE ? r->list_newest * LIST_MORE : UINT32_MAX;
    allow_time_for_storage(r, now_ms);
    forget_listing(r);
    r->input.storage = known;
}

/* The version that was planned is lost, and the listing does not say which is the next one: it lacked a part of
 * storage, which may be readable by now, or older versions, which had not been needed. */
static void ask_storage_again(struct recovery *r, enum plan_block blocked, uint64_t now_ms)
{
    plan_free(&r->plan);
    r->phase = RECOVERY_ASKING;
    r->planned = r->replan_due = false;
    if (blocked == BLOCK_DEEPER) {
        list_deeper(r, now_ms);
    } else {
        allow_time_for_storage(r, now_ms);
        forget_listing(r);
    }
}

static void replan(struct recovery *r, uint64_t now_ms)
{
    struct plan next;
    struct error err;
    if (plan_build(&r->input, &next, &err) != TCK_OK) {
        give_up(r, err.code, "%s", err.text);
        return;
    }
    bool older = version_cmp(next.version, r->plan.version) < 0;
    if (older && has_a_chance_left(r, now_ms)) {
        r->second_chances++;
        r->replan_due = true;
        count_in_copies_out_of_reach(r);
        plan_free(&next);
        return;
    }
    if (older && !may_be_older(r)) {
        plan_free(&next);
        return;
    }
    enum plan_block blocked = next.blocked;
    if (blocked == BLOCK_UNREADABLE || blocked == BLOCK_DEEPER) {
        plan_free(&next); /* it points into the listing */
        ask_storage_again(r, blocked, now_ms);
        return;
    }
    adopt_plan(r, &next);
}

static bool add_bad_copy(struct recovery *r, const struct piece *piece, uint32_t shard, bool returns)
{
    if (r->input.bad_count == r->bad_cap) {
        uint32_t cap = r->bad_cap == 0 ? 16 : 2 * r->bad_cap;
        struct bad_copy *bad = realloc(r->bad, cap * sizeof(*bad));
        r->bad = bad != NULL ? bad : r->bad;
        bool *flags = realloc(r->bad_may_return, cap * sizeof(*flags));
        r->bad_may_return = flags != NULL ? flags : r->bad_may_return;
        if (bad == NULL || flags == NULL) {
            return false;
        }
        r->bad_cap = cap;
        r->input.bad = r->bad;
    }
    r->bad_may_return[r->input.bad_count] = returns;
    r->bad[r->input.bad_count++] = (struct bad_copy){
        .shard = r->setup.world->shards[shard].id, .version = r->plan.version, .inventory = piece->inventory};
    return true;
}

/* ---- asking -------------------------------------------------------------------------------------------------- */

/* Some agent knows of a newer commit than the best complete version: the agent that has it may still answer. */
static bool worth_waiting(const struct recovery *r, const struct plan *plan)
{
    if (r->input.step != TCK_NEWEST) {
        return false;
    }
    struct version best = version_none(plan->reshard) ? plan->version : plan->reshard;
    for (uint32_t i = 0; i < r->input.inventory_count; i++) {
        struct version watermark = r->inventories[i].watermark;
        bool counts = watermark.term > r->input.storage.forgotten;
        if (counts && version_cmp(watermark, best) > 0 && !version_is(watermark, r->input.storage.give_up)) {
            return true;
        }
    }
    return false;
}

static void give_up_without(struct recovery *r, uint32_t member)
{
    give_up(r, TCK_ERR_UNREACHABLE, "node %s went down before it had its shards", r->setup.world->nodes[member].name);
}

static bool is_of(const struct inventory *inventory, const struct node_info *node)
{
    return inventory->node.agent_id == node->agent_id && strcmp(inventory->node.name, node->name) == 0;
}

/* The number of this agent's inventory; NONE32: it has not answered. Only if an agent is known by two names are all
 * looked through. */
static uint32_t inventory_of(const struct recovery *r, const struct node_info *node)
{
    uint32_t i = id_map_find(&r->inventory_of, node->agent_id);
    while (i < r->input.inventory_count && !is_of(&r->inventories[i], node)) {
        i++;
    }
    return i < r->input.inventory_count ? i : NONE32;
}

/* A member is needed anyway, so its inventory is waited for until it is down. */
static bool is_member_silent(const struct recovery *r)
{
    for (uint32_t node = 0; node < r->setup.world->node_count; node++) {
        const struct node_info *member = &r->setup.world->nodes[node];
        if (!r->down[node] && inventory_of(r, member) == NONE32) {
            return true;
        }
    }
    return false;
}

/* A member's agent that restarts is back soon, with its memory. */
static bool member_may_return(const struct recovery *r, uint64_t now_ms)
{
    return recovery_lost_member(r) != NONE32 && now_ms < r->lost_ms;
}

/* Storage was listed, or memory may suffice without it. */
static bool has_storage_answered(const struct recovery *r, uint64_t now_ms)
{
    return r->listed || (r->setup.storage_hang_ms > 0 && now_ms >= r->storage_due_ms);
}

/* A version that storage may have is needed and cannot be read now: storage is listed again, with growing pauses, for
 * some time. */
static bool waits_for_storage(struct recovery *r, const struct plan *plan, uint64_t now_ms)
{
    if (plan->blocked != BLOCK_UNREADABLE || now_ms >= (r->listed ? r->storage_due_ms : r->storage_hang_ms)) {
        return false;
    }
    if (r->listed && r->list_again_ms == 0) {
        r->list_again_ms = now_ms + r->list_pause_ms;
        r->list_pause_ms *= 2;
    }
    return true;
}

static void list_again_if_due(struct recovery *r, uint64_t now_ms)
{
    if (r->phase != RECOVERY_ASKING || r->list_again_ms == 0 || now_ms < r->list_again_ms) {
        return;
    }
    forget_listing(r);
}

/* True if further answers may lead to a better plan. */
static bool is_worth_waiting(const struct recovery *r, const struct plan *plan, bool waited)
{
    /* An agent that has not answered may hold what no other has seen: only if all that can be asked are silent
     * is it a fresh start. */
    bool hasty = plan->nothing_saved && !r->asked_all;
    return hasty || (!waited && (worth_waiting(r, plan) || outsiders_may_know_better(r, plan)));
}

static void plan_if_enough_is_known(struct recovery *r, uint64_t now_ms)
{
    bool waited = now_ms >= r->deadline_ms;
    bool answered = r->asked_all || (waited && !is_member_silent(r));
    if (r->phase != RECOVERY_ASKING || !answered || member_may_return(r, now_ms) || !has_storage_answered(r, now_ms)) {
        return;
    }
    struct plan plan;
    struct error err;
    if (plan_build(&r->input, &plan, &err) != TCK_OK) {
        give_up(r, err.code, "%s", err.text);
        return;
    }
    uint32_t lost = recovery_lost_member(r);
    if (plan.blocked == BLOCK_DEEPER) {
        plan_free(&plan);
        list_deeper(r, now_ms);
    } else if (waits_for_storage(r, &plan, now_ms) || is_worth_waiting(r, &plan, waited)) {
        plan_free(&plan);
    } else if (lost != NONE32) {
        plan_free(&plan);
        give_up_without(r, lost);
    } else {
        adopt_plan(r, &plan);
    }
}

static void find_newest_commit(struct recovery *r)
{
    r->newest_commit = VERSION_NONE;
    for (uint32_t i = 0; i < r->input.inventory_count; i++) {
        if (version_cmp(r->inventories[i].watermark, r->newest_commit) > 0) {
            r->newest_commit = r->inventories[i].watermark;
        }
    }
}

/* The entry for this agent's inventory: its former one, or a new one, which is empty; NULL if out of memory. */
static struct inventory *place_for(struct recovery *r, const struct node_info *node)
{
    uint32_t former = inventory_of(r, node), next = r->input.inventory_count;
    if (former != NONE32) {
        return &r->inventories[former];
    }
    if (r->input.inventory_count == r->inventory_cap) {
        uint32_t cap = r->inventory_cap == 0 ? 16 : 2 * r->inventory_cap;
        struct inventory *grown = realloc(r->inventories, cap * sizeof(*grown));
        if (grown == NULL) {
            return NULL;
        }
        r->inventories = grown;
        r->inventory_cap = cap;
        r->input.inventories = grown;
    }
    bool known = id_map_find(&r->inventory_of, node->agent_id) != ID_MAP_NONE;
    if (!known && !id_map_put(&r->inventory_of, node->agent_id, next)) {
        return NULL;
    }
    r->input.inventory_count++;
    r->inventories[next] = (struct inventory){0};
    return &r->inventories[next];
}

/* ---- the interface ------------------------------------------------------------------------------------------- */

tck_status_t recovery_new(const struct recovery_setup *setup, struct recovery **out)
{
    struct recovery *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return TCK_ERR_NOMEM;
    }
    *r = (struct recovery){.setup = *setup};
    for (uint32_t i = 0; i < setup->placement->shard_count; i++) {
        r->owner_pieces += setup->placement->shards[i].owner_count;
        r->all_pieces += setup->placement->shards[i].holder_count;
    }
    r->all_pieces += r->owner_pieces;
    r->pieces = calloc((size_t)r->all_pieces + 1, sizeof(*r->pieces));
    r->down = calloc((size_t)setup->world->node_count + 1, sizeof(*r->down));
    if (r->pieces == NULL || r->down == NULL) {
        recovery_free(r);
        return TCK_ERR_NOMEM;
    }
    *out = r;
    return TCK_OK;
}

static void forget_what_was_known(struct recovery *r)
{
    for (uint32_t i = 0; i < r->input.inventory_count; i++) {
        inventory_free(&r->inventories[i]);
    }
    plan_free(&r->plan);
    id_map_free(&r->inventory_of);
    r->newest_commit = VERSION_NONE;
    r->planned = r->asked_all = r->listed = r->replan_due = false;
    r->pressed = false;
    r->list_again_ms = 0;
    r->base_loss = (struct base_loss){0};
    r->second_chances = 0;
    r->failure = TCK_ERR_UNRECOVERABLE;
    r->input = (struct plan_input){
        .world = r->setup.world,
        .unused_terms = r->setup.unused_terms,
        .placement = r->setup.placement,
        .inventories = r->inventories,
        .bad = r->bad,
    };
}

void recovery_free(struct recovery *r)
{
    if (r == NULL) {
        return;
    }
    forget_what_was_known(r);
    free(r->inventories);
    free(r->outsiders);
    id_map_free(&r->outsider_of);
    free(r->bad);
    free(r->bad_may_return);
    free(r->pieces);
    free(r->down);
    free(r);
}

/* only: a base that was chosen before, with its step, or none. */
static void start(struct recovery *r, uint64_t step, struct version only, uint64_t now_ms)
{
    forget_what_was_known(r);
    r->input.step = step;
    r->input.only = only;
    r->phase = RECOVERY_ASKING;
    r->deadline_ms = now_ms + r->setup.wait_ms;
    r->list_newest = LIST_NEWEST;
    allow_time_for_storage(r, now_ms);
    recovery_emit(r, RECOVERY_ASK);
    recovery_emit(r, RECOVERY_LIST);
}

static void take_inventory(struct recovery *r, const struct recovery_event *e)
{
    struct inventory *inventory = e->inventory;
    if (r->phase != RECOVERY_ASKING && r->phase != RECOVERY_FETCHING) {
        inventory_free(inventory);
        return;
    }
    struct inventory *place = place_for(r, &inventory->node);
    if (place == NULL) {
        give_up(r, TCK_ERR_NOMEM, "out of memory for the inventory of node %s", inventory->node.name);
        inventory_free(inventory);
        return;
    }
    bool lower = version_cmp(inventory->watermark, r->newest_commit) < 0;
    bool was_newest = version_is(place->watermark, r->newest_commit);
    inventory_free(place);
    *place = *inventory;
    *inventory = (struct inventory){0};
    r->newest_commit = lower ? r->newest_commit : place->watermark;
    if (lower && was_newest) {
        find_newest_commit(r);
    }
    plan_if_enough_is_known(r, e->now_ms);
}

static void take_storage_view(struct recovery *r, const struct recovery_event *e)
{
    if (r->phase == RECOVERY_ASKING) {
        r->listed = true;
        r->input.storage = *e->storage;
        plan_if_enough_is_known(r, e->now_ms);
    }
}

/* Whether the copy may become available: it is out of reach, or it came over the network and was damaged on the way. */
static bool may_pass(const struct plan_action *action, tck_status_t outcome)
{
    bool travelled = action->source == SOURCE_PEER || action->source == SOURCE_TWIN;
    return outcome == TCK_ERR_UNREACHABLE || outcome == TCK_ERR_TIMEDOUT || outcome == TCK_ERR_IO ||
           (outcome == TCK_ERR_CORRUPT && travelled);
}

/* An owner's fetch failed: plan without that copy, retry, or give up. */
static void owner_failed(struct recovery *r, uint32_t i, tck_status_t outcome, uint64_t now_ms)
{
    const struct plan_action *action = &r->plan.actions[i];
    struct piece *piece = &r->pieces[i];
    bool passes = may_pass(action, outcome);
    bool lost = piece_lacks_copy(outcome);
    if (lost && piece->from_owner) {
        piece_emit(r, i); /* now from storage */
    } else if (lost) {
        if (!add_bad_copy(r, piece, action->shard, passes)) {
            give_up(r, TCK_ERR_NOMEM, "out of memory for the list of bad copies");
            return;
        }
        replan(r, now_ms);
    } else if (piece->tries >= r->setup.max_tries) {
        char shard[HASH128_TEXT];
        hash128_text(r->setup.world->shards[action->shard].id, shard);
        give_up(r, outcome, "node %s cannot take shard %s of version %" PRIu64 ".%" PRIu64 ": %s",
                r->setup.world->nodes[action->node].name, shard, r->plan.version.term, r->plan.version.step,
                status_text(outcome));
    }
}

static void take_fetched(struct recovery *r, const struct recovery_event *e)
{
    bool running = r->phase == RECOVERY_FETCHING || r->phase == RECOVERY_PROTECTING;
    bool current = running && version_is(e->version, r->plan.version);
    if (current && base_loss_asked(r, e->node, e->shard)) {
        base_loss_answered(r, e->outcome, e->now_ms);
        return;
    }
    uint32_t i = current ? pieces_find_asked(r, e->node, e->shard) : NONE32;
    if (i == NONE32) {
        return;
    }
    if (e->outcome == TCK_OK) {
        r->pieces[i].state = PIECE_DONE;
        r->left -= r->phase == RECOVERY_PROTECTING || !r->pieces[i].late;
        if (!r->plan.actions[i].for_holder) {
            pieces_emit_after(r, i);
        }
        pieces_finish_if_none_left(r);
        return;
    }
    if (piece_failed_early(r, i, e->outcome)) {
        return;
    }
    r->pieces[i].state = PIECE_FAILED;
    r->pieces[i].tries++;
    if (r->phase == RECOVERY_FETCHING) {
        owner_failed(r, i, e->outcome, e->now_ms);
    }
}

static void node_down(struct recovery *r, uint32_t node, uint64_t now_ms)
{
    if (node >= r->setup.world->node_count) {
        return;
    }
    if (recovery_lost_member(r) == NONE32) {
        r->lost_ms = now_ms + r->setup.wait_ms;
    }
    r->down[node] = true;
    for (uint32_t i = 0; i < r->all_pieces && r->phase == RECOVERY_PROTECTING; i++) {
        if (r->plan.actions[i].node == node && r->pieces[i].state == PIECE_ASKED) {
            r->pieces[i].state = PIECE_FAILED;
        }
    }
    if (r->base_loss.runs && r->base_loss.node == node) {
        base_loss_end(r);
    }
    plan_if_enough_is_known(r, now_ms);
}

static void node_up(struct recovery *r, uint32_t node)
{
    if (node >= r->setup.world->node_count || !r->down[node]) {
        return;
    }
    r->down[node] = false;
    if (r->phase == RECOVERY_ASKING) {
        r->asked_all = false; /* the request to it is lost */
        recovery_emit(r, RECOVERY_ASK);
    }
}

static void tick(struct recovery *r, uint64_t now_ms)
{
    list_again_if_due(r, now_ms);
    plan_if_enough_is_known(r, now_ms);
    if (r->replan_due) {
        r->replan_due = false;
        replan(r, now_ms);
    }
    uint32_t lost = recovery_lost_member(r);
    if (r->phase == RECOVERY_FETCHING && lost != NONE32 && now_ms >= r->lost_ms) {
        give_up_without(r, lost);
    }
    if (r->phase == RECOVERY_FETCHING) {
        pieces_emit_open(r, 0, r->owner_pieces);
    } else if (r->phase == RECOVERY_PROTECTING) {
        pieces_emit_open(r, 0, r->all_pieces);
        base_loss_tick(r);
    }
}

static void slots_needed(struct recovery *r, uint64_t now_ms)
{
    if (!r->pressed && r->phase == RECOVERY_PROTECTING) {
        r->pressed = true;
        r->pressed_ms = now_ms;
    }
}

static void dispatch(struct recovery *r, const struct recovery_event *e)
{
    switch (e->type) {
    case RECOVERY_EVENT_START:
        start(r, e->step, VERSION_NONE, e->now_ms);
        break;
    case RECOVERY_EVENT_RESUME:
        start(r, e->version.step, e->version, e->now_ms);
        break;
    case RECOVERY_EVENT_INVENTORY:
        take_inventory(r, e);
        break;
    case RECOVERY_EVENT_KNOWN:
        outsiders_add(r, e->known);
        break;
    case RECOVERY_EVENT_ASKED_ALL:
        r->asked_all = true;
        plan_if_enough_is_known(r, e->now_ms);
        break;
    case RECOVERY_EVENT_STORED:
        take_storage_view(r, e);
        break;
    case RECOVERY_EVENT_FETCHED:
        take_fetched(r, e);
        break;
    case RECOVERY_EVENT_NODE_DOWN:
        node_down(r, e->node, e->now_ms);
        break;
    case RECOVERY_EVENT_NODE_UP:
        node_up(r, e->node);
        break;
    case RECOVERY_EVENT_TICK:
        tick(r, e->now_ms);
        break;
    case RECOVERY_EVENT_SLOTS_NEEDED:
        slots_needed(r, e->now_ms);
        break;
    }
}

void recovery_step(struct recovery *r, const struct recovery_event *event, struct recovery_actions *out)
{
    r->out = out;
    dispatch(r, event);
    r->out = NULL;
}

enum recovery_phase recovery_phase(const struct recovery *r)
{
    return r->phase;
}

tck_status_t recovery_failure(const struct recovery *r)
{
    if (r->phase != RECOVERY_FAILED) {
        return TCK_OK;
    }
    if (!version_none(r->plan.reshard) || plan_waits_for_storage(&r->plan)) {
        return TCK_ERR_LAYOUT;
    }
    return r->plan.nothing_saved ? TCK_ERR_NOENT : r->failure;
}

const struct plan *recovery_plan(const struct recovery *r)
{
    return r->planned ? &r->plan : NULL;
}

const struct plan_input *recovery_input(const struct recovery *r)
{
    return &r->input;
}

struct version recovery_newest_commit(const struct recovery *r)
{
    return r->newest_commit;
}

struct recovery_spared recovery_spared(const struct recovery *r)
{
    struct recovery_spared spared = {.floor = r->newest_commit};
    if (!r->planned) {
        return spared;
    }
    spared.fallback = r->plan.fallback;
    if (!version_none(r->plan.newer)) {
        spared.floor = r->plan.newer;
        spared.fallback = version_none(r->newest_commit) ? r->plan.fallback : r->newest_commit;
    }
    return spared;
}
