/* SPDX-License-Identifier: Apache-2.0
 * The in-memory file system that serves as storage (files.c), as used by storage_doubts.c and power.c to inject faults.
 */
#ifndef TCK_SIM_FILES_H
#define TCK_SIM_FILES_H

#include "sim.h"

struct entry {
    struct entry *next, **at; /* what points to it */
    struct entry *same;       /* the next one whose name has the same hash */
    struct file *file;
    char name[];
};

struct file {
    bool is_dir;
    uint64_t inode;
    uint32_t links, opened;
    uint8_t *data;
    uint64_t bytes, cap;
    struct entry *entries;  /* of a directory, the newest first */
    struct entry **by_name; /* and by the hashes of their names */
    size_t entry_count, hashes;
    uint64_t unreadable_until_us; /* opening it fails */
    bool torn;                    /* a published version: a part of it is damaged */
    bool in_archive;              /* in archive_dir, else in save_dir */
    uint32_t losses;              /* number of power losses that took something that was not synced */
};

/* NULL if there is no such entry. */
struct entry *entry_find(const struct file *dir, const char *name);
struct entry *entry_new(const char *name, struct file *file, struct entry *next);
void name_file(struct file *dir, const char *name, struct file *file);
void remove_name(struct file *dir, struct entry *entry);
/* The job's directory; NULL if it does not exist yet. */
struct file *job_dir(void);
/* The same of the archive. */
struct file *archive_job_dir(void);

/* ---- power.c ----------------------------------------------------------------------------------------------------- */

/* Called before bytes of the file change. */
void power_writes(struct file *file);
/* Called before the file gets another name; it is created if from_dir is NULL, removed if dir is. */
void power_renames(struct file *from_dir, const char *from, struct file *dir, const char *name, struct file *file);
/* Called when the file or directory was synced. */
void power_synced(const struct file *file);
/* Called before each call to storage. */
void power_may_go(void);

#endif
