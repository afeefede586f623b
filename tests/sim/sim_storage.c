/* SPDX-License-Identifier: Apache-2.0
 * Storage: files that are written and later synced, a publish in steps that each may be the last before a crash and
 * each may take long, retention, sweeps, and power loss that takes whatever was not synced.
 *
 * As in tiers/persistent*.c a stage is named by its version alone, so drains of two terms may meet in it, and a publish
 * once begun goes on when its agent adopts a newer term: only the end of its process ends it. */
#include "sim.h"
#include <inttypes.h>
#include <string.h>

/* The version's stage, made if it is not there. Once renamed into place the directory is no longer a stage. */
static struct staged *stage_of(struct sim *s, struct version version, bool make)
{
    struct staged *empty = NULL;
    for (uint32_t i = 0; i < SIM_PUBLISHED; i++) {
        struct staged *stage = &s->stages[i];
        if (stage->used && version_is(stage->version, version) && !stage->visible) {
            return stage;
        }
        if (!stage->used && empty == NULL) {
            empty = stage;
        }
    }
    if (!make) {
        return NULL;
    }
    if (empty == NULL) {
        sim_fail(s, "more than %d stages: nobody sweeps", SIM_PUBLISHED);
        return &s->stages[0];
    }
    *empty = (struct staged){.used = true, .version = version};
    return empty;
}

/* The index of the visible stage of this version, NONE32 if it is not published. */
static uint32_t find_visible(const struct sim *s, struct version version)
{
    for (uint32_t i = 0; i < SIM_PUBLISHED; i++) {
        if (s->stages[i].used && s->stages[i].visible && version_is(s->stages[i].version, version)) {
            return i;
        }
    }
    return NONE32;
}

const struct staged *storage_find(const struct sim *s, struct version version)
{
    uint32_t i = find_visible(s, version);
    return i == NONE32 ? NULL : &s->stages[i];
}

void storage_owe(struct sim *s, struct version version)
{
    s->owed = version_cmp(version, s->owed) > 0 ? version : s->owed;
}

uint64_t storage_delay(struct sim *s, uint64_t low, uint64_t high)
{
    uint64_t ms = sim_between(s, low, high);
    if (s->calm) {
        return ms;
    }
    ms += s->storage_hangs_until > s->now ? s->storage_hangs_until - s->now : 0;
    return ms + (sim_chance(s, 20) ? sim_between(s, 100, 1500) : 0);
}

/* ---- one node's part ------------------------------------------------------------------------------------------- */

void storage_drain(struct sim *s, uint32_t machine, const struct action *a)
{
    const struct machine *m = &s->machines[machine];
    uint64_t ms = storage_delay(s, 10, 150);
    for (uint32_t i = 0; i < m->node_setup.shard_count; i++) {
        uint32_t slot = m->node_shards[i].drains_here ? node_slot_of(m->node, i, a->version) : NONE32;
        if (slot != NONE32) {
            agent_pin(s, machine, slot, ms + 1);
        }
    }
    struct task *t = sim_after(s, ms, TASK_DRAIN, machine);
    t->agent = m->agent;
    t->version = a->version;
    t->number = a->attempt;
}

/* False if the bytes in memory are not what their header says: nothing is written then. */
static bool write_file(struct sim *s, uint32_t machine, uint32_t local, const struct task *t)
{
    const struct machine *m = &s->machines[machine];
    uint32_t slot = node_slot_of(m->node, local, t->version);
    if (slot == NONE32) {
        return false;
    }
    const struct memory_slot *memory = agent_slot(s, machine, slot);
    if (!hash128_is(sim_root(memory->value), memory->root)) {
        return false;
    }
    bool full = !s->calm && s->storage_full_until > s->now;
    bool synced = s->calm || (!full && !sim_chance(s, 30));
    struct stored_file *file = &stage_of(s, t->version, true)->files[m->shard_of_local[local]];
    if (synced || !file->synced) { /* a part file replaces the whole one only when it is synced */
        *file = (struct stored_file){.written = true, .synced = synced, .value = memory->value, .root = memory->root};
    }
    return synced;
}

void storage_drained(struct sim *s, const struct task *t)
{
    const struct machine *m = &s->machines[t->machine];
    bool ok = true;
    for (uint32_t i = 0; i < m->node_setup.shard_count; i++) {
        if (m->node_shards[i].drains_here) {
            ok &= write_file(s, t->machine, i, t);
        }
    }
    agent_feed(
        s, t->machine,
        (struct event){
            .type = EVENT_DRAINED_HERE, .term = m->term->term, .version = t->version, .attempt = t->number, .ok = ok});
}

static bool all_files_synced(const struct sim *s, const struct staged *stage)
{
    for (uint32_t shard = 0; shard < s->shards; shard++) {
        if (!stage->files[shard].synced) {
            return false;
        }
    }
    return true;
}

bool storage_has_all(const struct sim *s, struct version version)
{
    for (uint32_t i = 0; i < SIM_PUBLISHED; i++) {
        const struct staged *stage = &s->stages[i];
        if (stage->used && version_is(stage->version, version) && all_files_synced(s, stage)) {
            return true;
        }
    }
    return false;
}

/* ---- publish --------------------------------------------------------------------------------------------------- */

enum publish_phase { PUBLISH_CHECK, PUBLISH_FENCE, PUBLISH_RENAME, PUBLISH_SYNC, PUBLISH_PRUNE };

static void publish_later(struct sim *s, const struct task *from, uint32_t phase)
{
    struct task *t = sim_after(s, storage_delay(s, 1, 10), TASK_PUBLISH, from->machine);
    t->slot = from->slot;
    t->term = from->term;
    t->version = from->version;
    t->number = from->number;
    t->phase = phase;
}

void storage_publish(struct sim *s, uint32_t machine, const struct action *a)
{
    const struct machine *m = &s->machines[machine];
    struct task from = {
        .machine = machine, .slot = m->process, .term = m->term->term, .version = a->version, .number = a->attempt};
    publish_later(s, &from, PUBLISH_CHECK);
}

static void published(struct sim *s, const struct task *t, bool ok)
{
    agent_feed(s, t->machine,
               (struct event){
                   .type = EVENT_PUBLISHED, .term = t->term, .version = t->version, .attempt = t->number, .ok = ok});
}

uint32_t storage_versions(const struct sim *s, const struct staged **out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < SIM_PUBLISHED; i++) {
        const struct staged *stage = &s->stages[i];
        if (!stage->used || !stage->visible) {
            continue;
        }
        uint32_t k = count++;
        for (; k > 0 && version_cmp(stage->version, out[k - 1]->version) > 0; k--) {
            out[k] = out[k - 1];
        }
        out[k] = stage;
    }
    return count;
}

bool storage_is_ancestor(const struct sim *s, struct version version, struct version head)
{
    while (head.term > version.term) {
        head = s->terms[head.term]->base;
    }
    return head.term == version.term && version.step <= head.step;
}

/* As tiers/term_claim.c reads it from the notes. */
static struct history history_of(const struct sim *s, struct version head)
{
    struct history history = {0};
    while (history_add(&history, head) && s->terms[head.term]->restored_noted) {
        head = s->terms[head.term]->base;
    }
    return history;
}

/* Un-publishes what the version supersedes. */
static void prune(struct sim *s, struct version newest)
{
    const struct staged *visible[SIM_PUBLISHED];
    struct version versions[SIM_PUBLISHED];
    bool surplus[SIM_PUBLISHED];
    uint32_t total = storage_versions(s, visible), count = 0;
    for (uint32_t i = 0; i < total; i++) {
        if (visible[i]->durable && !visible[i]->unread && !listing_is_unreadable(s, visible[i])) {
            versions[count++] = visible[i]->version;
        }
    }
    struct history history = history_of(s, newest);
    retention_select(&history, versions, count, RETENTION, surplus);
    for (uint32_t i = count; i-- > 0;) {
        uint32_t at = surplus[i] ? find_visible(s, versions[i]) : NONE32;
        if (at != NONE32) {
            check_pruned(s, versions[i], newest);
            memset(&s->stages[at], 0, sizeof(s->stages[at]));
        }
    }
}

static void sync_directory(struct sim *s, const struct task *t)
{
    uint32_t i = find_visible(s, t->version);
    if (i == NONE32) {
        published(s, t, false);
        return;
    }
    s->stages[i].durable = true;
    if (version_cmp(t->version, s->newest_published) > 0 && !s->stages[i].torn) {
        s->newest_published = t->version;
    }
    s->totals.publishes++;
    sim_log(s, "published %" PRIu64 ".%" PRIu64, t->version.term, t->version.step);
    publish_later(s, t, PUBLISH_PRUNE);
    published(s, t, true);
}

/* What is published is checked when its name appears: later it can only go as a whole. */
static void rename_into_place(struct sim *s, const struct task *t)
{
    struct staged *stage = stage_of(s, t->version, false);
    if (stage == NULL ||
        !stage->manifest) { /* swept meanwhile, and perhaps made anew: no version without its manifest */
        published(s, t, false);
        return;
    }
    stage->visible = true;
    check_storage(s);
    publish_later(s, t, PUBLISH_SYNC);
}

static void before_rename(struct sim *s, const struct task *t)
{
    struct staged *stage = stage_of(s, t->version, false);
    bool fits = t->phase == PUBLISH_CHECK ? stage != NULL && all_files_synced(s, stage) : t->term == s->claimed;
    if (t->phase == PUBLISH_CHECK && fits) {
        stage->manifest = true;
    }
    if (!fits || (!s->calm && sim_chance(s, 15))) {
        published(s, t, false);
    } else {
        publish_later(s, t, t->phase + 1);
    }
}

void storage_publish_step(struct sim *s, const struct task *t)
{
    if (s->machines[t->machine].process != t->slot) {
        return;
    }
    if (t->phase == PUBLISH_SYNC || (t->phase < PUBLISH_SYNC && storage_find(s, t->version) != NULL)) {
        sync_directory(s, t); /* it stands there already: an earlier attempt's answer was lost */
    } else if (t->phase == PUBLISH_RENAME) {
        rename_into_place(s, t);
    } else if (t->phase == PUBLISH_PRUNE) {
        prune(s, t->version);
    } else {
        before_rename(s, t);
    }
}

/* ---- sweep ----------------------------------------------------------------------------------------------------- */

void storage_sweep_soon(struct sim *s, uint32_t machine)
{
    const struct machine *m = &s->machines[machine];
    struct task *t = sim_after(s, storage_delay(s, 1, 30), TASK_SWEEP, machine);
    t->slot = m->process;
    t->term = m->term->term;
}

/* Stages that terms before this one left: each is taken out of its place at once, then deleted. */
void storage_sweep(struct sim *s, const struct task *t)
{
    for (uint32_t i = 0; i < SIM_PUBLISHED && s->machines[t->machine].process == t->slot; i++) {
        struct staged *stage = &s->stages[i];
        if (stage->used && !stage->visible && stage->version.term < t->term) {
            s->storage_lost_ms = s->now;
            memset(stage, 0, sizeof(*stage));
        }
    }
}

/* ---- power ----------------------------------------------------------------------------------------------------- */

/* What was not synced is gone: files of stages, and a rename whose directory was not. */
void storage_power_loss(struct sim *s)
{
    sim_log(s, "storage loses power");
    s->storage_lost_ms = s->now;
    for (uint32_t i = 0; i < SIM_PUBLISHED; i++) {
        struct staged *stage = &s->stages[i];
        if (!stage->used || stage->durable) {
            continue;
        }
        stage->visible = stage->visible && sim_chance(s, 500);
        for (uint32_t shard = 0; shard < s->shards; shard++) {
            if (!stage->files[shard].synced) {
                stage->files[shard] = (struct stored_file){0};
            }
        }
        if (!stage->visible && sim_chance(s, 500)) {
            memset(stage, 0, sizeof(*stage));
        }
    }
}

/* The newest one that is whole; nobody may need what is torn. */
static struct version newest_whole(const struct sim *s)
{
    struct version newest = VERSION_NONE;
    for (uint32_t i = 0; i < SIM_PUBLISHED; i++) {
        const struct staged *stage = &s->stages[i];
        if (stage->used && stage->durable && !stage->torn && version_cmp(stage->version, newest) > 0) {
            newest = stage->version;
        }
    }
    return newest;
}

/* One at a time, and not while storage alone has what was decided. */
void storage_tear(struct sim *s)
{
    struct staged *stage = NULL;
    for (uint32_t i = 0; i < SIM_PUBLISHED; i++) {
        if (s->stages[i].used && s->stages[i].torn) {
            return;
        }
        bool may = s->stages[i].used && s->stages[i].durable;
        stage = may && (stage == NULL || sim_chance(s, 500)) ? &s->stages[i] : stage;
    }
    if (stage == NULL || !s->anchor.in_memory) {
        return;
    }
    stage->torn = true;
    stage->unread = sim_chance(s, 300);
    stage->files[sim_random(s, s->shards)].value ^= 1;
    s->newest_published = newest_whole(s);
    sim_log(s, "published %" PRIu64 ".%" PRIu64 " is torn%s", stage->version.term, stage->version.step,
            stage->unread ? ", its manifest too" : "");
    s->totals.faults++;
}

void storage_trouble(struct sim *s)
{
    uint64_t until = s->now + sim_between(s, 50, 1200);
    bool full = sim_chance(s, 500);
    sim_log(s, "storage %s until %" PRIu64, full ? "is full" : "hangs", until);
    *(full ? &s->storage_full_until : &s->storage_hangs_until) = until;
    s->totals.faults++;
}
