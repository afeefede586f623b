/* SPDX-License-Identifier: Apache-2.0
 * Copies published versions to archive_dir: what each node does, and what the coordinator does. */
#include "agent/drain/archiver.h"

#include "agent/driver/term_context.h"
#include "agent/replication/peer_rpc.h"
#include "agent/state/wire.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/pool.h"
#include "core/archive_due.h"
#include "core/coordinator.h"
#include "tiers/archive.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4

struct copying;
struct job;

struct archiver {
    struct archiver_setup needs;
    struct archive *archive;
    struct pool *pool;
    uint64_t term; /* that all below belongs to, except what is known of the archive and the counts */

    struct version wanted; /* by the coordinator */
    uint64_t wanted_since_ms;
    struct version copied; /* all files of this node of the wanted version are in the archive */
    struct copying *copying;
    uint64_t copy_after_ms;
    uint32_t copies_failed; /* in a row, whatever version they were of */

    struct version chosen; /* the coordinator's */
    uint32_t node_count;   /* of the term */
    bool *reported;        /* by node */
    uint32_t reported_count;
    uint64_t reported_ms; /* of the choice, or the last report */
    uint64_t lead_after_ms;
    uint32_t leads_failed; /* in a row, since a version was published */
    struct job *leading;   /* a look at the archive, or a publish */

    bool known; /* the newest one in the archive */
    struct version archived;
    uint64_t archived_wall_ms;
    struct trouble trouble;
    uint64_t files, bytes, versions, failures;
};

static bool is_stopped(const struct archiver *a)
{
    const struct term_context *tc = *a->needs.term;
    return tc == NULL || tc->closed;
}

/* Whether the results of this term are still of use. A new term may have formed since the last tick, with other
 * nodes than `reported` has room for. */
static bool is_current(const struct archiver *a, uint64_t term)
{
    return !is_stopped(a) && term == a->term && term == (*a->needs.term)->world.term;
}

/* ---- trouble ------------------------------------------------------------------------------------------------- */

static void failed(struct archiver *a, const struct error *why)
{
    if (a->trouble.code == TCK_OK) {
        log_warn("the archive is not up to date, which does not affect save_dir: %s", why->text);
    }
    trouble_add(&a->trouble, 0, why, clock_wall_ms());
    a->failures++;
}

static void works(struct archiver *a)
{
    if (a->trouble.code != TCK_OK) {
        log_info("the archive works again");
        a->trouble = (struct trouble){0};
    }
}

/* ---- the files of this node ---------------------------------------------------------------------------------- */

struct worker {
    struct copying *all;
    struct error outcome;
};

/* One version. It owns all its data, since its term may be over before the archive answers. */
struct copying {
    struct archiver *archiver;
    uint64_t term;
    struct version version;
    uint32_t shard_count;
    struct hash128 *shards; /* that this node drains; sorted */
    struct manifest manifest;
    const struct manifest_file **files; /* of the manifest: those to copy */
    uint32_t file_count;
    _Atomic uint32_t next, done;
    _Atomic uint64_t bytes;
    atomic_bool stops;
    uint32_t running;
    uint64_t since_ms;
    struct error outcome;
    struct worker workers[THREADS];
};

static void copying_free(struct copying *c)
{
    manifest_free(&c->manifest);
    free(c->files);
    free(c->shards);
    free(c);
}

static int compare_shards(const void *a, const void *b)
{
    const struct hash128 *x = a, *y = b;
    return hash128_cmp(*x, *y);
}

/* The node that drains the first shard also copies .metadata. */
static void choose_files(struct copying *c)
{
    for (uint32_t i = 0; i < c->manifest.file_count; i++) {
        const struct manifest_file *file = &c->manifest.files[i];
        if (bsearch(&file->shard, c->shards, c->shard_count, sizeof(*c->shards), compare_shards) != NULL) {
            c->files[c->file_count++] = file;
            if (i == 0 && c->manifest.metadata.bytes > 0) {
                c->files[c->file_count++] = &c->manifest.metadata;
            }
        }
    }
}

/* In a pool thread. */
static void look_work(void *ctx)
{
    struct copying *c = ctx;
    c->outcome.code = archive_manifest(c->archiver->archive, c->version, &c->manifest, &c->outcome);
    if (c->outcome.code != TCK_OK) {
        return;
    }
    c->files = calloc((size_t)c->manifest.file_count + 1, sizeof(*c->files));
    if (c->files == NULL) {
        (void)error_set(&c->outcome, TCK_ERR_NOMEM, "out of memory");
        return;
    }
    choose_files(c);
}

/* In a pool thread, several at once. */
static void copy_work(void *ctx)
{
    struct worker *w = ctx;
    struct copying *c = w->all;
    while (!atomic_load(&c->stops)) {
        uint32_t i = atomic_fetch_add(&c->next, 1);
        if (i >= c->file_count) {
            return;
        }
        w->outcome.code = archive_copy(c->archiver->archive, c->version, c->files[i], &c->stops, &w->outcome);
        if (w->outcome.code != TCK_OK) {
            atomic_store(&c->stops, true);
            return;
        }
        atomic_fetch_add(&c->done, 1);
        atomic_fetch_add(&c->bytes, c->files[i]->bytes);
    }
}

static void report(struct archiver *a, bool ok, const char *why)
{
    struct term_context *tc = *a->needs.term;
    struct wire_archived m = {.term = tc->world.term, .version = a->wanted, .ok = ok};
    snprintf(m.why, sizeof(m.why), "%s", why);
    struct writer w = writer_new(0);
    wire_archived_encode(&m, &w);
    rpc_send_coordinator(tc, WIRE_ARCHIVED, &w);
    writer_free(&w);
}

static void copy_ended(struct copying *c)
{
    struct archiver *a = c->archiver;
    bool wanted = is_current(a, c->term) && version_is(c->version, a->wanted);
    bool whole = c->outcome.code == TCK_OK && !atomic_load(&c->stops);
    bool counts = wanted && c->outcome.code != TCK_ERR_CANCELED; /* retention may delete what is not wanted any more */
    struct error why = counts ? c->outcome : (struct error){0};
    a->copying = NULL;
    a->files += atomic_load(&c->done);
    a->bytes += atomic_load(&c->bytes);
    a->copied = whole ? c->version : a->copied;
    a->copies_failed = whole ? 0 : a->copies_failed + (why.code != TCK_OK);
    a->copy_after_ms = whole || !wanted ? 0 : clock_ms() + archive_pause_ms(a->copies_failed);
    copying_free(c);
    if (why.code != TCK_OK) {
        failed(a, &why);
    } else if (whole) {
        works(a);
    }
    if (wanted && (whole || why.code != TCK_OK)) {
        report(a, whole, why.code != TCK_OK ? why.text : "");
    }
}

static void copy_done(void *ctx, bool canceled)
{
    struct worker *w = ctx;
    struct copying *c = w->all;
    if (canceled) {
        (void)error_set(&w->outcome, TCK_ERR_CANCELED, "the agent is exiting");
    }
    if (c->outcome.code == TCK_OK || (c->outcome.code == TCK_ERR_CANCELED && w->outcome.code != TCK_OK)) {
        c->outcome = w->outcome; /* a copy that was canceled because another one had failed is no reason */
    }
    if (--c->running == 0) {
        copy_ended(c);
    }
}

static void look_done(void *ctx, bool canceled)
{
    struct copying *c = ctx;
    if (canceled) {
        (void)error_set(&c->outcome, TCK_ERR_CANCELED, "the agent is exiting");
    }
    for (uint32_t i = 0; i < THREADS && i < c->file_count && c->outcome.code == TCK_OK; i++) {
        c->workers[i] = (struct worker){.all = c};
        c->outcome.code = pool_submit(c->archiver->pool, copy_work, copy_done, &c->workers[i]);
        if (c->outcome.code == TCK_OK) {
            c->running++;
        } else {
            (void)error_set(&c->outcome, c->outcome.code, "start to copy");
            atomic_store(&c->stops, true);
        }
    }
    if (c->running == 0) {
        copy_ended(c);
    }
}

static void note_shards(struct copying *c, const struct term_context *tc)
{
    for (uint32_t i = 0; i < tc->setup.shard_count; i++) {
        if (tc->shards[i].drains_here) {
            c->shards[c->shard_count++] = tc->shards[i].id;
        }
    }
    qsort(c->shards, c->shard_count, sizeof(*c->shards), compare_shards);
}

static void copy_begin(struct archiver *a, const struct term_context *tc)
{
    struct copying *c = calloc(1, sizeof(*c));
    struct hash128 *shards = calloc((size_t)tc->setup.shard_count + 1, sizeof(*shards));
    a->copy_after_ms = clock_ms() + archive_pause_ms(1);
    if (c == NULL || shards == NULL) {
        free(c);
        free(shards);
        return;
    }
    *c = (struct copying){
        .archiver = a, .term = a->term, .version = a->wanted, .shards = shards, .since_ms = clock_ms()};
    note_shards(c, tc);
    if (pool_submit(a->pool, look_work, look_done, c) != TCK_OK) {
        copying_free(c);
        return;
    }
    a->copying = c;
}

/* A report is repeated until the coordinator wants another version: it may have been lost, or its agent restarted. */
static void follow(struct archiver *a, const struct term_context *tc)
{
    if (a->copying != NULL) {
        if (a->copying->term != a->term || !version_is(a->copying->version, a->wanted)) {
            atomic_store(&a->copying->stops, true);
        }
    } else if (version_none(a->wanted)) {
        a->copied = VERSION_NONE;
    } else if (version_is(a->copied, a->wanted)) {
        report(a, true, "");
    } else if (clock_ms() >= a->copy_after_ms) {
        copy_begin(a, tc);
    }
}

void archiver_want(struct archiver *a, struct version version)
{
    if (a != NULL && !version_is(a->wanted, version)) {
        a->wanted = version;
        a->wanted_since_ms = clock_ms();
        a->copied = VERSION_NONE;
        a->copy_after_ms = 0;
    }
}

/* ---- the coordinator's part ---------------------------------------------------------------------------------- */

enum job_kind {
    JOB_LOOK,    /* which version in the archive is the newest */
    JOB_PREPARE, /* remove what copies of others have left, before all nodes copy this one */
    JOB_PUBLISH  /* all nodes have copied their files */
};

/* A call of the coordinator. */
struct job {
    struct archiver *archiver;
    enum job_kind kind;
    uint64_t term;
    struct version version;
    struct version newest;
    uint64_t wall_ms, since_ms;
    struct error outcome;
};

static void choose(struct archiver *a, struct version version)
{
    struct term_context *tc = *a->needs.term;
    memset(a->reported, 0, a->node_count * sizeof(*a->reported));
    a->reported_count = 0;
    a->reported_ms = clock_ms();
    a->chosen = version;
    persistent_pin(a->needs.persistent, version);
    archiver_want(a, version);
    a->needs.announce(tc);
}

/* In a pool thread. */
static void lead_work(void *ctx)
{
    struct job *job = ctx;
    struct archive *archive = job->archiver->archive;
    struct manifest manifest;
    if (job->kind == JOB_LOOK) {
        job->outcome.code = archive_newest(archive, &job->newest, &job->wall_ms, &job->outcome);
        return;
    }
    if (job->kind == JOB_PREPARE) {
        job->outcome.code = archive_sweep(archive, job->term, job->version, &job->outcome);
        return;
    }
    job->outcome.code = archive_manifest(archive, job->version, &manifest, &job->outcome);
    if (job->outcome.code == TCK_OK) {
        job->newest = job->version;
        job->wall_ms = manifest.wall_ms;
        job->outcome.code = archive_publish(archive, &manifest, job->term, &job->outcome);
        manifest_free(&manifest);
    }
}

/* The next attempt of the coordinator, or of a version, waits. */
static void lead_pause(struct archiver *a)
{
    a->leads_failed++;
    a->lead_after_ms = clock_ms() + archive_pause_ms(a->leads_failed);
}

/* What the nodes have copied is still there, unless the failure says that something is missing or damaged. */
static void lead_failed(struct archiver *a, const struct job *job)
{
    tck_status_t code = job->outcome.code;
    failed(a, &job->outcome);
    lead_pause(a);
    bool again = code == TCK_ERR_NOENT || code == TCK_ERR_CORRUPT || code == TCK_ERR_EXIST;
    if (is_current(a, job->term) && (job->kind == JOB_PREPARE || (job->kind == JOB_PUBLISH && again))) {
        choose(a, VERSION_NONE);
    }
}

/* A version of a term that save_dir has not reached was copied before save_dir was replaced by an older copy of itself,
 * while the archive could not be reached. What is published now has lower terms, so it would not count beside that
 * version: copies of it are of no use, and the next start restores the archive's version. */
static void found_newest(struct archiver *a, const struct job *job)
{
    struct error why;
    a->known = true;
    a->archived = job->newest;
    a->archived_wall_ms = job->wall_ms;
    if (job->newest.term <= job->term) {
        works(a);
        return;
    }
    (void)error_set(&why, TCK_ERR_EXIST,
                    "archive_dir %s has version %" PRIu64 ".%" PRIu64 ", of a term that save_dir has not reached: "
                    "save_dir was replaced by an older copy of itself. Nothing is copied, and the next start restores "
                    "that version, unless it is moved out of the archive before",
                    a->needs.config->archive_dir, job->newest.term, job->newest.step);
    failed(a, &why);
}

static void lead_ended(struct archiver *a, const struct job *job)
{
    bool mine = is_current(a, job->term);
    if (job->kind == JOB_PREPARE) { /* which says nothing about the other nodes */
        if (mine) {
            log_info("version %" PRIu64 ".%" PRIu64 " is being copied to archive_dir", job->version.term,
                     job->version.step);
            choose(a, job->version);
        }
        return;
    }
    if (!mine && job->kind == JOB_LOOK) {
        return; /* begin_term asks for another look: another coordinator may have published since this one */
    }
    found_newest(a, job);
    if (job->kind == JOB_PUBLISH) {
        a->versions++;
        a->leads_failed = 0;
        log_info("version %" PRIu64 ".%" PRIu64 " is copied to archive_dir %s", job->version.term, job->version.step,
                 a->needs.config->archive_dir);
        if (mine) {
            choose(a, VERSION_NONE);
        }
    }
}

static void lead_done(void *ctx, bool canceled)
{
    struct job *job = ctx;
    struct archiver *a = job->archiver;
    a->leading = NULL;
    if (canceled || job->outcome.code == TCK_ERR_CANCELED) {
        log_debug("a call to archive_dir was canceled");
    } else if (job->outcome.code == TCK_OK) {
        lead_ended(a, job);
    } else {
        lead_failed(a, job);
    }
    free(job);
}

static void lead_begin(struct archiver *a, enum job_kind kind, struct version version)
{
    struct job *job = calloc(1, sizeof(*job));
    if (job == NULL) {
        return;
    }
    *job = (struct job){.archiver = a, .kind = kind, .term = a->term, .version = version, .since_ms = clock_ms()};
    if (pool_submit(a->pool, lead_work, lead_done, job) != TCK_OK) {
        free(job);
        return;
    }
    a->leading = job;
}

static bool is_due(const struct archiver *a, struct version published)
{
    const struct interval *every = &a->needs.config->save_archive_interval;
    const struct archive_due due = {.every_steps = every->steps,
                                    .every_ms = (uint64_t)(every->seconds * 1000),
                                    .published = published,
                                    .archived = a->archived,
                                    .now_wall_ms = clock_wall_ms(),
                                    .archived_wall_ms = a->archived_wall_ms};
    return archive_is_due(&due);
}

static void lead(struct archiver *a, const struct term_context *tc)
{
    struct version published = coordinator_decision(tc->coordinator)->published;
    if (a->leading != NULL || version_none(published) || clock_ms() < a->lead_after_ms) {
        return;
    }
    if (!a->known) {
        lead_begin(a, JOB_LOOK, VERSION_NONE);
    } else if (version_none(a->chosen)) {
        if (is_due(a, published)) {
            persistent_pin(a->needs.persistent, published);
            lead_begin(a, JOB_PREPARE, published);
        }
    } else if (a->reported_count == a->node_count) {
        lead_begin(a, JOB_PUBLISH, a->chosen);
    }
}

static void node_failed(struct archiver *a, const struct term_context *tc, uint32_t node, const char *text)
{
    struct version published = coordinator_decision(tc->coordinator)->published;
    struct error why;
    if (node != tc->self) { /* its own is known */
        (void)error_set(&why, TCK_ERR_IO, "node %s: %s", tc->world.nodes[node].name, text);
        failed(a, &why);
    }
    if (clock_ms() >= a->lead_after_ms) { /* one failure, even if several nodes report it */
        lead_pause(a);
    }
    if (version_cmp(published, a->chosen) > 0) { /* retention may have deleted the chosen one */
        choose(a, VERSION_NONE);
    }
}

void archiver_handle(struct archiver *a, struct term_context *tc, uint32_t node, const void *data, size_t len)
{
    struct wire_archived m;
    if (a == NULL || wire_archived_decode(data, len, &m) != TCK_OK) {
        return;
    }
    if (a->term != tc->world.term || version_none(a->chosen) || !version_is(m.version, a->chosen) ||
        node >= a->node_count) {
        return; /* a late one */
    }
    if (!m.ok) {
        node_failed(a, tc, node, m.why);
    } else if (!a->reported[node]) {
        a->reported[node] = true;
        a->reported_count++;
        a->reported_ms = clock_ms();
    }
}

struct version archiver_choice(const struct archiver *a)
{
    return a != NULL && is_current(a, a->term) ? a->chosen : VERSION_NONE;
}

/* ---- time ---------------------------------------------------------------------------------------------------- */

/* False: no memory. Nothing is chosen in a new term: once the archive has been looked at, its coordinator chooses the
 * newest published version if that is due. */
static bool begin_term(struct archiver *a, const struct term_context *tc)
{
    bool *reported = calloc((size_t)tc->world.node_count + 1, sizeof(*reported));
    if (reported == NULL) {
        return false;
    }
    free(a->reported);
    a->reported = reported;
    a->node_count = tc->world.node_count;
    a->reported_count = 0;
    a->term = tc->world.term;
    a->wanted = a->copied = a->chosen = VERSION_NONE;
    persistent_pin(a->needs.persistent, VERSION_NONE);
    a->known = false; /* another coordinator may have published meanwhile */
    return true;
}

/* In a directory that hangs, no call returns by itself. */
static void notice_hang(struct archiver *a)
{
    uint64_t since_ms = a->copying != NULL ? a->copying->since_ms : a->leading != NULL ? a->leading->since_ms : 0;
    uint64_t moved_ms = archive_moved_ms(a->archive);
    struct error why;
    since_ms = since_ms != 0 && moved_ms > since_ms ? moved_ms : since_ms;
    if (since_ms != 0 && a->trouble.code == TCK_OK && clock_ms() - since_ms >= a->needs.config->storage_timeout_ms) {
        (void)error_set(&why, TCK_ERR_TIMEDOUT,
                        "archive_dir %s does not answer: a copy has made no progress for %u ms (storage_timeout_ms)",
                        a->needs.config->archive_dir, a->needs.config->storage_timeout_ms);
        failed(a, &why);
    }
}

void archiver_tick(struct archiver *a)
{
    if (a == NULL) {
        return;
    }
    notice_hang(a);
    const struct term_context *tc = *a->needs.term;
    if (is_stopped(a) || (tc->world.term != a->term && !begin_term(a, tc))) {
        return;
    }
    if (tc->coordinator != NULL) {
        lead(a, tc);
    }
    follow(a, tc);
}

bool archiver_is_busy(const struct archiver *a)
{
    if (a == NULL || is_stopped(a) || a->trouble.code != TCK_OK) {
        return false;
    }
    uint32_t patience_ms = a->needs.config->storage_timeout_ms;
    bool awaits = !version_none(a->chosen) && clock_ms() - a->reported_ms < patience_ms;
    bool owes =
        !version_none(a->wanted) && !version_is(a->copied, a->wanted) && clock_ms() - a->wanted_since_ms < patience_ms;
    return a->copying != NULL || a->leading != NULL || awaits || owes;
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

struct archiver_figures archiver_figures(const struct archiver *a)
{
    if (a == NULL) {
        return (struct archiver_figures){0};
    }
    return (struct archiver_figures){.used = true,
                                     .known = a->known,
                                     .archived = a->archived,
                                     .copying = a->wanted,
                                     .files = a->files,
                                     .bytes = a->bytes,
                                     .versions = a->versions,
                                     .failures = a->failures,
                                     .trouble = a->trouble};
}

tck_status_t archiver_new(const struct archiver_setup *setup, struct archiver **out, struct error *err)
{
    if (setup->config->archive_dir[0] == '\0') {
        *out = NULL;
        return TCK_OK;
    }
    struct archiver *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    a->needs = *setup;
    tck_status_t status = archive_new(setup->config, setup->persistent, NULL, &a->archive, err);
    if (status == TCK_OK) {
        status = pool_new(setup->loop, THREADS, &a->pool, err);
    }
    if (status != TCK_OK) {
        archiver_free(a);
        return status;
    }
    *out = a;
    return TCK_OK;
}

void archiver_free(struct archiver *a)
{
    if (a == NULL) {
        return;
    }
    archive_cancel(a->archive);
    if (a->copying != NULL) {
        atomic_store(&a->copying->stops, true);
    }
    if (a->pool != NULL) {
        pool_free(a->pool);
    }
    archive_free(a->archive);
    free(a->reported);
    free(a);
}
