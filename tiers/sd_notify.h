/* SPDX-License-Identifier: Apache-2.0
 * Parks file descriptors with the service manager by systemd's protocol (sd_notify: FDSTORE=1, FDNAME=; returned as
 * LISTEN_FDS, LISTEN_FDNAMES, LISTEN_PID). Our supervisor implements it, too. */
#ifndef TCK_TIERS_PARK_H
#define TCK_TIERS_PARK_H

#include "base/status.h"
#include <stdbool.h>
#include <string.h>

#define PARK_NAME_MAX   128
#define PARK_NAME_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

/* In the header because the supervisor, which links none of the tiers, checks names, too. */
static inline bool park_name_ok(const char *name)
{
    size_t len = strspn(name, PARK_NAME_CHARS);
    return len > 0 && len < PARK_NAME_MAX && name[len] == '\0';
}

/* The most files that are stored: two for each of 16,384 segments, and some of the agent's own. */
#define PARK_FILES_MAX (2 * 16384 + 64)
/* The names, with a separator after each, that one variable can hold: Linux allows 128 KiB for it with its own name. */
#define PARK_NAMES_BYTES ((128u << 10) - sizeof("LISTEN_FDNAMES="))
/* The variable with the number of a descriptor that has the others' names, if they are too long for LISTEN_FDNAMES. */
#define PARK_NAMES_FD "TIERCKPT_FDNAMES_FD"
/* Our own addition to READY=1: how many seconds the supervisor keeps its descriptors if the agent cannot start. */
#define PARK_LINGER_KEY "X_TIERCKPT_LINGER_S="

#define PARK_WAIT_MS 5000 /* for a receiver that is busy */

/* Sends to the socket that NOTIFY_SOCKET names (path, or '@' for abstract), and waits at most wait_ms for room in its
 * queue (0: not at all). TCK_ERR_UNREACHABLE if there is no listener, TCK_ERR_TIMEDOUT if there is no room: the
 * listener does not read. */
must_check tck_status_t sd_notify_store(const char *notify_socket, int wait_ms, const char *name, int fd,
                                        struct error *err);
must_check tck_status_t sd_notify_remove(const char *notify_socket, int wait_ms, const char *name, struct error *err);
/* state: "READY=1" and other assignments, one per line. */
must_check tck_status_t sd_notify_send(const char *notify_socket, int wait_ms, const char *state, struct error *err);

/* Calls found for each descriptor passed to this process (close-on-exec set), then forgets the environment variables. A
 * descriptor without a name gets the name "". */
void sd_notify_take_back(void (*found)(void *ctx, const char *name, int fd), void *ctx);

#endif
