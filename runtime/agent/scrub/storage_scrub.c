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
    struct published which; /* being read; term 0: none */
    struct manifest manifest;
    struct version last;  /* checked before it */
    struct version other; /* newest other published version; step 0: none */
    const uint8_t *image; /* source of a repair */
    uint32_t file, chunk;
    struct error outcome;
    struct error trouble; /* newest one reported: storage could not be read, */
    struct version unread_of;
    char unread[MANIFEST_FILE_NAME]; /* in this file; "": in the listing */
    uint64_t checked, bad, repaired;
};

static void next_version(struct storage_scrub *look)
{
    manifest_free(&look->manifest);
    look->last = look->which.version;
    look->which = (struct published){0};
    look->file = 0;
    look->chunk = 0;
}

static bool is_mine(const struct storage_scrub *look, uint32_t file)
{
    const struct term_context *tc = *look->needs.term;
    uint32_t local_shard = tc != NULL ? term_context_shard(tc, look->manifest.files[file].shard) : NONE32;
    return local_shard != NONE32 && tc->shards[local_shard].drains_here;
}

/* Moves on to a file of this node; false if the version has none left. */
static bool find_file(struct storage_scrub *look)
{
    while (look->file < look->manifest.file_count && !is_mine(look, look->file)) {
        look->file++;
        look->chunk = 0;
    }
    return look->file < look->manifest.file_count;
}

static uint64_t pause_ms(const struct storage_scrub *look)
{
    uint64_t parts = 1;
    for (uint32_t i = 0; i < look->manifest.file_count; i++) {
        parts += is_mine(look, i) ? chunk_count(look->manifest.files[i].bytes) / PART_CHUNKS + 1 : 0;
    }
    uint64_t pause = look->needs.config->scrub_storage_interval_s * 1000ull / parts;
    return pause < 1 ? 1 : pause > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause;
}

/* ---- in a pool thread ---------------------------------------------------------------------------------------- */

/* The newest one older than the last; after the oldest the newest of all. */
static struct published choose(struct storage_scrub *look, const struct published *list, size_t count)
{
    size_t at = 0;
    while (at < count && !version_none(look->last) && version_cmp(list[at].version, look->last) >= 0) {
        at++;
    }
    bool newest = at == 0 || at >= count;
    look->other = !newest ? list[0].version : count > 1 ? list[1].version : VERSION_NONE;
    return list[at < count ? at : 0];
}

static void pick_work(void *ctx)
{
    struct storage_scrub *look = ctx;
    struct persistent *p = look->needs.persistent;
    struct published *list = NULL;
    size_t count = 0;
    progress_begin(&look->storage.progress);
    look->outcome.code = persistent_list(p, &list, &count, &look->outcome);
    if (look->outcome.code == TCK_OK && count > 0) {
        struct published which = choose(look, list, count);
        look->outcome.code = persistent_manifest(p, &which, &look->manifest, &look->outcome);
        if (look->outcome.code == TCK_OK) {
            look->which = which;
        }
    }
    progress_end(&look->storage.progress);
    free(list);
}

static void part_work(void *ctx)
{
    struct storage_scrub *look = ctx;
    progress_begin(&look->storage.progress);
    look->outcome.code = persistent_verify_part(look->needs.persistent, &look->which, &look->manifest.files[look->file],
                                                look->chunk, look->chunk + PART_CHUNKS, &look->outcome);
    progress_end(&look->storage.progress);
}

/* ---- in the loop's thread ------------------------------------------------------------------------------------ */

static void go_on(struct storage_scrub *look)
{
    if (!*look->needs.leaving) {
        loop_timer_set(look->timer, pause_ms(look), false);
    }
}

static bool start(struct storage_scrub *look, const char *what, pool_work_fn *work, pool_done_fn *done)
{
    look->storage = (struct storage_op){.what = what, .ctx = look};
    look->outcome = (struct error){0};
    storage_begin(&look->storage, look->needs.storage_ops, NULL);
    if (pool_submit(look->needs.io, work, done, look) != TCK_OK) {
        storage_end(&look->storage);
        return false;
    }
    return true;
}

/* Storage or one of its files cannot be read, which is not damage. The log has the first file of each kind of error, as
 * there may be many; status and trainers get the newest. The trouble is over when that file can be read. */
static void report_unread(struct storage_scrub *look, const char *file)
{
    const struct config *config = look->needs.config;
    struct error why = look->outcome;
    error_prefix(&why, "%s/%s", config->save_dir, config->job);
    if (why.code != look->trouble.code) {
        log_error("a published version cannot be checked: %s", why.text);
    }
    look->trouble = why;
    look->unread_of = look->which.version;
    snprintf(look->unread, sizeof(look->unread), "%s", file);
    health_storage_failed(look->needs.health, 0, &why);
}

static void report_readable(struct storage_scrub *look, const char *file)
{
    bool same = file[0] == '\0' || version_is(look->unread_of, look->which.version);
    if (look->trouble.code != TCK_OK && same && strcmp(look->unread, file) == 0) {
        log_info("storage can be read again: the check of published versions continues");
        look->trouble = (struct error){0};
        health_storage_works(look->needs.health);
    }
}

/* A version that retention has deleted meanwhile is no trouble. */
static void pick_done(void *ctx, bool canceled)
{
    struct storage_scrub *look = ctx;
    storage_end(&look->storage);
    if (!canceled && look->outcome.code == TCK_OK) {
        report_readable(look, "");
    } else if (!canceled && look->outcome.code != TCK_ERR_NOENT) {
        report_unread(look, "");
    }
    go_on(look);
}

/* ---- repairing --------------------------------------------------------------------------------------------------- */

/* The image with the same bytes in memory; NULL if there is none any more. */
static const uint8_t *same_in_memory(const struct storage_scrub *look)
{
    const struct term_context *tc = *look->needs.term;
    const struct manifest_file *file = &look->manifest.files[look->file];
    uint32_t local_shard = tc != NULL && !tc->closed ? term_context_shard(tc, file->shard) : NONE32;
    uint32_t slot = local_shard == NONE32 ? NONE32 : node_slot_of(tc->node, local_shard, look->which.version);
    if (slot == NONE32 || node_slot(tc->node, slot)->state != SLOT_VERIFIED ||
        !hash128_is(node_slot(tc->node, slot)->root, file->root)) {
        return NULL;
    }
    return segment_image(tc->local_shards[local_shard].segment, slot - tc->local_shards[local_shard].first_slot);
}

static void repair_work(void *ctx)
{
    struct storage_scrub *look = ctx;
    progress_begin(&look->storage.progress);
    look->outcome.code = persistent_repair(look->needs.persistent, &look->which, &look->manifest.files[look->file],
                                           look->image, &look->outcome);
    progress_end(&look->storage.progress);
}

static void log_damage_stays(const struct storage_scrub *look, const char *why)
{
    char other[64] = "there is no other";
    if (!version_none(look->other)) {
        snprintf(other, sizeof(other), "the newest other one is %" PRIu64 ".%" PRIu64, look->other.term,
                 look->other.step);
    }
    log_error("the file stays damaged (%s): a restore that needs it falls back to another published version; %s", why,
              other);
}

static void next_file(struct storage_scrub *look)
{
    look->file++;
    look->chunk = 0;
}

static void repair_done(void *ctx, bool canceled)
{
    struct storage_scrub *look = ctx;
    const struct manifest_file *file = &look->manifest.files[look->file];
    storage_end(&look->storage);
    if (!canceled && look->outcome.code == TCK_OK) {
        look->repaired++;
        log_info("the published file %s of version %" PRIu64 ".%" PRIu64 " was rewritten from memory", file->name,
                 look->which.version.term, look->which.version.step);
    } else if (!canceled) {
        log_damage_stays(look, look->outcome.text);
    }
    next_file(look);
    go_on(look);
}

/* True if the file is being repaired: the scrub continues after that. Memory is not moved meanwhile. */
static bool repair(struct storage_scrub *look)
{
    look->image = look->which.from_load_dir ? NULL : same_in_memory(look);
    if (look->image == NULL) {
        log_damage_stays(look, look->which.from_load_dir ? "files in load_dir are never changed"
                                                         : "this version is no longer in this node's memory");
        return false;
    }
    return start(look, "the repair of a file", repair_work, repair_done);
}

/* True if the scrub continues later, after a repair. */
static bool report_part(struct storage_scrub *look)
{
    const char *file = look->manifest.files[look->file].name;
    switch ((int)look->outcome.code) {
    case TCK_OK:
        report_readable(look, file);
        return false;
    case TCK_ERR_NOENT:
        return false; /* retention has deleted it */
    case TCK_ERR_CORRUPT:
        look->bad++;
        log_error("a published file is damaged: %s", look->outcome.text);
        return repair(look);
    default:
        report_unread(look, file);
        return false;
    }
}

static void part_done(void *ctx, bool canceled)
{
    struct storage_scrub *look = ctx;
    storage_end(&look->storage);
    look->chunk += PART_CHUNKS;
    if (!canceled && report_part(look)) {
        return;
    }
    bool whole = look->outcome.code == TCK_OK;
    if (look->outcome.code == TCK_ERR_NOENT) {
        next_version(look);
    } else if (!whole || look->chunk >= chunk_count(look->manifest.files[look->file].bytes)) {
        look->checked += whole;
        next_file(look);
    }
    go_on(look);
}

static void on_timer(void *ctx)
{
    struct storage_scrub *look = ctx;
    bool reading = !version_none(look->which.version);
    if (reading && !find_file(look)) {
        next_version(look);
        reading = false;
    }
    if (!(reading ? start(look, "the check of a published file", part_work, part_done)
                  : start(look, "the listing of the versions to check", pick_work, pick_done))) {
        go_on(look);
    }
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

tck_status_t storage_scrub_new(const struct storage_scrub_setup *setup, struct storage_scrub **out, struct error *err)
{
    struct storage_scrub *look = calloc(1, sizeof(*look));
    if (look == NULL || loop_timer_add(setup->loop, on_timer, look, &look->timer) != TCK_OK) {
        free(look);
        return error_set(err, TCK_ERR_NOMEM, "scrub: out of memory");
    }
    look->needs = *setup;
    *out = look;
    if (setup->config->scrub_storage_interval_s > 0) {
        loop_timer_set(look->timer, pause_ms(look), false);
    }
    return TCK_OK;
}

void storage_scrub_free(struct storage_scrub *look)
{
    if (look != NULL) {
        manifest_free(&look->manifest);
        loop_timer_remove(look->timer);
        free(look);
    }
}

void storage_scrub_json(const struct storage_scrub *look, json_t *json)
{
    json_add_u64(json, "files_checked", look->checked);
    json_add_u64(json, "files_bad", look->bad);
    json_add_u64(json, "files_repaired", look->repaired);
}
