/* SPDX-License-Identifier: Apache-2.0
 * See clone_file.h. */
#include "tiers/clone_file.h"

#include "tiers/safe_fs.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRY_BYTES 65536u /* a whole block where blocks are large, and too many bytes to be stored with the names */

static int clone_call(int from, int to, uint64_t offset, uint64_t bytes)
{
    struct file_clone_range range = {.src_fd = from, .src_offset = offset, .src_length = bytes, .dest_offset = offset};
    int rc;
    do {
        rc = ioctl(to, FICLONERANGE, &range);
    } while (rc < 0 && errno == EINTR);
    return rc;
}

tck_status_t clone_range(int from, int to, uint64_t offset, uint64_t bytes, struct error *err)
{
    if (clone_call(from, to, offset, bytes) < 0) {
        return error_set(err, status_of_errno(errno), "share %" PRIu64 " bytes at %" PRIu64 ": %m", bytes, offset);
    }
    return TCK_OK;
}

/* What file systems answer that have no such call, or not for these files. */
static bool is_refusal(int errnum)
{
    return errnum == EOPNOTSUPP || errnum == ENOTTY || errnum == EINVAL || errnum == ENOSYS || errnum == EXDEV;
}

tck_status_t clone_try(int from, int to, struct error *err)
{
    static const char data[TRY_BYTES] = {1};
    if (pwrite(from, data, sizeof(data), 0) != (ssize_t)sizeof(data)) {
        return error_set(err, status_of_errno(errno), "try whether files can share blocks: write: %m");
    }
    if (clone_call(from, to, 0, sizeof(data)) == 0) {
        return TCK_OK;
    }
    return error_set(err, is_refusal(errno) ? TCK_ERR_UNSUPPORTED : status_of_errno(errno),
                     "files there cannot share blocks (FICLONERANGE: %m)");
}

static struct file_mark mark_of(const struct stat *st)
{
    return (struct file_mark){.inode = st->st_ino,
                              .bytes = (uint64_t)st->st_size,
                              .changed_s = st->st_mtim.tv_sec,
                              .changed_ns = st->st_mtim.tv_nsec};
}

static bool same_mark(const struct file_mark *a, const struct file_mark *b)
{
    return a->inode == b->inode && a->bytes == b->bytes && a->changed_s == b->changed_s &&
           a->changed_ns == b->changed_ns;
}

tck_status_t file_mark_at(int dir_fd, const char *name, struct file_mark *out, struct error *err)
{
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return error_set(err, status_of_errno(errno), "%s: %m", name);
    }
    *out = mark_of(&st);
    return TCK_OK;
}

tck_status_t file_open_marked(int dir_fd, const char *name, const struct file_mark *mark, int *fd_out,
                              struct error *err)
{
    struct stat st;
    struct file_mark found;
    int fd = -1;
    tck_status_t status = safe_fs_open(dir_fd, name, O_RDONLY, &fd, err);
    if (status != TCK_OK) {
        return status;
    }
    if (fstat(fd, &st) < 0) {
        status = error_set(err, status_of_errno(errno), "%s: %m", name);
    } else if (found = mark_of(&st), !same_mark(&found, mark)) {
        status = error_set(err, TCK_ERR_NOENT, "%s is another file than the one that was written", name);
    }
    if (status != TCK_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    return TCK_OK;
}
