/* SPDX-License-Identifier: Apache-2.0
 * Abstract unix sockets. Any user may bind any of these names, so who is at the other end is asked of the kernel, and a
 * name that another user has taken protects nothing but prevents nothing either. */
#include "base/anchor.h"

#include "base/digest.h"
#include "base/ipc.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define DELETED      " (deleted)" /* the kernel appends it to the path of a directory that was removed */
#define NAMESPACE    64
#define SHOW_TRIES   20 /* for one that has taken the name and does not show itself yet */
#define SHOW_WAIT_NS 10000000

static tck_status_t path_of(int dir_fd, char out[PATH_MAX], struct error *err)
{
    char link[64];
    struct stat st;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", dir_fd);
    ssize_t len = readlink(link, out, PATH_MAX - 1);
    if (len < 0 || fstat(dir_fd, &st) != 0) {
        return error_set(err, status_of_errno(errno), "the path of the runtime directory: %m");
    }
    out[len] = '\0';
    size_t suffix = strlen(DELETED);
    if (st.st_nlink == 0 && (size_t)len > suffix && strcmp(out + len - suffix, DELETED) == 0) {
        out[(size_t)len - suffix] = '\0';
    }
    return TCK_OK;
}

static tck_status_t namespace_of(const char *link, char out[NAMESPACE], struct error *err)
{
    ssize_t len = readlink(link, out, NAMESPACE - 1);
    if (len < 0) {
        return error_set(err, status_of_errno(errno), "read the link %s: %m", link);
    }
    out[len] = '\0';
    return TCK_OK;
}

static tck_status_t address_of(int dir_fd, const char *role, struct sockaddr_un *out, socklen_t *len_out,
                               struct error *err)
{
    char path[PATH_MAX], mounts[NAMESPACE], processes[NAMESPACE], all[PATH_MAX + 2 * NAMESPACE + 2], text[HASH128_TEXT];
    tck_status_t status = path_of(dir_fd, path, err);
    if (status == TCK_OK) {
        status = namespace_of("/proc/self/ns/mnt", mounts, err);
    }
    if (status == TCK_OK) {
        status = namespace_of("/proc/self/ns/pid", processes, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    int len = snprintf(all, sizeof(all), "%s %s %s", mounts, processes, path);
    hash128_text(hash128_of(all, (size_t)len), text);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    len = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "tierckpt/%u/%s/%s", (unsigned)geteuid(), role, text);
    *len_out = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
    return TCK_OK;
}

/* Why the name is taken. A process that has bound it, but does not listen yet, looks like none. */
static tck_status_t name_taken(const struct sockaddr_un *address, socklen_t len, const char *role, struct error *err)
{
    tck_status_t status = TCK_ERR_UNREACHABLE;
    for (int i = 0; i < SHOW_TRIES && status == TCK_ERR_UNREACHABLE; i++) {
        pid_t pid = 0;
        int fd = -1;
        status = ipc_connect_to((const struct sockaddr *)address, len, &fd, &pid, err);
        if (status == TCK_OK) {
            close(fd);
            return error_set(err, TCK_ERR_EXIST, "process %d is the %s of this directory", (int)pid, role);
        }
        nanosleep(&(struct timespec){.tv_nsec = SHOW_WAIT_NS}, NULL);
    }
    return error_prefix(err, "the name that protects the directory of this %s is taken", role);
}

tck_status_t anchor_take(int dir_fd, const char *role, int *fd_out, struct error *err)
{
    struct sockaddr_un address;
    socklen_t len;
    tck_status_t status = address_of(dir_fd, role, &address, &len, err);
    if (status != TCK_OK) {
        return status;
    }
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "create a unix socket: %m");
    }
    if (bind(fd, (const struct sockaddr *)&address, len) != 0) {
        status = errno == EADDRINUSE ? name_taken(&address, len, role, err)
                                     : error_set(err, status_of_errno(errno), "bind an abstract socket: %m");
        close(fd);
        return status;
    }
    *fd_out = fd;
    return TCK_OK;
}

tck_status_t anchor_show(int fd, struct error *err)
{
    return listen(fd, SOMAXCONN) == 0 ? TCK_OK
                                      : error_set(err, status_of_errno(errno), "listen on an abstract socket: %m");
}

tck_status_t anchor_connect(int dir_fd, const char *role, int *fd_out, pid_t *pid_out, struct error *err)
{
    struct sockaddr_un address;
    socklen_t len;
    tck_status_t status = address_of(dir_fd, role, &address, &len, err);
    return status == TCK_OK ? ipc_connect_to((const struct sockaddr *)&address, len, fd_out, pid_out, err) : status;
}

bool anchor_is_held(int dir_fd, const char *role)
{
    struct error ignored;
    pid_t pid;
    int fd = -1;
    tck_status_t status = anchor_connect(dir_fd, role, &fd, &pid, &ignored);
    if (status == TCK_OK) {
        close(fd);
    }
    return status == TCK_OK || status == TCK_ERR_BUSY; /* busy: its queue is full */
}
