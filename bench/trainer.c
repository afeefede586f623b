/* SPDX-License-Identifier: Apache-2.0
 * One rank that saves and restores through the public API. */
#include "trainer.h"

#include "buffer.h"
#include <stdio.h>
#include <stdlib.h>

#define COMMIT_MS 60000

void trainer_check(const struct trainer *t, tck_status_t status, const char *what)
{
    if (status != TCK_OK) {
        bench_die("%s: %s", what, tck_errmsg(t->client));
    }
}

/* Tensors that follow each other in the table do not do so in memory. */
static void scatter(struct trainer *t)
{
    uint64_t random = 88172645463325252u;
    for (uint32_t i = 0; i < t->count; i++) {
        t->tensor[i] = t->state + (size_t)i * t->tensor_bytes;
    }
    for (uint32_t i = t->count - 1; i > 0; i--) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        uint32_t k = (uint32_t)(random % (i + 1));
        uint8_t *other = t->tensor[k];
        t->tensor[k] = t->tensor[i];
        t->tensor[i] = other;
    }
}

void trainer_make(struct trainer *t, uint32_t count, size_t tensor_bytes)
{
    *t = (struct trainer){.count = count, .tensor_bytes = tensor_bytes};
    t->state = buffer_private(trainer_bytes(t));
    t->tensor = bench_alloc(count * sizeof(*t->tensor));
    scatter(t);
}

void trainer_make_on_device(struct trainer *t, uint32_t count, size_t tensor_bytes, void *state)
{
    *t = (struct trainer){.count = count, .tensor_bytes = tensor_bytes, .state = state, .on_device = true};
    t->tensor = bench_alloc(count * sizeof(*t->tensor));
    scatter(t);
}

void trainer_free(struct trainer *t)
{
    if (!t->on_device) {
        buffer_free(t->state, trainer_bytes(t));
    }
    free(t->tensor);
}

static void add_tensors(struct trainer *t)
{
    char key[64];
    for (uint32_t i = 0; i < t->count; i++) {
        tck_record_t record = {.struct_size = sizeof(record),
                               .key = key,
                               .dtype = TCK_U8,
                               .ndim = 1,
                               .global_shape = {t->tensor_bytes},
                               .local_shape = {t->tensor_bytes},
                               .addr = t->tensor[i],
                               .when = t->eager ? TCK_EAGER : TCK_LAZY,
                               .memory = t->on_device ? TCK_CUDA : TCK_HOST};
        snprintf(key, sizeof(key), "model.layers.%u.weight", i);
        trainer_check(t, tck_add_record(t->client, &record, NULL), "add a tensor");
    }
}

void trainer_attach(struct trainer *t, const struct bench *bench, const char *job)
{
    char json[2048];
    struct bench_go go;
    snprintf(json, sizeof(json),
             "{\"job\":\"%s\",\"node\":\"bench%u\",\"runtime_dir\":\"%s/run\",\"save_dir\":\"%s/save\","
             "\"memory_cap_bytes\":\"5GiB\",\"hugetlb_mount\":\"%s\",\"copies\":1,\"linger_s\":5,"
             "\"save_mem_interval\":0,\"save_storage_interval\":0,\"net_device\":\"lo\"}",
             job, t->node, bench->dir, bench->dir, bench->huge);
    tck_attach_params_t params = {.struct_size = sizeof(params), .config_json = json, .world_size = 1};
    t->client = NULL;
    trainer_check(t, tck_attach(&params, &t->client), "attach");
    bench_start(&go);
    add_tensors(t);
    trainer_check(t, tck_register(t->client), "register");
    bench_stop(&go);
    t->register_time = go.seconds;
    t->register_cpu = go.cpu;
}

void trainer_detach(struct trainer *t, bool job_done)
{
    tck_detach(t->client, job_done);
    t->client = NULL;
}

static void fence_and_commit(struct trainer *t, struct bench_go *go)
{
    tck_stats_t stats = {.struct_size = sizeof(stats)};
    trainer_check(t, tck_fence(t->client), "fence");
    if (go != NULL) {
        bench_stop(go);
    }
    trainer_check(t, tck_stats(t->client, &stats), "statistics");
    t->reported = (double)stats.stall_ns_last / 1e9;
    t->page_bytes = stats.page_bytes;
    trainer_check(t, tck_wait(t->client, t->step, TCK_STAGE_COMMITTED, COMMIT_MS), "commit");
}

void trainer_snapshot(struct trainer *t, struct bench_go *go)
{
    bench_start(go);
    trainer_check(t, tck_snapshot(t->client, ++t->step, TCK_SAVE_MEMORY), "snapshot");
    fence_and_commit(t, go);
}

void trainer_post(struct trainer *t, struct bench_go *go)
{
    bench_start(go);
    trainer_check(t, tck_snapshot(t->client, ++t->step, TCK_SAVE_MEMORY), "snapshot");
    bench_stop(go);
    fence_and_commit(t, NULL);
}
