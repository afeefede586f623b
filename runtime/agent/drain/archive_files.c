/* SPDX-License-Identifier: Apache-2.0
 * See archive_files.h. */
#include "agent/drain/archive_files.h"

#include "agent/driver/term_context.h"
#include "base/clock.h"
#include "base/pool.h"
#include "tiers/archive.h"

#include <stdatomic.h>
#include <stdlib.h>

struct worker {
    struct archive_files *all;
    struct error outcome;
};

struct archive_files {
    struct archive *archive;
    struct pool *pool;
    archive_files_done_fn *done_fn;
    void *ctx;
    struct version version;
    uint32_t shard_count;
    struct hash128 *shards; /* that this node drains; sorted */
    struct manifest manifest;
    const struct manifest_file **files; /* of the manifest: those to copy */
    uint32_t file_count;
    _Atomic uint32_t next, done;
    _Atomic uint64_t bytes;
    atomic_bool stops; /* those that copy: also because another one has failed */
    bool stopped;      /* by the caller */
    uint32_t running;
    uint64_t since_ms;
    struct error outcome;
    struct worker workers[ARCHIVE_FILES_THREADS];
};

static void release(struct archive_files *c)
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

/* ---- in pool threads --------------------------------------------------------------------------------------------- */

/* The node that drains the first shard also copies .metadata. */
static void choose_files(struct archive_files *c)
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

static void look_work(void *ctx)
{
    struct archive_files *c = ctx;
    c->outcome.code = archive_manifest(c->archive, c->version, &c->manifest, &c->outcome);
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

/* Several at once. */
static void copy_work(void *ctx)
{
    struct worker *w = ctx;
    struct archive_files *c = w->all;
    while (!atomic_load(&c->stops)) {
        uint32_t i = atomic_fetch_add(&c->next, 1);
        if (i >= c->file_count) {
            return;
        }
        w->outcome.code = archive_copy(c->archive, c->version, c->files[i], &c->stops, &w->outcome);
        if (w->outcome.code != TCK_OK) {
            atomic_store(&c->stops, true);
            return;
        }
        atomic_fetch_add(&c->done, 1);
        atomic_fetch_add(&c->bytes, c->files[i]->bytes);
    }
}

/* ---- in the loop's thread ---------------------------------------------------------------------------------------- */

static void ended(struct archive_files *c)
{
    const struct archive_files_result result = {
        .outcome = c->outcome, .stopped = c->stopped, .files = atomic_load(&c->done), .bytes = atomic_load(&c->bytes)};
    archive_files_done_fn *done = c->done_fn;
    void *to = c->ctx;
    release(c);
    done(to, &result);
}

static void canceled_at_exit(struct archive_files *c, struct error *outcome)
{
    c->stopped = true;
    (void)error_set(outcome, TCK_ERR_CANCELED, "the agent is exiting");
}

static void copy_done(void *ctx, bool canceled)
{
    struct worker *w = ctx;
    struct archive_files *c = w->all;
    if (canceled) {
        canceled_at_exit(c, &w->outcome);
    }
    if (c->outcome.code == TCK_OK || (c->outcome.code == TCK_ERR_CANCELED && w->outcome.code != TCK_OK)) {
        c->outcome = w->outcome; /* a copy that was canceled because another one had failed is no reason */
    }
    if (--c->running == 0) {
        ended(c);
    }
}

static void look_done(void *ctx, bool canceled)
{
    struct archive_files *c = ctx;
    if (canceled) {
        canceled_at_exit(c, &c->outcome);
    }
    for (uint32_t i = 0; i < ARCHIVE_FILES_THREADS && i < c->file_count && c->outcome.code == TCK_OK; i++) {
        c->workers[i] = (struct worker){.all = c};
        c->outcome.code = pool_submit(c->pool, copy_work, copy_done, &c->workers[i]);
        if (c->outcome.code == TCK_OK) {
            c->running++;
        } else {
            (void)error_set(&c->outcome, c->outcome.code, "start to copy");
            atomic_store(&c->stops, true);
        }
    }
    if (c->running == 0) {
        ended(c);
    }
}

static void note_shards(struct archive_files *c, const struct term_context *tc)
{
    for (uint32_t i = 0; i < tc->setup.shard_count; i++) {
        if (tc->shards[i].drains_here) {
            c->shards[c->shard_count++] = tc->shards[i].id;
        }
    }
    qsort(c->shards, c->shard_count, sizeof(*c->shards), compare_shards);
}

/* NOLINTNEXTLINE(readability-function-size): where, what, and the callback */
struct archive_files *archive_files_begin(struct archive *archive, struct pool *pool, struct version version,
                                          const struct term_context *tc, archive_files_done_fn *done, void *ctx)
{
    struct archive_files *c = calloc(1, sizeof(*c));
    struct hash128 *shards = calloc((size_t)tc->setup.shard_count + 1, sizeof(*shards));
    if (c == NULL || shards == NULL) {
        free(c);
        free(shards);
        return NULL;
    }
    *c = (struct archive_files){.archive = archive,
                                .pool = pool,
                                .done_fn = done,
                                .ctx = ctx,
                                .version = version,
                                .shards = shards,
                                .since_ms = clock_ms()};
    note_shards(c, tc);
    if (pool_submit(pool, look_work, look_done, c) != TCK_OK) {
        release(c);
        return NULL;
    }
    return c;
}

void archive_files_stop(struct archive_files *files)
{
    files->stopped = true;
    atomic_store(&files->stops, true);
}

uint64_t archive_files_since_ms(const struct archive_files *files)
{
    return files->since_ms;
}
