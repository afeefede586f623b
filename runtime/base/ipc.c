/* SPDX-License-Identifier: Apache-2.0
 * Sending and receiving frames. One frame is one datagram: header and payload, or the header alone with the payload in
 * a memfd. A received memfd must be sealed, so that the sender cannot change or shrink it while it is read. */
#include "base/ipc.h"
#include "base/clock.h"
#include "base/ipc_header.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define WIRE_FDS  (IPC_MAX_FDS + 1) /* the caller's and the memfd */
#define ALL_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)
#define FOR_EVER  UINT64_MAX

/* Space for the control message of all descriptors, aligned as it must be. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(WIRE_FDS * sizeof(int))];
};

struct fd_list {
    int fds[WIRE_FDS];
    uint32_t count;
};

static void close_all(const int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

/* ---- waiting ---- */

static uint64_t deadline_of(int timeout_ms)
{
    return timeout_ms < 0 ? FOR_EVER : clock_ms() + (uint64_t)timeout_ms;
}

static int poll_ms(uint64_t deadline_ms)
{
    uint64_t now_ms = clock_ms();

    if (deadline_ms == FOR_EVER) {
        return -1;
    }
    return deadline_ms <= now_ms ? 0 : (int)(deadline_ms - now_ms); /* it came from an int */
}

/* Waits until the socket is ready or was hung up, which the next call on it reports. */
static tck_status_t wait_ready(int fd, short events, uint64_t deadline_ms, struct error *err)
{
    struct pollfd wanted = {.fd = fd, .events = events};

    for (;;) {
        int rc = poll(&wanted, 1, poll_ms(deadline_ms));

        if (rc > 0) {
            return TCK_OK;
        }
        if (rc == 0) {
            return error_set(err, TCK_ERR_TIMEDOUT, "the other process does not %s in time",
                             events == POLLIN ? "answer" : "read");
        }
        if (errno != EINTR) {
            return error_set(err, status_of_errno(errno), "poll: %m");
        }
    }
}

/* ---- sending ---- */

static tck_status_t write_all(int fd, const uint8_t *data, size_t len, struct error *err)
{
    while (len > 0) {
        ssize_t done = write(fd, data, len);

        if (done < 0 && errno != EINTR) {
            return error_set(err, status_of_errno(errno), "write %zu bytes to a memfd: %m", len);
        }
        if (done > 0) {
            data += done;
            len -= (size_t)done;
        }
    }
    return TCK_OK;
}

static tck_status_t make_memfd(const void *payload, size_t len, int *fd_out, struct error *err)
{
    int fd = memfd_create("tierckpt-frame", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    tck_status_t status;

    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "create a memfd: %m");
    }
    status = write_all(fd, payload, len, err);
    if (status == TCK_OK && fcntl(fd, F_ADD_SEALS, ALL_SEALS) < 0) {
        status = error_set(err, status_of_errno(errno), "seal a memfd: %m");
    }
    if (status != TCK_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    return TCK_OK;
}

static void attach_fds(struct msghdr *message, union control *control, const struct fd_list *list)
{
    size_t bytes = list->count * sizeof(int);
    struct cmsghdr *head;

    if (bytes == 0) {
        return;
    }
    memset(control, 0, sizeof(*control));
    message->msg_control = control->bytes;
    message->msg_controllen = CMSG_SPACE(bytes);
    head = CMSG_FIRSTHDR(message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(head), list->fds, bytes);
}

static tck_status_t send_datagram(int fd, const struct msghdr *message, int timeout_ms, struct error *err)
{
    uint64_t deadline_ms = deadline_of(timeout_ms);

    while (sendmsg(fd, message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        tck_status_t status = TCK_OK;

        if (errno == EAGAIN) {
            status = wait_ready(fd, POLLOUT, deadline_ms, err);
        } else if (errno != EINTR) {
            status = error_set(err, status_of_errno(errno), "send: %m");
        }
        if (status != TCK_OK) {
            return status;
        }
    }
    return TCK_OK;
}

/* The payload follows the header unless it is in a memfd; list holds all descriptors, the memfd last. */
static tck_status_t send_frame(int fd, const struct ipc_header *header, const struct iovec *payload,
                               const struct fd_list *list, int timeout_ms, struct error *err)
{
    uint8_t head[IPC_HEADER_BYTES];
    struct iovec parts[2] = {{.iov_base = head, .iov_len = sizeof(head)}, *payload};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = header->in_memfd ? 1 : 2};
    union control control;

    ipc_header_encode(header, head);
    attach_fds(&message, &control, list);
    return send_datagram(fd, &message, timeout_ms, err);
}

/* NOLINTNEXTLINE(readability-function-size): these are the parts of a frame; a struct would have one user */
tck_status_t ipc_send(int fd, uint32_t type, const void *payload, size_t len, const int *fds, uint32_t fd_count,
                      int timeout_ms, struct error *err)
{
    struct ipc_header header = {.type = type, .len = (uint32_t)len, .in_memfd = len > IPC_INLINE_BYTES};
    union {
        const void *data;
        void *unqualified; /* iovec's member is not const, but sendmsg only reads */
    } bytes = {payload};
    struct iovec body = {.iov_base = bytes.unqualified, .iov_len = len};
    struct fd_list list = {.count = fd_count};
    tck_status_t status;

    if (len > IPC_MAX_BYTES || fd_count > IPC_MAX_FDS) {
        return error_set(err, TCK_ERR_INVAL, "frame of type %u with %zu bytes and %u descriptors", type, len, fd_count);
    }
    if (fd_count > 0) {
        memcpy(list.fds, fds, fd_count * sizeof(int));
    }
    if (!header.in_memfd) {
        return send_frame(fd, &header, &body, &list, timeout_ms, err);
    }
    status = make_memfd(payload, len, &list.fds[fd_count], err);
    if (status != TCK_OK) {
        return status;
    }
    list.count++;
    status = send_frame(fd, &header, &body, &list, timeout_ms, err);
    close(list.fds[fd_count]);
    return status;
}

/* ---- receiving ---- */

static tck_status_t receive_datagram(int fd, struct msghdr *message, uint64_t deadline_ms, size_t *size_out,
                                     struct error *err)
{
    for (;;) {
        ssize_t size = recvmsg(fd, message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        tck_status_t status = TCK_OK;

        if (size >= 0) {
            *size_out = (size_t)size;
            return TCK_OK;
        }
        if (errno == EAGAIN) {
            status = wait_ready(fd, POLLIN, deadline_ms, err);
        } else if (errno != EINTR) {
            status = error_set(err, status_of_errno(errno), "receive: %m");
        }
        if (status != TCK_OK) {
            return status;
        }
    }
}

/* The descriptors are ours from here on, whatever else is wrong with the message. */
static void take_fds(struct msghdr *message, struct fd_list *list)
{
    list->count = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head != NULL; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
            size_t bytes = head->cmsg_len - CMSG_LEN(0);

            memcpy(list->fds, CMSG_DATA(head), bytes); /* the kernel sends one of these, cut to our buffer */
            list->count = (uint32_t)(bytes / sizeof(int));
        }
    }
}

static tck_status_t check_sealed(int fd, size_t len, struct error *err)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    if (seals < 0 || (seals & ALL_SEALS) != ALL_SEALS) {
        return error_set(err, TCK_ERR_PROTO, "payload descriptor is not a sealed memfd");
    }
    if (fstat(fd, &st) < 0) {
        return error_set(err, status_of_errno(errno), "stat a memfd: %m");
    }
    if (st.st_size != (off_t)len) {
        return error_set(err, TCK_ERR_PROTO, "payload of %zu bytes in a memfd of %lld", len, (long long)st.st_size);
    }
    return TCK_OK;
}

static tck_status_t read_all(int fd, uint8_t *out, size_t len, struct error *err)
{
    size_t at = 0;

    while (at < len) {
        ssize_t done = pread(fd, out + at, len - at, (off_t)at);

        if (done == 0 || (done < 0 && errno != EINTR)) {
            return error_set(err, TCK_ERR_IO, "read a memfd of %zu bytes: %m", len);
        }
        at += done > 0 ? (size_t)done : 0;
    }
    return TCK_OK;
}

static tck_status_t read_payload(const struct ipc_header *header, const uint8_t *inlined, const struct fd_list *list,
                                 uint8_t **out, struct error *err)
{
    int memfd = header->in_memfd ? list->fds[list->count - 1] : -1;
    tck_status_t status = header->in_memfd ? check_sealed(memfd, header->len, err) : TCK_OK;
    uint8_t *payload;

    if (status != TCK_OK || header->len == 0) {
        *out = NULL;
        return status;
    }
    payload = malloc(header->len);
    if (payload == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "allocate %u bytes for a frame", header->len);
    }
    if (header->in_memfd) {
        status = read_all(memfd, payload, header->len, err);
    } else {
        memcpy(payload, inlined, header->len);
    }
    if (status != TCK_OK) {
        free(payload);
        return status;
    }
    *out = payload;
    return TCK_OK;
}

/* Makes a frame of a datagram. On success the frame owns the list's descriptors. */
static tck_status_t open_frame(const uint8_t *datagram, size_t size, int flags, const struct fd_list *list,
                               struct ipc_frame *out, struct error *err)
{
    struct ipc_header header;
    struct ipc_frame frame = {0};
    tck_status_t status;

    if (size == 0) {
        return error_set(err, TCK_ERR_UNREACHABLE, "the other process closed the connection");
    }
    if ((flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        return error_set(err, TCK_ERR_PROTO, "ipc frame with too many bytes or descriptors");
    }
    status = ipc_header_decode(datagram, size, list->count, &header, err);
    if (status != TCK_OK) {
        return status;
    }
    frame.type = header.type;
    frame.len = header.len;
    frame.fd_count = list->count - (header.in_memfd ? 1 : 0);
    if (frame.fd_count > IPC_MAX_FDS) {
        return error_set(err, TCK_ERR_PROTO, "ipc frame with %u descriptors", frame.fd_count);
    }
    status = read_payload(&header, datagram + IPC_HEADER_BYTES, list, &frame.payload, err);
    if (status != TCK_OK) {
        return status;
    }
    memcpy(frame.fds, list->fds, frame.fd_count * sizeof(int));
    if (header.in_memfd) {
        close(list->fds[frame.fd_count]);
    }
    *out = frame;
    return TCK_OK;
}

tck_status_t ipc_recv(int fd, int timeout_ms, struct ipc_frame *out, struct error *err)
{
    uint8_t datagram[IPC_HEADER_BYTES + IPC_INLINE_BYTES];
    struct iovec part = {.iov_base = datagram, .iov_len = sizeof(datagram)};
    union control control;
    /* CMSG_LEN: the padding in CMSG_SPACE would let one descriptor more in than the list holds. */
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_LEN(WIRE_FDS * sizeof(int))};
    struct fd_list list;
    size_t size;
    tck_status_t status = receive_datagram(fd, &message, deadline_of(timeout_ms), &size, err);

    if (status != TCK_OK) {
        return status;
    }
    take_fds(&message, &list);
    status = open_frame(datagram, size, message.msg_flags, &list, out, err);
    if (status != TCK_OK) {
        close_all(list.fds, list.count);
    }
    return status;
}

void ipc_frame_free(struct ipc_frame *frame)
{
    close_all(frame->fds, frame->fd_count);
    free(frame->payload);
    *frame = (struct ipc_frame){0};
}
