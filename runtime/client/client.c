/* SPDX-License-Identifier: Apache-2.0
 * The functions of tierckpt.h: checks of the caller's arguments, the stall accounting, and the text of the last error.
 */
#include "client/client.h"
#include "base/clock.h"
#include "base/log.h"

#include <endian.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

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

int tck_version_number(void)
{
    return TCK_VERSION_MAJOR * 10000 + TCK_VERSION_MINOR * 100 + TCK_VERSION_PATCH;
}

static tck_status_t check_state(struct tck_client *client, enum client_state wanted)
{
    static const char *const texts[] = {"attached and not registered", "registered"};

    if (client->state == wanted) {
        return TCK_OK;
    }
    return error_set(&client->error, TCK_ERR_INVAL, "called in the wrong order: the client must be %s", texts[wanted]);
}

/* ---- attach -------------------------------------------------------------------------------------------------- */

tck_status_t tck_attach(const tck_attach_params_t *params, tck_client_t **client_out)
{
    struct tck_client *client;
    tck_status_t status;

    if (params == NULL || client_out == NULL) {
        return error_set(&attach_error, TCK_ERR_INVAL, "no parameters or no place for the client");
    }
    client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return error_set(&attach_error, TCK_ERR_NOMEM, "no memory for a client");
    }
    status = client_attach(client, params, &attach_error);
    if (status != TCK_OK) {
        free(client);
        return status;
    }
    *client_out = client;
    return TCK_OK;
}

static void say_goodbye(struct session *session, bool job_done)
{
    struct msg_detach detach = {.seq = session_seq(session), .job_done = job_done};
    struct writer w = writer_new(0);
    struct ipc_frame frame;

    msg_detach_encode(&detach, &w);
    if (session_ask(session, MSG_DETACH, &w, MSG_OK, DETACH_MS, &frame, NULL) == TCK_OK) {
        ipc_frame_free(&frame);
    }
}

/* The agents leave soon after a job that is done, and their memory with them. */
static void warn_of_unpublished(const struct tck_client *client)
{
    const struct interval *interval = &client->session.config.save_storage_interval;
    uint64_t committed, published;

    if (client->session.board == NULL || client->oob.rank != 0 || (interval->steps == 0 && interval->seconds <= 0)) {
        return;
    }
    committed = atomic_load(&client->session.board->committed_step);
    published = atomic_load(&client->session.board->published_step);
    if (committed > published) {
        log_warn("the job is done, and step %" PRIu64
                 " goes with the memory of its nodes (newest step that this term has "
                 "in storage: %" PRIu64 "; 0: none); tck_save_last would have kept it",
                 committed, published);
    }
}

void tck_detach(tck_client_t *client, int job_done)
{
    if (client == NULL) {
        return;
    }
    saver_stop(&client->saver);
    if (job_done != 0) {
        warn_of_unpublished(client);
    }
    say_goodbye(&client->session, job_done != 0);
    copier_free(client->copier);
    save_plan_free(&client->plan);
    cuda_rest(client->cuda);
    slots_close(&client->slots);
    cuda_free(client->cuda);
    session_close(&client->session);
    layout_free(&client->layout);
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
    tck_status_t status = find_blob(client, key, &blob);
    uint64_t capacity, prefix = htole64(size);

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
    tck_status_t status = find_blob(client, key, &blob);
    uint64_t size;

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
        return error_set(&client->error, TCK_ERR_BUSY, "record \"%.200s\" is being copied; tck_fence comes first",
                         moved->key);
    }
    if (moved->memory == TCK_CUDA && moved->bytes > 0) {
        tck_status_t status = cuda_place_record(client->cuda, moved->device, addr, &client->error);

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

static tck_status_t begin_save(struct tck_client *client, uint64_t step, bool to_storage, bool *started_out)
{
    uint64_t begin_ns = clock_ns();
    tck_status_t status;

    if (!client->stall_open) {
        saver_wait(&client->saver); /* a fence does not wait for copies from devices */
    }
    status = saver_begin(&client->saver, step, to_storage, started_out, &client->error);
    if (status == TCK_ERR_BUSY) {
        return error_set(&client->error, status, "the snapshot before this one is being copied; tck_fence comes first");
    }
    if (*started_out) {
        client->stall_ns = clock_ns() - begin_ns;
        client->stall_open = true;
    }
    return status;
}

tck_status_t tck_save_due(tck_client_t *client, uint64_t step, int *due_out)
{
    tck_status_t status = check_state(client, CLIENT_REGISTERED);

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
            status = begin_save(client, step, due == DUE_STORAGE, &started);
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
    if (step == 0 || step == TCK_NEWEST || (unsigned)flags > TCK_SAVE_STORAGE) {
        return error_set(&client->error, TCK_ERR_INVAL, "step %llu cannot be saved or flags %d are unknown",
                         (unsigned long long)step, (int)flags);
    }
    return begin_save(client, step, (flags & TCK_SAVE_STORAGE) != 0, &started);
}

tck_status_t tck_set_stream(tck_client_t *client, int device, void *stream)
{
    if (client->cuda == NULL) {
        return error_set(&client->error, TCK_ERR_INVAL, "no record lies on CUDA device %d", device);
    }
    return cuda_set_stream(client->cuda, device, stream, &client->error);
}

tck_status_t tck_fence(tck_client_t *client)
{
    tck_status_t status;
    uint64_t begin_ns;

    if (!client->stall_open) {
        return TCK_OK;
    }
    begin_ns = clock_ns();
    status = saver_fence(&client->saver, &client->error);
    if (status == TCK_OK) {
        close_stall(client, clock_ns() - begin_ns);
    }
    return status;
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
    return status == TCK_OK ? client_save_last(client, step, timeout_ms, &client->error) : status;
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
    tck_status_t status;

    if (client->state == CLIENT_REGISTERED && !atomic_load(&client->session.connected)) {
        return error_set(&client->error, TCK_ERR_UNREACHABLE, "the agent is gone; it is looked for");
    }
    pthread_mutex_lock(&client->session.lock);
    status = query_locked(&client->session, version_out, &client->error);
    pthread_mutex_unlock(&client->session.lock);
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
