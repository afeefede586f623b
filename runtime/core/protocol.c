/* SPDX-License-Identifier: Apache-2.0
 * What a decision says about a version, its encoding, and the texts of refusals. */
#include "core/protocol.h"
#include <string.h>

static bool decision_has_open(const struct decision *d, uint64_t step)
{
    for (uint32_t i = 0; i < d->open_count; i++) {
        if (d->open[i] == step) {
            return true;
        }
    }
    return false;
}

bool decision_lets_begin(const struct decision *d, uint64_t step)
{
    return step >= d->not_before || decision_has_open(d, step);
}

enum fate decision_fate(const struct decision *d, struct version v)
{
    if (version_none(v)) {
        return FATE_OVER;
    }
    if (version_is(v, d->watermark)) {
        return FATE_COMMITTED;
    }
    if (v.term > d->term) {
        return FATE_UNDECIDED;
    }
    if (v.term < d->term) {
        bool lost = d->base_lost && version_is(v, d->base);
        return lost || d->based || d->watermark.term == d->term ? FATE_OVER : FATE_UNDECIDED;
    }
    return v.step >= d->horizon || decision_has_open(d, v.step) ? FATE_UNDECIDED : FATE_OVER;
}

bool decision_is_recovered(const struct decision *d)
{
    return d->based || d->base_lost || d->watermark.term == d->term;
}

/* The invariants that the coordinator keeps; a sender that breaks them is not one. */
static bool decision_is_sane(const struct decision *d)
{
    if (d->term == 0 || d->watermark.term > d->term || d->drain.term > d->term || d->published.term > d->term) {
        return false;
    }
    if (d->base.term >= d->term || (!d->readable && (d->based || !version_none(d->base)))) {
        return false;
    }
    if (d->base_lost && (version_none(d->base) || version_is(d->base, d->watermark))) {
        return false;
    }
    bool decided_here = d->watermark.term == d->term;
    if (decided_here && d->watermark.step >= d->horizon) {
        return false;
    }
    for (uint32_t i = 0; i < d->open_count; i++) {
        bool ascending = i == 0 || d->open[i] > d->open[i - 1];
        bool newer = !decided_here || d->open[i] > d->watermark.step;
        if (!ascending || !newer || d->open[i] >= d->horizon) {
            return false;
        }
    }
    return true;
}

SCHEMA_SHARED_PART(decision, DECISION_FIELDS, decision_is_sane)

const char *refusal_text(enum refusal refusal)
{
    switch (refusal) {
#define REFUSAL_CASE(name, text) \
    case REFUSAL_##name:         \
        return text;
        REFUSAL_MAP(REFUSAL_CASE)
#undef REFUSAL_CASE
    case REFUSAL_NONE:
        break;
    }
    return "not refused";
}

struct action *action_add(struct actions *out, enum action_type type)
{
    struct action *a = &out->items[out->count++];
    *a = (struct action){
        .type = type, .node = NONE32, .rank = NONE32, .shard = NONE32, .slot = NONE32, .base_slot = NONE32};
    return a;
}
