/* SPDX-License-Identifier: Apache-2.0
 * Open file description locks. Unlike those of flock they can be tested without being taken; taking one to test it
 * would turn away a process that starts at that moment. */
#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

tck_status_t lock_take(int dir_fd, const char *name, int *fd_out, struct error *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "open %s: %m", name);
    }
    if (fcntl(fd, F_OFD_SETLK, &whole) < 0) {
        bool taken = errno == EAGAIN || errno == EACCES;
        tck_status_t status = error_set(err, taken ? TCK_ERR_EXIST : status_of_errno(errno), "lock %s: %m", name);

        close(fd);
        return status;
    }
    *fd_out = fd;
    return TCK_OK;
}

bool lock_is_held(int dir_fd, const char *name)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = openat(dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    bool held;

    if (fd < 0) {
        return errno != ENOENT;
    }
    held = fcntl(fd, F_OFD_GETLK, &whole) < 0 || whole.l_type != F_UNLCK;
    close(fd);
    return held;
}
