/* SPDX-License-Identifier: Apache-2.0
 * The background thread of a client: carries one snapshot at a time from the trainer's memory into the slots, and
 * reconnects the session after the agent restarted. It never keeps the trainer waiting longer than the configured
 * block time and the copying itself. */
#ifndef TCK_CLIENT_SAVER_H
#define TCK_CLIENT_SAVER_H

#include "client/devices.h"

#include "base/log.h"

struct save_counts {
    uint64_t started, copied, skipped, bytes;
};

enum save_state { SAVE_IDLE, SAVE_COPYING };
enum verdict { VERDICT_PENDING, VERDICT_SEAL, VERDICT_GIVE_UP };

/* What the thread has to do with the current step. */
enum saver_work {
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
    bool released;              /* the snapshot under way no longer reads the trainer's host memory */
    bool confirms;              /* the trainer confirms for each snapshot that its records did not change; */
    bool copied;                /* all records of the one under way are copied, so it now awaits confirmation; */
    enum verdict verdict;       /* the trainer's answer, */
    char verdict_why[128];      /* and the reason if the snapshot is to be given up */
    uint64_t step, deadline_ms; /* of the snapshot under way; by the deadline the agent must have granted slots */
    enum saver_work work;
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

void worker_init(struct snapshot_worker *worker);
/* After worker_stop. */
void worker_free(struct snapshot_worker *worker);

/* The arguments belong to the caller and must outlive the snapshot worker. */
must_check tck_status_t worker_start(struct snapshot_worker *worker, struct session *session,
                                     const struct layout *layout, struct slots *slots, const struct devices *devices,
                                     struct error *err);
/* Waits for the copy under way and ends the thread. May be called for one that was never started (zeroed). */
void worker_stop(struct snapshot_worker *worker);

/* Copies the eager records and leaves the rest to the thread. Without an agent, or if a device fails, the snapshot
 * is skipped at once, *started_out is false, and *why has the reason. TCK_ERR_BUSY if one is under way,
 * TCK_ERR_INVAL if a device's stream is being captured. */
must_check tck_status_t worker_begin(struct snapshot_worker *worker, uint64_t step, enum save_to to, bool *started_out,
                                     struct error *why);
/* Whether this step, the training's last one, is not saved and may be begun again: its agent has no room yet, hangs, or
 * is being restarted. */
bool worker_may_begin_again(struct snapshot_worker *worker, uint64_t step);
/* Makes the thread report that this rank cannot save the step, which counts as skipped for that reason. Must not be
 * called while a snapshot is under way. */
void worker_give_up(struct snapshot_worker *worker, uint64_t step, const struct error *why);
/* A step that was not begun counts as skipped; one before the newest does not become the newest. */
void worker_note_skipped(struct snapshot_worker *worker, uint64_t step, const struct error *why);
/* How a step compares with earlier ones. */
enum save_order { ORDER_NEWER, ORDER_SAVED /* this very step is saved */, ORDER_OLDER };
enum save_order worker_order(struct snapshot_worker *worker, uint64_t step, uint64_t *newest_out);
/* Waits until no snapshot is being copied. One that is not confirmed by then is given up. */
void worker_wait(struct snapshot_worker *worker);
/* The trainer confirms the snapshot of this step, or, with why_not, has it given up for that reason. The first call
 * counts. If everything is copied already, returns after the seal. */
void worker_confirm(struct snapshot_worker *worker, uint64_t step, const char *why_not);
/* TCK_OK once the snapshot under way awaits confirmation, TCK_ERR_NOENT if there is none, TCK_ERR_TIMEDOUT. */
must_check tck_status_t worker_await_copied(struct snapshot_worker *worker, int timeout_ms, uint64_t *step_out);
/* As worker_wait, but for at most timeout_ms. */
must_check bool worker_wait_for(struct snapshot_worker *worker, uint32_t timeout_ms);
/* Waits until records in host memory may change, and records on devices may be changed by later work of their
 * streams. */
must_check tck_status_t worker_fence(struct snapshot_worker *worker, struct error *err);
bool worker_idle(struct snapshot_worker *worker);
/* Why the saved steps are lost: the agent does not come back with its state. NULL while it still may. With the lock
 * held. */
const struct error *worker_abandoned(const struct snapshot_worker *worker);

#endif
