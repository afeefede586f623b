/* SPDX-License-Identifier: Apache-2.0
 * The end of a training: memory is freed with the job, so the last step goes to storage. The agents see to that once it
 * is saved (core/coordinator.c): they drain it, and again if a drain fails. The ranks ask for it and wait.
 *
 * They wait in rounds because a new term can only be begun by all of them together, and a single rank may be the only
 * one that knows why one is needed: its node is lost, or its agent has refused the step permanently. */
#include "base/clock.h"
#include "base/log.h"
#include "client/client.h"
#include "client/final_save_state.h"
#include "client/snapshot_outcome.h"
#include "client/term_over.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#define ASK_NS   50000000
#define TRIES    3
#define ROUND_MS 2000

/* The first warning that the call is still waiting comes after this time; it is repeated in these intervals. */
#define FIRST_WARNING_MS 3000
#define WARN_AGAIN_MS    60000

struct last {
    struct tck_client *client;
    uint64_t step, deadline_ms;
    int timeout_ms;
};

static int left_ms(const struct last *last)
{
    uint64_t now_ms = clock_ms();

    return last->deadline_ms > now_ms ? (int)(last->deadline_ms - now_ms) : 0;
}

static int round_ms(const struct last *last)
{
    int left = left_ms(last);

    return left < ROUND_MS ? left : ROUND_MS;
}

/* The client is reconnecting; until then a save would be skipped. */
static bool may_reconnect(struct snapshot_worker *worker)
{
    bool may;

    pthread_mutex_lock(&worker->lock);
    may = !atomic_load(&worker->session->connected) && worker_abandoned(worker) == NULL;
    pthread_mutex_unlock(&worker->lock);
    return may;
}

/* ---- one round: TCK_ERR_BUSY is not yet, TCK_ERR_CANCELED not in this term ------------------------------------- */

/* Begins the save, unless the step is saved. It is put off while the agent has no room, or is away. */
static tck_status_t ask_once(const struct last *last, struct error *err)
{
    struct snapshot_worker *worker = &last->client->worker;
    uint64_t newest = 0;
    tck_status_t status;

    if (worker_order(worker, last->step, &newest) == ORDER_OLDER) {
        return error_set(err, TCK_ERR_INVAL, "step %" PRIu64 " cannot be the last, step %" PRIu64 " was saved after it",
                         last->step, newest);
    }
    if (may_reconnect(worker) || !worker_wait_for(worker, ROUND_MS)) {
        return TCK_ERR_BUSY;
    }
    status = client_begin_last(last->client, last->step);
    if (status == TCK_OK) {
        status = tck_fence(last->client);
    }
    worker_confirm(worker, last->step, NULL); /* the trainer is inside this call and changes nothing */
    *err = last->client->error;
    return status == TCK_OK && worker_may_begin_again(worker, last->step) ? TCK_ERR_BUSY : status;
}

static tck_status_t ask(const struct last *last, struct error *err)
{
    uint64_t end_ms = clock_ms() + (uint64_t)round_ms(last);
    tck_status_t status = ask_once(last, err);

    while (status == TCK_ERR_BUSY && clock_ms() < end_ms) {
        nanosleep(&(struct timespec){.tv_nsec = ASK_NS}, NULL);
        status = ask_once(last, err);
    }
    return status;
}

static const char *reached_text(const struct last *last)
{
    struct error ignored;

    if (client_wait(last->client, last->step, TCK_STAGE_COMMITTED, 0, &ignored) == TCK_OK) {
        return "committed, but not on storage";
    }
    if (client_wait(last->client, last->step, TCK_STAGE_COPIED, 0, &ignored) == TCK_OK) {
        return "saved, and not committed";
    }
    return "not saved, since earlier steps are still being drained or the agent is not running,";
}

static const char *reason_text(const struct last *last, char trouble[TCK_HEALTH_TEXT])
{
    const char *why = client_storage_text(last->client, trouble);

    return why[0] == '\0' ? "the agents' logs say why" : why;
}

static tck_status_t too_late(const struct last *last, struct error *err)
{
    char trouble[TCK_HEALTH_TEXT];

    return error_set(err, TCK_ERR_TIMEDOUT, "step %" PRIu64 " is %s after %d ms: %s", last->step, reached_text(last),
                     last->timeout_ms, reason_text(last, trouble));
}

/* The first rank of each node whose storage fails logs the warning, and so does rank 0 in any case. */
static bool logs_the_wait(const struct last *last)
{
    const struct world *world = &last->client->session.world;
    uint32_t rank = last->client->oob.rank, first = 0;
    char trouble[TCK_HEALTH_TEXT];

    while (world->node_of_rank[first] != world->node_of_rank[rank]) {
        first++;
    }
    return rank == 0 || (rank == first && client_storage_text(last->client, trouble)[0] != '\0');
}

/* The call may wait for many minutes, so that somebody can still make room. */
static void warn_of_wait(const struct last *last, uint64_t *next_warning_ms)
{
    char trouble[TCK_HEALTH_TEXT];
    uint64_t now_ms = clock_ms();

    if (now_ms < *next_warning_ms) {
        return;
    }
    *next_warning_ms = now_ms + WARN_AGAIN_MS;
    if (logs_the_wait(last)) {
        log_warn("step %" PRIu64 " is %s: %s. save_last waits for it for %d s more", last->step, reached_text(last),
                 reason_text(last, trouble), left_ms(last) / 1000);
    }
}

/* A term that another start has ended is not begun again. */
static tck_status_t advance(const struct last *last, struct error *err)
{
    tck_status_t status = session_term_over(&last->client->session, err);

    if (status == TCK_OK) {
        status = ask(last, err);
    }
    if (status == TCK_OK) {
        status = client_wait(last->client, last->step, TCK_STAGE_DRAINED, round_ms(last), err);
        status = status == TCK_ERR_TIMEDOUT ? TCK_ERR_BUSY : status;
    }
    return status == TCK_ERR_BUSY && left_ms(last) == 0 ? too_late(last, err) : status;
}

/* ---- with the other ranks ------------------------------------------------------------------------------------ */

static tck_status_t exchange_states(const struct last *last, tck_status_t mine, enum final_save_state *all_out,
                                    struct error *err)
{
    const struct oob *oob = &last->client->oob;
    uint8_t *all = calloc(oob->world_size, 1), sent = (uint8_t)final_save_state_of(mine);
    tck_status_t status =
        all == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for the results of %u ranks", oob->world_size) : TCK_OK;

    status = oob_exchange(oob, status, &sent, all, sizeof(sent), err);
    if (status == TCK_OK) {
        *all_out = final_save_state_of_all(all, oob->world_size);
    }
    free(all);
    return status;
}

/* Makes rounds until the step is on storage for all ranks, or cannot get there in this term: *all_out. *mine_out is
 * the outcome on this rank, with its text in err. */
static tck_status_t run_rounds(const struct last *last, tck_status_t *mine_out, enum final_save_state *all_out,
                               struct error *err)
{
    uint64_t next_warning_ms = clock_ms() + FIRST_WARNING_MS;
    tck_status_t mine, status;

    do {
        mine = advance(last, err);
        if (mine == TCK_ERR_BUSY) {
            warn_of_wait(last, &next_warning_ms);
        }
        status = exchange_states(last, mine, all_out, err);
    } while (status == TCK_OK && *all_out == LAST_PENDING);
    *mine_out = mine;
    return status;
}

/* All ranks end with the same error, or with their own. */
static tck_status_t explain(const struct last *last, tck_status_t mine, enum final_save_state all, struct error *err)
{
    if (all == LAST_SAVED) {
        return TCK_OK;
    }
    return oob_agree(&last->client->oob, mine == TCK_ERR_BUSY ? TCK_OK : mine, err);
}

tck_status_t client_save_last(struct tck_client *client, uint64_t step, int timeout_ms, struct error *err)
{
    const struct last last = {
        .client = client, .step = step, .deadline_ms = clock_ms() + (uint64_t)timeout_ms, .timeout_ms = timeout_ms};
    enum final_save_state all = LAST_REFUSED;
    tck_status_t mine = TCK_OK, status = TCK_OK;

    for (int i = 0; i < TRIES && status == TCK_OK && all == LAST_REFUSED; i++) {
        if (i > 0) {
            status = client_begin_term(client, false, err);
        }
        if (status == TCK_OK) {
            status = run_rounds(&last, &mine, &all, err);
        }
    }
    if (status != TCK_OK) {
        return status;
    }
    return explain(&last, mine, all, err);
}
