/* SPDX-License-Identifier: Apache-2.0
 * Datagrams of "KEY=value" lines that carry a descriptor. Unknown lines are ignored, as sd_notify(3) requires. */
#include "supervisor/supervisor_notify.h"

#include "base/log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LINGER_MAX_S (366ul * 86400)
#define TEXT_BYTES   4096
#define FDS_MAX      16 /* more than the one that is used, so that the others can be closed */

tck_status_t notify_bind(int dir_fd, int *fd_out, struct error *err)
{
    const int on = 1;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "create the notify socket: %m");
    }
    (void)unlinkat(dir_fd, NOTIFY_SOCKET_NAME, 0);
    /* Through the directory's descriptor, since a path may be longer than an address allows. */
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/" NOTIFY_SOCKET_NAME, dir_fd);
    mode_t saved_umask = umask(0177);
    /* A message has its sender's credentials only if SO_PASSCRED is set when it is sent, which may be as soon as the
     * socket has its name. */
    int bound = setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
    if (bound == 0) {
        bound = bind(fd, (const struct sockaddr *)&address, sizeof(address));
    }
    umask(saved_umask);
    if (bound != 0) {
        tck_status_t status = error_set(err, status_of_errno(errno), "bind the notify socket: %m");
        close(fd);
        return status;
    }
    *fd_out = fd;
    return TCK_OK;
}

/* ---- receive ------------------------------------------------------------------------------------------------- */

/* The control data of a message. */
struct beside {
    struct ucred sender;
    bool has_sender;
    int fds[FDS_MAX];
    size_t fd_count;
};

static void take_control(struct msghdr *message, struct beside *out)
{
    *out = (struct beside){0};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        size_t bytes = c->cmsg_len - CMSG_LEN(0);
        if (c->cmsg_level != SOL_SOCKET) {
            continue;
        }
        if (c->cmsg_type == SCM_CREDENTIALS && bytes == sizeof(out->sender)) {
            memcpy(&out->sender, CMSG_DATA(c), bytes);
            out->has_sender = true;
        } else if (c->cmsg_type == SCM_RIGHTS && bytes <= sizeof(out->fds)) {
            memcpy(out->fds, CMSG_DATA(c), bytes);
            out->fd_count = bytes / sizeof(int);
        }
    }
}

static void take_line(const char *line, struct notify_message *out)
{
    static const char name_key[] = "FDNAME=";
    const char *name = line + sizeof(name_key) - 1;
    out->store |= strcmp(line, "FDSTORE=1") == 0;
    out->remove |= strcmp(line, "FDSTOREREMOVE=1") == 0;
    out->ready |= strcmp(line, "READY=1") == 0;
    out->stopping |= strcmp(line, "STOPPING=1") == 0;
    if (strncmp(line, PARK_LINGER_KEY, strlen(PARK_LINGER_KEY)) == 0) {
        unsigned long seconds = strtoul(line + strlen(PARK_LINGER_KEY), NULL, 10);
        out->linger_s = seconds < LINGER_MAX_S ? (uint32_t)seconds : (uint32_t)LINGER_MAX_S;
    }
    if (strncmp(line, name_key, sizeof(name_key) - 1) == 0 && park_name_ok(name)) {
        snprintf(out->name, sizeof(out->name), "%s", name);
    }
}

/* Fills in the message, or closes its descriptors and returns false. */
static bool take_message(char *text, struct beside *beside, struct notify_message *out)
{
    bool ours = beside->has_sender && beside->sender.uid == getuid();
    bool one_fd = ours && beside->fd_count == 1;
    *out = (struct notify_message){.fd = one_fd ? beside->fds[0] : -1};
    for (size_t i = 0; !one_fd && i < beside->fd_count; i++) {
        close(beside->fds[i]);
    }
    if (!ours) {
        log_warn("ignoring a notification of user %d", beside->has_sender ? (int)beside->sender.uid : -1);
        return false;
    }
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        take_line(line, out);
    }
    return true;
}

bool notify_receive(int fd, struct notify_message *out)
{
    for (;;) {
        char text[TEXT_BYTES + 1];
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(FDS_MAX * sizeof(int))];
        } control;
        struct beside beside;
        struct iovec part = {.iov_base = text, .iov_len = TEXT_BYTES};
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
        ssize_t len = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
        if (len < 0 && errno == EINTR) {
            continue;
        }
        if (len < 0) {
            return false;
        }
        text[len] = '\0';
        take_control(&message, &beside);
        if (take_message(text, &beside, out)) {
            out->lost = beside.fd_count == 0 && (message.msg_flags & MSG_CTRUNC) != 0;
            return true;
        }
    }
}
