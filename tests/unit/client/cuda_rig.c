/* SPDX-License-Identifier: Apache-2.0
 * See cuda_rig.h. */
#include "cuda_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "cuda_rig: %s\n", what);
        abort();
    }
}

void rig_ok(const struct rig *rig, tck_status_t status)
{
    require(status == TCK_OK, tck_errmsg(rig->client));
}

void rig_open(struct rig *rig)
{
    rig_open_with(rig, "");
}

void rig_open_with(struct rig *rig, const char *settings)
{
    char config[512];
    tck_attach_params_t params = {.struct_size = sizeof(params), .config_json = config, .world_size = 1};

    *rig = (struct rig){.dir = "/tmp/tck-cuda-XXXXXX"};
    require(mkdtemp(rig->dir) != NULL, "mkdtemp");
    fake_agent_start(&rig->agent, rig->dir, "job", "node");
    snprintf(config, sizeof(config),
             "{\"job\":\"job\",\"node\":\"node\",\"runtime_dir\":\"%s\",\"save_dir\":\"%s\",\"block_time_ms\":2000%s}",
             rig->dir, rig->dir, settings);
    require(tck_attach(&params, &rig->client) == TCK_OK, tck_errmsg(NULL));
    rig->client->cuda_module = TCK_STANDIN;
    for (int i = 0; i < STANDIN_DEVICES; i++) {
        rig->streams[i] = standin_stream(i);
    }
}

void rig_close(struct rig *rig)
{
    char command[64];

    tck_detach(rig->client, 1);
    for (uint32_t i = 0; i < rig->count; i++) {
        if (rig->tensors[i].device == RIG_HOST) {
            free(rig->tensors[i].addr);
        }
    }
    free(rig->tensors);
    fake_agent_free(&rig->agent);
    standin_reset();
    snprintf(command, sizeof(command), "rm -rf '%s'", rig->dir);
    require(system(command) == 0, command);
}

void rig_add(struct rig *rig, int device, uint64_t bytes, bool eager)
{
    struct tensor *tensor;

    rig->tensors = realloc(rig->tensors, (rig->count + 1) * sizeof(*rig->tensors));
    require(rig->tensors != NULL, "no memory");
    tensor = &rig->tensors[rig->count];
    *tensor = (struct tensor){.bytes = bytes, .device = device, .eager = eager};
    snprintf(tensor->key, sizeof(tensor->key), "t%05u", rig->count++);
    tensor->addr = device == RIG_HOST ? malloc(bytes + 1) : standin_alloc(device, bytes);
    require(tensor->addr != NULL, "no memory");
    tck_record_t record = {.struct_size = sizeof(record),
                           .key = tensor->key,
                           .dtype = TCK_U8,
                           .ndim = 1,
                           .global_shape = {bytes},
                           .local_shape = {bytes},
                           .addr = tensor->addr,
                           .when = tensor->eager ? TCK_EAGER : TCK_LAZY,
                           .memory = device == RIG_HOST ? TCK_HOST : TCK_CUDA,
                           .device = device,
                           .head = tensor->key,
                           .head_bytes = rig->heads && rig->count % 2 == 0 ? strlen(tensor->key) : 0};
    rig_ok(rig, tck_add_record(rig->client, &record, &tensor->number));
}

void rig_register(struct rig *rig, bool told)
{
    bool used[STANDIN_DEVICES] = {false};

    rig_ok(rig, tck_register(rig->client));
    for (uint32_t i = 0; i < rig->count; i++) {
        if (rig->tensors[i].device >= 0) {
            used[rig->tensors[i].device] = true;
        }
    }
    for (int i = 0; i < STANDIN_DEVICES && told; i++) {
        if (used[i]) {
            rig_ok(rig, tck_set_stream(rig->client, i, rig->streams[i]));
        }
    }
}

static uint8_t pattern(const struct tensor *tensor, uint64_t i, uint8_t value)
{
    return (uint8_t)(value + i % 251 + tensor->bytes);
}

static void fill(struct tensor *tensor, uint8_t value)
{
    for (uint64_t i = 0; i < tensor->bytes; i++) {
        tensor->addr[i] = pattern(tensor, i, value);
    }
}

static bool is_filled(const struct tensor *tensor, const uint8_t *bytes, uint8_t value)
{
    for (uint64_t i = 0; i < tensor->bytes; i++) {
        if (bytes[i] != pattern(tensor, i, value)) {
            return false;
        }
    }
    return true;
}

void rig_fill(struct rig *rig, uint8_t value)
{
    for (uint32_t i = 0; i < rig->count; i++) {
        fill(&rig->tensors[i], value);
    }
}

struct filling {
    struct rig *rig;
    int device;
    uint8_t value;
};

static void fill_device(void *ctx)
{
    struct filling *filling = ctx;

    for (uint32_t i = 0; i < filling->rig->count; i++) {
        if (filling->rig->tensors[i].device == filling->device) {
            fill(&filling->rig->tensors[i], filling->value);
        }
    }
    free(filling);
}

void rig_launch_fill(struct rig *rig, uint8_t value)
{
    for (uint32_t i = 0; i < rig->count; i++) {
        if (rig->tensors[i].device == RIG_HOST) {
            fill(&rig->tensors[i], value);
        }
    }
    for (int i = 0; i < STANDIN_DEVICES; i++) {
        struct filling *filling = malloc(sizeof(*filling));

        require(filling != NULL, "no memory");
        *filling = (struct filling){rig, i, value};
        standin_launch(rig->streams[i], fill_device, filling);
    }
}

void rig_sync(struct rig *rig)
{
    for (int i = 0; i < STANDIN_DEVICES; i++) {
        standin_sync(rig->streams[i]);
    }
}

bool rig_holds(const struct rig *rig, uint8_t value)
{
    for (uint32_t i = 0; i < rig->count; i++) {
        if (!is_filled(&rig->tensors[i], rig->tensors[i].addr, value)) {
            return false;
        }
    }
    return true;
}

bool rig_image_has(struct rig *rig, const struct tensor *tensor, uint8_t value)
{
    const struct record *record = &rig->client->layout.records[tensor->number];

    return is_filled(tensor, fake_agent_image(&rig->agent, record->shard) + record->image_offset, value);
}

/* The records are in the order of their offsets in a shard; there is one. */
static bool gaps_are_right(struct rig *rig)
{
    const struct shard *shard = &rig->client->layout.shards[0];
    const uint8_t *image = fake_agent_image(&rig->agent, 0);
    uint64_t at = shard->header_bytes;

    for (uint32_t i = 0; i <= shard->record_count; i++) {
        const struct record *record = i < shard->record_count ? &rig->client->layout.records[shard->records[i]] : NULL;
        uint64_t end = record == NULL ? shard->image_bytes : record->image_offset - record->head_bytes;

        if (record != NULL && memcmp(image + end, record->key, record->head_bytes) != 0) {
            return false;
        }
        for (; at < end; at++) {
            if (image[at] != 0) {
                return false;
            }
        }
        at = record == NULL ? at : record->image_offset + record->bytes;
    }
    return true;
}

bool rig_image_holds(struct rig *rig, uint8_t value)
{
    for (uint32_t i = 0; i < rig->count; i++) {
        if (!rig_image_has(rig, &rig->tensors[i], value)) {
            return false;
        }
    }
    return gaps_are_right(rig);
}

void rig_save(struct rig *rig, uint64_t step)
{
    rig_ok(rig, tck_snapshot(rig->client, step, TCK_SAVE_MEMORY));
    rig_ok(rig, tck_fence(rig->client));
    rig_ok(rig, tck_wait(rig->client, step, TCK_STAGE_COMMITTED, RIG_PATIENCE_MS));
}
