/* SPDX-License-Identifier: Apache-2.0
 * The end of a training: memory is freed with the job, so the last step goes to storage. The ranks go there in
 * rounds, for a node that is lost may be known to one of them alone, and the others would wait for it until the
 * time-out. */
#include "base/clock.h"
#include "client/client.h"
#include "client/final_save_state.h"
#include "client/term_over.h"
#include "published/drain_request.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#define LOOK_NS  50000000
#define TRIES    3
#define ROUND_MS 2000 /* also when a drain is asked for again: it may have failed, or the question been lost */

struct last {
    struct tck_client *client;
    uint64_t step, deadline_ms;
    uint64_t term_ms; /* when these rounds began, in this term */
    int timeout_ms;
    enum { AWAITS_ROOM, AWAITS_COMMIT, AWAITS_STORAGE } phase;
    struct error refused; /* why the agent does not drain, by its newest answer */
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

/* The agent hangs or is being restarted: worth another round. */
static bool agent_is_away(tck_status_t answer)
{
    return answer == TCK_ERR_UNREACHABLE || answer == TCK_ERR_TIMEDOUT || answer == TCK_ERR_NOENT ||
           answer == TCK_ERR_BUSY;
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

/* Newest step that was begun; *skipped: it was not saved. */
static uint64_t newest_begun(struct snapshot_worker *worker, bool *skipped)
{
    uint64_t step;

    pthread_mutex_lock(&worker->lock);
    step = worker->begun_step;
    *skipped = step != 0 && worker->failed_step == step;
    pthread_mutex_unlock(&worker->lock);
    return step;
}

/* ---- the phases: TCK_ERR_BUSY is not yet, TCK_ERR_CANCELED not in this term ------------------------------------ */

/* A save finds no room while those before it are undecided, or hold their slots for storage or for a term that is just
 * beginning, and is skipped while the agent is away; and none may be tried twice. */
static bool has_room(const struct last *last, uint64_t before, int answer_ms)
{
    struct tck_client *client = last->client;
    struct memory_state memory = {0};
    struct final_save_room room = {.saved_before = before > 0};
    struct error ignored;

    if (may_reconnect(&client->worker) ||
        (before > 0 && client_wait(client, before, TCK_STAGE_COMMITTED, 0, &ignored) == TCK_ERR_TIMEDOUT)) {
        return false;
    }
    room.answer = drain_request_newest(&client->session.config, answer_ms, &memory, &ignored);
    room.draining = !version_none(memory.draining);
    room.recovered = memory.recovered;
    room.waited_ms = clock_ms() - last->term_ms;
    return final_save_has_room(&room);
}

static tck_status_t await_room(const struct last *last, uint64_t before)
{
    int slice_ms = round_ms(last);
    uint64_t end_ms = clock_ms() + (uint64_t)slice_ms;

    while (!has_room(last, before, slice_ms)) {
        if (clock_ms() >= end_ms) {
            return TCK_ERR_BUSY;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    return TCK_OK;
}

/* Saves the step unless it is already the newest one saved. */
static tck_status_t save_once(const struct last *last, struct error *err)
{
    bool skipped = false;
    uint64_t before = newest_begun(&last->client->worker, &skipped);
    tck_status_t status = tck_fence(last->client);

    if (before > last->step) {
        return error_set(err, TCK_ERR_INVAL, "step %" PRIu64 " cannot be the last, step %" PRIu64 " was saved after it",
                         last->step, before);
    }
    if (status != TCK_OK || (before == last->step && !skipped)) {
        return status;
    }
    status = await_room(last, before);
    if (status == TCK_OK) {
        status = tck_snapshot(last->client, last->step, TCK_SAVE_STORAGE);
    }
    if (status == TCK_OK) {
        status = tck_fence(last->client);
    }
    worker_confirm(&last->client->worker, last->step, NULL); /* the trainer is in this call, and changes nothing */
    return status;
}

static tck_status_t await_commit(const struct last *last, struct error *err)
{
    tck_status_t status = client_wait(last->client, last->step, TCK_STAGE_COMMITTED, round_ms(last), err);

    return status == TCK_ERR_TIMEDOUT ? TCK_ERR_BUSY : status;
}

static tck_status_t await_storage(struct last *last, struct error *err)
{
    tck_status_t status = client_wait(last->client, last->step, TCK_STAGE_DRAINED, 0, err);
    struct version wanted;

    if (status != TCK_ERR_TIMEDOUT) {
        return status;
    }
    last->refused = (struct error){0};
    status = drain_request_send(&last->client->session.config, round_ms(last), &wanted, &last->refused);
    if (status != TCK_OK && !agent_is_away(status)) {
        *err = last->refused;
        return status;
    }
    status = client_wait(last->client, last->step, TCK_STAGE_DRAINED, round_ms(last), err);
    return status == TCK_ERR_TIMEDOUT ? TCK_ERR_BUSY : status;
}

static tck_status_t too_late(const struct last *last, struct error *err)
{
    static const char *const what[] = {
        [AWAITS_ROOM] = "not saved, since earlier steps are still being drained or the agent is not running,",
        [AWAITS_COMMIT] = "saved, and not committed",
        [AWAITS_STORAGE] = "committed, and not in storage",
    };
    char trouble[TCK_HEALTH_TEXT];
    const char *why = client_storage_text(last->client, trouble);

    if (why[0] == '\0' && last->phase == AWAITS_STORAGE && last->refused.code != TCK_OK) {
        why = last->refused.text;
    } else if (why[0] == '\0') {
        why = "the agents' logs say why";
    }

    return error_set(err, TCK_ERR_TIMEDOUT, "step %" PRIu64 " is %s after %d ms: %s", last->step, what[last->phase],
                     last->timeout_ms, why);
}

/* Advances as far as one round allows. A term that another start has ended is not begun again. */
static tck_status_t advance(struct last *last, struct error *err)
{
    tck_status_t status = session_term_over(&last->client->session, err);

    if (status == TCK_OK && last->phase == AWAITS_ROOM) {
        status = save_once(last, err);
        last->phase = status == TCK_OK ? AWAITS_COMMIT : AWAITS_ROOM;
    }
    if (status == TCK_OK && last->phase == AWAITS_COMMIT) {
        status = await_commit(last, err);
        last->phase = status == TCK_OK ? AWAITS_STORAGE : AWAITS_COMMIT;
    }
    if (status == TCK_OK) {
        status = await_storage(last, err);
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

/* Rounds until the step is in storage for all ranks, or cannot come there in this term: *all_out. *mine_out: what
 * became of it here, with its text in err. */
static tck_status_t run_rounds(struct last *last, tck_status_t *mine_out, enum final_save_state *all_out,
                               struct error *err)
{
    tck_status_t mine, status;

    last->phase = AWAITS_ROOM;
    last->term_ms = clock_ms();
    do {
        mine = advance(last, err);
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
    struct last last = {
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
