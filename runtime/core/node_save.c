/* SPDX-License-Identifier: Apache-2.0
 * Versions that this node saves: from BEGIN through digests and replicas to READY, or to a refusal. */
#include "core/node_copies.h"
#include "core/node_parts.h"
#include "core/node_pressure.h"

#include <string.h>

#define REPORTS_PER_TIMEOUT 8 /* of progress, to the coordinator */

/* Most versions are decided before it, and cause no message. */
static uint64_t next_report(const struct node *n)
{
    return n->now_ms + n->setup->version_timeout_ms / REPORTS_PER_TIMEOUT;
}

struct save *save_open(struct node *n, struct version v)
{
    struct save *s = node_save(n, v);
    if (s != NULL) {
        return s;
    }
    s = node_save(n, VERSION_NONE);
    if (s != NULL) {
        uint8_t *ranks = s->ranks;
        memset(ranks, RANK_IDLE, n->setup->rank_count);
        *s = (struct save){.version = v, .ranks = ranks, .moved_ms = n->now_ms, .report_ms = next_report(n)};
    }
    return s;
}

/* The time of the versions from this one on begins again: newer ones may have been waiting for it. */
static void give_time(struct node *n, struct version v)
{
    for (int i = 0; i < NODE_SAVES; i++) {
        bool newer = n->saves[i].version.step >= v.step;
        n->saves[i].moved_ms = newer ? n->now_ms : n->saves[i].moved_ms;
    }
}

static void moved(struct node *n, struct save *s)
{
    give_time(n, s->version);
    s->unreported = true;
}

static void tell(struct version v, enum stage stage, struct actions *out)
{
    struct action *a = action_add(out, ACTION_NOTIFY);
    a->version = v;
    a->stage = stage;
}

/* Reports READY or REFUSED, whichever applies, and returns that action. */
static struct action *send_state(struct node *n, struct save *s, struct actions *out)
{
    struct action *a = action_add(out, s->refusal != REFUSAL_NONE ? ACTION_SEND_REFUSED : ACTION_SEND_READY);
    a->version = s->version;
    a->refusal = s->refusal;
    a->to_storage = s->to_storage;
    s->next_send_ms = n->now_ms + n->setup->retry_ms;
    return a;
}

void save_refuse(struct node *n, struct version v, enum refusal refusal, struct actions *out)
{
    struct save *s = node_fate(n, v) == FATE_UNDECIDED ? save_open(n, v) : NULL;
    if (s == NULL || s->refusal != REFUSAL_NONE) {
        return;
    }
    s->refusal = refusal;
    send_state(n, s, out)->first = true;
}

/* Why the shard has no free slot. Undecided versions free theirs by themselves, and the coordinator limits their
 * number. If there are none, the slots in quarantine are the reason. */
static enum refusal no_slot(const struct node *n, uint32_t shard)
{
    enum refusal refusal = REFUSAL_NO_SLOT;
    uint32_t first = n->first_slot[shard];
    for (uint32_t i = first; i < first + n->setup->shards[shard].slot_count; i++) {
        const struct slot *s = &n->slots[i];
        if (s->state == SLOT_QUARANTINED) {
            refusal = REFUSAL_QUARANTINED;
        } else if (s->state != SLOT_FREE && node_fate(n, s->version) == FATE_UNDECIDED) {
            return REFUSAL_NO_SLOT;
        }
    }
    return refusal;
}

/* Why this rank cannot save v now, REFUSAL_NONE if it can. */
static enum refusal begin_obstacle(const struct node *n, uint32_t rank, struct version v)
{
    if (node_saving_suspended(n)) {
        return REFUSAL_MEMORY;
    }
    for (uint32_t i = 0; i < n->setup->shard_count; i++) {
        const struct node_shard *shard = &n->setup->shards[i];
        if (shard->storing_rank != rank) {
            continue;
        }
        if (node_empty_slot(n, i) == NONE32) {
            return no_slot(n, i);
        }
        if (node_slot_of(n, i, v) != NONE32) {
            return REFUSAL_NO_SLOT;
        }
        for (uint32_t h = 0; h < shard->holder_count; h++) {
            if (n->down[shard->holders[h]]) {
                return REFUSAL_HOLDER_LOST;
            }
        }
    }
    return REFUSAL_NONE;
}

static void refuse_rank(uint32_t rank, struct version v, enum refusal refusal, struct actions *out)
{
    struct action *a = action_add(out, ACTION_REFUSE);
    a->rank = rank;
    a->version = v;
    a->refusal = refusal;
}

static void grant(struct node *n, struct save *s, uint32_t rank, bool to_storage, struct actions *out)
{
    for (uint32_t i = 0; i < n->setup->shard_count; i++) {
        if (n->setup->shards[i].storing_rank == rank) {
            uint32_t slot = node_empty_slot(n, i);
            n->slots[slot].to_storage = to_storage;
            node_set_slot(n, slot, SLOT_FILLING, s->version, out);
        }
    }
    s->ranks[rank] = RANK_FILLING;
    moved(n, s);
    struct action *a = action_add(out, ACTION_GRANT);
    a->rank = rank;
    a->version = s->version;
}

/* Refuses undecided versions that this rank will never save, because it has continued without them: the agent was away
 * at that time, or has forgotten them since. No other rank or node knows, and their slots would stay occupied until
 * they time out. */
static void refuse_passed_over(struct node *n, uint32_t rank, uint64_t step, struct actions *out)
{
    for (uint32_t i = 0; i < n->decision.open_count && n->decision.open[i] < step; i++) {
        struct version v = node_version(n, n->decision.open[i]);
        const struct save *s = node_save(n, v);
        if (s == NULL || s->ranks[rank] == RANK_IDLE) {
            save_refuse(n, v, REFUSAL_PASSED_OVER, out);
        }
    }
}

/* The coordinator skips the step and ends it by itself. If other ranks of this node have begun it, the coordinator
 * is notified. */
static void refuse_held_back(struct node *n, uint32_t rank, struct version v, struct actions *out)
{
    refuse_rank(rank, v, REFUSAL_HELD_BACK, out);
    if (node_save(n, v) != NULL) {
        save_refuse(n, v, REFUSAL_HELD_BACK, out);
    }
}

static void begin(struct node *n, const struct event *e, struct version v, struct actions *out)
{
    if (!decision_lets_begin(&n->decision, v.step)) {
        refuse_held_back(n, e->rank, v, out);
        return;
    }
    if (node_fate(n, v) != FATE_UNDECIDED) {
        refuse_rank(e->rank, v, REFUSAL_ABORTED, out);
        return;
    }
    struct save *s = save_open(n, v);
    if (s == NULL) { /* many undecided versions and a silent coordinator: it will time this one out */
        refuse_rank(e->rank, v, REFUSAL_NO_SLOT, out);
        return;
    }
    s->to_storage |= e->to_storage;
    enum refusal obstacle = s->refusal != REFUSAL_NONE ? s->refusal : begin_obstacle(n, e->rank, v);
    if (obstacle != REFUSAL_NONE) {
        refuse_rank(e->rank, v, obstacle, out);
        save_refuse(n, v, obstacle, out);
        return;
    }
    grant(n, s, e->rank, e->to_storage, out);
}

/* Whether v will find room here without further action: whatever occupies its slots ends by itself. */
static bool room_may_come(struct node *n, uint32_t rank, struct version v)
{
    const struct save *s = node_save(n, v);
    if (node_fate(n, v) != FATE_UNDECIDED || (s != NULL && s->refusal != REFUSAL_NONE)) {
        return false;
    }
    if (s == NULL && node_save(n, VERSION_NONE) == NULL) {
        return true; /* this node has its fill of undecided versions, which the coordinator times out */
    }
    enum refusal obstacle = begin_obstacle(n, rank, v);
    return !decision_lets_begin(&n->decision, v.step) || obstacle == REFUSAL_NO_SLOT ||
           obstacle == REFUSAL_QUARANTINED || obstacle == REFUSAL_MEMORY;
}

/* To the coordinator, because a recovery may be able to free a slot. */
static void send_not_yet(struct version v, struct actions *out)
{
    struct action *a = action_add(out, ACTION_SEND_REFUSED);
    a->version = v;
    a->refusal = REFUSAL_NOT_YET;
}

static void refuse_for_now(uint32_t rank, struct version v, struct actions *out)
{
    refuse_rank(rank, v, REFUSAL_NOT_YET, out);
    send_not_yet(v, out);
}

void save_begin(struct node *n, const struct event *e, struct actions *out)
{
    struct version v = node_version(n, e->version.step);
    if (v.step < n->next_step[e->rank] || v.step == UINT64_MAX) {
        refuse_rank(e->rank, v, REFUSAL_OLD_STEP, out);
        return;
    }
    if (e->last && room_may_come(n, e->rank, v)) {
        refuse_for_now(e->rank, v, out);
    } else {
        n->next_step[e->rank] = v.step + 1;
        begin(n, e, v, out);
    }
    refuse_passed_over(n, e->rank, v.step, out);
}

static struct lacking shard_lacks(const struct node *n, uint32_t shard, struct version v)
{
    uint32_t slot = node_slot_of(n, shard, v);
    if (slot == NONE32 || n->slots[slot].state != SLOT_VERIFIED) {
        return (struct lacking){.lack = LACKS_DIGESTS, .shard = shard};
    }
    for (uint32_t h = 0; h < n->setup->shards[shard].holder_count; h++) {
        if (n->copies[slot][h].state != COPY_ACKED) {
            return (struct lacking){.lack = LACKS_COPY, .shard = shard, .node = n->setup->shards[shard].holders[h]};
        }
    }
    return (struct lacking){0};
}

struct lacking node_lacks(const struct node *n, struct version v)
{
    struct lacking lacking = {0};
    uint32_t i = node_save_index(n, v);
    if (i == NONE32) {
        return lacking;
    }
    for (uint32_t r = 0; r < n->setup->rank_count; r++) {
        if (n->saves[i].ranks[r] != RANK_SEALED) {
            enum lack lack = n->saves[i].ranks[r] == RANK_IDLE ? LACKS_BEGIN : LACKS_SEAL;
            return (struct lacking){.lack = lack, .rank = r};
        }
    }
    for (uint32_t s = 0; s < n->setup->shard_count && lacking.lack == LACKS_NOTHING; s++) {
        if (n->setup->shards[s].storing_rank != NONE32) {
            lacking = shard_lacks(n, s, v);
        }
    }
    return lacking;
}

static void ready_if_protected(struct node *n, struct save *s, struct actions *out)
{
    if (s->ready || s->refusal != REFUSAL_NONE || node_lacks(n, s->version).lack != LACKS_NOTHING) {
        return;
    }
    s->ready = true;
    tell(s->version, STAGE_PROTECTED, out);
    (void)send_state(n, s, out);
}

/* Calls on_slot for each slot that this rank is filling with v (VERSION_NONE: with any version). */
static void each_filling(struct node *n, uint32_t rank, struct version v,
                         void (*on_slot)(struct node *n, uint32_t slot, struct actions *out), struct actions *out)
{
    for (uint32_t i = 0; i < n->slot_total; i++) {
        const struct slot *slot = &n->slots[i];
        bool wanted = version_none(v) || version_is(slot->version, v);
        if (slot->state == SLOT_FILLING && wanted && node_shard_of_slot(n, i)->storing_rank == rank) {
            on_slot(n, i, out);
        }
    }
}

static void make_digests(struct node *n, uint32_t slot, struct actions *out)
{
    n->slots[slot].undigested = false;
    struct action *a = action_add(out, ACTION_VERIFY);
    a->slot = slot;
    a->version = n->slots[slot].version;
}

static void seal_slot(struct node *n, uint32_t slot, struct actions *out)
{
    if (n->slots[slot].doomed) {
        node_free_slot(n, slot, out);
        return;
    }
    node_set_slot(n, slot, SLOT_SEALED, n->slots[slot].version, out);
    make_digests(n, slot, out);
}

/* Whether a slot that this rank has filled is gone: corrupt, or its header was lost in a restart. */
static bool lacks_slot(const struct node *n, uint32_t rank, struct version v)
{
    for (uint32_t i = 0; i < n->setup->shard_count; i++) {
        if (n->setup->shards[i].storing_rank == rank && node_slot_of(n, i, v) == NONE32) {
            return true;
        }
    }
    return false;
}

/* A trainer that has come back reports again what it has sealed, and is informed again of what it has missed. */
static void tell_again(const struct node *n, const struct save *s, struct version v, struct actions *out)
{
    const struct version w = n->decision.watermark;
    bool aborted = node_fate(n, v) == FATE_OVER && (w.term != v.term || v.step > w.step);
    if (aborted) {
        tell(v, STAGE_FAILED, out);
    } else if (s != NULL && s->ready) {
        tell(v, STAGE_PROTECTED, out);
    }
}

void save_seal(struct node *n, const struct event *e, struct actions *out)
{
    struct version v = node_version(n, e->version.step);
    each_filling(n, e->rank, v, seal_slot, out);
    struct save *s = node_save(n, v);
    if (v.step >= n->next_step[e->rank]) {
        return; /* never begun */
    }
    if (lacks_slot(n, e->rank, v)) {
        save_refuse(n, v, REFUSAL_CORRUPT, out);
    }
    if (s != NULL && s->ranks[e->rank] == RANK_FILLING) {
        s->ranks[e->rank] = RANK_SEALED;
        moved(n, s);
        ready_if_protected(n, s, out); /* a rank may have nothing of its own to store */
    } else {
        tell_again(n, s, v, out);
    }
}

void save_abandon(struct node *n, const struct event *e, struct actions *out)
{
    struct version v = node_version(n, e->version.step);
    each_filling(n, e->rank, v, node_free_slot, out);
    struct save *s = node_save(n, v);
    if (s != NULL && s->ranks[e->rank] == RANK_FILLING) {
        s->ranks[e->rank] = RANK_IDLE;
        save_refuse(n, v, REFUSAL_RANK_LOST, out);
    }
}

void save_rank_lost(struct node *n, const struct event *e, struct actions *out)
{
    each_filling(n, e->rank, VERSION_NONE, node_quarantine_slot, out);
    for (int i = 0; i < NODE_SAVES; i++) {
        struct save *s = &n->saves[i];
        if (!version_none(s->version) && s->ranks[e->rank] != RANK_SEALED) {
            s->ranks[e->rank] = RANK_IDLE;
            save_refuse(n, s->version, REFUSAL_RANK_LOST, out);
        }
    }
}

void save_verified(struct node *n, const struct event *e, struct actions *out)
{
    struct version v = e->version;
    if (!e->ok) {
        node_free_slot(n, e->slot, out);
        if (v.term == n->setup->term) {
            save_refuse(n, v, REFUSAL_CORRUPT, out);
        }
        return;
    }
    n->slots[e->slot].root = e->root;
    node_set_slot(n, e->slot, SLOT_VERIFIED, v, out);
    node_free_if_unused(n, e->slot, out);
    struct save *s = node_save(n, v);
    if (s == NULL || s->refusal != REFUSAL_NONE || n->slots[e->slot].state != SLOT_VERIFIED) {
        return;
    }
    moved(n, s);
    copies_due(n, e->slot);
    copies_send(n, e->slot, out);
    ready_if_protected(n, s, out);
}

/* Whether asking the same holder again can help. */
static bool refusal_may_heal(enum refusal refusal)
{
    return refusal != REFUSAL_NOT_A_HOLDER && refusal != REFUSAL_TERM_CLOSED && refusal != REFUSAL_ABORTED;
}

/* The copy of the event's shard at the event's node, NULL if nothing is known of it. */
static struct copy *copy_of(struct node *n, const struct event *e, uint32_t *slot_out)
{
    uint32_t shard = node_shard_of(n, e->shard);
    uint32_t slot = shard == NONE32 ? NONE32 : node_slot_of(n, shard, e->version);
    if (slot == NONE32) {
        return NULL;
    }
    for (uint32_t h = 0; h < n->setup->shards[shard].holder_count; h++) {
        if (n->setup->shards[shard].holders[h] == e->node) {
            *slot_out = slot;
            return &n->copies[slot][h];
        }
    }
    return NULL;
}

/* The next attempt begins from the front. */
static void copy_failed(const struct node *n, struct copy *copy)
{
    copy->state = COPY_DUE;
    copy->retry_ms = n->now_ms + n->setup->retry_ms;
    if (copy->sent > 0 && copy->restarts < COPY_RESTARTS) {
        copy->restarts++;
        copy->sent = 0;
    }
}

void save_replica(struct node *n, const struct event *e, struct actions *out)
{
    uint32_t slot = NONE32;
    struct copy *copy = copy_of(n, e, &slot);
    struct save *s = node_save(n, e->version);
    if (copy != NULL && copy->state == COPY_CANCELED) {
        copy->state = COPY_NONE;
        copies_send_next(n, slot, (uint32_t)(copy - n->copies[slot]), out);
        return;
    }
    if (copy == NULL || s == NULL || copy->state == COPY_NONE || copy->state == COPY_ACKED) {
        return;
    }
    if (e->ok && hash128_is(e->root, n->slots[slot].root)) {
        copy->state = COPY_ACKED;
        moved(n, s);
        ready_if_protected(n, s, out);
        return;
    }
    copy_failed(n, copy);
    if (!refusal_may_heal(e->refusal)) {
        save_refuse(n, e->version, e->refusal, out);
    } else if (e->refusal == REFUSAL_NO_SLOT && !decision_is_recovered(&n->decision)) {
        send_not_yet(e->version, out);
    }
}

/* Whether the copy has sent bytes that have not counted yet, or waits for its turn. What it waits for was begun before
 * it, and ends. */
static bool copy_moved(struct node *n, const struct event *e)
{
    const struct node_shard *shard = node_shard_of_slot(n, e->slot);
    for (uint32_t h = 0; h < shard->holder_count; h++) {
        struct copy *copy = &n->copies[e->slot][h];
        if (shard->holders[h] == e->node && copy->state == COPY_SENDING) {
            bool further = e->bytes > copy->sent;
            copy->sent = further ? e->bytes : copy->sent;
            return further || e->waits;
        }
    }
    return false;
}

void save_moved(struct node *n, const struct event *e)
{
    const struct slot *slot = &n->slots[e->slot];
    struct save *s = version_is(slot->version, e->version) ? node_save(n, e->version) : NULL;
    if (s == NULL) {
        return;
    }
    if (e->node == NONE32 ? slot->state == SLOT_SEALED : copy_moved(n, e)) {
        moved(n, s);
    }
}

/* Whether this version still waits for a copy at that node. */
static bool needs_holder(const struct node *n, const struct save *s, uint32_t node)
{
    for (uint32_t i = 0; i < n->setup->shard_count; i++) {
        const struct node_shard *shard = &n->setup->shards[i];
        if (shard->storing_rank == NONE32) {
            continue;
        }
        uint32_t slot = node_slot_of(n, i, s->version);
        for (uint32_t h = 0; h < shard->holder_count; h++) {
            bool acked = slot != NONE32 && n->copies[slot][h].state == COPY_ACKED;
            if (shard->holders[h] == node && !acked) {
                return true;
            }
        }
    }
    return false;
}

void save_node_down(struct node *n, uint32_t node, struct actions *out)
{
    for (int i = 0; i < NODE_SAVES; i++) {
        struct save *s = &n->saves[i];
        if (!version_none(s->version) && s->refusal == REFUSAL_NONE && needs_holder(n, s, node)) {
            save_refuse(n, s->version, REFUSAL_HOLDER_LOST, out);
        }
    }
}

static void retry_slot(struct node *n, uint32_t slot, struct actions *out)
{
    if (n->slots[slot].state == SLOT_SEALED && n->slots[slot].undigested) {
        make_digests(n, slot, out);
        return;
    }
    copies_send(n, slot, out);
}

/* Whether it may wait for links, or for slots at its holders, that an older version occupies until it is decided. */
static bool follows_undecided(const struct node *n, const struct save *s)
{
    for (int i = 0; i < NODE_SAVES; i++) {
        const struct save *other = &n->saves[i];
        if (!version_none(other->version) && other->version.step < s->version.step) {
            return true;
        }
    }
    return false;
}

/* Of a version that is still on its way to READY. */
static void look_for_progress(struct node *n, struct save *s, struct actions *out)
{
    uint32_t timeout_ms = n->setup->version_timeout_ms;
    if (follows_undecided(n, s)) {
        s->moved_ms = n->now_ms;
    } else if (n->now_ms >= s->moved_ms + timeout_ms) {
        save_refuse(n, s->version, REFUSAL_TIMED_OUT, out);
        return;
    }
    if (s->unreported && n->now_ms >= s->report_ms) {
        action_add(out, ACTION_SEND_PROGRESS)->version = s->version;
        s->unreported = false;
        s->report_ms = next_report(n);
    }
}

void save_tick(struct node *n, struct actions *out)
{
    for (int i = 0; i < NODE_SAVES; i++) {
        struct save *s = &n->saves[i];
        if (version_none(s->version)) {
            continue;
        }
        if (s->ready || s->refusal != REFUSAL_NONE) {
            if (n->now_ms >= s->next_send_ms) {
                (void)send_state(n, s, out);
            }
            continue;
        }
        ready_if_protected(n, s, out); /* one that was found complete, and has no holders, waits for nothing else */
        if (!s->ready) {
            look_for_progress(n, s, out);
        }
    }
    for (uint32_t i = 0; i < n->slot_total; i++) {
        retry_slot(n, i, out);
    }
}

void save_settle(struct node *n, struct actions *out)
{
    for (int i = 0; i < NODE_SAVES; i++) {
        struct save *s = &n->saves[i];
        if (version_none(s->version) || node_fate(n, s->version) == FATE_UNDECIDED) {
            continue;
        }
        bool drained = version_is(s->version, n->decision.drain); /* its commit became known together with the next */
        if (node_fate(n, s->version) == FATE_OVER && !drained) {
            tell(s->version, STAGE_FAILED, out);
        }
        give_time(n, s->version);
        s->version = VERSION_NONE;
    }
}
