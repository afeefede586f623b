/* SPDX-License-Identifier: Apache-2.0
 * Where agent and client meet: the private directory, the socket in it, and the check of who is on the other end.
 * Sockets are bound and connected through /proc/self/fd/<directory>, because a socket address holds only 108 bytes
 * of path. */
#include "base/ipc.h"
#include "base/safe_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static tck_status_t check_private(const char *dir, int dir_fd, struct error *err)
{
    struct stat st;

    if (fstat(dir_fd, &st) < 0) {
        return error_set(err, status_of_errno(errno), "stat %s: %m", dir);
    }
    if (st.st_uid != geteuid()) {
        return error_set(err, TCK_ERR_DENIED, "socket directory %s belongs to user %u", dir, st.st_uid);
    }
    if ((st.st_mode & 077) != 0) {
        return error_set(err, TCK_ERR_DENIED, "socket directory %s is open to others (mode %03o)", dir,
                         st.st_mode & 0777);
    }
    return TCK_OK;
}

tck_status_t ipc_open_dir(const char *dir, int *fd_out, struct error *err)
{
    int path_fd, fd;
    tck_status_t status = safe_dir_open(dir, true, &path_fd, err);

    if (status != TCK_OK) {
        return status;
    }
    fd = openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(path_fd);
    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "open socket directory %s: %m", dir);
    }
    status = check_private(dir, fd, err);
    if (status != TCK_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    return TCK_OK;
}

static tck_status_t make_address(int dir_fd, const char *name, struct sockaddr_un *out, struct error *err)
{
    int len;

    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    len = snprintf(out->sun_path, sizeof(out->sun_path), "/proc/self/fd/%d/%s", dir_fd, name);
    if (name[0] == '\0' || strchr(name, '/') != NULL || (size_t)len >= sizeof(out->sun_path)) {
        return error_set(err, TCK_ERR_INVAL, "'%s' cannot name a socket", name);
    }
    return TCK_OK;
}

static tck_status_t new_socket(int *fd_out, struct error *err)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "create a unix socket: %m");
    }
    *fd_out = fd;
    return TCK_OK;
}

/* 0 if a process is listening there, else the errno of the attempt. */
static int probe(int fd, const struct sockaddr_un *address)
{
    return connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ? 0 : errno;
}

/* Refuses anything but a socket: a file of that name is not ours to delete. */
static tck_status_t remove_dead_socket(int dir_fd, const char *name, struct error *err)
{
    struct stat st;

    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISSOCK(st.st_mode)) {
        return error_set(err, TCK_ERR_EXIST, "%s exists and is not a socket", name);
    }
    if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT) {
        return error_set(err, status_of_errno(errno), "remove dead socket %s: %m", name);
    }
    return TCK_OK;
}

/* Makes the name free, unless a process is listening on it. */
static tck_status_t clear_name(int dir_fd, const char *name, const struct sockaddr_un *address, struct error *err)
{
    int fd = -1, errnum;
    tck_status_t status = new_socket(&fd, err);

    if (status != TCK_OK) {
        return status;
    }
    errnum = probe(fd, address);
    close(fd);
    switch (errnum) {
    case ENOENT:
        return TCK_OK;
    case ECONNREFUSED:
        return remove_dead_socket(dir_fd, name, err);
    case 0:
    case EAGAIN: /* its backlog is full */
        return error_set(err, TCK_ERR_EXIST, "another process is already listening on socket %s", name);
    default:
        errno = errnum;
        return error_set(err, status_of_errno(errnum), "probe socket %s: %m", name);
    }
}

static tck_status_t bind_and_listen(const char *name, const struct sockaddr_un *address, int *fd_out, struct error *err)
{
    int fd = -1;
    tck_status_t status = new_socket(&fd, err);

    if (status != TCK_OK) {
        return status;
    }
    if (bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 || listen(fd, SOMAXCONN) < 0) {
        status = error_set(err, status_of_errno(errno), "listen on socket %s: %m", name);
        close(fd);
        return status;
    }
    *fd_out = fd;
    return TCK_OK;
}

/* Closing the descriptor unlocks. The file stays: to unlink it would let two starters lock two different files. */
static tck_status_t lock_name(int dir_fd, const char *name, int *lock_out, struct error *err)
{
    char lock_name[NAME_MAX + 1];
    int fd;

    snprintf(lock_name, sizeof(lock_name), "%s.lock", name);
    fd = openat(dir_fd, lock_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "open %s: %m", lock_name);
    }
    while (flock(fd, LOCK_EX) < 0) {
        if (errno != EINTR) {
            tck_status_t status = error_set(err, status_of_errno(errno), "lock %s: %m", lock_name);

            close(fd);
            return status;
        }
    }
    *lock_out = fd;
    return TCK_OK;
}

static tck_status_t listen_at(int dir_fd, const char *name, int *fd_out, struct error *err)
{
    struct sockaddr_un address;
    int lock_fd = -1;
    tck_status_t status = make_address(dir_fd, name, &address, err);

    if (status != TCK_OK) {
        return status;
    }
    status = lock_name(dir_fd, name, &lock_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    status = clear_name(dir_fd, name, &address, err);
    if (status == TCK_OK) {
        status = bind_and_listen(name, &address, fd_out, err);
    }
    close(lock_fd);
    return status;
}

tck_status_t ipc_listen(const char *dir, const char *name, int *fd_out, struct error *err)
{
    int dir_fd = -1;
    tck_status_t status = ipc_open_dir(dir, &dir_fd, err);

    if (status != TCK_OK) {
        return status;
    }
    status = listen_at(dir_fd, name, fd_out, err);
    if (status != TCK_OK) {
        error_prefix(err, "in %s", dir);
    }
    close(dir_fd);
    return status;
}

/* The kernel tells which user created the other end. Root is accepted, since it can do anything anyway. */
static tck_status_t check_peer(int fd, pid_t *pid_out, struct error *err)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) {
        return error_set(err, status_of_errno(errno), "ask for the peer's user: %m");
    }
    if (peer.uid != geteuid() && peer.uid != 0) {
        return error_set(err, TCK_ERR_DENIED, "process %d of user %u is on the other end", peer.pid, peer.uid);
    }
    *pid_out = peer.pid;
    return TCK_OK;
}

tck_status_t ipc_accept(int listen_fd, int *fd_out, pid_t *pid_out, struct error *err)
{
    tck_status_t status;
    int fd;

    do {
        fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        bool no_descriptor = errno == EMFILE || errno == ENFILE;
        return error_set(err, no_descriptor ? TCK_ERR_NOMEM : status_of_errno(errno), "accept: %m");
    }
    status = check_peer(fd, pid_out, err);
    if (status != TCK_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    return TCK_OK;
}

tck_status_t ipc_connect_to(const struct sockaddr *address, unsigned address_len, int *fd_out, pid_t *pid_out,
                            struct error *err)
{
    int fd = -1;
    tck_status_t status = new_socket(&fd, err);

    if (status != TCK_OK) {
        return status;
    }
    if (connect(fd, address, address_len) < 0) {
        status = error_set(err, status_of_errno(errno), "connect: %m");
        goto close_socket;
    }
    status = check_peer(fd, pid_out, err);
    if (status != TCK_OK) {
        goto close_socket;
    }
    *fd_out = fd;
    return TCK_OK;

close_socket:
    close(fd);
    return status;
}

static tck_status_t connect_at(int dir_fd, const char *name, int *fd_out, struct error *err)
{
    struct sockaddr_un address;
    pid_t pid;
    tck_status_t status = make_address(dir_fd, name, &address, err);

    return status == TCK_OK ? ipc_connect_to((const struct sockaddr *)&address, sizeof(address), fd_out, &pid, err)
                            : status;
}

/* Opens the directory part of path. */
static tck_status_t open_parent(const char *path, const char *name, int *fd_out, struct error *err)
{
    char dir[PATH_MAX] = ".";
    size_t len = (size_t)(name - path);

    if (len >= sizeof(dir)) {
        return error_set(err, TCK_ERR_INVAL, "path of %zu bytes", len);
    }
    if (len > 0) {
        memcpy(dir, path, len);
        dir[len] = '\0';
    }
    return safe_dir_open(dir, false, fd_out, err);
}

tck_status_t ipc_connect(const char *path, int *fd_out, struct error *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    int dir_fd = -1;
    tck_status_t status = open_parent(path, name, &dir_fd, err);

    if (status == TCK_OK) {
        status = connect_at(dir_fd, name, fd_out, err);
        close(dir_fd);
    }
    if (status != TCK_OK) {
        error_prefix(err, "socket %s", path);
    }
    return status;
}
