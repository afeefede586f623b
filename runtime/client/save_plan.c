/* SPDX-License-Identifier: Apache-2.0
 * See save_plan.h. */
#include "client/save_plan.h"

#include <stdlib.h>
#include <string.h>

#define STAGING_ALIGN 64

static uint64_t staging_size(const struct record *record)
{
    return (record->bytes + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
}

static bool goes_aside(const struct record *record)
{
    return record->eager && record->memory == TCK_HOST;
}

static tck_status_t allocate(const struct layout *layout, struct save_plan *plan, struct error *err)
{
    uint64_t staging_bytes = STAGING_ALIGN;

    for (uint32_t i = 0; i < layout->record_count; i++) {
        staging_bytes += goes_aside(&layout->records[i]) ? staging_size(&layout->records[i]) : 0;
    }
    plan->lists = calloc(layout->shard_count + (size_t)1, sizeof(*plan->lists));
    plan->eager = calloc(layout->record_count + (size_t)1, sizeof(*plan->eager));
    plan->addrs = calloc(layout->record_count + (size_t)1, sizeof(*plan->addrs));
    plan->staging = aligned_alloc(STAGING_ALIGN, staging_bytes);
    plan->roots = calloc(layout->shard_count + (size_t)1, sizeof(*plan->roots));
    if (plan->lists == NULL || plan->eager == NULL || plan->addrs == NULL || plan->staging == NULL ||
        plan->roots == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the save plan of %u records and %llu bytes of eager ones",
                         layout->record_count, (unsigned long long)staging_bytes);
    }
    memset(plan->staging, 0, staging_bytes); /* faults its pages in */
    return TCK_OK;
}

static void assign_addresses(const struct layout *layout, struct save_plan *plan)
{
    uint8_t *staging = plan->staging;

    for (uint32_t i = 0; i < layout->record_count; i++) {
        const struct record *record = &layout->records[i];

        plan->addrs[i] = record->addr;
        if (goes_aside(record)) {
            plan->eager[plan->eager_count++] = i;
            plan->addrs[i] = staging;
            staging += staging_size(record);
        }
    }
}

tck_status_t save_plan_build(const struct layout *layout, struct save_plan *out, struct error *err)
{
    struct save_plan plan = {0};
    tck_status_t status = allocate(layout, &plan, err);

    if (status == TCK_OK) {
        assign_addresses(layout, &plan);
    }
    for (uint32_t i = 0; i < layout->shard_count && status == TCK_OK; i++) {
        status = copy_list_build(layout, &layout->shards[i], plan.addrs, &plan.lists[i], err);
        plan.list_count++;
    }
    if (status != TCK_OK) {
        save_plan_free(&plan);
        return status;
    }
    *out = plan;
    return TCK_OK;
}

void save_plan_move(struct save_plan *plan, const struct layout *layout, uint32_t record)
{
    const struct record *moved = &layout->records[record];

    if (moved->memory == TCK_CUDA) {
        cuda_relocate(plan->cuda, layout, record);
    } else if (!moved->eager) {
        plan->addrs[record] = moved->addr;
        copy_list_move(&plan->lists[moved->shard], moved, moved->addr);
    }
}

void save_plan_free(struct save_plan *plan)
{
    for (uint32_t i = 0; i < plan->list_count; i++) {
        copy_list_free(&plan->lists[i]);
    }
    free(plan->lists);
    free(plan->eager);
    free(plan->addrs);
    free(plan->staging);
    free(plan->roots);
    *plan = (struct save_plan){0};
}
