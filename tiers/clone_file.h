/* SPDX-License-Identifier: Apache-2.0
 * Files that share blocks: ioctl(FICLONERANGE), which either shares them or fails. copy_file_range would copy the bytes
 * itself where it cannot, without a sign of it. Blocking. */
#ifndef TCK_TIERS_CLONE_FILE_H
#define TCK_TIERS_CLONE_FILE_H

#include "base/status.h"
#include "tiers/clone_past.h"

/* These bytes of `to`, which is open for writing, become those of `from`, which is open for reading. Both are in one
 * directory tree. The offset is a multiple of the file system's block size, and so is bytes, or `from` ends there. */
must_check tck_status_t clone_range(int from, int to, uint64_t offset, uint64_t bytes, struct error *err);
/* Tries it with two empty files, open for reading and writing. TCK_ERR_UNSUPPORTED, with the reason: it does not work
 * there. */
must_check tck_status_t clone_try(int from, int to, struct error *err);

must_check tck_status_t file_mark_at(int dir_fd, const char *name, struct file_mark *out, struct error *err);
/* Opens a file to read it. TCK_ERR_NOENT if the name has another file by now, or none. */
must_check tck_status_t file_open_marked(int dir_fd, const char *name, const struct file_mark *mark, int *fd_out,
                                         struct error *err);

#endif
