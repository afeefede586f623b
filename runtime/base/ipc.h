/* SPDX-License-Identifier: Apache-2.0
 * Frames over a unix SEQPACKET socket: a type, a payload, up to IPC_MAX_FDS descriptors. A payload over
 * IPC_INLINE_BYTES travels in a sealed memfd, unseen by the callers. Peer credentials come from the kernel. */
#ifndef TCK_BASE_IPC_H
#define TCK_BASE_IPC_H

#include "base/ipc_header.h"
#include <sys/types.h>

#define IPC_MAX_FDS 8

struct ipc_frame {
    uint32_t type;
    uint8_t *payload; /* owned by the frame: ipc_frame_free; NULL if len is 0 */
    size_t len;
    int fds[IPC_MAX_FDS]; /* owned by the frame; taken out by setting the entry to -1 */
    uint32_t fd_count;
};

/* Creates and opens the directory of a socket, with mode 0700. Refuses one that belongs to another user or is open
 * to others. */
must_check tck_status_t ipc_open_dir(const char *dir, int *fd_out, struct error *err);
/* Binds dir/name in that directory and listens. Replaces a dead socket file; TCK_ERR_EXIST if a process answers on
 * it. */
must_check tck_status_t ipc_listen(const char *dir, const char *name, int *fd_out, struct error *err);
/* Non-blocking socket. TCK_ERR_DENIED unless the peer runs as the same user or root, TCK_ERR_BUSY if none waits,
 * TCK_ERR_NOMEM if no descriptor is left for it (it then stays in the queue). */
must_check tck_status_t ipc_accept(int listen_fd, int *fd_out, pid_t *pid_out, struct error *err);
/* Connects; the agent must run as the same user or root. The socket is non-blocking; the calls below do the waiting.
 * TCK_ERR_NOENT or TCK_ERR_UNREACHABLE if no agent listens, TCK_ERR_BUSY if it does not keep up with accepting. */
must_check tck_status_t ipc_connect(const char *path, int *fd_out, struct error *err);

/* The same to any address of a unix socket, and who is there. */
struct sockaddr;
must_check tck_status_t ipc_connect_to(const struct sockaddr *address, unsigned address_len, int *fd_out,
                                       pid_t *pid_out, struct error *err);

/* Sends one frame; fds stay the caller's. Waits at most timeout_ms (-1: for ever, 0: not at all) for room in the
 * socket: TCK_ERR_TIMEDOUT, and nothing was sent. TCK_ERR_UNREACHABLE when the peer is gone. */
must_check tck_status_t ipc_send(int fd, uint32_t type, const void *payload, size_t len, const int *fds,
                                 uint32_t fd_count, int timeout_ms, struct error *err);
/* Receives one frame, waiting at most timeout_ms for its arrival. TCK_ERR_TIMEDOUT, TCK_ERR_UNREACHABLE (closed),
 * TCK_ERR_PROTO (malformed). The frame is the caller's to free on success only. */
must_check tck_status_t ipc_recv(int fd, int timeout_ms, struct ipc_frame *out, struct error *err);
void ipc_frame_free(struct ipc_frame *frame);

#endif
