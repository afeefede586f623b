/* SPDX-License-Identifier: Apache-2.0
 * The functions of tierckpt.h that save, and measuring how long training was stalled by them. */
#include "base/clock.h"
#include "base/log.h"
#include "client/api_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void close_stall(struct tck_client *client, uint64_t fence_ns)
{
    uint64_t stall_ns = client->stall_ns + fence_ns;

    client->stall_open = false;
    client->stall_last_ns = stall_ns;
    client->stall_total_ns += stall_ns;
    client->stall_max_ns = stall_ns > client->stall_max_ns ? stall_ns : client->stall_max_ns;
    if (client->session.shared != NULL) {
        stall_board_add(&client->session.shared->stalls, stall_ns);
    }
}

/* The previous snapshot may still be being copied: there may have been no fence since, for example because an
 * optimizer step was skipped, and a fence does not wait for copies from devices. */
static tck_status_t finish_copy(struct tck_client *client)
{
    uint32_t wait_ms = client->session.config.block_time_ms;
    uint64_t begin_ns = clock_ns();

    if (!worker_wait_for(&client->worker, wait_ms)) {
        return error_set(&client->error, TCK_ERR_BUSY,
                         "the previous snapshot is still being copied after block_time_ms (%u)", wait_ms);
    }
    if (client->stall_open) {
        close_stall(client, clock_ns() - begin_ns);
    }
    return TCK_OK;
}

/* If steps go backwards, many of them do, for example when they are counted per epoch. tck_wait may ask about one of
 * them even after the next one was refused. */
static void note_refused(struct refused_steps *refused, uint64_t step, uint64_t newest)
{
    if (refused->newest != newest) {
        *refused = (struct refused_steps){.first = step, .last = step, .newest = newest};
    }
    refused->first = step < refused->first ? step : refused->first;
    refused->last = step > refused->last ? step : refused->last;
}

/* TCK_OK, or why the step is not one that can be saved now. */
static tck_status_t check_order(struct tck_client *client, uint64_t step, enum save_to to)
{
    uint64_t newest = 0;
    enum save_order order = worker_order(&client->worker, step, &newest);

    if (order == ORDER_OLDER) {
        note_refused(&client->refused, step, newest);
        (void)error_set(&client->error, TCK_ERR_INVAL,
                        "step %" PRIu64 " comes after step %" PRIu64
                        ": steps must grow over the whole run; count them over all epochs",
                        step, newest);
        if (!client->refusal_told) {
            log_error("not saved: %s", client->error.text);
            client->refusal_told = true;
        }
        return TCK_ERR_INVAL;
    }
    if (order == ORDER_SAVED && (to == SAVE_TO_MEMORY || client->worker.storage_step == step)) {
        return error_set(&client->error, TCK_ERR_EXIST, "step %" PRIu64 " is saved already", step);
    }
    return TCK_OK;
}

static tck_status_t begin_save(struct tck_client *client, uint64_t step, enum save_to to, bool *started_out)
{
    uint64_t begin_ns;
    tck_status_t status;

    if (client->torn) {
        return error_set(&client->error, TCK_ERR_CORRUPT,
                         "step %" PRIu64 " is not saved: a restore failed after it had begun to write the records, "
                         "which hold parts of several states; restore a version, or fill all records and call "
                         "tck_records_filled",
                         step);
    }
    status = finish_copy(client);
    if (status != TCK_OK) {
        worker_note_skipped(&client->worker, step, &client->error);
        return status;
    }
    status = check_order(client, step, to);
    if (status != TCK_OK) {
        return status;
    }
    begin_ns = clock_ns();
    status = worker_begin(&client->worker, step, to, started_out, &client->error);
    if (*started_out) {
        client->stall_ns = clock_ns() - begin_ns;
        client->stall_open = true;
    }
    return status;
}

/* Turns errors that must not stop a training into a skipped save; their text is kept. A stream capture stays an error,
 * since nothing was decided. */
static tck_status_t skipped_or(tck_status_t status, const struct tck_client *client, uint64_t step)
{
    bool skipped =
        status == TCK_ERR_BUSY || status == TCK_ERR_EXIST || (status == TCK_ERR_INVAL && client_refused(client, step));

    return skipped ? TCK_OK : status;
}

tck_status_t tck_save_due(tck_client_t *client, uint64_t step, tck_due_t *due_out)
{
    tck_status_t status = check_state(client, CLIENT_REGISTERED);

    if (status == TCK_OK) {
        status = check_given(client, due_out);
    }
    if (status != TCK_OK) {
        return status;
    }
    client->asked_step = step;
    client->asked_due = pacer_due(&client->pacer, client->session.shared, step);
    *due_out = client->asked_due;
    return TCK_OK;
}

/* Repeats the answer of tck_save_due, if it was called: the shared status may have changed since. */
static tck_due_t decide(struct tck_client *client, uint64_t step)
{
    bool asked = step != 0 && client->asked_step == step;

    client->asked_step = 0;
    return asked ? client->asked_due : pacer_due(&client->pacer, client->session.shared, step);
}

tck_status_t tck_save_if_needed(tck_client_t *client, uint64_t step, int *started_out)
{
    bool started = false;
    tck_status_t status = check_state(client, CLIENT_REGISTERED);

    if (status == TCK_OK) {
        tck_due_t due = decide(client, step);

        pacer_tick(&client->pacer, client->session.shared, step, clock_ns());
        if (due != TCK_DUE_NOTHING) {
            enum save_to to = due == TCK_DUE_STORAGE ? SAVE_TO_STORAGE : SAVE_TO_MEMORY;

            status = skipped_or(begin_save(client, step, to, &started), client, step);
        }
    }
    if (status == TCK_OK && started_out != NULL) {
        *started_out = started;
    }
    return status;
}

/* A caller that has asked may save by itself, in the place of tck_save_if_needed. That must not look like a step that
 * took twice as long, and the agents must know that it is over. */
static void tick_if_asked(struct tck_client *client, uint64_t step)
{
    if (client->asked_step == step) {
        client->asked_step = 0;
        pacer_tick(&client->pacer, client->session.shared, step, clock_ns());
    }
}

tck_status_t tck_snapshot(tck_client_t *client, uint64_t step, tck_save_flags_t flags)
{
    bool started = false;
    tck_status_t status = check_state(client, CLIENT_REGISTERED);

    if (status != TCK_OK) {
        return status;
    }
    if (step == 0 || step == TCK_NEWEST) {
        return error_set(&client->error, TCK_ERR_INVAL, "step %" PRIu64 " cannot be saved: steps count from 1", step);
    }
    if ((unsigned)flags > TCK_SAVE_STORAGE) {
        return error_set(&client->error, TCK_ERR_INVAL, "flags %d are none of tck_save_flags", (int)flags);
    }
    tick_if_asked(client, step);
    status = begin_save(client, step, (flags & TCK_SAVE_STORAGE) != 0 ? SAVE_TO_STORAGE : SAVE_TO_MEMORY, &started);
    return status == TCK_ERR_EXIST ? TCK_OK : status;
}

tck_status_t client_begin_last(struct tck_client *client, uint64_t step)
{
    bool started = false;
    tck_status_t status = begin_save(client, step, SAVE_LAST, &started);

    return status == TCK_ERR_EXIST ? TCK_OK : status;
}

tck_status_t tck_skip(tck_client_t *client, uint64_t step, const char *why)
{
    tck_status_t status = check_state(client, CLIENT_REGISTERED);
    struct error reason;

    if (status != TCK_OK) {
        return status;
    }
    if (step == 0 || step == TCK_NEWEST || why == NULL) {
        return error_set(&client->error, TCK_ERR_INVAL, "step %" PRIu64 " cannot be skipped, or no reason is given",
                         step);
    }
    client->asked_step = 0;
    pacer_tick(&client->pacer, client->session.shared, step, clock_ns());
    (void)error_set(&reason, TCK_ERR_CANCELED, "%s", why);
    status = finish_copy(client);
    if (status == TCK_OK && check_order(client, step, SAVE_TO_MEMORY) == TCK_OK) {
        worker_give_up(&client->worker, step, &reason);
        client->error = reason;
    } else if (status != TCK_OK) {
        worker_note_skipped(&client->worker, step, &reason);
    }
    return TCK_OK;
}

tck_status_t tck_set_stream(tck_client_t *client, int device, void *stream)
{
    tck_status_t status = check_process(client);

    if (status != TCK_OK) {
        return status;
    }
    return devices_set_stream(&client->devices, device, stream, &client->error);
}

tck_status_t tck_fence(tck_client_t *client)
{
    tck_status_t status = check_process(client);
    uint64_t begin_ns;

    if (status != TCK_OK || !client->stall_open) {
        return status;
    }
    begin_ns = clock_ns();
    status = worker_fence(&client->worker, &client->error);
    if (status == TCK_OK) {
        close_stall(client, clock_ns() - begin_ns);
    }
    return status;
}

tck_status_t tck_set_confirm(tck_client_t *client, int on)
{
    tck_status_t status = check_state(client, CLIENT_REGISTERED);

    if (status == TCK_OK) {
        worker_wait(&client->worker);
        client->confirms = client->worker.confirms = on != 0;
    }
    return status;
}

/* Sets no error text, since a thread other than the trainer's may call. */
static bool takes_words(struct tck_client *client)
{
    return client != NULL && client->forks == forks_count() && client->state == CLIENT_REGISTERED;
}

tck_status_t tck_confirm(tck_client_t *client, uint64_t step, const char *why_not)
{
    if (!takes_words(client)) {
        return TCK_ERR_INVAL;
    }
    worker_confirm(&client->worker, step, why_not);
    return TCK_OK;
}

tck_status_t tck_await_copied(tck_client_t *client, int timeout_ms, uint64_t *step_out)
{
    if (!takes_words(client) || timeout_ms < 0 || step_out == NULL) {
        return TCK_ERR_INVAL;
    }
    return worker_await_copied(&client->worker, timeout_ms, step_out);
}
