/* SPDX-License-Identifier: Apache-2.0
 * Faults of storage: published versions and notes of terms that are damaged or temporarily unreadable, and listings
 * that fail or are outdated. */
#include "bucket.h"
#include "files.h"

#include "tiers/manifest.h"
#include "tiers/names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct {
    uint64_t unlisted_until_us,
        unnoted_until_us;  /* until then, listing the job's directory, and reading notes, fails */
    uint64_t old_until_us; /* until then, listings of the job's directory may be outdated */
    struct entry *claimed; /* listings are never older than this entry */
    uint64_t claimed_us;
} doubts;

/* ---- results for a host ------------------------------------------------------------------------------------------ */

static bool is_note(const char *name)
{
    uint64_t term;
    return term_name_parse(name, &term);
}

/* Without a claim, no launch would reach a recovery. */
static bool is_claimed(void)
{
    return job.launch != NULL && job.launch->phase >= PHASE_JOIN;
}

bool doubts_hide(const struct file *dir, const struct entry *entry)
{
    bool note = doubts.unnoted_until_us > sim.us && is_claimed() && dir == job_dir() && is_note(entry->name);
    return sim.current != NULL && (note || entry->file->unreadable_until_us > sim.us);
}

bool doubts_of_notes(void)
{
    return doubts.unnoted_until_us > sim.us;
}

static void free_claimed(void)
{
    while (doubts.claimed != NULL) {
        struct entry *entry = doubts.claimed;
        doubts.claimed = entry->next;
        free(entry);
    }
}

/* A term is claimed in the listed directory: no later listing is older than the claim. */
void doubts_claimed(const struct file *dir)
{
    if (!sim_trait(TRAIT_DOUBTS)) {
        return;
    }
    free_claimed();
    for (const struct entry *entry = dir->entries; entry != NULL; entry = entry->next) {
        doubts.claimed = entry_new(entry->name, entry->file, doubts.claimed);
    }
    doubts.claimed_us = sim.us;
}

static bool is_old(void)
{
    const struct launch *launch = job.launch;
    bool may = launch != NULL && launch->phase >= PHASE_JOIN && launch->claimed_us > 0 &&
               doubts.claimed_us >= launch->claimed_us;
    return may && doubts.old_until_us > sim.us && sim_chance(30);
}

const struct entry *doubts_list(const struct file *dir)
{
    if (sim.current == NULL || dir != job_dir()) {
        return dir->entries;
    }
    if (doubts.unlisted_until_us > sim.us && is_claimed()) {
        errno = EIO;
        return NULL;
    }
    return is_old() ? doubts.claimed : dir->entries;
}

/* ---- published versions ------------------------------------------------------------------------------------------ */

/* The newest version below this one; NULL if there is none. */
static struct entry *newest_below(struct version below, struct version *version_out)
{
    struct entry *newest = NULL;
    for (struct entry *entry = job_dir() != NULL ? job_dir()->entries : NULL; entry != NULL; entry = entry->next) {
        struct version version;
        if (entry->file->is_dir && version_dir_parse(entry->name, &version) && version_cmp(version, below) < 0 &&
            (newest == NULL || version_cmp(version, *version_out) > 0)) {
            newest = entry;
            *version_out = version;
        }
    }
    return newest;
}

bool published_next(struct published_version *at)
{
    if (sim_trait(TRAIT_BUCKET)) {
        return bucket_published_next(at);
    }
    const struct entry *entry = newest_below(at->version, &at->version);
    at->torn = entry != NULL && entry->file->torn;
    return entry != NULL;
}

/* Usually the newest version, which matters most. */
static struct entry *choose_version(struct version *version_out)
{
    struct version version = VERSION_MOST;
    struct entry *entry = newest_below(version, &version), *chosen = entry;
    *version_out = version;
    while (entry != NULL && sim_chance(40) && (entry = newest_below(version, &version)) != NULL) {
        chosen = entry;
        *version_out = version;
    }
    return chosen;
}

static struct file *choose_file(const struct file *dir, bool manifest)
{
    struct file *chosen = NULL;
    uint32_t seen = 0;
    for (const struct entry *entry = dir->entries; entry != NULL; entry = entry->next) {
        bool is_manifest = strcmp(entry->name, MANIFEST_NAME) == 0;
        if (is_manifest == manifest && !entry->file->is_dir && sim_between(0, seen++) == 0) {
            chosen = entry->file;
        }
    }
    return chosen;
}

/* Truncates the file or flips a bit. A manifest must not turn into a manifest of another format. */
static void tear_file(struct file *file, bool only_cut)
{
    if (file->bytes > 0 && (only_cut || sim_chance(30))) {
        file->bytes = sim_between(0, file->bytes - 1);
    } else if (file->bytes > 0) {
        file->data[sim_between(0, file->bytes - 1)] ^= (uint8_t)(1 << sim_between(0, 7));
    }
}

void doubts_tear(void)
{
    struct version version;
    struct entry *entry = choose_version(&version);
    bool manifest = sim_chance(30);
    struct file *file = entry != NULL && !entry->file->torn ? choose_file(entry->file, manifest) : NULL;
    if (file != NULL) {
        sim_log("published step %" PRIu64 " of term %" PRIu64 " is damaged%s", version.step, version.term,
                manifest ? ", in its manifest" : "");
        tear_file(file, manifest);
        entry->file->torn = true;
        judge_torn(version);
    }
}

static void hide_version(uint64_t until_us)
{
    struct version version;
    struct entry *entry = choose_version(&version);
    if (entry == NULL) {
        return;
    }
    bool only_files = sim_chance(50);
    sim_log("published step %" PRIu64 " of term %" PRIu64 " cannot be read until %.3f s", version.step, version.term,
            (double)until_us / (double)S);
    entry->file->unreadable_until_us = only_files ? 0 : until_us;
    for (struct entry *in = entry->file->entries; only_files && in != NULL; in = in->next) {
        in->file->unreadable_until_us = strcmp(in->name, MANIFEST_NAME) == 0 ? 0 : until_us;
    }
}

/* ---- notes of terms ---------------------------------------------------------------------------------------------- */

static void tear_note(void)
{
    struct file *chosen = NULL;
    uint32_t seen = 0;
    for (const struct entry *entry = job_dir() != NULL ? job_dir()->entries : NULL; entry != NULL;
         entry = entry->next) {
        if (is_note(entry->name) && sim_between(0, seen++) == 0) {
            chosen = entry->file;
        }
    }
    if (chosen != NULL) {
        sim_log("the note of a term is damaged");
        tear_file(chosen, true);
        if (chosen->bytes == 0) { /* as if the claimer had died before it could write */
            judge_note_emptied();
        }
    }
}

/* Storage has no version yet, so the notes are the only record of a commit. */
static void strike_first(void *unused)
{
    (void)unused;
    struct published_version p = {.version = VERSION_MOST};
    if (job.done || sim.us > faults.until_us || published_next(&p)) {
        return;
    }
    if (job.commits == 0) {
        sim_after(sim_between(1, 50) * MS, NULL, strike_first, NULL);
        return;
    }
    if (sim_chance(50)) {
        tear_note();
    }
    faults.count++;
    for (uint32_t i = 0; i < sim.host_count; i++) {
        host_lose(&sim.hosts[i], sim_between(200, 1500) * MS);
    }
    faults_last(sim.us);
}

void doubts_plan(void)
{
    if (sim_chance(30)) {
        sim_after(sim_between(100, 1500) * MS, NULL, strike_first, NULL);
    }
}

/* ---- choice of faults -------------------------------------------------------------------------------------------- */

void doubts_strike(uint64_t until_us)
{
    switch (sim_between(0, 9)) {
    case 0:
    case 1:
    case 2:
        doubts_tear();
        break;
    case 3:
    case 4:
        hide_version(until_us);
        break;
    case 5:
    case 6:
        sim_log("storage returns outdated listings until %.3f s", (double)until_us / (double)S);
        doubts.old_until_us = until_us;
        break;
    case 7:
        sim_log("storage cannot be listed until %.3f s", (double)until_us / (double)S);
        doubts.unlisted_until_us = until_us;
        break;
    case 8:
        sim_log("the notes of terms cannot be read until %.3f s", (double)until_us / (double)S);
        doubts.unnoted_until_us = until_us;
        break;
    default:
        tear_note();
    }
}
