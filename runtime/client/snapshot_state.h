/* SPDX-License-Identifier: Apache-2.0
 * The state of a client's snapshot worker, which its thread and the trainer's share. */
#ifndef TCK_CLIENT_SNAPSHOT_STATE_H
#define TCK_CLIENT_SNAPSHOT_STATE_H

#include "client/devices.h"

#include "base/log.h"

struct save_counts {
    uint64_t started, copied, skipped, bytes;
};

enum save_state { SAVE_IDLE, SAVE_COPYING };
enum verdict { VERDICT_PENDING, VERDICT_SEAL, VERDICT_GIVE_UP };

/* What the thread has to do with the current step. */
enum snapshot_work {
    WORK_SAVE,
    WORK_GIVE_UP,    /* report that this rank cannot save it, so that no other rank waits */
    WORK_TO_STORAGE, /* request that the step, which was saved before, goes to storage */
};

enum save_to { SAVE_TO_MEMORY, SAVE_TO_STORAGE, SAVE_LAST /* to storage, and no step follows */ };

struct snapshot_worker {
    struct session *session;
    const struct layout *layout;
    struct slots *slots;
    const struct devices *devices;
    struct device_image *images; /* room for one per shard; used by the thread alone */
    pthread_t thread;
    bool running;
    int wake_fd;          /* eventfd: there is a snapshot, or stop */
    uint64_t asked_step;  /* newest that slots were requested for, */
    uint64_t sealed_step; /* newest whose slots were filled and sealed; 0: none */
    /* Since when there is neither agent nor supervisor; 0: there is one. These three belong to the thread alone. */
    uint64_t nowhere_ms;

    enum save_state state;      /* this and everything below except the last two: protected by lock */
    bool confirms;              /* the trainer confirms for each snapshot that its records did not change; */
    bool copied;                /* all records of the one under way are copied, so it now awaits confirmation; */
    enum verdict verdict;       /* the trainer's answer, */
    char verdict_why[128];      /* and the reason if the snapshot is to be given up */
    uint64_t step, deadline_ms; /* of the snapshot under way; by the deadline the agent must have granted slots */
    enum snapshot_work work;
    struct error given_up; /* why, if that is the work */
    enum save_to to;
    bool stop;
    uint64_t storage_step;                         /* newest that is to go to storage */
    uint64_t owed_step;                            /* saved, and to be sent to storage as soon as the agent is back;
                                                      0: none */
    bool agent_gone;                               /* the agent has ended, and nothing will restart it; */
    bool state_lost;                               /* or another agent runs, without this term's state */
    bool agent_hung;                               /* it did not answer the last snapshot's request, */
    uint64_t hung_beat;                            /* and if its beat is still this one, its loop has not turned
                                                      since */
    uint64_t begun_step, copied_step, failed_step; /* newest of each kind, 0: none */
    struct error failure;                          /* why failed_step was skipped */
    struct error told;                             /* the reason logged last why saves are skipped; TCK_OK: they are
                                                      not skipped */
    struct log_limit refusals;                     /* limits log lines about refusals by agents */
    struct save_counts counts;

    /* Never held while waiting for anything but idle. These two live as long as the client, since worker_await_copied
     * may be called by another thread while the trainer begins a new term. */
    pthread_mutex_t lock;
    pthread_cond_t idle;
};

#endif
