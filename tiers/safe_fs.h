/* SPDX-License-Identifier: Apache-2.0
 * Files below a directory that is already open, and nowhere else: a name is one path component, no symbolic link is
 * followed (openat2 with RESOLVE_BENEATH and its sisters), and what is read or written is a regular file. Blocking.
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
must_check tck_status_t safe_fs_open_dir(int dir_fd, const char *name, int *fd_out, struct error *err);
/* Made with mode 0755 if it is not there. */
must_check tck_status_t safe_fs_make_dir(int dir_fd, const char *name, int *fd_out, struct error *err);

/* Of a regular file. */
must_check tck_status_t safe_fs_size(int dir_fd, const char *name, uint64_t *bytes_out, struct error *err);

/* Not more than max bytes. The text gets a NUL after its end; the caller frees it. */
must_check tck_status_t safe_fs_read(int dir_fd, const char *name, size_t max, char **text_out, size_t *len_out,
                                     struct error *err);
/* Whole or not at all: to a part file, synced, renamed over name, directory synced. */
must_check tck_status_t safe_fs_write(int dir_fd, const char *name, const void *data, size_t len, struct error *err);

/* The same for a new file: TCK_ERR_EXIST if there is one. TCK_ERR_UNSUPPORTED: the file system has no hard links. */
must_check tck_status_t safe_fs_create(int dir_fd, const char *name, const void *data, size_t len, struct error *err);

/* A new random name for writing name: "<name>.<8 hex>.part". out holds BENEATH_NAME_MAX + 1. */
must_check tck_status_t safe_fs_part_name(const char *name, char *out, struct error *err);
/* True if part is such a name; then copies the name it was made for to whole_out (BENEATH_NAME_MAX + 1). */
bool safe_fs_is_part(const char *part, char *whole_out);

must_check tck_status_t safe_fs_rename(int dir_fd, const char *from, const char *to, struct error *err);
/* The same into another directory of the same file system. */
must_check tck_status_t safe_fs_replace(int from_fd, const char *from, int to_fd, const char *to, struct error *err);
/* A directory, to another place on the same file system. TCK_ERR_EXIST if the target is there. */
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
void names_free(struct names *names);

#endif
