/* SPDX-License-Identifier: Apache-2.0
 * Waiting for a stage of a snapshot: looks at the shared status now and then, which costs the agent nothing. */
#include "base/clock.h"
#include "client/client.h"
#include "client/snapshot_outcome.h"
#include "client/term_over.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define PAUSE_FIRST_NS 50000
#define PAUSE_LAST_NS  2000000

/* The progress of the snapshots at one moment. */
struct progress {
    uint64_t begun, copied, failed; /* newest step of each kind */
    uint64_t copying;               /* 0: none */
    bool giving_up;                 /* `failure` is the reason for this one: the agent may know before `failed` is
                                       set */
    struct error failure;
    const struct error *forsaken; /* NULL: the agent is there, or may still return */
};

static struct progress read_progress(struct tck_client *client)
{
    struct snapshot_worker *worker = &client->worker;
    struct progress p;
    bool copying;

    pthread_mutex_lock(&worker->lock);
    copying = worker->state == SAVE_COPYING;
    p = (struct progress){.begun = worker->begun_step,
                          .copied = worker->copied_step,
                          .failed = worker->failed_step,
                          .copying = copying ? worker->step : 0,
                          .giving_up = copying && worker->verdict == VERDICT_GIVE_UP,
                          .failure = worker->failure,
                          .forsaken = worker_abandoned(worker)};
    if (p.giving_up) {
        (void)error_set(&p.failure, TCK_ERR_CANCELED, "%s", worker->verdict_why);
    }
    pthread_mutex_unlock(&worker->lock);
    return p;
}

static uint64_t reached(const struct tck_client *client, const struct progress *p, tck_stage_t stage)
{
    const struct shared_status *shared = client->session.shared;

    switch (stage) {
    case TCK_STAGE_COPIED:
        return p->copied;
    case TCK_STAGE_PROTECTED:
        return atomic_load(&shared->protected_step);
    case TCK_STAGE_COMMITTED:
        return atomic_load(&shared->committed_step);
    case TCK_STAGE_DRAINED:
        return atomic_load(&shared->published_step);
    }
    return 0;
}

static const char *stage_text(tck_stage_t stage)
{
    static const char *const texts[] = {"copied", "protected by its copies", "committed", "on storage"};

    return texts[stage];
}

/* Names the lost node that blocks commits, if this node's agent has noticed. */
static const char *lost_text(const struct tck_client *client, char text[CONFIG_NAME + 96])
{
    const struct world *world = &client->session.world;
    uint64_t lost = atomic_load(&client->session.shared->lost_node);

    text[0] = '\0';
    if (lost > 0 && lost <= world->node_count) {
        snprintf(text, CONFIG_NAME + 96, ": node %s is lost, nothing commits until it is back or the job is restarted",
                 world->nodes[lost - 1].name);
    }
    return text;
}

/* Known for the newest step that failed; for an earlier one it follows from the steps after it. */
static bool was_aborted(const struct tck_client *client, uint64_t step)
{
    const struct shared_status *shared = client->session.shared;
    uint64_t decided_below = atomic_load(&shared->decided_below); /* before what it is compared with */

    return atomic_load(&shared->failed_step) == step ||
           (step < decided_below && atomic_load(&shared->committed_step) < step);
}

/* TCK_ERR_BUSY: not yet. */
static tck_status_t check_stage(struct tck_client *client, uint64_t step, tck_stage_t stage, struct error *err)
{
    bool aborted = was_aborted(client, step); /* read first: this process knows its own aborts before the agent does */
    struct progress p = read_progress(client);
    char lost[CONFIG_NAME + 96];

    if (step > p.begun) {
        return error_set(err, TCK_ERR_NOENT, "step %" PRIu64 " was never saved", step);
    }
    if (client_refused(client, step)) {
        return error_set(err, TCK_ERR_NOENT, "step %" PRIu64 " was not saved, for step %" PRIu64 " was saved before it",
                         step, p.begun);
    }
    if (reached(client, &p, stage) >= step && p.copied >= step) { /* the agent may know of the copy before us */
        return TCK_OK;
    }
    if (session_term_over(&client->session, err) != TCK_OK) {
        return TCK_ERR_DENIED;
    }
    if (p.failed == step || (p.giving_up && p.copying == step)) {
        return error_set(err, TCK_ERR_CANCELED, "step %" PRIu64 " was skipped: %s%s", step, p.failure.text,
                         lost_text(client, lost));
    }
    if (step > p.copied && step != p.copying) { /* only the newest is copied, in the order of their beginning */
        return error_set(err, TCK_ERR_CANCELED,
                         "step %" PRIu64 " was skipped, and so was step %" PRIu64 " after it: %s%s", step, p.failed,
                         p.failure.text, lost_text(client, lost));
    }
    if (aborted) {
        return error_set(err, TCK_ERR_CANCELED, "step %" PRIu64 " was refused or aborted%s", step,
                         lost_text(client, lost));
    }
    if (p.forsaken != NULL) {
        return error_set(err, TCK_ERR_CANCELED, "it is unknown whether step %" PRIu64 " is %s: %s", step,
                         stage_text(stage), p.forsaken->text);
    }
    return TCK_ERR_BUSY;
}

/* A time-out, with the reason why storage makes no progress if it is known. */
static tck_status_t too_late(struct tck_client *client, uint64_t step, tck_stage_t stage, int timeout_ms,
                             struct error *err)
{
    struct trouble trouble;
    char lost[CONFIG_NAME + 96];

    if (stage == TCK_STAGE_DRAINED && trouble_look(&client->session.shared->storage_trouble, &trouble) &&
        trouble.code != TCK_OK) {
        return error_set(err, TCK_ERR_TIMEDOUT, "step %" PRIu64 " is not on storage after %d ms: %s", step, timeout_ms,
                         trouble.text);
    }
    return error_set(err, TCK_ERR_TIMEDOUT, "step %" PRIu64 " is not %s after %d ms%s", step, stage_text(stage),
                     timeout_ms, lost_text(client, lost));
}

static void pause_ns(long *ns)
{
    struct timespec pause = {.tv_nsec = *ns};

    nanosleep(&pause, NULL);
    *ns = *ns * 2 > PAUSE_LAST_NS ? PAUSE_LAST_NS : *ns * 2;
}

tck_status_t client_wait(struct tck_client *client, uint64_t step, tck_stage_t stage, int timeout_ms, struct error *err)
{
    uint64_t deadline_ms = clock_ms() + (uint64_t)timeout_ms;
    long pause = PAUSE_FIRST_NS;

    for (;;) {
        tck_status_t status = check_stage(client, step, stage, err);

        if (status != TCK_ERR_BUSY) {
            return status;
        }
        if (clock_ms() >= deadline_ms) {
            return too_late(client, step, stage, timeout_ms, err);
        }
        pause_ns(&pause);
    }
}
