/* SPDX-License-Identifier: Apache-2.0
 * The end of a training: what memory has goes with the job, so the last step goes to storage. */
#include "base/clock.h"
#include "client/client.h"
#include "reader/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#define LOOK_NS      50000000
#define TRIES        3
#define ASK_AGAIN_MS 2000 /* a drain that was asked for may have failed, or the question been lost */

struct until {
    uint64_t deadline_ms;
    int timeout_ms;
};

static int left_ms(const struct until *until)
{
    uint64_t now_ms = clock_ms();

    return until->deadline_ms > now_ms ? (int)(until->deadline_ms - now_ms) : 0;
}

/* Newest step that was saved; *skipped: nothing of it is there. */
static uint64_t newest_begun(struct saver *saver, bool *skipped)
{
    uint64_t step;

    pthread_mutex_lock(&saver->lock);
    step = saver->begun_step;
    *skipped = step != 0 && saver->failed_step == step;
    pthread_mutex_unlock(&saver->lock);
    return step;
}

/* A save finds no room while those before it are undecided, or hold their slots for storage; and none may be tried
 * twice. */
static void await_room(struct tck_client *client, uint64_t before, const struct until *until)
{
    struct error ignored;
    bool draining = true;

    if (before > 0) {
        (void)!client_wait(client, before, TCK_STAGE_COMMITTED, left_ms(until), &ignored);
    }
    while (memory_is_draining(&client->session.config, &draining, &ignored) == TCK_OK && draining &&
           left_ms(until) > 0) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
}

static tck_status_t await_published(struct tck_client *client, uint64_t step, const struct until *until,
                                    struct error *err)
{
    tck_status_t status = client_wait(client, step, TCK_STAGE_DRAINED, 0, err);

    while (status == TCK_ERR_TIMEDOUT && left_ms(until) > 0) {
        int left = left_ms(until);
        struct version wanted;

        status = memory_ask_drain(&client->session.config, &wanted, err);
        if (status != TCK_OK && status != TCK_ERR_UNREACHABLE) { /* an agent that is away comes back */
            return status;
        }
        status = client_wait(client, step, TCK_STAGE_DRAINED, left < ASK_AGAIN_MS ? left : ASK_AGAIN_MS, err);
    }
    if (status == TCK_ERR_TIMEDOUT) {
        return error_set(err, status,
                         "step %" PRIu64 " is committed, and not in storage after %d ms: the agents' logs say why",
                         step, until->timeout_ms);
    }
    return status;
}

static tck_status_t older(uint64_t before, uint64_t step, struct error *err)
{
    return error_set(err, TCK_ERR_INVAL, "step %" PRIu64 " cannot be the last, step %" PRIu64 " was saved after it",
                     step, before);
}

static tck_status_t save_and_publish(struct tck_client *client, uint64_t step, const struct until *until,
                                     struct error *err)
{
    bool skipped = false;
    uint64_t before = newest_begun(&client->saver, &skipped);
    tck_status_t status = tck_fence(client);

    if (status == TCK_OK && (before < step || skipped)) {
        await_room(client, before, until);
        status = tck_snapshot(client, step, TCK_SAVE_STORAGE);
    }
    if (status == TCK_OK) {
        status = tck_fence(client);
    }
    if (status != TCK_OK) {
        return status; /* its text is the client's */
    }
    status = client_wait(client, step, TCK_STAGE_COMMITTED, left_ms(until), err);
    return status == TCK_OK ? await_published(client, step, until, err) : status;
}

/* A step that was refused or aborted on any node cannot be saved a second time in the same term. */
static tck_status_t worst_of(const struct tck_client *client, tck_status_t mine, bool *again_out, struct error *err)
{
    uint32_t world_size = client->oob.world_size;
    uint8_t *all = calloc(world_size, 1), again = mine == TCK_ERR_CANCELED, over = mine != TCK_OK && !again;
    uint8_t sent = (uint8_t)(again | over << 1), worst = 0;
    tck_status_t status =
        all == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for what became of %u ranks", world_size) : TCK_OK;

    status = oob_exchange(&client->oob, status, &sent, all, sizeof(sent), err);
    for (uint32_t r = 0; r < world_size && status == TCK_OK; r++) {
        worst |= all[r];
    }
    free(all);
    *again_out = worst == 1;
    if (status == TCK_OK && mine == TCK_OK && worst > 1) {
        status = error_set(err, TCK_ERR_CANCELED, "another rank could not save the last step");
    }
    return status;
}

tck_status_t client_save_last(struct tck_client *client, uint64_t step, int timeout_ms, struct error *err)
{
    const struct until until = {clock_ms() + (uint64_t)timeout_ms, timeout_ms};
    bool skipped = false, again = true;
    uint64_t before = newest_begun(&client->saver, &skipped);
    tck_status_t mine = TCK_OK, status = TCK_OK;

    for (int i = 0; i < TRIES && status == TCK_OK && again; i++) {
        if (i > 0) {
            status = client_begin_term(client, err);
        }
        if (status == TCK_OK) {
            mine = before > step ? older(before, step, err) : save_and_publish(client, step, &until, err);
            status = worst_of(client, mine, &again, err);
        }
    }
    return mine == TCK_OK ? status : mine;
}
