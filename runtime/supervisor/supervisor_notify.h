/* SPDX-License-Identifier: Apache-2.0
 * The receiver of sd_notify, as far as the agent uses it. */
#ifndef TCK_AGENT_SUPERVISOR_NOTIFY_H
#define TCK_AGENT_SUPERVISOR_NOTIFY_H

#include "tiers/sd_notify.h"

#define NOTIFY_SOCKET_NAME "notify.sock"

struct notify_message {
    bool store, remove, ready, stopping;
    bool lost;                /* a descriptor came with it that this process could not open */
    uint32_t linger_s;        /* how long memory is kept without a working agent; 0: not given */
    char name[PARK_NAME_MAX]; /* "" unless a well-formed FDNAME was there */
    int fd;                   /* the caller's; -1 if there was none, or more than one */
};

/* Makes a non-blocking socket in the directory, for this user only; replaces one that was left behind. */
must_check tck_status_t notify_bind(int dir_fd, int *fd_out, struct error *err);

/* The next message from this user's processes; false if there is none. */
bool notify_receive(int fd, struct notify_message *out);

#endif
