/* SPDX-License-Identifier: Apache-2.0
 * Checks the guarantees for archive_dir: a version that is published there was published in save_dir before and has the
 * bytes that its ranks have saved, only superseded ones are removed, and no more than max_archive_num are kept. */
#include "files.h"

#include "core/archive_due.h"
#include "tiers/manifest.h"
#include "tiers/names.h"

#include <inttypes.h>
#include <stdlib.h>

static struct version *saved; /* versions that were published in save_dir, also those that are gone */
static size_t saved_count;
static struct version archived; /* the one that was published last in the archive */
static uint64_t archived_us;
static struct version promised; /* newest one there that was not given up for an older one */

void archive_saved(struct version version)
{
    saved = realloc(saved, (saved_count + 1) * sizeof(*saved));
    if (saved == NULL) {
        abort();
    }
    saved[saved_count++] = version;
}

static bool was_saved(struct version version)
{
    size_t i = 0;
    while (i < saved_count && !version_is(saved[i], version)) {
        i++;
    }
    return i < saved_count;
}

bool archived_next(struct published_version *at)
{
    struct published_version newest = {.version = VERSION_NONE};
    bool found = false;
    for (const struct entry *entry = archive_job_dir() != NULL ? archive_job_dir()->entries : NULL; entry != NULL;
         entry = entry->next) {
        struct version version;
        if (entry->file->is_dir && version_dir_parse(entry->name, &version) && version_cmp(version, at->version) < 0 &&
            (!found || version_cmp(version, newest.version) > 0)) {
            newest = (struct published_version){.version = version};
            found = true;
        }
    }
    *at = found ? newest : *at;
    return found;
}

bool is_archived(struct version version)
{
    struct published_version p = {.version = VERSION_MOST};
    while (archived_next(&p)) {
        if (version_is(p.version, version)) {
            return true;
        }
    }
    return false;
}

/* ---- what is restored from there ----------------------------------------------------------------------------------
 */

void archive_restored(struct version version)
{
    struct published_version p = {.version = VERSION_MOST};
    bool found = false;
    while (!found && archived_next(&p)) {
        found = version_cmp(p.version, version) <= 0;
    }
    promised = found ? p.version : VERSION_NONE;
}

struct version archive_promise(uint64_t since_us)
{
    return archived_us < since_us && is_archived(promised) ? promised : VERSION_NONE;
}

/* ---- what is published there ------------------------------------------------------------------------------------- */

/* NULL: it is whole. */
static const char *why_not_whole(const struct file *dir, const struct manifest *manifest)
{
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        const struct manifest_file *file = &manifest->files[i];
        const struct entry *entry = entry_find(dir, file->name);
        if (entry == NULL || entry->file->bytes != file->bytes) {
            return "lacks a file, or a part of one";
        }
        if (!image_is(entry->file->data, file->bytes, file->shard, manifest->version)) {
            return "has other bytes than were saved";
        }
    }
    return NULL;
}

void judge_archived(const char *name, const struct file *dir)
{
    struct version version;
    struct manifest manifest;
    struct error err;
    const struct entry *text = entry_find(dir, MANIFEST_NAME);
    if (!version_dir_parse(name, &version)) {
        return;
    }
    archived = version;
    archived_us = sim.us;
    promised = version_cmp(version, promised) > 0 ? version : promised;
    job.archived++;
    faults_archived();
    if (!was_saved(version)) {
        sim_violation("step %" PRIu64 " of term %" PRIu64 " is in the archive, and never was in save_dir", version.step,
                      version.term);
    }
    if (text == NULL || manifest_parse((const char *)text->file->data, text->file->bytes, &manifest, &err) != TCK_OK) {
        sim_violation("step %" PRIu64 " of term %" PRIu64 " is in the archive without a manifest", version.step,
                      version.term);
        return;
    }
    const char *why = why_not_whole(dir, &manifest);
    if (why != NULL || !version_is(manifest.version, version)) {
        sim_violation("step %" PRIu64 " of term %" PRIu64 " in the archive %s", version.step, version.term,
                      why != NULL ? why : "is another version");
    }
    manifest_free(&manifest);
}

void judge_unarchived(const char *name)
{
    struct version version;
    if (version_dir_parse(name, &version) && !is_superseded(version, archived_next, job.archive_kept)) {
        sim_violation("step %" PRIu64 " of term %" PRIu64
                      " is removed from the archive, although nothing supersedes it",
                      version.step, version.term);
    }
}

/* ---- at the end -------------------------------------------------------------------------------------------------- */

#define TIDY_US (2 * S) /* a publish is followed by the deletion of what it supersedes, and a drain by a copy */

/* A deletion that a fault prevents is left to the next publish. */
static void check_count(void)
{
    struct published_version p = {.version = VERSION_MOST};
    uint32_t count = 0;
    while (archived_next(&p)) {
        count += is_ancestor(p.version, archived);
    }
    bool calm = archived_us > faults.last_us && archived_us > faults.until_us && sim.us > archived_us + TIDY_US;
    if (calm && count > job.archive_kept) {
        sim_violation("the archive has %u versions of one line of history, and %u are to be kept", count,
                      job.archive_kept);
    }
}

/* Only where nothing has failed: else the next attempt may wait for minutes. */
static void check_due(void)
{
    struct published_version p = {.version = VERSION_MOST};
    if (faults.any || !published_next(&p)) {
        return;
    }
    const struct archive_due due = {.every_steps = job.archive_every, .published = p.version, .archived = archived};
    if (archive_is_due(&due)) {
        sim_violation("step %" PRIu64 " was to be copied to the archive, which has step %" PRIu64, p.version.step,
                      archived.step);
    }
}

void judge_archive_end(void)
{
    if (sim_trait(TRAIT_ARCHIVE)) {
        check_count();
        check_due();
    }
}
