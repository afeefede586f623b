/* SPDX-License-Identifier: Apache-2.0
 * Files below a directory that is already open, and nowhere else: a name is one path component, no symbolic link is
 * followed (openat2 with RESOLVE_BENEATH and related flags), and only regular files are read or written. Blocking.
 * Error texts name the file; the caller adds the directory. */
#ifndef TCK_TIERS_BENEATH_H
#define TCK_TIERS_BENEATH_H

#include "base/status.h"
#include <stdbool.h>

#define BENEATH_PART_SUFFIX ".part"
#define BENEATH_PART_EXTRA  14 /* ".<8 hex>.part" */
#define BENEATH_NAME_MAX    255

/* A regular file; flags as of open(2), new files get mode 0644. TCK_ERR_DENIED for a symbolic link or anything else. */
must_check tck_status_t safe_fs_open(int dir_fd, const char *name, int flags, int *fd_out, struct error *err);
/* The same, and the size of the file, without another call. */
must_check tck_status_t safe_fs_open_sized(int dir_fd, const char *name, int flags, int *fd_out, uint64_t *bytes_out,
                                           struct error *err);
must_check tck_status_t safe_fs_open_dir(int dir_fd, const char *name, int *fd_out, struct error *err);
/* Creates the directory with mode 0755 if it does not exist. */
must_check tck_status_t safe_fs_make_dir(int dir_fd, const char *name, int *fd_out, struct error *err);

/* The size of a regular file. */
must_check tck_status_t safe_fs_size(int dir_fd, const char *name, uint64_t *bytes_out, struct error *err);

/* Reads a file of at most max bytes. The text is NUL-terminated; the caller frees it. */
must_check tck_status_t safe_fs_read(int dir_fd, const char *name, size_t max, char **text_out, size_t *len_out,
                                     struct error *err);
/* Writes a file atomically: to a part file, synced, renamed over name, directory synced. */
must_check tck_status_t safe_fs_write(int dir_fd, const char *name, const void *data, size_t len, struct error *err);

/* The same for a new file: TCK_ERR_EXIST if it exists. TCK_ERR_UNSUPPORTED: the file system has no hard links. */
must_check tck_status_t safe_fs_create(int dir_fd, const char *name, const void *data, size_t len, struct error *err);

/* A new random name for writing name: "<name>.<8 hex>.part". out holds BENEATH_NAME_MAX + 1. */
must_check tck_status_t safe_fs_part_name(const char *name, char *out, struct error *err);
/* True if part is such a name; then copies the name it was made for to whole_out (BENEATH_NAME_MAX + 1). */
bool safe_fs_is_part(const char *part, char *whole_out);

must_check tck_status_t safe_fs_rename(int dir_fd, const char *from, const char *to, struct error *err);
/* The same into another directory of the same file system. */
must_check tck_status_t safe_fs_replace(int from_fd, const char *from, int to_fd, const char *to, struct error *err);
/* Moves a directory to another place on the same file system. TCK_ERR_EXIST if the target exists. */
must_check tck_status_t safe_fs_move_dir(int from_fd, const char *from, int to_fd, const char *to, struct error *err);
must_check tck_status_t safe_fs_unlink(int dir_fd, const char *name, struct error *err);
must_check tck_status_t safe_fs_remove_dir(int dir_fd, const char *name, struct error *err);
/* fsync of the directory itself. */
must_check tck_status_t safe_fs_sync(int dir_fd, struct error *err);

struct names {
    size_t count;
    char **names; /* sorted, without . and .. */
};
must_check tck_status_t safe_fs_list(int dir_fd, struct names *out, struct error *err);
bool names_have(const struct names *names, const char *name);
void names_free(struct names *names);

#endif
