/* SPDX-License-Identifier: Apache-2.0
 * Commits a version when every node is ready, and aborts it at the first refusal, time-out or newer commit. Runs one
 * drain at a time.
 *
 * A version times out if no node that is not ready has reported progress for version_timeout_ms, neither of it nor of
 * an older one, for whose links and slots it may be waiting. Progress is enough, without a limit to the whole: a node
 * counts each piece of a version once (node_state.h), so no version stays undecided for ever, and any limit in seconds
 * would be too short for some state on some link, of which then no version would ever be committed. The end of a
 * version is progress of newer ones, too, whose copies may have had to wait for it (node_copies.h). So versions that do
 * not move end one after the other.
 *
 * If a version for storage is aborted, the next commit is drained in its place. Otherwise a job whose storage interval
 * coincides with refusals would never publish anything. After a failed drain the newest commit is drained again, after
 * a pause that doubles while drains keep failing. It does not wait for a commit: after the training's last step there
 * is none.
 *
 * If saves come much faster than they can be copied, the slots of each node soon hold different versions, and each
 * node refuses a different step: every version is refused by some node, and its copies are useless. A miss is an
 * abort of the oldest open version for lack of slots or of progress. After some misses without a commit, saves are
 * skipped (decision.not_before), so that the next version that is begun has all nodes, slots and links to itself for
 * the time of one save. If that one is missed as well, the next one has them for two saves, then four, eight. A
 * commit halves the number again. The step is named in advance, so that all nodes begin the same one. No node waits
 * for a step that never comes: version_timeout_ms after the version that is alone has moved last, any may be begun. */
#include "core/coordinator.h"
#include <string.h>

#define MISSES_MAX  3 /* in a row; at the next one saves are skipped */
#define SKIPPED_MAX (1u << 20)

/* An undecided version, at the same index as in decision.open. */
struct open_version {
    uint64_t moved_ms; /* when progress was reported last */
    bool to_storage;
    uint32_t ready_count;
    bool *ready; /* per node */
};

struct coordinator {
    const struct coordinator_setup *setup;
    struct decision decision;
    struct open_version open[CORE_OPEN_MAX];
    bool drain_missed;       /* a storage version was aborted */
    uint32_t pause_ms;       /* after the last drain, which failed; 0: no drain has failed since the last publish */
    uint64_t drain_after_ms; /* no drain begins before this */
    uint32_t misses;         /* since the last commit */
    uint32_t skipped;        /* this many saves are skipped after each one that is begun */
    uint32_t skipped_before_drain;
    uint64_t newest_step, spacing; /* the newest save requested on this node, and its distance in steps from the one
                                      before */
    uint64_t held_until_ms;
    bool publishing;
    bool *drained; /* per node: its part of decision.drain is on storage */
    bool changed;  /* within one event */
};

size_t coordinator_memory(const struct coordinator_setup *setup)
{
    return sizeof(struct coordinator) + (size_t)setup->node_count * (CORE_OPEN_MAX + 1);
}

struct coordinator *coordinator_init(void *memory, const struct coordinator_setup *setup,
                                     const struct decision *decision, uint64_t now_ms)
{
    struct coordinator *c = memory;
    memset(memory, 0, coordinator_memory(setup));
    bool *bits = (bool *)(c + 1);
    c->setup = setup;
    c->drained = bits;
    for (uint32_t i = 0; i < CORE_OPEN_MAX; i++) {
        c->open[i].ready = bits + (size_t)(i + 1) * setup->node_count;
        c->open[i].moved_ms = now_ms;
    }
    if (decision != NULL && decision->term == setup->term) {
        c->decision = *decision;
    } else {
        c->decision = (struct decision){.term = setup->term, .seq = 1};
    }
    c->spacing = 1;
    c->held_until_ms = now_ms + setup->version_timeout_ms;
    return c;
}

uint32_t coordinator_actions_max(const struct coordinator_setup *setup)
{
    (void)setup;
    return 3; /* GIVE_UP, ANNOUNCE and PUBLISH */
}

const struct decision *coordinator_decision(const struct coordinator *c)
{
    return &c->decision;
}

/* Of the version at this index; newer ones may have been waiting for it. */
static void note_progress(struct coordinator *c, uint32_t index, uint64_t now_ms)
{
    for (uint32_t i = index; i < c->decision.open_count; i++) {
        c->open[i].moved_ms = now_ms;
    }
    c->held_until_ms = now_ms + c->setup->version_timeout_ms;
}

/* Versions that had to wait for it have their whole time from now on. */
static void open_remove(struct coordinator *c, uint32_t index, uint64_t now_ms)
{
    struct decision *d = &c->decision;
    struct open_version gone = c->open[index];
    for (uint32_t i = index; i + 1 < d->open_count; i++) {
        d->open[i] = d->open[i + 1];
        c->open[i] = c->open[i + 1];
    }
    d->open_count--;
    d->open[d->open_count] = 0;
    c->open[d->open_count] = gone; /* its bits stay in the same memory */
    c->changed = true;
    if (index < d->open_count) {
        note_progress(c, index, now_ms);
    }
}

static void open_abort(struct coordinator *c, uint32_t index, uint64_t now_ms)
{
    c->drain_missed |= c->open[index].to_storage;
    open_remove(c, index, now_ms);
}

/* A version was aborted for lack of slots or of progress. While an older one is still open, this is not a miss yet. */
static void open_miss(struct coordinator *c, uint32_t index, uint64_t now_ms)
{
    if (index == 0 && ++c->misses > MISSES_MAX && c->skipped < SKIPPED_MAX) {
        c->skipped = c->skipped == 0 ? 1 : 2 * c->skipped;
    }
    open_abort(c, index, now_ms);
}

/* The first step that may be begun again after this one; UINT64_MAX is never reached, and nothing waits for it. */
static uint64_t first_to_begin(const struct coordinator *c)
{
    uint64_t steps = 0, first = 0;
    bool beyond = __builtin_mul_overflow(c->skipped, c->spacing, &steps) ||
                  __builtin_add_overflow(c->decision.horizon, steps, &first);
    return c->skipped == 0 ? 0 : beyond ? UINT64_MAX : first;
}

/* A version was opened: the saves after it are skipped for a while. */
static void hold_back(struct coordinator *c, uint64_t now_ms)
{
    c->decision.not_before = first_to_begin(c);
    c->held_until_ms = now_ms + c->setup->version_timeout_ms;
}

/* A drain or a recovery occupies a slot of every shard. Misses during that time do not count once it has ended. */
static void hold_back_at_most(struct coordinator *c, uint32_t skipped)
{
    c->misses = 0;
    if (c->skipped > skipped) {
        uint64_t named = c->decision.not_before;
        c->skipped = skipped;
        uint64_t first = first_to_begin(c);
        c->decision.not_before = first < named ? first : named;
    }
}

/* For version_timeout_ms, nothing of the version that was alone has moved, be it undecided or decided: saves now come
 * later than before, or at other steps. */
static void let_begin_in_the_end(struct coordinator *c, uint64_t now_ms)
{
    struct decision *d = &c->decision;
    if (d->not_before > 0 && d->not_before >= d->horizon && now_ms >= c->held_until_ms) {
        d->not_before = 0;
        c->skipped /= 2;
        c->changed = true;
    }
}

/* The open version of this step, which is opened if no newer step is known. NONE32 if it is decided, or skipped,
 * which means that it is over. */
static uint32_t open_find(struct coordinator *c, uint64_t step, uint64_t now_ms)
{
    struct decision *d = &c->decision;
    for (uint32_t i = 0; i < d->open_count; i++) {
        if (d->open[i] == step) {
            return i;
        }
    }
    if (step < d->horizon || step == UINT64_MAX) {
        return NONE32;
    }
    d->horizon = step + 1;
    c->changed = true;
    if (step < d->not_before) {
        return NONE32;
    }
    if (d->open_count == CORE_OPEN_MAX) {
        open_miss(c, 0, now_ms);
    }
    uint32_t index = d->open_count++;
    struct open_version *o = &c->open[index];
    memset(o->ready, 0, c->setup->node_count);
    *o = (struct open_version){.moved_ms = now_ms, .ready = o->ready};
    d->open[index] = step;
    hold_back(c, now_ms);
    return index;
}

/* Begins a drain of the newest committed version if one is wanted, none runs, and it is not on storage yet. */
static void drain_begin_if_wanted(struct coordinator *c, uint64_t now_ms)
{
    struct decision *d = &c->decision;
    if (!d->drain_wanted || !version_none(d->drain) || version_none(d->watermark) || now_ms < c->drain_after_ms) {
        return;
    }
    d->drain_wanted = false;
    if (version_is(d->watermark, d->published)) {
        return;
    }
    d->drain = d->watermark;
    d->drain_attempt++;
    c->skipped_before_drain = c->skipped;
    c->publishing = false;
    memset(c->drained, 0, c->setup->node_count);
    c->changed = true;
}

static void drain_again_later(struct coordinator *c, uint64_t now_ms)
{
    uint32_t longest_ms = c->setup->drain_pause_max_ms;
    uint32_t pause_ms = c->pause_ms == 0 ? c->setup->drain_pause_ms : 2 * c->pause_ms;
    c->pause_ms = pause_ms < longest_ms ? pause_ms : longest_ms;
    c->drain_after_ms = now_ms + c->pause_ms;
    c->decision.drain_wanted = true;
}

static void drain_end(struct coordinator *c, bool published, uint64_t now_ms)
{
    if (published) {
        c->decision.published = c->decision.drain;
        c->pause_ms = 0;
    } else {
        drain_again_later(c, now_ms);
    }
    c->decision.drain = VERSION_NONE;
    c->publishing = false;
    c->changed = true;
    hold_back_at_most(c, c->skipped_before_drain);
}

static void commit(struct coordinator *c, uint32_t index, uint64_t now_ms)
{
    struct decision *d = &c->decision;
    d->watermark = (struct version){d->term, d->open[index]};
    for (uint32_t left = index + 1; left > 0; left--) {
        open_abort(c, 0, now_ms); /* itself and those before it, which are no longer needed; if one of them was meant
                             for storage, this one goes there instead */
    }
    c->misses = 0;
    c->skipped /= 2;
    d->drain_wanted |= c->drain_missed;
    c->drain_missed = false;
}

static void want_drain(struct coordinator *c)
{
    c->changed |= !c->decision.drain_wanted;
    c->decision.drain_wanted = true;
}

/* The user may know that storage works again. */
static void on_drain_asked(struct coordinator *c)
{
    c->pause_ms = 0;
    c->drain_after_ms = 0;
    want_drain(c);
}

/* No step follows the training's last one, so there is no later save to keep room for. */
static void let_last_begin(struct coordinator *c)
{
    c->changed |= c->decision.not_before > 0;
    c->decision.not_before = 0;
    c->skipped = 0;
}

/* A version is over, or was committed, without the request that it go to storage. */
static void on_begin_decided(struct coordinator *c, struct version v)
{
    enum fate fate = decision_fate(&c->decision, v);
    if (fate == FATE_OVER) {
        c->drain_missed = true; /* refused elsewhere already */
    } else if (fate == FATE_COMMITTED) {
        want_drain(c); /* begun again: it had been saved to memory only */
    }
}

/* A version of the coordinator's own node is open from its BEGIN. If it became known only when it is ready, the
 * refusal of a later step could put it below the horizon before that, and this would happen to every version if
 * copies take longer than the interval. */
static void on_begin(struct coordinator *c, const struct event *e)
{
    if (e->version.step > c->newest_step) {
        c->spacing = c->newest_step == 0 ? 1 : e->version.step - c->newest_step;
        c->newest_step = e->version.step;
    }
    if (e->last) {
        let_last_begin(c);
    }
    uint32_t index = open_find(c, e->version.step, e->now_ms);
    if (index != NONE32) {
        c->open[index].to_storage |= e->to_storage;
    } else if (e->to_storage) {
        on_begin_decided(c, (struct version){c->setup->term, e->version.step});
    }
}

static void on_ready(struct coordinator *c, const struct event *e)
{
    uint32_t index = open_find(c, e->version.step, e->now_ms);
    if (index == NONE32) {
        return;
    }
    if (!hash128_is(e->layout, c->setup->layout)) {
        open_abort(c, index, e->now_ms);
        return;
    }
    struct open_version *o = &c->open[index];
    o->to_storage |= e->to_storage;
    if (!o->ready[e->node]) {
        note_progress(c, index, e->now_ms);
    }
    o->ready_count += !o->ready[e->node];
    o->ready[e->node] = true;
    if (o->ready_count == c->setup->node_count) {
        commit(c, index, e->now_ms);
    }
}

static void on_progress(struct coordinator *c, const struct event *e)
{
    for (uint32_t i = 0; i < c->decision.open_count; i++) {
        if (c->decision.open[i] == e->version.step && !c->open[i].ready[e->node]) {
            note_progress(c, i, e->now_ms);
        }
    }
}

static void on_refused(struct coordinator *c, const struct event *e)
{
    if (e->refusal == REFUSAL_NOT_YET) {
        return;
    }
    uint32_t index = open_find(c, e->version.step, e->now_ms);
    if (index != NONE32 && (e->refusal == REFUSAL_NO_SLOT || e->refusal == REFUSAL_TIMED_OUT)) {
        open_miss(c, index, e->now_ms);
    } else if (index != NONE32) {
        open_abort(c, index, e->now_ms);
    }
}

static void on_drained(struct coordinator *c, const struct event *e)
{
    const struct decision *d = &c->decision;
    bool current = version_is(e->version, d->drain) && e->attempt == d->drain_attempt;
    if (version_none(d->drain) || !current || c->publishing) {
        return;
    }
    if (e->ok) {
        c->drained[e->node] = true;
    } else {
        drain_end(c, false, e->now_ms);
    }
}

static void on_published(struct coordinator *c, const struct event *e)
{
    const struct decision *d = &c->decision;
    if (!version_none(d->drain) && version_is(e->version, d->drain) && e->attempt == d->drain_attempt) {
        drain_end(c, e->ok, e->now_ms);
    }
}

/* One base per term: trainers may have read the first one. */
static bool choose_base(struct coordinator *c, struct version base)
{
    struct decision *d = &c->decision;
    if (d->readable || base.term >= d->term) {
        return d->readable && version_is(base, d->base);
    }
    d->readable = true;
    d->base = base;
    c->changed = true;
    return true;
}

/* Without a version there is nothing to protect again: either nothing was restored, or this term has something
 * newer. */
static void on_based(struct coordinator *c, struct version base)
{
    struct decision *d = &c->decision;
    bool chosen = choose_base(c, base) && !d->base_lost;
    if (d->based || (!chosen && !version_none(base))) {
        return;
    }
    d->based = true;
    if (!version_none(base) && d->watermark.term < d->term) {
        d->watermark = base;
    }
    hold_back_at_most(c, 0);
    c->changed = true;
}

/* Only its slots become free: until this term commits, older versions are all that can be restored. */
static void on_base_lost(struct coordinator *c, struct version base)
{
    struct decision *d = &c->decision;
    bool needed = d->readable && !d->based && d->watermark.term < d->term;
    if (needed && !d->base_lost && !version_none(base) && version_is(base, d->base)) {
        d->base_lost = true;
        hold_back_at_most(c, 0);
        c->changed = true;
    }
}

/* If no rank of a node has begun the version, that node cannot say what is missing. */
static void give_up(const struct coordinator *c, uint32_t index, struct actions *out)
{
    const struct open_version *o = &c->open[index];
    struct action *a = action_add(out, ACTION_GIVE_UP);
    a->version = (struct version){c->setup->term, c->decision.open[index]};
    a->count = c->setup->node_count - o->ready_count;
    a->node = 0;
    while (a->node + 1 < c->setup->node_count && o->ready[a->node]) {
        a->node++;
    }
}

/* The time of no version ends before that of the oldest one, after which the others have theirs. */
static void on_tick(struct coordinator *c, uint64_t now_ms, struct actions *out)
{
    if (c->decision.open_count > 0 && now_ms >= c->open[0].moved_ms + c->setup->version_timeout_ms) {
        give_up(c, 0, out);
        open_miss(c, 0, now_ms);
    }
    let_begin_in_the_end(c, now_ms);
}

static bool all_drained(const struct coordinator *c)
{
    for (uint32_t i = 0; i < c->setup->node_count; i++) {
        if (c->setup->drains[i] && !c->drained[i]) {
            return false;
        }
    }
    return true;
}

static void dispatch(struct coordinator *c, const struct event *e, struct actions *out)
{
    bool from_member = e->node < c->setup->node_count;
    bool of_term = e->version.term == c->setup->term;
    if (e->type == EVENT_BEGIN) {
        on_begin(c, e);
    } else if (e->type == EVENT_READY && from_member && of_term) {
        on_ready(c, e);
    } else if (e->type == EVENT_REFUSED && from_member && of_term) {
        on_refused(c, e);
    } else if (e->type == EVENT_PROGRESS && from_member && of_term) {
        on_progress(c, e);
    } else if (e->type == EVENT_DRAINED && from_member) {
        on_drained(c, e);
    } else if (e->type == EVENT_PUBLISHED) {
        on_published(c, e);
    } else if (e->type == EVENT_READABLE) {
        (void)choose_base(c, e->version);
    } else if (e->type == EVENT_BASED) {
        on_based(c, e->version);
    } else if (e->type == EVENT_BASE_LOST) {
        on_base_lost(c, e->version);
    } else if (e->type == EVENT_DRAIN_ASKED) {
        on_drain_asked(c);
    } else if (e->type == EVENT_TICK) {
        on_tick(c, e->now_ms, out);
    }
}

void coordinator_step(struct coordinator *c, const struct event *e, struct actions *out)
{
    if (e->term != c->setup->term) {
        return;
    }
    c->changed = false;
    dispatch(c, e, out);
    drain_begin_if_wanted(c, e->now_ms);
    if (c->changed) {
        c->decision.seq++;
        action_add(out, ACTION_ANNOUNCE);
    }
    if (!version_none(c->decision.drain) && !c->publishing && all_drained(c)) {
        c->publishing = true;
        struct action *a = action_add(out, ACTION_PUBLISH);
        a->version = c->decision.drain;
        a->attempt = c->decision.drain_attempt;
    }
}
