/* SPDX-License-Identifier: Apache-2.0
 * The background thread of a client: carries one snapshot at a time from the trainer's memory into the slots, and
 * brings the session back after the agent restarted. It never keeps the trainer waiting longer than the configured
 * block time and the copying itself. */
#ifndef TCK_CLIENT_SAVER_H
#define TCK_CLIENT_SAVER_H

#include "client/copy.h"
#include "client/cuda.h"

/* Made at registration; the step path only reads it and fills the staging area. */
struct save_plan {
    struct copy_list *lists; /* per shard of the layout */
    uint32_t list_count;
    uint32_t *eager; /* records that are copied inside the save call */
    uint32_t eager_count;
    uint8_t *staging;  /* their copies */
    uint8_t **addrs;   /* per record in host memory: where a snapshot reads it, in staging or in place */
    struct cuda *cuda; /* the caller's: what copies records on devices; NULL: there are none */
    struct made_root {
        bool made;
        struct hash128 root;
    } * roots; /* per shard: what digests made on devices say of the snapshot under way */
};

must_check tck_status_t save_plan_build(const struct layout *layout, struct save_plan *out, struct error *err);
/* The record's address in the layout has changed. */
void save_plan_move(struct save_plan *plan, const struct layout *layout, uint32_t record);
void save_plan_free(struct save_plan *plan);

struct save_counts {
    uint64_t started, copied, skipped, bytes;
};

enum save_state { SAVE_IDLE, SAVE_COPYING };

struct saver {
    struct session *session;
    const struct layout *layout;
    struct slots *slots;
    struct save_plan *plan;
    struct copier *copier;
    pthread_t thread;
    bool running;
    int wake_fd;          /* eventfd: there is a snapshot, or stop */
    uint64_t asked_step;  /* newest that slots were asked for, */
    uint64_t sealed_step; /* newest whose slots were filled and sealed; 0: none */
    uint64_t nowhere_ms;  /* since when there is neither agent nor keeper, 0: there is; all three of the thread alone */

    pthread_mutex_t lock; /* of all below; never held while waiting for anything but idle */
    pthread_cond_t idle;
    enum save_state state;
    bool released; /* of the snapshot under way nothing is left to do that uses the trainer's host memory */
    uint64_t step, deadline_ms; /* of the snapshot under way: when the agent must have granted slots */
    bool to_storage, stop;
    bool forsaken;                                 /* the agent is gone, and nobody is there to start it again; */
    bool anew;                                     /* or there is another one, which has nothing of this term */
    bool agent_hung;                               /* it let the last snapshot wait in vain, */
    uint64_t hung_beat;                            /* and its loop has not turned since if the beat is still this one */
    uint64_t begun_step, copied_step, failed_step; /* newest of each kind, 0: none */
    struct error failure;                          /* why failed_step was skipped */
    struct save_counts counts;
};

/* The parts are the caller's and outlive the saver. */
must_check tck_status_t saver_start(struct saver *saver, struct session *session, const struct layout *layout,
                                    struct slots *slots, struct save_plan *plan, struct copier *copier,
                                    struct error *err);
/* Waits for the copy under way, ends the thread. Also for one that was never started (zeros). */
void saver_stop(struct saver *saver);

/* Copies the eager records and has the thread do the rest. Without an agent, or with a device that fails, the snapshot
 * is skipped at once, *started_out is false and *why says why. TCK_ERR_BUSY if one is under way, TCK_ERR_INVAL if a
 * device's stream is being captured. */
must_check tck_status_t saver_begin(struct saver *saver, uint64_t step, bool to_storage, bool *started_out,
                                    struct error *why);
/* Until no snapshot is being copied. */
void saver_wait(struct saver *saver);
/* Until records in host memory may change, and those on devices by what their streams are given from now on. */
must_check tck_status_t saver_fence(struct saver *saver, struct error *err);
bool saver_idle(struct saver *saver);
/* Why nothing comes of what was saved: the agent, as it was, does not come back. NULL as long as there is hope. With
 * the lock held. */
const struct error *saver_forsaken(const struct saver *saver);

#endif
