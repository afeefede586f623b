/* SPDX-License-Identifier: Apache-2.0
 * Storage: files that are written and later synced, a publish in steps that each may be the last before a crash,
 * retention, and power loss that takes whatever was not synced. */
#include "sim.h"
#include <inttypes.h>
#include <string.h>

/* Where this drain writes. Once renamed into place the directory is no stage any more. */
static struct stage *stage_of(struct sim *s, struct version version, uint64_t term, uint64_t attempt)
{
    struct stage *empty = NULL;
    for (uint32_t i = 0; i < SIM_PUBLISHED; i++) {
        struct stage *stage = &s->stages[i];
        bool same = version_is(stage->version, version) && stage->term == term && stage->attempt == attempt;
        if (stage->used && same && !stage->visible) {
            return stage;
        }
        if (!stage->used && empty == NULL) {
            empty = stage;
        }
    }
    if (empty == NULL) {
        sim_fail(s, "more than %d stages: nobody sweeps", SIM_PUBLISHED);
        return &s->stages[0];
    }
    *empty = (struct stage){.used = true, .version = version, .term = term, .attempt = attempt};
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

const struct stage *storage_find(const struct sim *s, struct version version)
{
    uint32_t i = find_visible(s, version);
    return i == NONE32 ? NULL : &s->stages[i];
}

/* ---- one node's part ------------------------------------------------------------------------------------------- */

void storage_drain(struct sim *s, uint32_t machine, const struct action *a)
{
    const struct machine *m = &s->machines[machine];
    uint64_t ms = sim_between(s, 10, 150);
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
static bool write_file(struct sim *s, uint32_t machine, uint32_t local, const struct task *t, struct stage *stage)
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
    bool synced = s->calm || !sim_chance(s, 30); /* a full disk, a failed sync */
    stage->files[m->shard_of_local[local]] =
        (struct stored_file){.written = true, .synced = synced, .value = memory->value};
    return synced;
}

void storage_drained(struct sim *s, const struct task *t)
{
    const struct machine *m = &s->machines[t->machine];
    struct stage *stage = stage_of(s, t->version, s->machines[t->machine].term->term, t->number);
    bool ok = true;
    for (uint32_t i = 0; i < m->node_setup.shard_count; i++) {
        if (m->node_shards[i].drains_here) {
            ok &= write_file(s, t->machine, i, t, stage);
        }
    }
    agent_feed(
        s, t->machine,
        (struct event){
            .type = EVENT_DRAINED_HERE, .term = m->term->term, .version = t->version, .attempt = t->number, .ok = ok});
}

/* ---- publish --------------------------------------------------------------------------------------------------- */

enum publish_phase { PUBLISH_CHECK, PUBLISH_RENAME, PUBLISH_SYNC, PUBLISH_PRUNE };

static void publish_later(struct sim *s, uint32_t machine, const struct task *from, uint32_t phase)
{
    struct task *t = sim_after(s, sim_between(s, 2, 20), TASK_PUBLISH, machine);
    t->agent = s->machines[machine].agent;
    t->term = s->machines[machine].term->term;
    t->version = from->version;
    t->number = from->number;
    t->phase = phase;
}

void storage_publish(struct sim *s, uint32_t machine, const struct action *a)
{
    struct task from = {.version = a->version, .number = a->attempt};
    publish_later(s, machine, &from, PUBLISH_CHECK);
}

static void published(struct sim *s, const struct task *t, bool ok)
{
    agent_feed(s, t->machine,
               (struct event){
                   .type = EVENT_PUBLISHED, .term = t->term, .version = t->version, .attempt = t->number, .ok = ok});
}

static bool all_files_synced(const struct sim *s, const struct stage *stage)
{
    for (uint32_t shard = 0; shard < s->shards; shard++) {
        if (!stage->files[shard].synced) {
            return false;
        }
    }
    return true;
}

/* Un-publishes the oldest while there are more than are to be kept; the newest always stays. */
static void prune(struct sim *s)
{
    for (;;) {
        uint32_t count = 0;
        struct stage *oldest = NULL;
        for (uint32_t i = 0; i < SIM_PUBLISHED; i++) {
            struct stage *stage = &s->stages[i];
            if (stage->used && stage->durable) {
                count++;
                oldest = oldest == NULL || version_cmp(stage->version, oldest->version) < 0 ? stage : oldest;
            }
        }
        if (count <= RETENTION) {
            return;
        }
        memset(oldest, 0, sizeof(*oldest));
    }
}

static void rename_into_place(struct sim *s, struct stage *stage, const struct task *t)
{
    stage->visible |= storage_find(s, t->version) == NULL;
    check_storage(s);
    publish_later(s, t->machine, t, PUBLISH_SYNC);
}

static void sync_directory(struct sim *s, const struct task *t)
{
    uint32_t i = find_visible(s, t->version);
    if (i == NONE32) {
        published(s, t, false);
        return;
    }
    s->stages[i].durable = true;
    if (version_cmp(t->version, s->newest_published) > 0) {
        s->newest_published = t->version;
    }
    s->publishes++;
    sim_log(s, "published %" PRIu64 ".%" PRIu64, t->version.term, t->version.step);
    publish_later(s, t->machine, t, PUBLISH_PRUNE);
    published(s, t, true);
}

void storage_publish_step(struct sim *s, const struct task *t)
{
    struct stage *stage = stage_of(s, t->version, s->machines[t->machine].term->term, t->number);
    bool is_visible = storage_find(s, t->version) != NULL;
    bool fenced = t->term < s->claimed && !is_visible;
    if (t->phase == PUBLISH_CHECK) {
        bool whole = all_files_synced(s, stage) || is_visible;
        if (!whole || (!s->calm && sim_chance(s, 30))) {
            published(s, t, false);
        } else {
            publish_later(s, t->machine, t, PUBLISH_RENAME);
        }
    } else if (t->phase == PUBLISH_RENAME) {
        if (fenced || (!all_files_synced(s, stage) && !is_visible)) {
            published(s, t, false);
        } else {
            rename_into_place(s, stage, t);
        }
    } else if (t->phase == PUBLISH_SYNC) {
        sync_directory(s, t);
    } else {
        prune(s);
    }
}

/* What was not synced is gone: files of stages, and a rename whose directory was not. */
void storage_power_loss(struct sim *s)
{
    sim_log(s, "storage loses power");
    for (uint32_t i = 0; i < SIM_PUBLISHED; i++) {
        struct stage *stage = &s->stages[i];
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
