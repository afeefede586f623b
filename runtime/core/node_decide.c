/* SPDX-License-Identifier: Apache-2.0
 * What a newly learned decision changes on this node: versions settle, slots become free, a drain begins or ends. */
#include "core/node_copies.h"
#include "core/node_parts.h"

static void send_drained(struct node *n, struct actions *out)
{
    struct action *a = action_add(out, ACTION_SEND_DRAINED);
    a->version = n->drain.version;
    a->attempt = n->drain.attempt;
    a->ok = n->drain.ok;
    n->drain.next_send_ms = n->now_ms + n->setup->retry_ms;
}

static void drain_end(struct node *n, bool ok, struct actions *out)
{
    n->drain.state = DRAIN_ENDED;
    n->drain.ok = ok;
    send_drained(n, out);
}

/* Whether this node has a part in drains, and whether all of that part is here. */
static bool drains_here(const struct node *n, struct version v, bool *whole_out)
{
    bool any = false;
    *whole_out = true;
    for (uint32_t i = 0; i < n->setup->shard_count; i++) {
        if (n->setup->shards[i].drains_here) {
            uint32_t slot = node_slot_of(n, i, v);
            any = true;
            *whole_out &= slot != NONE32 && n->slots[slot].state == SLOT_VERIFIED;
        }
    }
    return any;
}

bool node_drain_wanted(const struct node *n, struct version version, uint64_t attempt)
{
    return version_is(n->decision.drain, version) && n->decision.drain_attempt == attempt;
}

/* One at a time: drains must not queue up behind one that is slow, even if another node's failure has made that one
 * useless. */
static void drain_follow(struct node *n, struct actions *out)
{
    struct version v = n->decision.drain;
    if (n->drain.state == DRAIN_RUNNING) {
        return;
    }
    if (version_none(v)) {
        n->drain.state = DRAIN_NONE;
        return;
    }
    if (n->drain.state == DRAIN_ENDED && n->drain.attempt == n->decision.drain_attempt) {
        return;
    }
    bool whole;
    n->drain = (struct drain){.version = v, .attempt = n->decision.drain_attempt};
    if (!drains_here(n, v, &whole)) {
        return;
    }
    if (!whole) {
        drain_end(n, false, out);
        return;
    }
    n->drain.state = DRAIN_RUNNING;
    struct action *a = action_add(out, ACTION_DRAIN);
    a->version = v;
    a->attempt = n->drain.attempt;
}

static void tell_progress(const struct decision *before, const struct decision *now, struct actions *out)
{
    if (now->watermark.term == now->term && !version_is(now->watermark, before->watermark)) {
        struct action *a = action_add(out, ACTION_NOTIFY);
        a->version = now->watermark;
        a->stage = STAGE_COMMITTED;
    }
    if (!version_none(now->published) && !version_is(now->published, before->published)) {
        struct action *a = action_add(out, ACTION_NOTIFY);
        a->version = now->published;
        a->stage = STAGE_PUBLISHED;
    }
}

/* Headers record what is committed, including the base of a recovery, because later recoveries must know what was
 * promised. */
static void mark_committed(struct node *n, struct actions *out)
{
    for (uint32_t i = 0; i < n->slot_total; i++) {
        if (n->slots[i].state == SLOT_VERIFIED && version_is(n->slots[i].version, n->decision.watermark)) {
            action_add(out, ACTION_WRITE_HEADER)->slot = i;
        }
    }
}

void decide_learn(struct node *n, const struct decision *d, struct actions *out)
{
    if (d->term != n->setup->term || d->seq <= n->decision.seq) {
        return;
    }
    struct decision before = n->decision;
    n->decision = *d;
    tell_progress(&before, d, out);
    save_settle(n, out);
    if (!version_is(d->watermark, before.watermark)) {
        mark_committed(n, out);
    }
    bool ends_any = decision_is_recovered(d) != decision_is_recovered(&before);
    for (uint32_t i = 0; i < n->slot_total; i++) {
        if (n->slots[i].state != SLOT_FREE && node_fate(n, n->slots[i].version) == FATE_OVER) {
            ends_any |= !n->slots[i].doomed;
            n->slots[i].doomed = true;
            copies_cancel(n, i, out);
            node_free_if_unused(n, i, out);
        }
    }
    if (ends_any) {
        copies_send_decided(n, out);
    }
    drain_follow(n, out);
}

void decide_drained_here(struct node *n, const struct event *e, struct actions *out)
{
    bool running = n->drain.state == DRAIN_RUNNING;
    if (!running || n->drain.attempt != e->attempt || !version_is(n->drain.version, e->version)) {
        return;
    }
    if (node_drain_wanted(n, e->version, e->attempt)) {
        drain_end(n, e->ok, out);
        return;
    }
    n->drain.state = DRAIN_NONE;
    drain_follow(n, out);
}

void decide_tick(struct node *n, struct actions *out)
{
    if (n->drain.state == DRAIN_ENDED && n->now_ms >= n->drain.next_send_ms) {
        send_drained(n, out);
    }
}
