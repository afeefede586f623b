/* SPDX-License-Identifier: Apache-2.0
 * The client behind tierckpt.h: its parts, and the operations, each in a file of its own. */
#ifndef TCK_CLIENT_CLIENT_H
#define TCK_CLIENT_CLIENT_H

#include "client/activity.h"
#include "client/forks.h"
#include "client/interval.h"
#include "client/oob.h"
#include "client/snapshot_worker.h"

enum client_state { CLIENT_ATTACHED, CLIENT_REGISTERED, CLIENT_FAILED /* to register; can only detach */ };

struct tck_client {
    uint64_t term;      /* newest that its ranks have claimed; 0: none */
    struct error error; /* of the last failed call */
    uint32_t forks;     /* forks_count of the process that attached, which is this one: */
    pid_t pid;
    _Atomic enum client_state state; /* also read by the thread that confirms snapshots */
    struct oob oob;
    struct activity activity; /* of register and restore */
    struct session session;
    struct layout layout;
    /* valid from register on: */
    struct slots slots;
    struct copier *copier;
    struct snapshot_worker worker;
    struct devices devices;  /* host memory, and CUDA once a record lies on one of its devices */
    const char *cuda_module; /* for tests: loaded in place of the real one; NULL: none */
    uint64_t segment_bytes;
    uint32_t page_bytes;
    bool last_failed;    /* tck_save_last failed: memory may hold the only copy */
    tck_status_t placed; /* result of copying the bytes of a restore that all ranks had agreed on */
    bool torn; /* a restore has begun to write the records, and none has succeeded since: they hold parts of several
                  states. The same on all ranks */
    char passed_over[PASSED_TEXT_BYTES]; /* of the last restore */
    tck_check_t check;                   /* tck_set_check; NULL: none */
    void *check_ctx;
    bool confirms;         /* tck_set_confirm; it outlives the term */
    bool asked;            /* a restore was asked for in this term, of */
    uint64_t restore_step; /* this step */
    /* of the trainer's thread: */
    struct pacer pacer;
    uint64_t asked_step; /* last step given to tck_save_due; 0: none, or a save call has followed */
    tck_due_t asked_due;
    struct refused_steps {
        uint64_t first, last; /* that were older than */
        uint64_t newest;      /* this one, saved before them; 0: there are none */
    } refused;
    bool refusal_told; /* the refusal was logged */
    uint64_t stall_ns; /* of the snapshot under way */
    uint64_t stall_last_ns, stall_max_ns, stall_total_ns;
    bool stall_open; /* tck_fence has not been called for it yet */
};

static inline bool client_refused(const struct tck_client *client, uint64_t step)
{
    const struct refused_steps *refused = &client->refused;

    return refused->newest != 0 && step >= refused->first && step <= refused->last;
}

/* Words for activity_phase. */
#define WAITS_FOR_RANKS "waiting for the other ranks"

/* attach.c; on failure only the oob is left initialised. */
must_check tck_status_t client_attach(struct tck_client *client, const tck_attach_params_t *params, struct error *err);
/* With the same configuration, over a connection of its own. On failure the client can only detach. */
must_check tck_status_t client_attach_anew(struct tck_client *client, struct error *err);
/* register.c */
must_check tck_status_t client_register(struct tck_client *client, struct error *err);
/* Attaches and registers again, with the existing records; to_restore: a restore of a given step comes next.
 * Collective. */
must_check tck_status_t client_begin_term(struct tck_client *client, bool to_restore, struct error *err);
/* restore.c */
must_check tck_status_t client_restore(struct tck_client *client, uint64_t step, tck_restored_t *out,
                                       struct error *err);
/* trainer_check.c */
/* Calls the trainer's check (tck_set_check), if there is one, on the blobs that have been restored. */
must_check tck_status_t client_ask_trainer(struct tck_client *client, struct error *err);
/* wait.c */
must_check tck_status_t client_wait(struct tck_client *client, uint64_t step, tck_stage_t stage, int timeout_ms,
                                    struct error *err);
/* health.c */
void client_health(struct tck_client *client, tck_health_t *out);
/* Describes the known trouble with storage, "" if there is none. */
const char *client_storage_text(const struct tck_client *client, char text[TCK_HEALTH_TEXT]);
/* save.c */
/* Begins to save the training's last step, or sends it to storage if it is saved already; the error is in
 * client->error. worker_may_begin_again says whether the agent has postponed it. */
must_check tck_status_t client_begin_last(struct tck_client *client, uint64_t step);
/* final_save.c */
must_check tck_status_t client_save_last(struct tck_client *client, uint64_t step, int timeout_ms, struct error *err);

#endif
