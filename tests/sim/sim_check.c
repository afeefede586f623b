/* SPDX-License-Identifier: Apache-2.0
 * The promises. What was decided last (a commit, or the base of a recovery) is the anchor: each copy promised for it
 * stays whole until something newer is decided, unless a fault of ours took it. */
#include "sim.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The machine's verified slot of this version, NULL if none. */
static const struct memory_slot *find_copy(const struct sim *s, uint32_t machine, uint32_t shard,
                                           struct version version)
{
    for (uint32_t i = 0; i < s->slots; i++) {
        const struct memory_slot *memory = &s->machines[machine].segments[shard].slots[i];
        if (memory->state == SLOT_VERIFIED && version_is(memory->version, version)) {
            return memory;
        }
    }
    return NULL;
}

/* Verified, and bit for bit what was saved. */
static bool has_good_copy(const struct sim *s, uint32_t machine, uint32_t shard, struct version version)
{
    const struct memory_slot *memory = find_copy(s, machine, shard, version);
    return memory != NULL && sim_was_saved(s, shard, version, memory->value) &&
           hash128_is(memory->root, sim_root(memory->value));
}

/* ---- the anchor ------------------------------------------------------------------------------------------------ */

/* A copy that the decision rests on: it must be there, or lost to a fault since the version was begun. */
static void promise(struct sim *s, const struct sim_term *term, uint32_t node, uint32_t shard, uint64_t begun_ms)
{
    uint32_t machine = term->machine_of_node[node];
    const struct machine *m = &s->machines[machine];
    struct version version = s->anchor.version;
    if (m->life != term->life_of_node[node]) {
        return;
    }
    if (has_good_copy(s, machine, shard, version)) {
        s->anchor.promised[shard][machine] = true;
    } else if (m->damaged_ms[shard] == 0 || m->damaged_ms[shard] < begun_ms) {
        sim_fail(s, "memory durability: " V_FMT " was decided without the copy of shard %u on m%u", V_ARG(version),
                 shard, machine);
    }
}

static void set_anchor(struct sim *s, const struct sim_term *term, struct version version, uint64_t begun_ms)
{
    if (version_cmp(version, s->anchor.version) < 0) {
        sim_fail(s, "monotonic: " V_FMT " was decided after " V_FMT, V_ARG(version), V_ARG(s->anchor.version));
    }
    s->anchor = (struct anchor){.version = version, .in_memory = true};
    s->anchor.tolerance = term->placement.domains_short > 0 ? 0 : s->copies - 1;
    if (begun_ms > s->last_destroyed_ms) {
        s->destroyed = 0;
    }
    for (uint32_t w = 0; w < term->world.shard_count; w++) {
        const struct shard_placement *p = &term->placement.shards[w];
        for (uint32_t i = 0; i < p->owner_count; i++) {
            promise(s, term, term->placement.owners[p->first_owner + i], term->shard_of_world[w], begun_ms);
        }
        for (uint32_t i = 0; i < p->holder_count; i++) {
            promise(s, term, p->holders[i], term->shard_of_world[w], begun_ms);
        }
    }
    s->touched = true;
}

void check_memory(struct sim *s)
{
    if (!s->anchor.in_memory) {
        return;
    }
    for (uint32_t shard = 0; shard < s->shards; shard++) {
        uint32_t left = 0;
        for (uint32_t i = 0; i < SIM_MACHINES; i++) {
            left += s->anchor.promised[shard][i];
            if (s->anchor.promised[shard][i] && !has_good_copy(s, i, shard, s->anchor.version)) {
                sim_fail(s, "GC safety: the copy of shard %u of " V_FMT " on m%u is gone and nothing newer is decided",
                         shard, V_ARG(s->anchor.version), i);
            }
        }
        if (left == 0) {
            sim_fail(s, "always one complete version: no copy of shard %u of " V_FMT " is left", shard,
                     V_ARG(s->anchor.version));
        }
    }
}

void check_repaired(struct sim *s, uint32_t machine, uint32_t shard, struct version version)
{
    bool of_anchor = s->anchor.in_memory && version_is(version, s->anchor.version);
    if (of_anchor && !has_good_copy(s, machine, shard, version)) {
        sim_fail(s, "repair: m%u fetched shard %u of " V_FMT " and has no good copy", machine, shard, V_ARG(version));
    }
    s->anchor.promised[shard][machine] |= of_anchor;
}

/* ---- placement -------------------------------------------------------------------------------------------------- */

struct spread {
    uint32_t nodes, domains; /* bits: of machines, of domains */
};

static void spread_add(const struct sim *s, const struct sim_term *term, uint32_t node, struct spread *to)
{
    uint32_t machine = term->machine_of_node[node];
    to->nodes |= 1u << machine;
    to->domains |= 1u << machine / s->per_domain;
}

static uint32_t bits(uint32_t set)
{
    return (uint32_t)__builtin_popcount(set);
}

static uint32_t lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void check_placement(struct sim *s, const struct sim_term *term)
{
    struct spread all = {0};
    for (uint32_t node = 0; node < s->nodes; node++) {
        spread_add(s, term, node, &all);
    }
    for (uint32_t w = 0; w < term->world.shard_count; w++) {
        const struct shard_placement *p = &term->placement.shards[w];
        struct spread here = {0};
        for (uint32_t i = 0; i < p->owner_count; i++) {
            spread_add(s, term, term->placement.owners[p->first_owner + i], &here);
        }
        for (uint32_t i = 0; i < p->holder_count; i++) {
            spread_add(s, term, p->holders[i], &here);
        }
        if (bits(here.domains) < lesser(s->copies, bits(all.domains)) ||
            bits(here.nodes) < lesser(s->copies, bits(all.nodes))) {
            sim_fail(s, "placement: shard %u is on %u nodes in %u domains, %u copies are wanted", w, bits(here.nodes),
                     bits(here.domains), s->copies);
        }
    }
}

/* ---- worlds ----------------------------------------------------------------------------------------------------- */

/* What an agent receives, with one node's name in another one's place. */
static bool is_received(const struct world *world, uint32_t node, uint32_t namesake)
{
    struct world got = {0};
    struct error err = {0};
    struct node_info nodes[SIM_NODES];
    struct world sent = *world;
    memcpy(nodes, world->nodes, world->node_count * sizeof(*nodes));
    memcpy(nodes[node].name, nodes[namesake].name, sizeof(nodes[node].name));
    sent.nodes = nodes;
    struct writer w = writer_new(0);
    world_encode(&sent, &w);
    struct reader r = reader_of(w.data, w.len);
    bool received = !w.failed && world_decode(&r, &got, &err) == TCK_OK;
    if (received) {
        world_free(&got);
    }
    writer_free(&w);
    return received;
}

static bool is_built(const struct sim *s, const struct rank_hello *hellos, const char *name, const char *namesake)
{
    struct rank_hello named[SIM_RANKS];
    struct world built = {0};
    struct error err = {0};
    memcpy(named, hellos, s->ranks * sizeof(*named));
    for (uint32_t r = 0; r < s->ranks; r++) {
        if (strcmp(named[r].node.name, name) == 0) {
            snprintf(named[r].node.name, sizeof(named[r].node.name), "%s", namesake);
        }
    }
    bool was = world_build(s->claimed + 1, named, s->ranks, &built, &err) == TCK_OK;
    if (was) {
        world_free(&built);
    }
    return was;
}

void check_namesakes(struct sim *s, const struct rank_hello *hellos, const struct world *world)
{
    uint32_t node = (uint32_t)sim_random(s, s->nodes);
    uint32_t namesake = (node + (uint32_t)sim_between(s, 1, s->nodes - 1)) % s->nodes;
    const struct node_info *nodes = world->nodes;
    if (is_built(s, hellos, nodes[node].name, nodes[namesake].name)) {
        sim_fail(s, "membership: %s and another machine of this name are in one world", nodes[namesake].name);
    }
    if (!is_received(world, node, node) || is_received(world, node, namesake)) {
        sim_fail(s, "membership: a world with %s twice is received", nodes[namesake].name);
    }
}

/* ---- decisions ------------------------------------------------------------------------------------------------- */

/* Whether anybody has to honour what this term's coordinator says now. */
static bool binds(const struct sim *s, uint64_t term)
{
    for (uint64_t t = term + 1; t <= s->claimed; t++) {
        if (s->terms[t]->planned) {
            return false;
        }
    }
    return true;
}

static void check_fates(struct sim *s, struct sim_term *term, const struct decision *d)
{
    uint64_t low = d->horizon > 64 ? d->horizon - 64 : 0;
    low = term->committed < low ? term->committed : low; /* many are refused while one is copied */
    term->committed = d->watermark.term == d->term ? d->watermark.step : 0;
    for (uint64_t step = low; step < d->horizon && step < SIM_STEPS; step++) {
        enum fate was = (enum fate)term->fates[step], is = decision_fate(d, (struct version){term->term, step});
        bool superseded = was == FATE_COMMITTED && is == FATE_OVER && d->watermark.step > step;
        if (was != FATE_UNDECIDED && is != was && !superseded) {
            sim_fail(s, "agreement: %" PRIu64 ".%" PRIu64 " was decided twice", term->term, step);
        }
        term->fates[step] = (uint8_t)is;
    }
}

/* What a term commits after a newer one has planned must be in that one's line: its trainers were told so. */
static void check_superseded_commit(struct sim *s, struct version version)
{
    for (uint64_t t = version.term + 1; t <= s->claimed; t++) {
        const struct sim_term *newer = s->terms[t];
        if (newer->planned && version_cmp(version, newer->plan) > 0) {
            sim_fail(s, "fencing: " V_FMT " is committed, but term %" PRIu64 " has gone on from " V_FMT, V_ARG(version),
                     t, V_ARG(newer->plan));
        }
    }
}

/* An agent that knows of a newer term takes no part in an older one. */
void check_fenced(struct sim *s, uint32_t machine)
{
    const struct machine *m = &s->machines[machine];
    if (m->node != NULL && m->term->term != m->terms.adopted) {
        sim_fail(s, "fencing: m%u has adopted term %" PRIu64 " and takes part in %" PRIu64, machine, m->terms.adopted,
                 m->term->term);
    }
}

/* Each decision must pass for one at the node that receives it, and at the agent that finds it kept. */
static struct decision through_wire(struct sim *s, const struct decision *d)
{
    struct writer w = writer_new(0);
    write_decision(&w, d);
    struct reader r = reader_of(w.data, w.len);
    struct decision again = read_decision(&r);
    if (w.failed || r.failed || again.seq != d->seq || !version_is(again.watermark, d->watermark)) {
        sim_fail(s, "wire: decision %" PRIu64 " of term %" PRIu64 " is refused by who receives it", d->seq, d->term);
    }
    writer_free(&w);
    return again;
}

/* Nobody within reach, nor storage, could give what is missing of it. */
static void check_base_lost(struct sim *s, uint32_t machine, struct version base)
{
    for (uint32_t shard = 0; shard < s->shards; shard++) {
        bool found = false;
        for (uint32_t i = 0; i < SIM_MACHINES && !found; i++) {
            found = s->machines[i].agent_up && sim_reach(s, machine, i) && has_good_copy(s, i, shard, base);
        }
        if (!found && storage_find(s, base) == NULL) {
            return;
        }
    }
    sim_fail(s, "recovery: " V_FMT " is said to be lost, and all of it is there", V_ARG(base));
}

void check_decision(struct sim *s, uint32_t machine)
{
    struct decision *d = &s->machines[machine].kept;
    *d = through_wire(s, d);
    struct sim_term *term = s->terms[d->term];
    struct version w = d->watermark;
    bool newly = w.term == d->term && term->fates[w.step] != FATE_COMMITTED;
    check_fates(s, term, d);
    if (newly) {
        s->totals.commits++;
        listing_note_commit(s, term);
        s->calm_commits += s->calm && d->term == s->claimed && term->first_begin[w.step] > s->calm_at;
        if (term->told_failed[w.step]) {
            sim_fail(s, "told: trainers heard that " V_FMT " failed, and it is committed", V_ARG(w));
        }
        sim_log(s, "committed " V_FMT, V_ARG(w));
        if (binds(s, d->term)) {
            set_anchor(s, term, w, term->first_begin[w.step]);
            if (w.step % s->storage_every == 0 || version_is(w, s->last_step)) {
                storage_owe(s, w);
            }
        } else {
            check_superseded_commit(s, w);
        }
    }
    if (d->base_lost && !term->base_lost) {
        term->base_lost = true;
        s->totals.lost_bases++;
        check_base_lost(s, machine, d->base);
    }
    if (d->based && !term->based) {
        term->based = true;
        if (!version_none(w) && w.term < d->term && binds(s, d->term)) {
            sim_log(s, "term %" PRIu64 " is based on " V_FMT, d->term, V_ARG(w));
            set_anchor(s, term, w, term->planned_ms);
        }
    }
}

/* Whether the trainers may believe it: protected has its copies, committed is, published stands on storage (or did,
 * before newer ones), and failed will not be committed after all. */
void check_told(struct sim *s, uint32_t machine, const struct action *a)
{
    const struct machine *m = &s->machines[machine];
    struct sim_term *term = s->terms[m->term->term];
    enum fate fate = a->version.term == term->term ? (enum fate)term->fates[a->version.step] : FATE_OVER;
    bool published = storage_find(s, a->version) != NULL || version_cmp(a->version, s->newest_published) <= 0;
    bool wrong = (a->stage == STAGE_COMMITTED && fate == FATE_UNDECIDED) ||
                 (a->stage == STAGE_PUBLISHED && !published) ||
                 (a->stage == STAGE_FAILED && (fate == FATE_COMMITTED || version_is(a->version, m->kept.drain)));
    if (wrong) {
        static const char *const names[] = {"protected", "committed", "published", "failed"};
        sim_fail(s, "told: trainers of m%u hear that " V_FMT " is %s", machine, V_ARG(a->version), names[a->stage]);
    }
    if (a->stage == STAGE_FAILED && a->version.term == term->term) {
        term->told_failed[a->version.step] = true;
    }
}

void check_publish(struct sim *s, uint32_t machine, const struct action *a)
{
    const struct machine *m = &s->machines[machine];
    bool excused = s->storage_lost_ms + 3000 > s->now && s->storage_lost_ms > 0;
    if (!excused && !storage_has_all(s, a->version)) {
        sim_fail(s, "publish: m%u publishes " V_FMT " before all of it is written", machine, V_ARG(a->version));
    }
    if (decision_fate(coordinator_decision(m->coordinator), a->version) == FATE_UNDECIDED) {
        sim_fail(s, "publish: m%u publishes " V_FMT ", which is not committed", machine, V_ARG(a->version));
    }
}

/* ---- recoveries ------------------------------------------------------------------------------------------------ */

/* A coordinator that was cut off with all inventories in hand may plan for its term, and its own node may hand that
 * older version to the trainers it still has, after a newer term has planned: nobody can tell it better. That is
 * harmless if nothing comes of it, and just that is checked, each where it would happen:
 * - it commits nothing that the newer term's plan did not see (check_superseded_commit): a commit needs READY of every
 *   node, one that has adopted the newer term sends none, and those sent before were seen by the plan as whole copies;
 * - it does not publish: the claim stands before the plan, and is looked at before the rename (storage_publish_step);
 * - it frees nothing that the newer decision rests on: that is promised, whoever asks for the slot (check_memory);
 * - a node that has adopted the newer term runs no machine of the older one (check_fenced).
 * So only a term that still binds is held to restore the newest. */
void check_plan(struct sim *s, struct sim_term *term, struct version version)
{
    if (!binds(s, term->term)) {
        s->totals.superseded_plans++;
        return;
    }
    if (version_cmp(version, s->anchor.version) < 0) {
        sim_fail(s, "memory durability: term %" PRIu64 " restores " V_FMT " although " V_FMT " was decided", term->term,
                 V_ARG(version), V_ARG(s->anchor.version));
    }
    if (version_cmp(version, s->newest_published) < 0) {
        sim_fail(s, "persistent durability: term %" PRIu64 " restores " V_FMT " although " V_FMT " is published",
                 term->term, V_ARG(version), V_ARG(s->newest_published));
    }
    s->totals.from_storage += !s->anchor.in_memory && !version_none(version);
}

static bool is_passed(const struct plan *plan, struct version version)
{
    bool full = plan->passed_count == PLAN_PASSED_MAX;
    for (uint32_t i = 0; i < plan->passed_count; i++) {
        if (version_is(plan->passed[i].version, version)) {
            return true;
        }
    }
    return full;
}

/* "Nothing was saved" is proved: all of storage was seen, nothing is there, and nobody knows of a commit. */
static void check_absence(struct sim *s, const struct sim_term *term, const struct plan_input *input)
{
    const struct storage_view *storage = &input->storage;
    bool known = !version_none(storage->noted) || storage->unsure != NULL;
    for (uint32_t i = 0; i < input->inventory_count && !known; i++) {
        known = !version_none(input->inventories[i].watermark);
    }
    if (known) {
        sim_fail(s, "absence: term %" PRIu64 " hears that nothing was saved, and a commit is known", term->term);
    } else if (!storage->complete || storage->stored_count + storage->unfit_count > 0) {
        sim_fail(s, "absence: term %" PRIu64 " hears that nothing was saved, and storage %s", term->term,
                 storage->complete ? "has a version" : "was not listed");
    }
}

/* What is not taken and is newer is damaged, and the plan says so. */
static void check_passed(struct sim *s, const struct sim_term *term, const struct plan *plan, struct version version)
{
    const struct staged *stage = storage_find(s, version);
    if (version_cmp(version, plan->version) <= 0 || stage == NULL) {
        return;
    }
    if (!is_passed(plan, version) || plan->passed_text[0] == '\0') {
        sim_fail(s, "passed over: term %" PRIu64 " takes " V_FMT " and says nothing of " V_FMT, term->term,
                 V_ARG(plan->version), V_ARG(version));
    }
}

void check_choice(struct sim *s, const struct sim_term *term, const struct recovery *recovery)
{
    const struct plan_input *input = recovery_input(recovery);
    const struct plan *plan = recovery_plan(recovery);
    const struct storage_view *storage = &input->storage;
    if (!version_none(input->only)) {
        return; /* what was chosen before */
    }
    if (plan->nothing_saved) {
        check_absence(s, term, input);
    }
    for (uint32_t i = 0; i < storage->stored_count && !version_none(plan->version); i++) {
        check_passed(s, term, plan, storage->stored[i].version);
    }
    for (uint32_t i = 0; i < storage->unfit_count && !version_none(plan->version); i++) {
        const struct unfit_version *unfit = &storage->unfit[i];
        check_passed(s, term, plan, unfit->version);
        if (unfit->standing != STANDING_DAMAGED && version_cmp(unfit->version, plan->version) > 0) {
            sim_fail(s, "passed over: term %" PRIu64 " takes " V_FMT " although " V_FMT " only cannot be read now",
                     term->term, V_ARG(plan->version), V_ARG(unfit->version));
        }
    }
}

/* Trainers may read now: all of it must be there, of one version, as it was saved. */
void check_restore(struct sim *s, uint32_t machine, struct version version)
{
    struct sim_term *term = s->terms[s->machines[machine].term->term];
    check_plan(s, term, version);
    for (uint32_t w = 0; w < term->world.shard_count; w++) {
        const struct shard_placement *p = &term->placement.shards[w];
        uint32_t shard = term->shard_of_world[w], without = NONE32;
        bool given = false;
        for (uint32_t i = 0; i < p->owner_count; i++) {
            uint32_t node = term->placement.owners[p->first_owner + i], at = term->machine_of_node[node];
            bool excused = s->machines[at].terms.adopted > term->term ||
                           s->machines[at].life != term->life_of_node[node] ||
                           s->machines[at].damaged_ms[shard] >= term->planned_ms;
            bool good = has_good_copy(s, at, shard, version);
            given = given || (s->spreads && (good || excused));
            without = excused || good ? without : at;
        }
        if (without != NONE32 && !given) {
            sim_fail(s, "atomic restore: m%u has not shard %u of " V_FMT ", nor has anybody who could give it", without,
                     shard, V_ARG(version));
        }
    }
}

void check_same_base(struct sim *s, const struct sim_term *term, struct version version)
{
    if (!version_is(version, term->base)) {
        sim_fail(s, "agreement: term %" PRIu64 " restores " V_FMT " after " V_FMT, term->term, V_ARG(version),
                 V_ARG(term->base));
    }
}

/* ---- storage and slots ----------------------------------------------------------------------------------------- */

void check_storage(struct sim *s)
{
    for (uint32_t i = 0; i < SIM_PUBLISHED; i++) {
        const struct staged *stage = &s->stages[i];
        bool whole = stage->used && stage->visible && !stage->torn;
        for (uint32_t shard = 0; whole && shard < s->shards; shard++) {
            const struct stored_file *file = &stage->files[shard];
            if (!file->synced || !sim_was_saved(s, shard, stage->version, file->value)) {
                sim_fail(s, "atomic publish: " V_FMT " is visible with a bad file of shard %u", V_ARG(stage->version),
                         shard);
            }
        }
    }
    if (!version_none(s->newest_published) && storage_find(s, s->newest_published) == NULL) {
        sim_fail(s, "persistent GC: the newest published version " V_FMT " is gone", V_ARG(s->newest_published));
    }
}

/* Good versions of this line of history that are newer. */
static uint32_t count_newer(const struct sim *s, struct version version, struct version head)
{
    const struct staged *visible[SIM_PUBLISHED];
    uint32_t total = storage_versions(s, visible), newer = 0;
    for (uint32_t i = 0; i < total; i++) {
        bool counts = !visible[i]->unread && version_cmp(visible[i]->version, version) > 0;
        newer += counts && storage_is_ancestor(s, visible[i]->version, head);
    }
    return newer;
}

/* Only what is superseded goes: an ancestor, of whose line as many are left as are to be kept. What is trained on may
 * be another line, if the publish is of a term that is over. */
void check_pruned(struct sim *s, struct version version, struct version published)
{
    const struct sim_term *term = sim_newest_term(s);
    struct version trained = {term->term, UINT64_MAX};
    uint32_t newer = count_newer(s, version, published);
    if (!storage_is_ancestor(s, version, published)) {
        sim_fail(s, "persistent GC: " V_FMT " is removed for " V_FMT ", which does not come of it", V_ARG(version),
                 V_ARG(published));
    }
    if (newer < RETENTION) {
        sim_fail(s, "persistent GC: " V_FMT " is removed, and only %u newer ones of its line are left", V_ARG(version),
                 newer);
    }
    if (term->training && storage_is_ancestor(s, version, trained) && count_newer(s, version, trained) == 0) {
        sim_fail(s, "persistent GC: " V_FMT " is removed, the newest one of what is trained on", V_ARG(version));
    }
}

/* Called before a header changes: a slot that is written or read must not be given to somebody else. */
void check_header(struct sim *s, uint32_t machine, uint32_t local_slot)
{
    const struct memory_slot *memory = agent_slot(s, machine, local_slot);
    const struct slot *slot = node_slot(s->machines[machine].node, local_slot);
    bool given = slot->state == SLOT_FILLING || slot->state == SLOT_RECEIVING;
    bool same = memory->state == slot->state && version_is(memory->version, slot->version);
    if (given && !same && (memory->writers > 0 || memory->readers > 0)) {
        sim_fail(s, "m%u gives slot %u away that is still %s", machine, local_slot,
                 memory->writers > 0 ? "written" : "read");
    }
}

/* What a trainer has sealed is not lost with the agent; what it still writes is not given away. */
void check_found(struct sim *s, uint32_t machine, const struct memory_slot *memory, enum slot_state found)
{
    bool sealed = memory->state == SLOT_SEALED || memory->state == SLOT_VERIFIED ||
                  (memory->state == SLOT_FILLING && version_is(memory->seal, memory->version));
    if (sealed && found != SLOT_SEALED && found != SLOT_VERIFIED) {
        sim_fail(s, "sealed slots: m%u lost one of " V_FMT " with its agent", machine, V_ARG(memory->version));
    }
    if (memory->writers > 0 && found == SLOT_FREE) {
        sim_fail(s, "m%u takes a slot for free that a trainer still writes", machine);
    }
}

/* A sealed slot goes on, also one that was found. */
void check_sealed(struct sim *s, uint32_t machine)
{
    struct machine *m = &s->machines[machine];
    for (uint32_t slot = 0; slot < node_slot_total(m->node); slot++) {
        uint64_t sealed_ms = agent_slot(s, machine, slot)->sealed_ms;
        uint64_t since_ms = sealed_ms > m->stopped_until ? sealed_ms : m->stopped_until;
        bool late = s->now > since_ms + DIGESTED_MS;
        if (node_slot(m->node, slot)->state == SLOT_SEALED && late) {
            sim_fail(s, "sealed slots: m%u makes no digests of one of " V_FMT, machine,
                     V_ARG(node_slot(m->node, slot)->version));
        }
    }
}

/* ---- at rest --------------------------------------------------------------------------------------------------- */

/* A member keeps the newest commit and nothing else, and nobody works on any slot: whatever else stays is lost for
 * good, and saves are refused for it sooner or later. */
static void check_settled_slots(struct sim *s, uint32_t machine)
{
    const struct machine *m = &s->machines[machine];
    struct version watermark = s->anchor.version;
    for (uint32_t i = 0; i < node_slot_total(m->node); i++) {
        const struct slot *slot = node_slot(m->node, i);
        const struct memory_slot *memory = agent_slot(s, machine, i);
        if (slot->state != SLOT_FREE && (slot->state != SLOT_VERIFIED || !version_is(slot->version, watermark))) {
            sim_fail(s, "no leak: m%u keeps slot %u with " V_FMT " (%s), the newest commit is " V_FMT, machine, i,
                     V_ARG(slot->version), slot_state_name(slot->state), V_ARG(watermark));
        }
        if (slot->pins > 0 || memory->readers > 0 || memory->writers > 0) {
            sim_fail(s, "no leak: slot %u of m%u is still read or written", i, machine);
        }
    }
}

/* Whoever owns or holds a shard has it. */
static void check_nothing_missing(struct sim *s, uint32_t machine)
{
    const struct machine *m = &s->machines[machine];
    for (uint32_t i = 0; s->repairs && i < m->node_setup.shard_count; i++) {
        bool local_shard = m->node_shards[i].world_shard != NONE32;
        if (local_shard && !has_good_copy(s, machine, m->shard_of_local[i], s->anchor.version)) {
            sim_fail(s, "repair: m%u has no good copy of shard %u of " V_FMT, machine, m->shard_of_local[i],
                     V_ARG(s->anchor.version));
        }
    }
}

void check_settled(struct sim *s)
{
    const struct sim_term *term = sim_newest_term(s);
    for (uint32_t node = 0; node < s->nodes; node++) {
        uint32_t machine = term->machine_of_node[node];
        const struct machine *m = &s->machines[machine];
        if (m->node == NULL || m->term != term) {
            sim_fail(s, "progress: m%u takes no part in the newest term", machine);
            return;
        }
        check_settled_slots(s, machine);
        check_nothing_missing(s, machine);
    }
    if (version_cmp(s->newest_published, s->owed) < 0) {
        sim_fail(s, "drain: " V_FMT " is owed to storage, " V_FMT " is the newest there", V_ARG(s->owed),
                 V_ARG(s->newest_published));
    }
    const struct decision *d = &s->machines[term->machine_of_node[0]].kept;
    if (!d->based || d->open_count > 0 || !version_none(d->drain) || !version_is(d->watermark, s->anchor.version)) {
        sim_fail(s, "progress: the coordinator does not come to rest: %s%u open, drain " V_FMT ", watermark " V_FMT,
                 d->based ? "" : "not based, ", d->open_count, V_ARG(d->drain), V_ARG(d->watermark));
    }
}
