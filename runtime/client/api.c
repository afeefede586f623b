/* SPDX-License-Identifier: Apache-2.0
 * The functions of tierckpt.h that do not save (save.c has those that do): they check the caller's arguments. */
#include "client/api_check.h"
#include "client/cuda.h"
#include "client/log_sink.h"
#include "client/notices.h"
#include "client/slot_copy.h"

#include <endian.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DETACH_MS 2000

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

/* ---- attach -------------------------------------------------------------------------------------------------- */

static tck_status_t add_host_memory(struct tck_client *client, struct error *err)
{
    struct device *host = NULL;
    tck_status_t status = device_host_new(&host, err);

    if (status == TCK_OK) {
        devices_add(&client->devices, host);
    }
    return status;
}

tck_status_t tck_attach(const tck_attach_params_t *params, tck_client_t **client_out)
{
    struct tck_client *client;
    tck_status_t status;

    if (params == NULL || client_out == NULL) {
        return error_set(&attach_error, TCK_ERR_INVAL, "no parameters or no place for the client");
    }
    log_sink_begin();
    client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return error_set(&attach_error, TCK_ERR_NOMEM, "no memory for a client");
    }
    client->pid = getpid();
    client->forks = forks_count();
    worker_init(&client->worker);
    activity_init(&client->activity);
    status = forks_watch(&attach_error);
    if (status == TCK_OK) {
        status = add_host_memory(client, &attach_error);
    }
    if (status == TCK_OK) {
        status = client_attach(client, params, &attach_error);
    }
    if (status != TCK_OK) {
        devices_free(&client->devices);
        log_sink_close();
        activity_free(&client->activity);
        worker_free(&client->worker);
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

static void send_goodbye(struct tck_client *client, bool job_done)
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
    if (client == NULL || client->forks != forks_count()) { /* in a forked child nothing here is its own */
        return;
    }
    worker_stop(&client->worker);
    if (job_done != 0) {
        notice_done(client);
    }
    send_goodbye(client, job_done != 0);
    devices_rest(&client->devices);
    slots_close(&client->slots);
    devices_free(&client->devices);
    copier_free(client->copier);
    session_close(&client->session);
    layout_free(&client->layout);
    worker_free(&client->worker);
    activity_free(&client->activity);
    log_sink_close();
    free(client);
}

/* ---- what is saved ------------------------------------------------------------------------------------------- */

/* The first record on a CUDA device loads the module. */
static tck_status_t find_device(struct tck_client *client, tck_memory_t memory, struct device **out)
{
    tck_status_t status = TCK_OK;

    *out = devices_find(&client->devices, memory);
    if (*out == NULL) {
        status = cuda_new(client->cuda_module, out, &client->error);
        if (status == TCK_OK) {
            devices_add(&client->devices, *out);
        }
    }
    return status;
}

static tck_status_t place_record(struct tck_client *client, const struct record *record)
{
    struct device *device = NULL;
    tck_status_t status = find_device(client, record->memory, &device);

    if (status == TCK_OK) {
        status = device->ops->place(device, record->device, record->bytes > 0 ? record->addr : NULL, &client->error);
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
        return error_set(&client->error, TCK_ERR_INVAL, "the key of the blob is NULL");
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
        return error_set(&client->error, TCK_ERR_NOSPC, "blob \"%.200s\": %zu bytes do not fit into %" PRIu64, key,
                         size, capacity);
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
    if (size > blob->bytes - BLOB_PREFIX_BYTES) { /* of a damaged image, which a failed restore has copied */
        return error_set(&client->error, TCK_ERR_CORRUPT, "blob \"%.200s\" is damaged since a restore failed", key);
    }
    *size_out = size;
    if (size > cap) {
        return error_set(&client->error, TCK_ERR_NOSPC, "blob \"%.200s\": %" PRIu64 " bytes do not fit into %zu", key,
                         size, cap);
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
        worker_wait(&client->worker); /* a fence does not wait for copies from devices */
    }
    if (client->state == CLIENT_REGISTERED && !worker_idle(&client->worker)) {
        return error_set(&client->error, TCK_ERR_BUSY,
                         "record \"%.200s\" is being copied: call tck_fence before it is moved", moved->key);
    }
    struct device *device = devices_find(&client->devices, moved->memory);
    if (moved->bytes > 0) {
        status = device->ops->place(device, moved->device, addr, &client->error);

        if (status != TCK_OK) {
            return error_prefix(&client->error, "record \"%.200s\"", moved->key);
        }
    }
    moved->addr = addr;
    if (client->state == CLIENT_REGISTERED) {
        device->ops->relocate(device, &client->layout, record);
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

static void begin_activity(struct tck_client *client, const char *call)
{
    bool shown = client->session.config.show_progress == SWITCH_ON;

    activity_begin(&client->activity, call, shown, client->oob.rank == 0);
}

tck_status_t tck_register(tck_client_t *client)
{
    tck_status_t status = check_state(client, CLIENT_ATTACHED);

    if (status != TCK_OK) {
        return status;
    }
    begin_activity(client, "register");
    status = client_register(client, &client->error);
    activity_end(&client->activity);
    return status;
}

/* ---- wait ---------------------------------------------------------------------------------------------------- */

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
        return error_set(&client->error, TCK_ERR_UNREACHABLE, "this node's agent has ended; try again when it is back");
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
    worker_wait(&client->worker); /* a forgotten tck_fence */
    begin_activity(client, "restore");
    status = client_restore(client, step, restored_out, &client->error);
    activity_end(&client->activity);
    return status;
}

tck_status_t tck_records_filled(tck_client_t *client)
{
    tck_status_t status = check_state(client, CLIENT_REGISTERED);

    if (status == TCK_OK) {
        client->torn = false;
    }
    return status;
}

/* ---- statistics ---------------------------------------------------------------------------------------------- */

static void fill_stats(const struct tck_client *client, const struct save_counts *counts, tck_stats_t *out)
{
    out->saves_started = counts->started;
    out->saves_copied = counts->copied;
    out->saves_skipped = counts->skipped;
    out->bytes_copied = counts->bytes;
    out->stall_ns_last = client->stall_last_ns;
    out->stall_ns_max = client->stall_max_ns;
    out->stall_ns_total = client->stall_total_ns;
    if (client->session.shared != NULL) { /* there is none after a restore that failed to begin a term */
        out->committed_step = atomic_load(&client->session.shared->committed_step);
        out->published_step = atomic_load(&client->session.shared->published_step);
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
    if (client->worker.running) {
        pthread_mutex_lock(&client->worker.lock);
        counts = client->worker.counts;
        pthread_mutex_unlock(&client->worker.lock);
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

/* ---- progress ------------------------------------------------------------------------------------------------ */

/* Another thread is inside a call, so this one must not touch the client's error. */
int tck_progress(tck_client_t *client, tck_progress_t *progress_out)
{
    tck_progress_t progress = {0};

    if (client == NULL || progress_out == NULL || progress_out->struct_size < sizeof(progress) ||
        client->forks != forks_count() || !activity_look(&client->activity, &progress)) {
        return 0;
    }
    progress.struct_size = progress_out->struct_size;
    *progress_out = progress;
    return 1;
}
