/* SPDX-License-Identifier: Apache-2.0
 * The functions of tierckpt.h: checks of the caller's arguments, the stall accounting, and the text of the last error.
 */
#include "client/client.h"
#include "base/clock.h"
#include "base/log.h"
#include "client/lines.h"
#include "client/say.h"

#include <endian.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DETACH_MS 2000

static _Thread_local struct error attach_error; /* there is no client to keep it in */

/* ---- status -------------------------------------------------------------------------------------------------- */

const char *tck_strerror(tck_status_t status)
{
    return status_text(status);
}

const char *tck_errmsg(const tck_client_t *client)
{
    return client == NULL ? attach_error.text : client->error.text;
}

tck_status_t tck_errcode(const tck_client_t *client)
{
    return client == NULL ? attach_error.code : client->error.code;
}

int tck_version_number(void)
{
    return TCK_VERSION_MAJOR * 10000 + TCK_VERSION_MINOR * 100 + TCK_VERSION_PATCH;
}

/* What is wrong with a call of this function, if it needs no state. A forked child has this memory, but neither the
 * threads nor a connection of its own. */
static tck_status_t check_caller(struct tck_client *client, const char *function)
{
    if (client == NULL) {
        return error_set(&attach_error, TCK_ERR_INVAL,
                         "%s was called in the wrong order: there is no client (NULL), call tck_attach first",
                         function);
    }
    if (client->forks == forks_count()) {
        return TCK_OK;
    }
    return error_set(&client->error, TCK_ERR_INVAL,
                     "this process is a fork of process %d, which attached: only that one can use its client",
                     (int)client->pid);
}

static const char *remedy_of(enum client_state state)
{
    switch (state) {
    case CLIENT_ATTACHED:
        return "call tck_register first";
    case CLIENT_REGISTERED:
        return "tck_register was called already; what is saved can only be changed by tck_detach and another "
               "tck_attach";
    case CLIENT_FAILED:
        break;
    }
    return "its tck_register or tck_restore has failed, so it can only be detached";
}

static tck_status_t check_order_of(struct tck_client *client, enum client_state wanted, const char *function)
{
    tck_status_t status = check_caller(client, function);

    if (status != TCK_OK || client->state == wanted) {
        return status;
    }
    return error_set(&client->error, TCK_ERR_INVAL, "%s was called in the wrong order: %s", function,
                     remedy_of(client->state));
}

static tck_status_t check_pointer(struct error *err, const void *pointer, const char *function, const char *name)
{
    return pointer == NULL ? error_set(err, TCK_ERR_INVAL, "%s: %s is NULL", function, name) : TCK_OK;
}

#define check_given(client, pointer) check_pointer(&(client)->error, pointer, __func__, #pointer)
#define check_process(client)        check_caller(client, __func__)
#define check_state(client, wanted)  check_order_of(client, wanted, __func__)

/* ---- attach -------------------------------------------------------------------------------------------------- */

tck_status_t tck_attach(const tck_attach_params_t *params, tck_client_t **client_out)
{
    struct tck_client *client;
    tck_status_t status;

    if (params == NULL || client_out == NULL) {
        return error_set(&attach_error, TCK_ERR_INVAL, "no parameters or no place for the client");
    }
    lines_begin();
    client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return error_set(&attach_error, TCK_ERR_NOMEM, "no memory for a client");
    }
    client->pid = getpid();
    client->forks = forks_count();
    saver_init(&client->saver);
    status = forks_watch(&attach_error);
    if (status == TCK_OK) {
        status = client_attach(client, params, &attach_error);
    }
    if (status != TCK_OK) {
        saver_free(&client->saver);
        free(client);
        return status;
    }
    *client_out = client;
    return TCK_OK;
}

tck_status_t tck_job_name(const char *config_file, const char *config_json, char *job_out, size_t cap)
{
    struct config config;
    tck_status_t status = check_pointer(&attach_error, job_out, __func__, "job_out");

    if (status == TCK_OK) {
        status = config_load(config_file, config_json, &config, &attach_error);
    }
    if (status == TCK_OK && strlen(config.job) >= cap) {
        status = error_set(&attach_error, TCK_ERR_NOSPC, "the job's name \"%s\" does not fit into %zu bytes",
                           config.job, cap);
    }
    if (status == TCK_OK) {
        memcpy(job_out, config.job, strlen(config.job) + 1);
    }
    return status;
}

static void say_goodbye(struct tck_client *client, bool job_done)
{
    struct session *session = &client->session;
    struct msg_detach detach = {.seq = session_seq(session), .job_done = job_done, .last_failed = client->last_failed};
    struct writer w = writer_new(0);
    struct ipc_frame frame;

    msg_detach_encode(&detach, &w);
    if (session_ask(session, MSG_DETACH, &w, MSG_OK, DETACH_MS, &frame, NULL) == TCK_OK) {
        ipc_frame_free(&frame);
    }
}

void tck_detach(tck_client_t *client, int job_done)
{
    if (client == NULL || client->forks != forks_count()) { /* of a fork: nothing here is its own */
        return;
    }
    saver_stop(&client->saver);
    if (job_done != 0) {
        say_done(client);
    }
    say_goodbye(client, job_done != 0);
    copier_free(client->copier);
    save_plan_free(&client->plan);
    cuda_rest(client->cuda);
    slots_close(&client->slots);
    cuda_free(client->cuda);
    session_close(&client->session);
    layout_free(&client->layout);
    saver_free(&client->saver);
    free(client);
}

/* ---- what is saved ------------------------------------------------------------------------------------------- */

/* A record on a device needs the module and the device. */
static tck_status_t place_record(struct tck_client *client, const struct record *record)
{
    tck_status_t status = TCK_OK;

    if (record->memory == TCK_HOST) {
        return TCK_OK;
    }
    if (client->cuda == NULL) {
        status = cuda_new(client->cuda_module, &client->cuda, &client->error);
    }
    if (status == TCK_OK) {
        status =
            cuda_place_record(client->cuda, record->device, record->bytes > 0 ? record->addr : NULL, &client->error);
    }
    return status == TCK_OK ? status : error_prefix(&client->error, "record \"%.200s\"", record->key);
}

tck_status_t tck_add_record(tck_client_t *client, const tck_record_t *record, uint32_t *record_out)
{
    tck_status_t status = check_state(client, CLIENT_ATTACHED);
    uint32_t number = 0;

    if (status == TCK_OK) {
        status = check_given(client, record);
    }
    if (status == TCK_OK) {
        status = layout_add(&client->layout, record, &number, &client->error);
    }
    if (status != TCK_OK) {
        return status;
    }
    status = place_record(client, &client->layout.records[number]);
    if (status != TCK_OK) {
        layout_remove_last(&client->layout);
        return status;
    }
    if (record_out != NULL) {
        *record_out = number;
    }
    return TCK_OK;
}

tck_status_t tck_add_blob(tck_client_t *client, const char *key, size_t capacity, const char *replica_group)
{
    tck_status_t status = check_state(client, CLIENT_ATTACHED);

    if (status != TCK_OK) {
        return status;
    }
    return layout_add_blob(&client->layout, key, capacity, replica_group, NULL, &client->error);
}

static tck_status_t find_blob(struct tck_client *client, const char *key, struct record **out)
{
    if (key == NULL) {
        return error_set(&client->error, TCK_ERR_INVAL, "a blob is named by its key, and that is NULL");
    }
    for (uint32_t i = 0; i < client->layout.record_count; i++) {
        struct record *record = &client->layout.records[i];

        if (record->blob && strcmp(record->key, key) == 0) {
            *out = record;
            return TCK_OK;
        }
    }
    return error_set(&client->error, TCK_ERR_NOENT, "no blob \"%.200s\" was added", key);
}

static uint64_t blob_size(const struct record *blob)
{
    uint64_t size;

    memcpy(&size, blob->addr, sizeof(size));
    return le64toh(size);
}

tck_status_t tck_set_blob(tck_client_t *client, const char *key, const void *data, size_t size)
{
    struct record *blob = NULL;
    uint64_t capacity, prefix = htole64(size);
    tck_status_t status = check_process(client);

    if (status == TCK_OK && size > 0) {
        status = check_given(client, data);
    }
    if (status == TCK_OK) {
        status = find_blob(client, key, &blob);
    }
    if (status != TCK_OK) {
        return status;
    }
    capacity = blob->bytes - BLOB_PREFIX_BYTES;
    if (size > capacity) {
        return error_set(&client->error, TCK_ERR_NOSPC, "blob \"%.200s\": %zu bytes do not fit into %llu", key, size,
                         (unsigned long long)capacity);
    }
    uint8_t *bytes = blob->addr;
    memcpy(bytes, &prefix, sizeof(prefix));
    if (size > 0) {
        memcpy(bytes + BLOB_PREFIX_BYTES, data, size);
    }
    memset(bytes + BLOB_PREFIX_BYTES + size, 0, capacity - size);
    return TCK_OK;
}

tck_status_t tck_get_blob(tck_client_t *client, const char *key, void *data, size_t cap, size_t *size_out)
{
    struct record *blob = NULL;
    tck_status_t status = check_process(client);
    uint64_t size;

    if (status == TCK_OK) {
        status = check_given(client, size_out);
    }
    if (status == TCK_OK && cap > 0) {
        status = check_given(client, data);
    }
    if (status == TCK_OK) {
        status = find_blob(client, key, &blob);
    }
    if (status != TCK_OK) {
        return status;
    }
    size = blob_size(blob);
    *size_out = size;
    if (size > cap) {
        return error_set(&client->error, TCK_ERR_NOSPC, "blob \"%.200s\": %llu bytes do not fit into %zu", key,
                         (unsigned long long)size, cap);
    }
    if (size > 0) {
        memcpy(data, (const uint8_t *)blob->addr + BLOB_PREFIX_BYTES, size);
    }
    return TCK_OK;
}

tck_status_t tck_set_address(tck_client_t *client, uint32_t record, void *addr)
{
    struct record *moved;
    tck_status_t status = check_process(client);

    if (status != TCK_OK) {
        return status;
    }
    if (record >= client->layout.record_count || client->layout.records[record].blob) {
        return error_set(&client->error, TCK_ERR_INVAL, "no record has the number %u", record);
    }
    moved = &client->layout.records[record];
    if (addr == NULL && moved->bytes > 0) {
        return error_set(&client->error, TCK_ERR_INVAL, "record \"%.200s\": no address", moved->key);
    }
    if (client->state == CLIENT_REGISTERED && !client->stall_open) {
        saver_wait(&client->saver); /* a fence does not wait for copies from devices */
    }
    if (client->state == CLIENT_REGISTERED && !saver_idle(&client->saver)) {
        return error_set(&client->error, TCK_ERR_BUSY,
                         "record \"%.200s\" is being copied: call tck_fence before it is moved", moved->key);
    }
    if (moved->memory == TCK_CUDA && moved->bytes > 0) {
        status = cuda_place_record(client->cuda, moved->device, addr, &client->error);

        if (status != TCK_OK) {
            return error_prefix(&client->error, "record \"%.200s\"", moved->key);
        }
    }
    moved->addr = addr;
    if (client->state == CLIENT_REGISTERED) {
        save_plan_move(&client->plan, &client->layout, record);
    }
    return TCK_OK;
}

tck_status_t tck_set_reshard(tck_client_t *client, const char *key, tck_reshard_t reshard)
{
    bool found = false;
    tck_status_t status = check_state(client, CLIENT_ATTACHED);

    if (status == TCK_OK) {
        status = check_given(client, key);
    }
    if (status != TCK_OK) {
        return status;
    }
    if ((unsigned)reshard > TCK_RESHARD_ANY) {
        return error_set(&client->error, TCK_ERR_INVAL, "unknown way to reshard %d", (int)reshard);
    }
    for (uint32_t i = 0; i < client->layout.record_count; i++) {
        if (strcmp(client->layout.records[i].key, key) == 0) {
            client->layout.records[i].reshard = reshard;
            found = true;
        }
    }
    return found ? TCK_OK : error_set(&client->error, TCK_ERR_NOENT, "no record or blob \"%.200s\" was added", key);
}

tck_status_t tck_register(tck_client_t *client)
{
    tck_status_t status = check_state(client, CLIENT_ATTACHED);

    return status == TCK_OK ? client_register(client, &client->error) : status;
}

/* ---- save ---------------------------------------------------------------------------------------------------- */

static void close_stall(struct tck_client *client, uint64_t fence_ns)
{
    uint64_t stall_ns = client->stall_ns + fence_ns;

    client->stall_open = false;
    client->stall_last_ns = stall_ns;
    client->stall_total_ns += stall_ns;
    client->stall_max_ns = stall_ns > client->stall_max_ns ? stall_ns : client->stall_max_ns;
}

/* The snapshot before this one may still be copied: there need not be a fence between two saves, as where an
 * optimizer's step was skipped, and a fence does not wait for copies from devices. */
static tck_status_t finish_copy(struct tck_client *client)
{
    uint32_t wait_ms = client->session.config.block_time_ms;
    uint64_t begin_ns = clock_ns();

    if (!saver_wait_for(&client->saver, wait_ms)) {
        return error_set(&client->error, TCK_ERR_BUSY,
                         "the snapshot before this one is still being copied after block_time_ms (%u)", wait_ms);
    }
    if (client->stall_open) {
        close_stall(client, clock_ns() - begin_ns);
    }
    return TCK_OK;
}

/* Steps that go back do so for a while, as those of an epoch do: tck_wait may ask for one of them after the next was
 * refused, too. */
static void note_refused(struct refused_steps *refused, uint64_t step, uint64_t newest)
{
    if (refused->newest != newest) {
        *refused = (struct refused_steps){.first = step, .last = step, .newest = newest};
    }
    refused->first = step < refused->first ? step : refused->first;
    refused->last = step > refused->last ? step : refused->last;
}

/* TCK_OK, or why the step is not one that can be saved now. */
static tck_status_t check_order(struct tck_client *client, uint64_t step, bool to_storage)
{
    uint64_t newest = 0;
    enum save_order order = saver_order(&client->saver, step, &newest);

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
    if (order == ORDER_SAVED && (!to_storage || client->saver.storage_step == step)) {
        return error_set(&client->error, TCK_ERR_EXIST, "step %" PRIu64 " is saved already", step);
    }
    return TCK_OK;
}

static tck_status_t begin_save(struct tck_client *client, uint64_t step, bool to_storage, bool *started_out)
{
    uint64_t begin_ns;
    tck_status_t status = finish_copy(client);

    if (status != TCK_OK) {
        saver_note_skipped(&client->saver, step, &client->error);
        return status;
    }
    status = check_order(client, step, to_storage);
    if (status != TCK_OK) {
        return status;
    }
    begin_ns = clock_ns();
    status = saver_begin(&client->saver, step, to_storage, started_out, &client->error);
    if (*started_out) {
        client->stall_ns = clock_ns() - begin_ns;
        client->stall_open = true;
    }
    return status;
}

/* What is no error in a training that goes on: the text of it stays. A capture is one: nothing was decided. */
static tck_status_t skipped_or(tck_status_t status, const struct tck_client *client, uint64_t step)
{
    bool skipped =
        status == TCK_ERR_BUSY || status == TCK_ERR_EXIST || (status == TCK_ERR_INVAL && client_refused(client, step));

    return skipped ? TCK_OK : status;
}

tck_status_t tck_save_due(tck_client_t *client, uint64_t step, int *due_out)
{
    tck_status_t status = check_state(client, CLIENT_REGISTERED);

    if (status == TCK_OK) {
        status = check_given(client, due_out);
    }
    if (status != TCK_OK) {
        return status;
    }
    client->asked_step = step;
    client->asked_due = pacer_due(&client->pacer, client->session.board, step);
    *due_out = (int)client->asked_due;
    return TCK_OK;
}

/* The answer that the caller was given, if it asked: the board may say something else by now. */
static enum due decide(struct tck_client *client, uint64_t step)
{
    bool asked = step != 0 && client->asked_step == step;

    client->asked_step = 0;
    return asked ? client->asked_due : pacer_due(&client->pacer, client->session.board, step);
}

tck_status_t tck_save_if_needed(tck_client_t *client, uint64_t step, int *started_out)
{
    bool started = false;
    tck_status_t status = check_state(client, CLIENT_REGISTERED);

    if (status == TCK_OK) {
        enum due due = decide(client, step);

        pacer_tick(&client->pacer, client->session.board, step, clock_ns());
        if (due != DUE_NOTHING) {
            status = skipped_or(begin_save(client, step, due == DUE_STORAGE, &started), client, step);
        }
    }
    if (status == TCK_OK && started_out != NULL) {
        *started_out = started;
    }
    return status;
}

tck_status_t tck_snapshot(tck_client_t *client, uint64_t step, tck_save_flags_t flags)
{
    bool started = false;
    tck_status_t status = check_state(client, CLIENT_REGISTERED);

    if (status != TCK_OK) {
        return status;
    }
    if (step == 0 || step == TCK_NEWEST) {
        return error_set(&client->error, TCK_ERR_INVAL, "step %llu cannot be saved: steps count from 1",
                         (unsigned long long)step);
    }
    if ((unsigned)flags > TCK_SAVE_STORAGE) {
        return error_set(&client->error, TCK_ERR_INVAL, "flags %d are none of tck_save_flags", (int)flags);
    }
    status = begin_save(client, step, (flags & TCK_SAVE_STORAGE) != 0, &started);
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
    pacer_tick(&client->pacer, client->session.board, step, clock_ns());
    (void)error_set(&reason, TCK_ERR_CANCELED, "%s", why);
    status = finish_copy(client);
    if (status == TCK_OK && check_order(client, step, false) == TCK_OK) {
        saver_give_up(&client->saver, step, &reason);
        client->error = reason;
    } else if (status != TCK_OK) {
        saver_note_skipped(&client->saver, step, &reason);
    }
    return TCK_OK;
}

tck_status_t tck_set_stream(tck_client_t *client, int device, void *stream)
{
    tck_status_t status = check_process(client);

    if (status != TCK_OK) {
        return status;
    }
    if (client->cuda == NULL) {
        return error_set(&client->error, TCK_ERR_INVAL, "no record lies on CUDA device %d", device);
    }
    return cuda_set_stream(client->cuda, device, stream, &client->error);
}

tck_status_t tck_fence(tck_client_t *client)
{
    tck_status_t status = check_process(client);
    uint64_t begin_ns;

    if (status != TCK_OK || !client->stall_open) {
        return status;
    }
    begin_ns = clock_ns();
    status = saver_fence(&client->saver, &client->error);
    if (status == TCK_OK) {
        close_stall(client, clock_ns() - begin_ns);
    }
    return status;
}

tck_status_t tck_set_confirm(tck_client_t *client, int on)
{
    tck_status_t status = check_state(client, CLIENT_REGISTERED);

    if (status == TCK_OK) {
        saver_wait(&client->saver);
        client->confirms = client->saver.confirms = on != 0;
    }
    return status;
}

/* Without the text of an error: another thread than the trainer's may call. */
static bool takes_words(struct tck_client *client)
{
    return client != NULL && client->forks == forks_count() && client->state == CLIENT_REGISTERED;
}

tck_status_t tck_confirm(tck_client_t *client, uint64_t step, const char *why_not)
{
    if (!takes_words(client)) {
        return TCK_ERR_INVAL;
    }
    saver_confirm(&client->saver, step, why_not);
    return TCK_OK;
}

tck_status_t tck_await_copied(tck_client_t *client, int timeout_ms, uint64_t *step_out)
{
    if (!takes_words(client) || timeout_ms < 0 || step_out == NULL) {
        return TCK_ERR_INVAL;
    }
    return saver_await_copied(&client->saver, timeout_ms, step_out);
}

tck_status_t tck_wait(tck_client_t *client, uint64_t step, tck_stage_t stage, int timeout_ms)
{
    tck_status_t status = check_state(client, CLIENT_REGISTERED);

    if (status != TCK_OK) {
        return status;
    }
    if ((unsigned)stage > TCK_STAGE_DRAINED || timeout_ms < 0) {
        return error_set(&client->error, TCK_ERR_INVAL, "unknown stage %d or negative time-out %d", (int)stage,
                         timeout_ms);
    }
    return client_wait(client, step, stage, timeout_ms, &client->error);
}

tck_status_t tck_save_last(tck_client_t *client, uint64_t step, int timeout_ms)
{
    tck_status_t status = check_state(client, CLIENT_REGISTERED);

    if (status == TCK_OK && (step == 0 || step == TCK_NEWEST)) {
        status = error_set(&client->error, TCK_ERR_INVAL, "step %" PRIu64 " cannot be saved", step);
    }
    if (status == TCK_OK && timeout_ms < 0) {
        status = error_set(&client->error, TCK_ERR_INVAL, "negative time-out %d", timeout_ms);
    }
    if (status != TCK_OK) {
        return status;
    }
    status = client_save_last(client, step, timeout_ms, &client->error);
    client->last_failed = status != TCK_OK;
    return status;
}

/* ---- restore ------------------------------------------------------------------------------------------------- */

static tck_status_t query_locked(struct session *session, tck_version_t *out, struct error *err)
{
    struct msg_seq query = {.seq = session_seq(session)};
    struct writer w = writer_new(0);
    struct msg_version answer;
    struct ipc_frame frame;
    tck_status_t status;

    msg_seq_encode(&query, &w);
    status = session_ask(session, MSG_QUERY, &w, MSG_VERSION, PATIENT, &frame, err);
    if (status != TCK_OK) {
        return status;
    }
    status = msg_version_decode(frame.payload, frame.len, &answer);
    ipc_frame_free(&frame);
    if (status != TCK_OK) {
        return error_set(err, status, "malformed version from the agent");
    }
    *out = (tck_version_t){answer.version.term, answer.version.step};
    return TCK_OK;
}

tck_status_t tck_query(tck_client_t *client, tck_version_t *version_out)
{
    tck_status_t status = check_process(client);

    if (status == TCK_OK) {
        status = check_given(client, version_out);
    }
    if (status != TCK_OK) {
        return status;
    }
    if (client->state == CLIENT_REGISTERED && !atomic_load(&client->session.connected)) {
        return error_set(&client->error, TCK_ERR_UNREACHABLE, "the agent of this node has ended, and is not back yet");
    }
    pthread_mutex_lock(&client->session.lock);
    status = query_locked(&client->session, version_out, &client->error);
    pthread_mutex_unlock(&client->session.lock);
    return status;
}

tck_status_t tck_set_check(tck_client_t *client, tck_check_t check, void *ctx)
{
    tck_status_t status = check_state(client, CLIENT_REGISTERED);

    if (status == TCK_OK) {
        client->check = check;
        client->check_ctx = ctx;
    }
    return status;
}

tck_status_t tck_restore(tck_client_t *client, uint64_t step, tck_restored_t *restored_out)
{
    tck_status_t status = check_state(client, CLIENT_REGISTERED);

    if (status != TCK_OK) {
        return status;
    }
    if (restored_out != NULL && restored_out->struct_size < sizeof(*restored_out)) {
        return error_set(&client->error, TCK_ERR_INVAL, "struct_size of the result is %zu, %zu is needed",
                         restored_out->struct_size, sizeof(*restored_out));
    }
    saver_wait(&client->saver); /* a forgotten tck_fence */
    return client_restore(client, step, restored_out, &client->error);
}

/* ---- what it cost -------------------------------------------------------------------------------------------- */

static void fill_stats(const struct tck_client *client, const struct save_counts *counts, tck_stats_t *out)
{
    out->saves_started = counts->started;
    out->saves_copied = counts->copied;
    out->saves_skipped = counts->skipped;
    out->bytes_copied = counts->bytes;
    out->stall_ns_last = client->stall_last_ns;
    out->stall_ns_max = client->stall_max_ns;
    out->stall_ns_total = client->stall_total_ns;
    if (client->session.board != NULL) { /* there is none after a restore that failed to begin a term */
        out->committed_step = atomic_load(&client->session.board->committed_step);
        out->published_step = atomic_load(&client->session.board->published_step);
    }
    out->segment_bytes = client->segment_bytes;
    out->page_bytes = client->page_bytes;
}

tck_status_t tck_stats(tck_client_t *client, tck_stats_t *stats_out)
{
    struct save_counts counts = {0};
    tck_status_t status = check_process(client);

    if (status == TCK_OK) {
        status = check_given(client, stats_out);
    }
    if (status != TCK_OK) {
        return status;
    }
    if (stats_out->struct_size < sizeof(*stats_out)) {
        return error_set(&client->error, TCK_ERR_INVAL, "struct_size of the statistics is %zu, %zu is needed",
                         stats_out->struct_size, sizeof(*stats_out));
    }
    if (client->saver.running) {
        pthread_mutex_lock(&client->saver.lock);
        counts = client->saver.counts;
        pthread_mutex_unlock(&client->saver.lock);
    }
    fill_stats(client, &counts, stats_out);
    return TCK_OK;
}

/* ---- health -------------------------------------------------------------------------------------------------- */

tck_status_t tck_health(tck_client_t *client, tck_health_t *health_out)
{
    tck_status_t status = check_process(client);

    if (status == TCK_OK) {
        status = check_given(client, health_out);
    }
    if (status != TCK_OK) {
        return status;
    }
    if (health_out->struct_size < sizeof(*health_out)) {
        return error_set(&client->error, TCK_ERR_INVAL, "struct_size of the health is %zu, %zu is needed",
                         health_out->struct_size, sizeof(*health_out));
    }
    client_health(client, health_out);
    return TCK_OK;
}
