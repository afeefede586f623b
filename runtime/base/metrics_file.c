/* SPDX-License-Identifier: Apache-2.0
 * The metrics as a file: written under another name beside it, and renamed. It is not synced: it is of no use
 * after a crash of the machine. */
#include "base/metrics_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORK_PATH (PATH_MAX + 8)

tck_status_t metrics_file_check_name(const char *path, struct error *err)
{
    static const char suffix[] = ".prom";
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    size_t len = strlen(name), end = sizeof(suffix) - 1;
    if (len <= end || strcmp(name + len - end, suffix) != 0) {
        return error_set(err, TCK_ERR_CONFIG,
                         "%.300s is not the name of a .prom file, and node_exporter reads no other", path);
    }
    return TCK_OK;
}

static tck_status_t write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t written = write(fd, text, len);
        if (written < 0 && errno != EINTR) {
            return status_of_errno(errno);
        }
        text += written > 0 ? written : 0;
        len -= written > 0 ? (size_t)written : 0;
    }
    return TCK_OK;
}

tck_status_t metrics_file_write(const char *path, const char *text, size_t len, struct error *err)
{
    char work[WORK_PATH];
    /* node_exporter does not read a file with this name. */
    int name_len = snprintf(work, sizeof(work), "%s.tmp", path);
    if (name_len < 0 || (size_t)name_len >= sizeof(work)) {
        return error_set(err, status_of_errno(ENAMETOOLONG), "create %.300s...: the path is too long", path);
    }
    (void)unlink(work); /* of a process that died while it wrote */
    /* Not through a link that somebody else has put there. */
    int fd = open(work, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "create %s: %m", work);
    }
    bool good = fchmod(fd, 0644) == 0 && write_all(fd, text, len) == TCK_OK;
    int why = errno;
    good = close(fd) == 0 && good;
    if (good && rename(work, path) == 0) {
        return TCK_OK;
    }
    errno = good ? errno : why;
    tck_status_t status = error_set(err, status_of_errno(errno), "write %s: %m", path);
    (void)unlink(work);
    return status;
}

tck_status_t metrics_file_remove(const char *path, struct error *err)
{
    if (unlink(path) != 0 && errno != ENOENT) {
        return error_set(err, status_of_errno(errno), "remove %s: %m", path);
    }
    return TCK_OK;
}
