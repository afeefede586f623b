/* SPDX-License-Identifier: Apache-2.0
 * Writes metadata: rows of the catalog, and notes in the term file. A pool thread writes them one after the other,
 * because a slow device must not delay the event loop. No other work waits for it. */
#include "agent/storage/metadata_writer.h"

#include "agent/driver/term.h"
#include "agent/ipc/client.h"
#include "agent/storage/storage_ops.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/pool.h"
#include "recovery/known_nodes.h"
#include "tiers/persistent.h"
#include "tiers/segment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PUBLISHED_KEPT 16 /* rows, if retention keeps all */
#define ENTRIES_MAX                                                                                          \
    256               /* pending; more are dropped: the catalog is a hint, and notes of commits are repeated \
                       */
#define RETRY_MS 1000 /* between attempts to note a commit */

enum entry_kind {
    ENTRY_ROW,
    ENTRY_DROP,
    ENTRY_NODES,
    ENTRY_FORGET_NODES,
    ENTRY_WORLD,
    ENTRY_RESTORED,
    ENTRY_COMMITTED,
    ENTRY_ENDED,
    ENTRY_SWEEP
};

struct entry {
    struct entry *next;
    struct storage_op storage;
    struct metadata *md;
    enum entry_kind kind;
    struct catalog_version row;
    uint32_t published_kept; /* rows */
    uint32_t shard_count;
    struct catalog_shard *shards;
    uint64_t term;
    struct version version;
    struct version base; /* of the term */
    uint32_t node_count;
    struct node_info *nodes;
    char run_id[CONFIG_RUN];
    uint32_t pid;
    bool written;
};

struct metadata {
    struct metadata_setup needs;
    struct entry *waiting;
    uint32_t count; /* of waiting entries */
    bool busy;      /* one is being written */
    struct log_limit dropped;
    uint64_t nodes_forgotten;             /* term in which nodes that are no longer needed were last forgotten */
    uint64_t world_noted;                 /* term whose nodes are, or are about to be, noted beside its claim */
    uint64_t world_retry_ms;              /* not before, after a try that failed */
    uint64_t commit_noted, commit_noting; /* terms whose first commit is noted on storage, and is about to be */
    uint64_t commit_retry_ms;             /* not before, after a try that failed */
    uint64_t restored_term;               /* whose trainers have restored this version; 0: not known to this process */
    struct version restored;
    bool restored_noted; /* or about to be */
    uint64_t restored_retry_ms;
};

static void restored_not_noted(struct metadata *md)
{
    md->restored_noted = false;
    md->restored_retry_ms = clock_ms() + RETRY_MS;
}

/* Called in the loop's thread. Three notes are repeated if they could not be written: without the note of the commit, a
 * later start could assume that nothing was committed; without the note of the world, a second start would not know
 * which agents to ask; and without that of the restored version, retention would not know which older ones it
 * supersedes. */
static void entry_free(struct entry *e)
{
    struct metadata *md = e->md;
    if (e->kind == ENTRY_WORLD && !e->written && md->world_noted == e->term) {
        md->world_noted = 0;
        md->world_retry_ms = clock_ms() + RETRY_MS;
    }
    if (e->kind == ENTRY_COMMITTED) {
        md->commit_noting = 0;
        md->commit_noted = e->written ? e->term : md->commit_noted;
        md->commit_retry_ms = clock_ms() + RETRY_MS;
    }
    if (e->kind == ENTRY_RESTORED && !e->written && e->term == md->restored_term) {
        restored_not_noted(md);
    }
    free(e->shards);
    free(e->nodes);
    free(e);
}

/* ---- in a pool thread ---------------------------------------------------------------------------------------- */

static tck_status_t write_nodes(struct entry *e, struct error *err)
{
    tck_status_t status = TCK_OK;
    for (uint32_t n = 0; status == TCK_OK && n < e->node_count; n++) {
        status = catalog_remember_node(e->md->needs.catalog, &e->nodes[n], e->term, err);
    }
    return status;
}

static tck_status_t forget_nodes(struct entry *e, struct error *err)
{
    struct known_nodes_term term = {
        .members = e->nodes, .member_count = e->node_count, .base = e->base, .committed = e->version};
    struct known_node *known = NULL;
    size_t count = 0;
    tck_status_t status = catalog_nodes(e->md->needs.catalog, &known, &count, err);
    if (status != TCK_OK) {
        return status;
    }
    size_t kept = known_nodes_keep(&term, known, count);
    if (kept < count) {
        log_info("%zu nodes that can have only what is older than version %" PRIu64 ".%" PRIu64
                 " are no longer remembered, %zu are",
                 count - kept, e->base.term, e->base.step, kept);
        status = catalog_forget_nodes(e->md->needs.catalog, known + kept, count - kept, err);
    }
    free(known);
    return status;
}

/* The claim names only the claimer; this adds the agents of all ranks. */
static tck_status_t write_world(struct entry *e, struct error *err)
{
    struct term_holder holder = {.pid = e->pid, .joined = true, .agent_count = e->node_count, .agents = e->nodes};
    memcpy(holder.node, e->md->needs.config->node, sizeof(holder.node));
    memcpy(holder.run_id, e->run_id, sizeof(holder.run_id));
    return persistent_note_holder(e->md->needs.persistent, e->term, &holder, err);
}

/* Keeps the counts of the old row, because the slots of a version may already have been freed when it is published.
 */
static void keep_counts(struct catalog_version *row, const struct catalog_version *rows, size_t count)
{
    for (size_t i = 0; i < count && row->shard_count == 0; i++) {
        if (version_is(rows[i].version, row->version)) {
            row->shard_count = rows[i].shard_count;
            row->bytes = rows[i].bytes;
        }
    }
}

/* Deletes the rows of superseded versions, and keeps as many rows of published versions as retention keeps. */
static tck_status_t delete_old_rows(struct entry *e, const struct catalog_version *rows, size_t count,
                                    struct error *err)
{
    uint32_t published = 0;
    tck_status_t status = TCK_OK;
    for (size_t i = 0; status == TCK_OK && i < count; i++) { /* newest first */
        bool kept = rows[i].state == CATALOG_PUBLISHED && published++ < e->published_kept;
        if (!kept && version_cmp(rows[i].version, e->row.version) < 0) {
            status = catalog_drop(e->md->needs.catalog, rows[i].version, err);
        }
    }
    return status;
}

static tck_status_t write_row(struct entry *e, struct error *err)
{
    struct catalog *catalog = e->md->needs.catalog;
    struct catalog_version *rows = NULL;
    size_t count = 0;
    tck_status_t status = catalog_versions(catalog, &rows, &count, err);
    if (status != TCK_OK) {
        return status;
    }
    keep_counts(&e->row, rows, count);
    failpoint(catalog, writing);
    status = catalog_put(catalog, &e->row, e->shards, e->shard_count, e->row.state == CATALOG_COMMITTED, err);
    if (status == TCK_OK && e->row.state == CATALOG_COMMITTED) {
        status = delete_old_rows(e, rows, count, err);
    }
    free(rows);
    return status;
}

static tck_status_t write_entry(struct entry *e, struct error *err)
{
    struct persistent *p = e->md->needs.persistent;
    switch (e->kind) {
    case ENTRY_ROW:
        return write_row(e, err);
    case ENTRY_DROP:
        return catalog_drop(e->md->needs.catalog, e->version, err);
    case ENTRY_NODES:
        return write_nodes(e, err);
    case ENTRY_FORGET_NODES:
        return forget_nodes(e, err);
    case ENTRY_WORLD:
        return write_world(e, err);
    case ENTRY_RESTORED:
        return persistent_note_restore(p, e->term, e->version, err);
    case ENTRY_COMMITTED:
        return persistent_note_commit(p, e->term, err);
    case ENTRY_ENDED:
        return persistent_note_end(p, e->term, err);
    case ENTRY_SWEEP:
        return persistent_sweep(p, e->term, e->version, err);
    }
    return TCK_ERR_INTERNAL;
}

static void work(void *ctx)
{
    struct entry *e = ctx;
    struct error err;
    progress_begin(&e->storage.progress);
    e->written = write_entry(e, &err) == TCK_OK;
    progress_end(&e->storage.progress);
    if (!e->written) {
        static const char *const what[] = {[ENTRY_ROW] = "catalog",
                                           [ENTRY_DROP] = "catalog",
                                           [ENTRY_NODES] = "catalog",
                                           [ENTRY_FORGET_NODES] = "catalog",
                                           [ENTRY_WORLD] = "note of the term",
                                           [ENTRY_RESTORED] = "note of the term",
                                           [ENTRY_COMMITTED] = "note of the term",
                                           [ENTRY_ENDED] = "note of the term",
                                           [ENTRY_SWEEP] = "stages of older terms"};
        log_warn("%s: %s", what[e->kind], err.text);
    }
}

/* ---- in the loop's thread ------------------------------------------------------------------------------------ */

static void start_next(struct metadata *md);

static void done(void *ctx, bool canceled)
{
    (void)canceled;
    struct entry *e = ctx;
    struct metadata *md = e->md;
    md->busy = false;
    storage_end(&e->storage);
    entry_free(e);
    start_next(md);
}

static void start_next(struct metadata *md)
{
    struct entry *e = md->waiting;
    if (e == NULL || md->busy) {
        return;
    }
    md->waiting = e->next;
    md->count--;
    md->busy = true;
    e->storage = (struct storage_op){.what = "a note", .ctx = e};
    storage_begin(&e->storage, md->needs.storage_ops, NULL);
    if (pool_submit(md->needs.io, work, done, e) != TCK_OK) {
        md->busy = false;
        storage_end(&e->storage);
        entry_free(e);
    }
}

/* Takes ownership of the entry. */
static void append(struct entry *e)
{
    struct metadata *md = e->md;
    if (md->count >= ENTRIES_MAX) {
        if (log_limit_pass(&md->dropped)) {
            log_warn("storage is too slow for rows of the catalog and notes of the term: %" PRIu64 " dropped so far",
                     md->dropped.count);
        }
        entry_free(e);
        return;
    }
    struct entry **at = &md->waiting;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = e;
    md->count++;
    start_next(md);
}

static struct entry *entry_new(struct metadata *md, enum entry_kind kind)
{
    struct entry *e = calloc(1, sizeof(*e));
    if (e != NULL) {
        e->md = md;
        e->kind = kind;
    }
    return e;
}

static void add_holder(struct catalog_shard *row, const char *name)
{
    if (row->holder_count < CATALOG_HOLDERS_MAX) {
        snprintf(row->holders[row->holder_count++], sizeof(row->holders[0]), "%s", name);
    }
}

/* This node, the nodes of twins, and the holders. */
static void add_holders(const struct term_context *tc, uint32_t local_shard, struct catalog_shard *row)
{
    const struct node_shard *s = &tc->shards[local_shard];
    add_holder(row, tc->world.nodes[tc->self].name);
    if (s->world_shard == NONE32) {
        return;
    }
    const struct shard_placement *p = &tc->placement.shards[s->world_shard];
    for (uint32_t o = 0; o < p->owner_count; o++) {
        uint32_t owner = tc->placement.owners[p->first_owner + o];
        if (owner != tc->self) {
            add_holder(row, tc->world.nodes[owner].name);
        }
    }
    for (uint32_t h = 0; h < p->holder_count; h++) {
        if (p->holders[h] != tc->self) {
            add_holder(row, tc->world.nodes[p->holders[h]].name);
        }
    }
}

static uint32_t shard_rows(const struct term_context *tc, struct version version, struct catalog_shard *rows,
                           uint64_t *bytes)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tc->setup.shard_count; i++) {
        uint32_t slot = node_slot_of(tc->node, i, version);
        if (slot == NONE32) {
            continue;
        }
        struct catalog_shard *row = &rows[count++];
        *row = (struct catalog_shard){.version = version, .shard = tc->shards[i].id};
        row->root = node_slot(tc->node, slot)->root;
        row->bytes = segment_info(tc->local_shards[i].segment).image_bytes;
        *bytes += row->bytes;
        add_holders(tc, i, row);
    }
    return count;
}

/* With a copy of the world's nodes; NULL if there is no catalog or no memory. */
static struct entry *entry_of_nodes(struct metadata *md, enum entry_kind kind, const struct world *world)
{
    struct entry *e = md->needs.catalog != NULL ? entry_new(md, kind) : NULL;
    if (e == NULL) {
        return NULL;
    }
    e->term = world->term;
    e->node_count = world->node_count;
    e->nodes = calloc(e->node_count, sizeof(*e->nodes));
    if (e->nodes == NULL) {
        entry_free(e);
        return NULL;
    }
    memcpy(e->nodes, world->nodes, e->node_count * sizeof(*e->nodes));
    return e;
}

/* Once in a term, when a version of it is committed. */
static void forget_old_nodes(struct metadata *md, const struct term_context *tc, struct version committed)
{
    const struct decision *d = node_decision(tc->node);
    if (md->nodes_forgotten == tc->world.term || committed.term != tc->world.term) {
        return;
    }
    struct entry *e = entry_of_nodes(md, ENTRY_FORGET_NODES, &tc->world);
    if (e != NULL) {
        e->base = d->base_lost ? VERSION_NONE : d->base;
        e->version = committed;
        md->nodes_forgotten = tc->world.term;
        append(e);
    }
}

void metadata_put_version(struct metadata *md, const struct term_context *tc, struct version version,
                          enum catalog_state state)
{
    uint32_t kept = md->needs.config->max_ckpt_num;
    struct entry *e =
        md->needs.catalog != NULL ? entry_new(md, state == CATALOG_ABORTED ? ENTRY_DROP : ENTRY_ROW) : NULL;
    if (e == NULL) {
        return;
    }
    e->version = version;
    e->published_kept = kept ? kept : PUBLISHED_KEPT;
    e->shards = calloc(tc->setup.shard_count ? tc->setup.shard_count : 1, sizeof(*e->shards));
    if (e->shards == NULL) {
        entry_free(e);
        return;
    }
    e->row = (struct catalog_version){.version = version, .state = state, .wall_ms = clock_wall_ms()};
    e->shard_count = e->row.shard_count = shard_rows(tc, version, e->shards, &e->row.bytes);
    append(e);
    if (state == CATALOG_COMMITTED) {
        forget_old_nodes(md, tc, version);
    }
}

void metadata_put_nodes(struct metadata *md, const struct term_context *tc)
{
    struct entry *e = entry_of_nodes(md, ENTRY_NODES, &tc->world);
    if (e != NULL) {
        append(e);
    }
}

/* A restarted agent does this, too. */
void metadata_note_world(struct metadata *md, const struct world *world, const struct client *first)
{
    if (first == NULL || md->world_noted == world->term || clock_ms() < md->world_retry_ms) {
        return;
    }
    struct entry *e = entry_new(md, ENTRY_WORLD);
    struct node_info *nodes = e != NULL ? calloc(world->node_count, sizeof(*nodes)) : NULL;
    if (nodes == NULL) {
        free(e);
        return;
    }
    md->world_noted = world->term;
    memcpy(nodes, world->nodes, world->node_count * sizeof(*nodes));
    e->term = world->term;
    e->nodes = nodes;
    e->node_count = world->node_count;
    e->pid = (uint32_t)first->process.pid;
    memcpy(e->run_id, first->run_id, sizeof(e->run_id));
    append(e);
}

static void note(struct metadata *md, enum entry_kind kind, uint64_t term, struct version version)
{
    struct entry *e = entry_new(md, kind);
    if (e != NULL) {
        e->term = term;
        e->version = version;
        append(e);
    } else if (kind == ENTRY_COMMITTED) {
        md->commit_noting = 0;
    } else if (kind == ENTRY_RESTORED) {
        restored_not_noted(md);
    }
}

void metadata_note_restored(struct metadata *md, const struct term_context *tc, struct version version)
{
    if (tc->coordinator != NULL && md->restored_term != tc->world.term) {
        md->restored_term = tc->world.term;
        md->restored = version;
        md->restored_noted = false;
        md->restored_retry_ms = 0;
        metadata_repeat_restored(md, tc);
    }
}

void metadata_repeat_restored(struct metadata *md, const struct term_context *tc)
{
    bool known = tc->coordinator != NULL && md->restored_term == tc->world.term;
    if (known && !md->restored_noted && clock_ms() >= md->restored_retry_ms) {
        md->restored_noted = true; /* set before note(), because a dropped entry resets it */
        note(md, ENTRY_RESTORED, md->restored_term, md->restored);
    }
}

void metadata_note_commit(struct metadata *md, const struct term_context *tc)
{
    uint64_t term = tc->world.term;
    bool known = md->commit_noted == term || md->commit_noting == term;
    if (tc->coordinator == NULL || known || coordinator_decision(tc->coordinator)->watermark.term != term ||
        clock_ms() < md->commit_retry_ms) {
        return;
    }
    md->commit_noting = term; /* set before note(), because a dropped entry resets it */
    note(md, ENTRY_COMMITTED, term, VERSION_NONE);
}

void metadata_note_end(struct metadata *md, struct term_context *tc)
{
    if (tc->coordinator != NULL && !tc->end_noted) {
        tc->end_noted = true;
        note(md, ENTRY_ENDED, tc->world.term, VERSION_NONE);
    }
}

void metadata_sweep_stage(struct metadata *md, const struct term_context *tc)
{
    if (tc->coordinator != NULL) {
        /* Not of this term, which may start to drain in the meantime, nor what it drains of an older one. */
        note(md, ENTRY_SWEEP, tc->world.term - 1, coordinator_decision(tc->coordinator)->base);
    }
}

void metadata_repeat_notes(struct metadata *md)
{
    md->world_noted = md->commit_noted = 0;
    md->restored_noted = false;
}

bool metadata_is_pending(const struct metadata *md)
{
    return md->busy || md->waiting != NULL;
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

tck_status_t metadata_new(const struct metadata_setup *setup, struct metadata **out, struct error *err)
{
    struct metadata *md = calloc(1, sizeof(*md));
    if (md == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    md->needs = *setup;
    *out = md;
    return TCK_OK;
}

void metadata_free(struct metadata *md)
{
    while (md != NULL && md->waiting != NULL) {
        struct entry *e = md->waiting;
        md->waiting = e->next;
        entry_free(e);
    }
    free(md);
}
