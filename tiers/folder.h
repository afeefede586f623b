/* SPDX-License-Identifier: Apache-2.0
 * A place on storage whose files are found by name: an open directory, where only regular files count (safe_fs.h), or
 * the keys of a store of objects below a prefix (object_folder.h). Names are single components. Blocking; error texts
 * name the file, and the caller adds the place. */
#ifndef TCK_TIERS_FOLDER_H
#define TCK_TIERS_FOLDER_H

#include "tiers/object/object_folder.h"
#include "tiers/safe_fs.h"

struct folder {
    int fd;                        /* -1: no directory */
    struct object_folder *objects; /* NULL: no store of objects */
};

#define FOLDER_NONE ((struct folder){.fd = -1})

/* Takes over the descriptor of an open directory. */
static inline struct folder folder_of_dir(int fd)
{
    return (struct folder){.fd = fd};
}
/* Whether there is one at all. */
bool folder_is(const struct folder *folder);
/* Takes over the reference. */
static inline struct folder folder_of_objects(struct object_folder *objects)
{
    return (struct folder){.fd = -1, .objects = objects};
}
/* The same place, with a life of its own. */
must_check tck_status_t folder_dup(const struct folder *folder, struct folder *out, struct error *err);
/* Harmless if there is none; leaves FOLDER_NONE. */
void folder_close(struct folder *folder);

/* TCK_ERR_NOENT: there is no such subfolder. One in a store of objects is not looked up: it may be empty. */
must_check tck_status_t folder_open(const struct folder *folder, const char *name, struct folder *out,
                                    struct error *err);
/* The names of the files and subfolders in it. */
must_check tck_status_t folder_list(const struct folder *folder, struct names *out, struct error *err);
/* The same, of the names that begin so. */
must_check tck_status_t folder_list_some(const struct folder *folder, const char *beginning, struct names *out,
                                         struct error *err);
/* Before questions for the sizes of many files: a store of objects is asked once for all of them. */
must_check tck_status_t folder_gather(const struct folder *folder, struct error *err);
must_check tck_status_t folder_size(const struct folder *folder, const char *name, uint64_t *bytes_out,
                                    struct error *err);
/* The whole file of at most max bytes. The text is NUL-terminated; the caller frees it. */
must_check tck_status_t folder_read(const struct folder *folder, const char *name, size_t max, char **text_out,
                                    size_t *len_out, struct error *err);

/* Replaces the whole file durably; a reader sees the old or the new content. */
must_check tck_status_t folder_write(const struct folder *folder, const char *name, const void *data, size_t len,
                                     struct error *err);
/* The same for a new file: TCK_ERR_EXIST if there is one; in a store of objects, only if its content is another. */
must_check tck_status_t folder_create(const struct folder *folder, const char *name, const void *data, size_t len,
                                      struct error *err);
must_check tck_status_t folder_remove(const struct folder *folder, const char *name, struct error *err);
/* Makes earlier changes to its names durable. */
must_check tck_status_t folder_sync(const struct folder *folder, struct error *err);

/* A file to read parts of. */
struct folder_file {
    int fd;                   /* -1: not an open file */
    struct object_folder *in; /* NULL: no object; owned */
    char name[BENEATH_NAME_MAX + 1];
};

#define FOLDER_FILE_NONE ((struct folder_file){.fd = -1})

must_check tck_status_t folder_open_file(const struct folder *folder, const char *name, struct folder_file *out,
                                         struct error *err);
bool folder_file_is(const struct folder_file *file);
must_check tck_status_t folder_file_dup(const struct folder_file *file, struct folder_file *out, struct error *err);
void folder_file_close(struct folder_file *file);
/* Reads what the device has from now on, not what the page cache has: only a hint. */
void folder_file_forget_cached(const struct folder_file *file);
/* Fills the buffer with the bytes from offset on. TCK_ERR_CORRUPT: the file ends before that. */
must_check tck_status_t folder_file_read(const struct folder_file *file, uint64_t offset, void *buffer, size_t bytes,
                                         struct error *err);

#endif
