/* SPDX-License-Identifier: Apache-2.0
 * Scrubs published versions: each node re-reads the files that it has written itself, of one version after the other,
 * in small parts spread over a long time. A damaged file is rewritten if memory still holds the same version. Otherwise
 * the damage is reported; the version stays, and a recovery skips it if it needs that file. */
#include "agent/scrub/storage_scrub.h"

#include "agent/driver/term_context.h"
#include "agent/storage/health.h"
#include "agent/storage/storage_ops.h"
#include "tiers/persistent.h"
#include "tiers/segment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_CHUNKS  4u
#define PAUSE_MAX_MS 60000u

struct storage_scrub {
    struct storage_op storage; /* while a pool thread works for it */
    struct storage_scrub_setup needs;
    struct loop_timer *timer;
    struct published which; /* version being read; term 0: none */
    struct manifest manifest;
    struct version last;  /* the version checked before it */
    struct version other; /* newest other published version; step 0: none */
    const uint8_t *image; /* source of a repair */
    uint32_t file, chunk;
    struct error outcome;
    struct error trouble; /* newest error reported when storage could not be read */
    struct version unread_of;
    char unread[MANIFEST_FILE_NAME]; /* file of that error; "": the listing */
    uint64_t checked, bad, repaired;
};

static void next_version(struct storage_scrub *ss)
{
    manifest_free(&ss->manifest);
    ss->last = ss->which.version;
    ss->which = (struct published){0};
    ss->file = 0;
    ss->chunk = 0;
}

/* .metadata and .index come after the files of shards. */
static uint32_t file_count(const struct storage_scrub *ss)
{
    return ss->manifest.file_count + (ss->manifest.metadata.bytes > 0) + (ss->manifest.index.bytes > 0);
}

static const struct manifest_file *file_at(const struct storage_scrub *ss, uint32_t file)
{
    if (file < ss->manifest.file_count) {
        return &ss->manifest.files[file];
    }
    bool first = file == ss->manifest.file_count;
    return first && ss->manifest.metadata.bytes > 0 ? &ss->manifest.metadata : &ss->manifest.index;
}

static bool is_of_shard(const struct storage_scrub *ss, uint32_t file)
{
    return file < ss->manifest.file_count;
}

static bool is_mine(const struct storage_scrub *ss, uint32_t file)
{
    const struct term_context *tc = *ss->needs.term;
    if (!is_of_shard(ss, file)) {
        file = 0; /* one node checks them: that of the first shard */
    }
    uint32_t local_shard = tc != NULL ? term_context_shard(tc, ss->manifest.files[file].shard) : NONE32;
    return local_shard != NONE32 && tc->shards[local_shard].drains_here;
}

/* Moves on to a file of this node; false if the version has none left. */
static bool find_file(struct storage_scrub *ss)
{
    while (ss->file < file_count(ss) && !is_mine(ss, ss->file)) {
        ss->file++;
        ss->chunk = 0;
    }
    return ss->file < file_count(ss);
}

static uint64_t pause_ms(const struct storage_scrub *ss)
{
    uint64_t parts = 1;
    for (uint32_t i = 0; i < file_count(ss); i++) {
        parts += is_mine(ss, i) ? chunk_count(file_at(ss, i)->bytes) / PART_CHUNKS + 1 : 0;
    }
    uint64_t pause = ss->needs.config->scrub_storage_interval_s * 1000ull / parts;
    return pause < 1 ? 1 : pause > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause;
}

/* ---- in a pool thread ---------------------------------------------------------------------------------------- */

/* Chooses the newest version that is older than the last one; after the oldest, the newest of all. */
static struct published choose(struct storage_scrub *ss, const struct published *list, size_t count)
{
    size_t at = 0;
    while (at < count && !version_none(ss->last) && version_cmp(list[at].version, ss->last) >= 0) {
        at++;
    }
    bool newest = at == 0 || at >= count;
    ss->other = !newest ? list[0].version : count > 1 ? list[1].version : VERSION_NONE;
    return list[at < count ? at : 0];
}

/* archive_dir is left out: it may hang without an effect on save_dir, whose drains wait while a storage operation
 * hangs. What it has was read back when it was copied, and `tierckpt verify` reads it. */
static void pick_work(void *ctx)
{
    struct storage_scrub *ss = ctx;
    struct persistent *p = ss->needs.persistent;
    struct published *list = NULL;
    size_t count = 0;
    progress_begin(&ss->storage.progress);
    ss->outcome.code = persistent_list_without_archive(p, &list, &count, &ss->outcome);
    if (ss->outcome.code == TCK_OK && count > 0) {
        struct published which = choose(ss, list, count);
        ss->outcome.code = persistent_manifest(p, &which, &ss->manifest, &ss->outcome);
        if (ss->outcome.code == TCK_OK) {
            ss->which = which;
        }
    }
    progress_end(&ss->storage.progress);
    free(list);
}

static void part_work(void *ctx)
{
    struct storage_scrub *ss = ctx;
    progress_begin(&ss->storage.progress);
    ss->outcome.code = persistent_verify_part(ss->needs.persistent, &ss->which, file_at(ss, ss->file), ss->chunk,
                                              ss->chunk + PART_CHUNKS, &ss->outcome);
    progress_end(&ss->storage.progress);
}

/* ---- in the loop's thread ------------------------------------------------------------------------------------ */

static void schedule_next(struct storage_scrub *ss)
{
    if (!*ss->needs.leaving) {
        loop_timer_set(ss->timer, pause_ms(ss), false);
    }
}

static bool start(struct storage_scrub *ss, const char *what, pool_work_fn *work, pool_done_fn *done)
{
    ss->storage = (struct storage_op){.what = what, .ctx = ss};
    ss->outcome = (struct error){0};
    storage_begin(&ss->storage, ss->needs.storage_ops, NULL);
    if (pool_submit(ss->needs.io, work, done, ss) != TCK_OK) {
        storage_end(&ss->storage);
        return false;
    }
    return true;
}

/* Storage or one of its files cannot be read, which is not damage. Only the first file of each kind of error is logged,
 * as there may be many; status and trainers get the newest one. The trouble is over when that file can be read. */
static void report_unread(struct storage_scrub *ss, const char *file)
{
    const struct config *config = ss->needs.config;
    struct error why = ss->outcome;
    error_prefix(&why, "%s/%s", config->save_dir, config->job);
    if (why.code != ss->trouble.code) {
        log_error("a published version cannot be checked: %s", why.text);
    }
    ss->trouble = why;
    ss->unread_of = ss->which.version;
    snprintf(ss->unread, sizeof(ss->unread), "%s", file);
    health_storage_failed(ss->needs.health, 0, &why);
}

static void report_readable(struct storage_scrub *ss, const char *file)
{
    bool same = file[0] == '\0' || version_is(ss->unread_of, ss->which.version);
    if (ss->trouble.code != TCK_OK && same && strcmp(ss->unread, file) == 0) {
        log_info("storage can be read again: the check of published versions continues");
        ss->trouble = (struct error){0};
        health_storage_works(ss->needs.health);
    }
}

/* A version that retention has deleted in the meantime is not reported as trouble. */
static void pick_done(void *ctx, bool canceled)
{
    struct storage_scrub *ss = ctx;
    storage_end(&ss->storage);
    if (!canceled && ss->outcome.code == TCK_OK) {
        report_readable(ss, "");
    } else if (!canceled && ss->outcome.code != TCK_ERR_NOENT) {
        report_unread(ss, "");
    }
    schedule_next(ss);
}

/* ---- repairing --------------------------------------------------------------------------------------------------- */

/* The image in memory with the same bytes; NULL if there is none any more. */
static const uint8_t *same_in_memory(const struct storage_scrub *ss)
{
    const struct term_context *tc = *ss->needs.term;
    const struct manifest_file *file = &ss->manifest.files[ss->file];
    uint32_t local_shard = tc != NULL && !tc->closed ? term_context_shard(tc, file->shard) : NONE32;
    uint32_t slot = local_shard == NONE32 ? NONE32 : node_slot_of(tc->node, local_shard, ss->which.version);
    if (slot == NONE32 || node_slot(tc->node, slot)->state != SLOT_VERIFIED ||
        !hash128_is(node_slot(tc->node, slot)->root, file->root)) {
        return NULL;
    }
    return segment_image(tc->local_shards[local_shard].segment, slot - tc->local_shards[local_shard].first_slot);
}

static void repair_work(void *ctx)
{
    struct storage_scrub *ss = ctx;
    progress_begin(&ss->storage.progress);
    ss->outcome.code =
        persistent_repair(ss->needs.persistent, &ss->which, &ss->manifest.files[ss->file], ss->image, &ss->outcome);
    progress_end(&ss->storage.progress);
}

static void log_damage_stays(const struct storage_scrub *ss, const char *why)
{
    char other[64] = "there is no other";
    if (!version_none(ss->other)) {
        snprintf(other, sizeof(other), "the newest other one is %" PRIu64 ".%" PRIu64, ss->other.term, ss->other.step);
    }
    log_error("the file stays damaged (%s): a restore that needs it falls back to another published version; %s", why,
              other);
}

static void next_file(struct storage_scrub *ss)
{
    ss->file++;
    ss->chunk = 0;
}

static void repair_done(void *ctx, bool canceled)
{
    struct storage_scrub *ss = ctx;
    const struct manifest_file *file = &ss->manifest.files[ss->file];
    storage_end(&ss->storage);
    if (!canceled && ss->outcome.code == TCK_OK) {
        ss->repaired++;
        log_info("the published file %s of version %" PRIu64 ".%" PRIu64 " was rewritten from memory", file->name,
                 ss->which.version.term, ss->which.version.step);
    } else if (!canceled) {
        log_damage_stays(ss, ss->outcome.text);
    }
    next_file(ss);
    schedule_next(ss);
}

/* True if the file is being repaired: the scrub continues after that. Memory is not moved in the meantime. */
static bool repair(struct storage_scrub *ss)
{
    if (!is_of_shard(ss, ss->file)) {
        bool index = file_at(ss, ss->file) == &ss->manifest.index;
        log_error("the file stays damaged: %s",
                  index ? "readers of this version open each of its files instead"
                        : "PyTorch and torchtitan cannot open this version without Tierckpt, which can still restore "
                          "it");
        return false;
    }
    ss->image = ss->which.from_second ? NULL : same_in_memory(ss);
    if (ss->image == NULL) {
        log_damage_stays(ss, ss->which.from_second ? "only files in save_dir are rewritten"
                                                   : "this version is no longer in this node's memory");
        return false;
    }
    return start(ss, "the repair of a file", repair_work, repair_done);
}

/* True if the scrub continues later, after a repair. */
static bool report_part(struct storage_scrub *ss)
{
    const char *file = file_at(ss, ss->file)->name;
    switch ((int)ss->outcome.code) {
    case TCK_OK:
        report_readable(ss, file);
        return false;
    case TCK_ERR_NOENT:
        return false; /* retention has deleted it */
    case TCK_ERR_CORRUPT:
        ss->bad++;
        log_error("a published file is damaged: %s", ss->outcome.text);
        return repair(ss);
    default:
        report_unread(ss, file);
        return false;
    }
}

static void part_done(void *ctx, bool canceled)
{
    struct storage_scrub *ss = ctx;
    storage_end(&ss->storage);
    ss->chunk += PART_CHUNKS;
    if (!canceled && report_part(ss)) {
        return;
    }
    bool whole = ss->outcome.code == TCK_OK;
    if (ss->outcome.code == TCK_ERR_NOENT) {
        next_version(ss);
    } else if (!whole || ss->chunk >= chunk_count(file_at(ss, ss->file)->bytes)) {
        ss->checked += whole;
        next_file(ss);
    }
    schedule_next(ss);
}

static void on_timer(void *ctx)
{
    struct storage_scrub *ss = ctx;
    bool reading = !version_none(ss->which.version);
    if (reading && !find_file(ss)) {
        next_version(ss);
        reading = false;
    }
    if (!(reading ? start(ss, "the check of a published file", part_work, part_done)
                  : start(ss, "the listing of the versions to check", pick_work, pick_done))) {
        schedule_next(ss);
    }
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

tck_status_t storage_scrub_new(const struct storage_scrub_setup *setup, struct storage_scrub **out, struct error *err)
{
    struct storage_scrub *ss = calloc(1, sizeof(*ss));
    if (ss == NULL || loop_timer_add(setup->loop, on_timer, ss, &ss->timer) != TCK_OK) {
        free(ss);
        return error_set(err, TCK_ERR_NOMEM, "scrub: out of memory");
    }
    ss->needs = *setup;
    *out = ss;
    if (setup->config->scrub_storage_interval_s > 0) {
        loop_timer_set(ss->timer, pause_ms(ss), false);
    }
    return TCK_OK;
}

void storage_scrub_free(struct storage_scrub *ss)
{
    if (ss != NULL) {
        manifest_free(&ss->manifest);
        loop_timer_remove(ss->timer);
        free(ss);
    }
}

struct storage_scrub_counts storage_scrub_counts(const struct storage_scrub *ss)
{
    return (struct storage_scrub_counts){
        .files_checked = ss->checked, .files_bad = ss->bad, .files_repaired = ss->repaired};
}
