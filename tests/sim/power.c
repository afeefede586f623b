/* SPDX-License-Identifier: Apache-2.0
 * Storage loses power. What was not synced is lost: bytes that were written since the file was last synced, and the
 * newest changes of directories that were not synced after them. A process that has such a file or directory open gets
 * an error when it syncs it the next time. All machines may lose power together with storage. */
#include "files.h"

#include "tiers/names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A change of one or two directories that is not on disk yet. */
struct change {
    struct change *older;
    struct file *from_dir, *dir; /* the file was created if from_dir is NULL, removed if dir is */
    struct file *file, *replaced;
    char *from, *name;
};

/* A file with bytes that are not on disk. */
struct unsynced {
    struct unsynced *next;
    struct file *file;
    uint64_t bytes; /* and data: as they are on disk */
    uint8_t data[];
};

static struct change *newest;
static struct unsynced *unsynced;
static uint32_t calls_left; /* until the power is lost; 0: it is not */

static bool is_watched(void)
{
    return sim_trait(TRAIT_POWER) && faults.any && sim.us <= faults.until_us;
}

static struct file *hold(struct file *file)
{
    if (file != NULL) {
        file->opened++;
    }
    return file;
}

static void let_go(struct file *file)
{
    if (file != NULL) {
        file_closed(file);
    }
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static struct unsynced **unsynced_at(const struct file *file)
{
    struct unsynced **at = &unsynced;
    while (*at != NULL && (*at)->file != file) {
        at = &(*at)->next;
    }
    return at;
}

void power_writes(struct file *file)
{
    if (!is_watched() || *unsynced_at(file) != NULL) {
        return;
    }
    struct unsynced *u = malloc(sizeof(*u) + file->bytes);
    if (u == NULL) {
        abort();
    }
    *u = (struct unsynced){.next = unsynced, .file = hold(file), .bytes = file->bytes};
    if (file->bytes > 0) {
        memcpy(u->data, file->data, file->bytes);
    }
    unsynced = u;
}

static void drop_unsynced(struct unsynced **at)
{
    struct unsynced *u = *at;
    *at = u->next;
    let_go(u->file);
    free(u);
}

/* The disk has the old bytes, or a part of the new ones. */
static void lose_bytes(const struct unsynced *u)
{
    struct file *file = u->file;
    file->losses++;
    if (sim_chance(60)) {
        file->bytes = u->bytes; /* there is room for them: files only grow or are emptied */
        memmove(file->data, u->data, u->bytes);
    } else if (file->bytes > 0) {
        file->bytes = sim_between(0, file->bytes - 1);
    }
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static char *text_of(const char *text)
{
    char *copy = text != NULL ? strdup(text) : NULL;
    if (text != NULL && copy == NULL) {
        abort();
    }
    return copy;
}

void power_renames(struct file *from_dir, const char *from, struct file *dir, const char *name, struct file *file)
{
    if (!is_watched()) {
        return;
    }
    const struct entry *old = dir != NULL ? entry_find(dir, name) : NULL;
    struct change *c = malloc(sizeof(*c));
    if (c == NULL) {
        abort();
    }
    *c = (struct change){.older = newest,
                         .from_dir = hold(from_dir),
                         .dir = hold(dir),
                         .file = hold(file),
                         .replaced = hold(old != NULL ? old->file : NULL),
                         .from = text_of(from),
                         .name = text_of(name)};
    newest = c;
}

static void drop_change(struct change **at)
{
    struct change *c = *at;
    *at = c->older;
    let_go(c->from_dir);
    let_go(c->dir);
    let_go(c->file);
    let_go(c->replaced);
    free(c->from);
    free(c->name);
    free(c);
}

void power_synced(const struct file *file)
{
    struct unsynced **at = unsynced_at(file);
    if (*at != NULL) {
        drop_unsynced(at);
    }
    for (struct change **c = &newest; *c != NULL;) {
        if ((*c)->dir == file || (*c)->from_dir == file) {
            drop_change(c);
        } else {
            c = &(*c)->older;
        }
    }
}

static void tell_published(const struct change *c)
{
    struct version version;
    if (c->dir == job_dir() && version_dir_parse(c->name, &version)) {
        sim_log("published step %" PRIu64 " of term %" PRIu64 " is no longer there", version.step, version.term);
        judge_unpublished(version);
    }
}

/* Restores the directories, unless a later change prevents it. */
static void undo(const struct change *c)
{
    struct entry *entry = c->dir != NULL ? entry_find(c->dir, c->name) : NULL;
    bool there = entry != NULL && entry->file == c->file;
    if ((c->dir != NULL && !there) || (c->from_dir != NULL && entry_find(c->from_dir, c->from) != NULL)) {
        return;
    }
    if (c->from_dir != NULL && c->from_dir->links > 0) {
        name_file(c->from_dir, c->from, c->file);
        c->from_dir->losses++;
    }
    if (there) {
        remove_name(c->dir, entry);
        c->dir->losses++;
        tell_published(c);
    }
    if (there && c->replaced != NULL) {
        name_file(c->dir, c->name, c->replaced);
    }
}

/* ---- power loss -------------------------------------------------------------------------------------------------- */

static void lose_names(void)
{
    uint64_t count = 0;
    for (const struct change *c = newest; c != NULL; c = c->older) {
        count++;
    }
    uint64_t lost = sim_chance(60) ? count : sim_between(0, count);
    sim_log("storage loses power: %" PRIu64 " of %" PRIu64 " changes of directories are gone", lost, count);
    for (; newest != NULL; lost -= lost > 0) {
        if (lost > 0) {
            undo(newest);
        }
        drop_change(&newest);
    }
}

static void machines_lose_power(void *unused)
{
    (void)unused;
    for (uint32_t i = 0; i < sim.host_count && !job.done; i++) {
        host_lose(&sim.hosts[i], sim_between(200, 1500) * MS);
    }
}

static void lose_power(void)
{
    uint64_t for_us = faults_lasting(20, 1500);
    for (const struct unsynced *u = unsynced; u != NULL; u = u->next) {
        lose_bytes(u);
    }
    while (unsynced != NULL) {
        drop_unsynced(&unsynced);
    }
    lose_names();
    for (uint32_t i = 0; i < sim.host_count; i++) {
        sim.hosts[i].hangs_until_us[AT_SAVE_DIR] = sim.us + for_us;
    }
    if (sim_chance(40)) {
        sim_after(0, NULL, machines_lose_power, NULL);
    }
}

void power_may_go(void)
{
    if (calls_left > 0 && --calls_left == 0 && is_watched()) {
        lose_power();
    }
}

void power_go_soon(void)
{
    calls_left = (uint32_t)sim_between(1, 40);
    sim_log("storage is about to lose power");
}
