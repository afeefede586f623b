/* SPDX-License-Identifier: Apache-2.0
 * One connection of a process on this node. The server (ipc_server.h) keeps the list of all; the parts that answer a
 * client's requests keep their state of the connection here. */
#ifndef TCK_AGENT_CLIENT_H
#define TCK_AGENT_CLIENT_H

#include "agent/state/restore_timeout.h"
#include "base/config_names.h"
#include "base/process.h"

struct ipc_server;
struct loop_fd;
struct shared_status;

enum { PIDFD_NONE = -1 };

/* One connection: a trainer after HELLO, a command if it only sends CONTROL. */
struct client {
    struct client *next;
    struct ipc_server *server;
    uint64_t id; /* for late replies: never reused, unlike fd */
    struct loop_fd *source;
    struct loop_fd *pid_source;
    struct process process;
    int fd;
    int pidfd; /* of a trainer: used to signal it after the loss of a node and to detect its end */
    uint32_t rank, world_size;
    char *settings;   /* configuration of its start, until it has joined; NULL: it sent none */
    uint64_t claimed; /* term, 0 none */
    uint64_t term;    /* joined, 0 before JOIN */
    struct shared_status *shared;
    uint32_t begin_seq;    /* of the BEGIN being answered */
    uint32_t join_seq;     /* JOIN waiting for sessions, 0 none */
    uint32_t register_seq; /* REGISTER waiting for memory, then for sessions, 0 none */
    uint32_t restore_seq;
    uint64_t waits_since_ms;    /* for its registration or its restore */
    uint64_t sessions_since_ms; /* since when it has waited for sessions */
    uint64_t restore_step;
    uint64_t restore_since_ms;              /* without a session that it needs */
    struct restore_timeout restore_timeout; /* its progress since the request */
    uint64_t kill_ms;                       /* SIGTERM was sent: time of the SIGKILL; 0: it was not */
    bool trainer;
    bool takeover;
    bool returning; /* reconnected to a restarted agent */
    bool will_ask;  /* a RESTORE of a given step will follow */
    bool restoring; /* a RESTORE is pending */
    bool restore_may_lack;
    bool done; /* detached */
    char run_id[CONFIG_RUN];
};

#endif
