/* SPDX-License-Identifier: Apache-2.0
 * The sender of sd_notify and the receiver of LISTEN_FDS. Not libsystemd: the code is small, a container without
 * systemd should not need its library, and our supervisor implements the other side anyway. */
#include "tiers/sd_notify.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST_FD      3 /* SD_LISTEN_FDS_START */
#define MESSAGE_BYTES (PARK_NAME_MAX + 64)

/* ---- send ---------------------------------------------------------------------------------------------------- */

/* For a path that is too long for an address: goes through its directory, which the caller closes after use. */
static tck_status_t long_address(const char *path, struct sockaddr_un *out, int *dir_fd_out, struct error *err)
{
    char dir[PATH_MAX];
    const char *name = strrchr(path, '/');
    if (path[0] != '/' || (size_t)snprintf(dir, sizeof(dir), "%.*s", (int)(name - path), path) >= sizeof(dir)) {
        return error_set(err, TCK_ERR_INVAL, "not a socket's path: %s", path);
    }
    int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        return error_set(err, TCK_ERR_UNREACHABLE, "open %s: %m", dir);
    }
    int len = snprintf(out->sun_path, sizeof(out->sun_path), "/proc/self/fd/%d%s", dir_fd, name);
    if ((size_t)len >= sizeof(out->sun_path)) {
        close(dir_fd);
        return error_set(err, TCK_ERR_INVAL, "the name of a socket is too long: %s", path);
    }
    *dir_fd_out = dir_fd;
    return TCK_OK;
}

/* The socket's address. The caller closes *dir_fd_out after use, unless it is -1. */
static tck_status_t address_of(const char *path, struct sockaddr_un *out, socklen_t *len_out, int *dir_fd_out,
                               struct error *err)
{
    size_t len = strlen(path);
    *dir_fd_out = -1;
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    *len_out = sizeof(*out);
    if (len >= sizeof(out->sun_path)) {
        return long_address(path, out, dir_fd_out, err);
    }
    memcpy(out->sun_path, path, len);
    if (path[0] == '@') {
        out->sun_path[0] = '\0';
        *len_out = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    }
    return TCK_OK;
}

static int connect_to(const struct sockaddr_un *address, socklen_t len, int wait_ms)
{
    const struct timeval timeout = {.tv_sec = wait_ms / 1000, .tv_usec = wait_ms % 1000 * 1000L};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | (wait_ms == 0 ? SOCK_NONBLOCK : 0), 0);
    if (fd < 0) {
        return -1;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) != 0 ||
        connect(fd, (const struct sockaddr *)address, len) != 0) {
        int saved_errno = errno;
        close(fd);
        errno = saved_errno;
        return -1;
    }
    return fd;
}

/* One datagram, with a descriptor if fd is not -1. */
static bool send_one(int socket_fd, const char *text, int fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    union {
        const char *text;
        void *base;
    } content = {.text = text}; /* struct iovec is for reading, too, and so has no const */
    struct iovec part = {.iov_base = content.base, .iov_len = strlen(text)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }
    ssize_t sent;
    do {
        sent = sendmsg(socket_fd, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent >= 0;
}

static tck_status_t notify(const char *notify_socket, int wait_ms, const char *text, int fd, struct error *err)
{
    struct sockaddr_un address;
    socklen_t len;
    int dir_fd;
    tck_status_t status = address_of(notify_socket, &address, &len, &dir_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    int socket_fd = connect_to(&address, len, wait_ms);
    if (socket_fd < 0 || !send_one(socket_fd, text, fd)) {
        status = socket_fd >= 0 && errno == EAGAIN ? TCK_ERR_TIMEDOUT : TCK_ERR_UNREACHABLE;
        status = error_set(err, status, "service manager at %s: %m", notify_socket);
    }
    if (socket_fd >= 0) {
        close(socket_fd);
    }
    if (dir_fd >= 0) {
        close(dir_fd);
    }
    return status;
}

static tck_status_t check_name(const char *name, struct error *err)
{
    if (!park_name_ok(name)) {
        return error_set(err, TCK_ERR_INVAL, "'%s' is not a valid name for a parked file", name);
    }
    return TCK_OK;
}

tck_status_t sd_notify_store(const char *notify_socket, int wait_ms, const char *name, int fd, struct error *err)
{
    char text[MESSAGE_BYTES];
    tck_status_t status = check_name(name, err);
    if (status != TCK_OK) {
        return status;
    }
    snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s\n", name);
    return notify(notify_socket, wait_ms, text, fd, err);
}

tck_status_t sd_notify_remove(const char *notify_socket, int wait_ms, const char *name, struct error *err)
{
    char text[MESSAGE_BYTES];
    tck_status_t status = check_name(name, err);
    if (status != TCK_OK) {
        return status;
    }
    snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s\n", name);
    return notify(notify_socket, wait_ms, text, -1, err);
}

tck_status_t sd_notify_send(const char *notify_socket, int wait_ms, const char *state, struct error *err)
{
    return notify(notify_socket, wait_ms, state, -1, err);
}

/* ---- take back ----------------------------------------------------------------------------------------------- */

/* NOLINTBEGIN(concurrency-mt-unsafe): done once at start, before there are threads */

/* A number in the environment; 0 if it is missing or malformed. */
static long number_of(const char *variable)
{
    const char *text = getenv(variable);
    if (text == NULL || !isdigit((unsigned char)text[0])) {
        return 0;
    }
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    return errno == 0 && *end == '\0' && number <= INT_MAX - FIRST_FD ? number : 0;
}

/* Names that are too long for the environment are passed in a file. NULL: none, or no memory. */
static char *names_from_file(void)
{
    long fd = number_of(PARK_NAMES_FD);
    struct stat st;
    if (fd < FIRST_FD || fstat((int)fd, &st) != 0 || !S_ISREG(st.st_mode) ||
        st.st_size > (off_t)PARK_FILES_MAX * PARK_NAME_MAX) {
        return NULL;
    }
    char *names = calloc(1, (size_t)st.st_size + 1);
    off_t done = 0;
    while (names != NULL && done < st.st_size) {
        ssize_t n = pread((int)fd, names + done, (size_t)(st.st_size - done), done);
        if (n <= 0) {
            free(names);
            names = NULL;
            break;
        }
        done += n;
    }
    close((int)fd);
    return names;
}

void sd_notify_take_back(void (*found)(void *ctx, const char *name, int fd), void *ctx)
{
    const char *listed = getenv("LISTEN_FDNAMES");
    bool in_file = number_of("LISTEN_PID") == getpid() && getenv(PARK_NAMES_FD) != NULL;
    /* NULL: the files come without their names */
    char *names = in_file ? names_from_file() : strdup(listed == NULL ? "" : listed);
    char *rest = names;
    long count = number_of("LISTEN_PID") == getpid() ? number_of("LISTEN_FDS") : 0;
    for (int fd = FIRST_FD; fd < FIRST_FD + count; fd++) {
        const char *name = rest == NULL ? "" : strsep(&rest, ":");
        int flags = fcntl(fd, F_GETFD);
        if (flags >= 0 && fcntl(fd, F_SETFD, flags | FD_CLOEXEC) == 0) {
            found(ctx, name, fd);
        }
    }
    free(names);
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    unsetenv(PARK_NAMES_FD);
}

/* NOLINTEND(concurrency-mt-unsafe) */
