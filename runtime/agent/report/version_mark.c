/* SPDX-License-Identifier: Apache-2.0
 * The table of what begins and ends where. */
#include "agent/report/version_mark.h"

#include <stddef.h>

static struct version_mark mark(enum mark_phase phase, const char *name, struct version version)
{
    return (struct version_mark){.phase = phase,
                                 .name = name,
                                 .version = version,
                                 .rank = NONE32,
                                 .slot = NONE32,
                                 .shard = NONE32,
                                 .node = NONE32,
                                 .ok = true};
}

/* Digests of a slot that a trainer has filled, or that has received a copy. */
static bool verified(const struct event *event, const struct slot *slot, struct version_mark *out)
{
    if (slot == NULL || (slot->state != SLOT_SEALED && slot->state != SLOT_RECEIVING)) {
        return false;
    }
    *out = mark(MARK_END, slot->state == SLOT_SEALED ? "digest" : "receive", event->version);
    out->slot = event->slot;
    out->ok = event->ok;
    return true;
}

static void save_ended(const struct event *event, uint64_t term, struct version_mark *out)
{
    *out = mark(MARK_END, "save", (struct version){term, event->version.step});
    out->rank = event->rank;
    out->ok = event->type == EVENT_SEAL;
}

/* What the event ends, if it ends something that does not depend on a slot. */
static const char *ended_by(enum event_type type)
{
    return type == EVENT_REPLICA        ? "copy"
           : type == EVENT_DRAINED_HERE ? "drain"
           : type == EVENT_PUBLISHED    ? "publish"
                                        : NULL;
}

/* Of another node, which has been down for longer than an agent needs to come back, or is there again. */
static void node_changed(const struct event *event, uint64_t term, struct version_mark *out)
{
    *out = mark(MARK_INSTANT, event->type == EVENT_NODE_DOWN ? "node lost" : "node back", (struct version){term, 0});
    out->node = event->node;
}

bool version_mark_of_event(const struct event *event, uint64_t term, const struct slot *slot, struct version_mark *out)
{
    const char *ended = ended_by(event->type);
    if (event->type == EVENT_VERIFIED) {
        return verified(event, slot, out);
    }
    if (event->type == EVENT_SEAL || event->type == EVENT_ABANDON) {
        save_ended(event, term, out);
        return true;
    }
    if (event->type == EVENT_NODE_DOWN || event->type == EVENT_NODE_UP) {
        node_changed(event, term, out);
        return true;
    }
    if (ended == NULL) {
        return false;
    }
    *out = mark(MARK_END, ended, event->version);
    out->ok = event->ok;
    if (event->type == EVENT_REPLICA) {
        out->shard = event->shard;
        out->node = event->node;
    } else {
        out->attempt = event->attempt;
    }
    return true;
}

static const char *stage_name(enum stage stage)
{
    static const char *const names[] = {[STAGE_PROTECTED] = "protected",
                                        [STAGE_COMMITTED] = "committed",
                                        [STAGE_PUBLISHED] = "published",
                                        [STAGE_FAILED] = "failed"};
    return names[stage];
}

/* What the action begins; NULL: nothing. */
static const char *begun_by(const struct action *action)
{
    static const char *const names[ACTION_PUBLISH + 1] = {
        [ACTION_GRANT] = "save",     [ACTION_VERIFY] = "digest",      [ACTION_REPLICATE] = "copy",
        [ACTION_STORE] = "receive",  [ACTION_FETCH_SLOT] = "receive", [ACTION_DRAIN] = "drain",
        [ACTION_PUBLISH] = "publish"};
    bool receives = action->slot != NONE32 && !action->ok; /* a fetch that has a slot, and the copy is not here yet */
    return action->type == ACTION_FETCH_SLOT && !receives ? NULL : names[action->type];
}

bool version_mark_of_action(const struct action *action, struct version_mark *out)
{
    const char *begun = begun_by(action);
    if (action->type == ACTION_NOTIFY) {
        *out = mark(MARK_INSTANT, stage_name(action->stage), action->version);
        return true;
    }
    if (begun == NULL) {
        return false;
    }
    *out = mark(MARK_BEGIN, begun, action->version);
    out->rank = action->type == ACTION_GRANT ? action->rank : NONE32;
    if (action->type == ACTION_REPLICATE) {
        out->shard = action->shard;
        out->node = action->node;
    } else {
        out->slot = action->slot; /* of a digest, and of what receives a copy; NONE32 for the others */
    }
    out->attempt = action->attempt;
    return true;
}

struct version_mark version_mark_of_arrival(uint32_t shard, struct version version, bool repairs)
{
    struct version_mark arrival = mark(MARK_INSTANT, repairs ? "repaired" : "fetched", version);
    arrival.shard = shard;
    return arrival;
}

uint32_t version_marks_of_decision(const struct decision *before, const struct decision *now,
                                   struct version_mark out[DECISION_MARKS])
{
    bool new_term = before->term != now->term;
    uint32_t count = 0;
    if (new_term && !decision_is_none(now)) {
        out[count++] = mark(MARK_INSTANT, "term", (struct version){now->term, 0});
    }
    if (now->readable && (new_term || !before->readable)) {
        out[count++] = mark(MARK_INSTANT, version_none(now->base) ? "restored nothing" : "restored", now->base);
    }
    if (now->based && (new_term || !before->based)) {
        out[count++] = mark(MARK_INSTANT, "recovered", (struct version){now->term, 0});
    }
    return count;
}
