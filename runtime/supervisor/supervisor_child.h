/* SPDX-License-Identifier: Apache-2.0
 * The agent's process: started, watched by a pidfd, restarted after a crash, and given up if it keeps crashing right
 * after its start for as long as its memory is to be kept. */
#ifndef TCK_AGENT_SUPERVISOR_CHILD_H
#define TCK_AGENT_SUPERVISOR_CHILD_H

#include "supervisor/supervisor_store.h"
#include <sys/types.h>

struct child {
    char *const *argv;
    const char *notify_path; /* for its NOTIFY_SOCKET */
    pid_t pid;               /* 0: not running */
    int pidfd;               /* readable when it has ended; -1: not running */
    bool adopted;            /* not our child: its exit status is unknown, STOPPING=1 announces a clean end */
    bool stopping;           /* it has sent STOPPING=1 */
    uint64_t started_ms;
    bool ready;            /* this process has sent READY=1 */
    uint64_t linger_ms;    /* how long its memory is kept while it keeps dying; 0: unknown, since it has none */
    uint32_t quick_deaths; /* in a row */
    uint64_t failing_ms;   /* when the first of them was */
    uint64_t restart_ms;   /* when to start it; 0: it runs */
};

enum child_end { CHILD_DONE, CHILD_RESTARTS, CHILD_GIVEN_UP };

/* Starts it with all stored descriptors, which the store still owns. A program that cannot be executed ends at once. */
must_check tck_status_t child_start(struct child *child, struct store *store, struct error *err);
/* Watches an agent of this user that another process has started. TCK_ERR_NOENT if it is not running. */
must_check tck_status_t child_adopt(struct child *child, pid_t pid, struct error *err);
/* When its memory is released if it keeps dying. */
uint64_t child_given_up_ms(const struct child *child);
/* To be called when pidfd is readable. CHILD_RESTARTS: restart_ms is set. */
enum child_end child_ended(struct child *child);
void child_terminate(const struct child *child);

#endif
