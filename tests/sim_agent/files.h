/* SPDX-License-Identifier: Apache-2.0
 * The file system in memory that storage is (files.c), for what goes wrong with it (storage_doubts.c). */
#ifndef TCK_SIM_AGENT_FILES_H
#define TCK_SIM_AGENT_FILES_H

#include "sim.h"

struct entry {
    struct entry *next;
    struct file *file;
    char name[];
};

struct file {
    bool is_dir;
    uint64_t inode;
    uint32_t links, opened;
    uint8_t *data;
    uint64_t bytes, cap;
    struct entry *entries;        /* of a directory */
    uint64_t unreadable_until_us; /* opening it fails */
    bool torn;                    /* a published version: a part of it is damaged */
};

/* The place of the entry with this name, or where the list ends. */
struct entry **entry_at(struct file *dir, const char *name);
struct entry *entry_new(const char *name, struct file *file, struct entry *next);
/* The job's directory; NULL: there is none yet. */
struct file *job_dir(void);

#endif
