/* SPDX-License-Identifier: Apache-2.0
 * Host memory. Its copies are planned once, so that the step path needs neither look-ups nor allocations: it only
 * reads the plan and, if there are few eager records, fills their staging area. */
#include "base/failpoint.h"
#include "client/device.h"
#include "client/slot_copy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define STAGING_ALIGN 64

/* From so many bytes of eager records on, the save call waits for the slots and has them copied straight into these:
 * to copy them aside first would be another pass over memory, and take that much memory. Fewer are not worth a wait. */
#define STRAIGHT_BYTES (8u << 20)

struct host {
    struct device base;
    const struct layout *layout; /* this and copier belong to the client; NULL before prepare */
    struct copier *copier;
    struct copy_list *lists;  /* per shard of the layout */
    bool straight;            /* eager records are copied straight into the slots, */
    struct copy_list *eagers; /* by these lists; NULL: there are none */
    uint32_t *eager;          /* records that are copied aside */
    uint32_t eager_count;
    uint8_t *staging;           /* their copies */
    uint8_t **addrs;            /* per record of host memory: where a snapshot reads it, in staging or in place */
    struct copy_list *restores; /* per shard, straight to the records' own memory, eager ones too; NULL: no restore */
};

static struct host *host_of(struct device *device)
{
    return (struct host *)device;
}

/* ---- registration ---------------------------------------------------------------------------------------------- */

static tck_status_t host_place(struct device *device, int number, const void *addr, struct error *err)
{
    (void)device, (void)number, (void)addr, (void)err;
    return TCK_OK;
}

static uint64_t staging_size(const struct record *record)
{
    bool ours = record->eager && record->memory == TCK_HOST;

    return ours ? (record->bytes + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN : 0;
}

static uint64_t staging_size_of_all(const struct layout *layout)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < layout->record_count; i++) {
        bytes += staging_size(&layout->records[i]);
    }
    return bytes;
}

static tck_status_t make_staging(struct host *host, const struct layout *layout, struct error *err)
{
    uint64_t staging_bytes = STAGING_ALIGN + (host->straight ? 0 : staging_size_of_all(layout));

    host->addrs = calloc(layout->record_count + (size_t)1, sizeof(*host->addrs));
    host->eager = calloc(layout->record_count + (size_t)1, sizeof(*host->eager));
    host->staging = aligned_alloc(STAGING_ALIGN, staging_bytes);
    if (host->addrs == NULL || host->eager == NULL || host->staging == NULL) {
        return error_set(err, TCK_ERR_NOMEM,
                         "no memory for the save plan of %u records and %" PRIu64 " bytes of eager ones",
                         layout->record_count, staging_bytes);
    }
    memset(host->staging, 0, staging_bytes); /* faults its pages in */
    uint8_t *next = host->staging;
    for (uint32_t i = 0; i < layout->record_count; i++) {
        uint64_t bytes = host->straight ? 0 : staging_size(&layout->records[i]);

        host->addrs[i] = bytes > 0 ? next : layout->records[i].addr;
        if (bytes > 0) {
            host->eager[host->eager_count++] = i;
        }
        next += bytes;
    }
    return TCK_OK;
}

static void free_lists(const struct layout *layout, struct copy_list **lists)
{
    for (uint32_t i = 0; *lists != NULL && i < layout->shard_count; i++) {
        copy_list_free(&(*lists)[i]);
    }
    free(*lists);
    *lists = NULL;
}

static tck_status_t build_lists(const struct layout *layout, uint8_t *const *addrs, struct copy_list **out,
                                struct error *err)
{
    struct copy_list *lists = calloc(layout->shard_count + (size_t)1, sizeof(*lists));
    tck_status_t status =
        lists == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory to copy %u shards", layout->shard_count) : TCK_OK;

    for (uint32_t i = 0; i < layout->shard_count && status == TCK_OK; i++) {
        status = copy_list_build(layout, &layout->shards[i], addrs, &lists[i], err);
    }
    if (status != TCK_OK) {
        free_lists(layout, &lists);
    }
    *out = lists;
    return status;
}

/* The lists of the eager records, or of the others. */
static tck_status_t build_part(const struct host *host, bool eager, struct copy_list **out, struct error *err)
{
    const struct layout *layout = host->layout;
    uint8_t **addrs = calloc(layout->record_count + (size_t)1, sizeof(*addrs));
    tck_status_t status;

    if (addrs == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the save plan of %u records", layout->record_count);
    }
    for (uint32_t i = 0; i < layout->record_count; i++) {
        addrs[i] = layout->records[i].eager == eager ? host->addrs[i] : NULL;
    }
    status = build_lists(layout, addrs, out, err);
    free(addrs);
    return status;
}

static tck_status_t build_plan(struct host *host, struct error *err)
{
    tck_status_t status;

    if (!host->straight) {
        return build_lists(host->layout, host->addrs, &host->lists, err);
    }
    status = build_part(host, true, &host->eagers, err);
    return status == TCK_OK ? build_part(host, false, &host->lists, err) : status;
}

static void forget_plan(struct host *host)
{
    if (host->layout != NULL) {
        free_lists(host->layout, &host->lists);
        free_lists(host->layout, &host->eagers);
    }
    free(host->eager);
    free(host->staging);
    free(host->addrs);
    *host = (struct host){.base = host->base};
}

static tck_status_t host_prepare(struct device *device, const struct device_setup *setup, struct error *err)
{
    struct host *host = host_of(device);

    if (host->lists != NULL) {
        return TCK_OK;
    }
    host->layout = setup->layout;
    host->copier = setup->copier;
    host->straight = staging_size_of_all(setup->layout) >= STRAIGHT_BYTES;
    tck_status_t status = make_staging(host, setup->layout, err);
    if (status == TCK_OK) {
        status = build_plan(host, err);
    }
    if (status != TCK_OK) {
        forget_plan(host);
    }
    return status;
}

static void host_relocate(struct device *device, const struct layout *layout, uint32_t record)
{
    struct host *host = host_of(device);
    const struct record *moved = &layout->records[record];

    if (!moved->eager || host->straight) {
        struct copy_list *lists = moved->eager ? host->eagers : host->lists;

        host->addrs[record] = moved->addr;
        copy_list_move(&lists[moved->shard], moved, moved->addr);
    }
}

static bool host_pin(struct device *device, void *base, size_t bytes, uint32_t page_bytes)
{
    (void)device, (void)base, (void)bytes, (void)page_bytes;
    return false;
}

static void host_unpin(struct device *device, void *base)
{
    (void)device, (void)base;
}

/* ---- the trainer's side ---------------------------------------------------------------------------------------- */

static tck_status_t host_mark(struct device *device, struct error *err)
{
    const struct host *host = host_of(device);

    (void)err;
    for (uint32_t i = 0; i < host->eager_count; i++) {
        const struct record *record = &host->layout->records[host->eager[i]];

        memcpy(host->addrs[host->eager[i]], record->addr, record->bytes);
    }
    return TCK_OK;
}

static tck_status_t host_set_stream(struct device *device, int number, void *stream, struct error *err)
{
    (void)device, (void)stream;
    return error_set(err, TCK_ERR_INVAL, "no record lies on CUDA device %d", number);
}

static bool host_awaits_eager(const struct device *device)
{
    return ((const struct host *)device)->straight;
}

/* Host memory needs no mark: the trainer's own thread changes it. */
static bool host_can_hold(const struct device *device)
{
    (void)device;
    return false;
}

static tck_status_t host_hold(struct device *device, struct error *err)
{
    (void)device;
    return error_set(err, TCK_ERR_UNSUPPORTED, "host memory has no stream that could wait");
}

/* ---- copies ---------------------------------------------------------------------------------------------------- */

static void copy_lists(const struct host *host, const struct copy_list *lists, const struct device_image *images,
                       uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        copy_to_slot(host->copier, &lists[images[i].shard], images[i].image);
        failpoint(save, copying);
    }
}

static tck_status_t host_save_eager(struct device *device, const struct device_image *images, uint32_t count,
                                    struct error *err)
{
    const struct host *host = host_of(device);

    (void)err;
    if (host->straight) {
        copy_lists(host, host->eagers, images, count);
    }
    return TCK_OK;
}

static tck_status_t host_save(struct device *device, const struct device_image *images, uint32_t count,
                              struct error *err)
{
    const struct host *host = host_of(device);

    (void)err;
    copy_lists(host, host->lists, images, count);
    return TCK_OK;
}

static tck_status_t host_nothing_to_wait_for(struct device *device, struct error *err)
{
    (void)device, (void)err;
    return TCK_OK;
}

/* The agent computes the digests of what comes from host memory. */
static bool host_root(const struct device *device, const struct layout *layout, const struct device_image *image,
                      struct hash128 *out)
{
    (void)device, (void)layout, (void)image, (void)out;
    return false;
}

static tck_status_t host_restore_prepare(struct device *device, const struct layout *layout, struct error *err)
{
    uint8_t **addrs = calloc(layout->record_count + (size_t)1, sizeof(*addrs));

    if (addrs == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to restore %u records", layout->record_count);
    }
    for (uint32_t i = 0; i < layout->record_count; i++) {
        addrs[i] = layout->records[i].addr;
    }
    tck_status_t status = build_lists(layout, addrs, &host_of(device)->restores, err);
    free(addrs);
    return status;
}

static tck_status_t restore_image(const struct host *host, const struct device_image *image, struct error *err)
{
    const struct shard *shard = &host->layout->shards[image->shard];
    const struct copy_list *list = &host->restores[image->shard];
    tck_status_t status;

    if (image->crcs == NULL) {
        copy_from_slot(host->copier, list, image->image);
        return TCK_OK;
    }
    status = copy_from_slot_checked(host->copier, list, image->image, shard->image_bytes, image->crcs, err);
    if (status != TCK_OK) {
        error_prefix(err, "the shard of group \"%.200s\" was damaged in this node's memory", shard->group);
    }
    return status;
}

static tck_status_t host_restore(struct device *device, const struct device_image *images, uint32_t count,
                                 struct error *err)
{
    tck_status_t status = TCK_OK;

    for (uint32_t i = 0; i < count && status == TCK_OK; i++) {
        status = restore_image(host_of(device), &images[i], err);
        failpoint(restore, copying);
    }
    return status;
}

static void host_restore_over(struct device *device)
{
    struct host *host = host_of(device);

    if (host->restores != NULL) {
        free_lists(host->layout, &host->restores);
    }
}

static tck_status_t host_write(struct device *device, int number, void *to, const void *from, uint64_t bytes,
                               struct error *err)
{
    (void)device, (void)number, (void)err;
    memcpy(to, from, bytes);
    return TCK_OK;
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

static void host_rest(const struct device *device)
{
    (void)device;
}

static void host_free(struct device *device)
{
    host_restore_over(device);
    forget_plan(host_of(device));
    free(device);
}

tck_status_t device_host_new(struct device **out, struct error *err)
{
    static const struct device_ops ops = {.memory = TCK_HOST,
                                          .place = host_place,
                                          .prepare = host_prepare,
                                          .relocate = host_relocate,
                                          .pin = host_pin,
                                          .unpin = host_unpin,
                                          .mark = host_mark,
                                          .awaits_eager = host_awaits_eager,
                                          .set_stream = host_set_stream,
                                          .can_hold = host_can_hold,
                                          .hold = host_hold,
                                          .save_eager = host_save_eager,
                                          .save = host_save,
                                          .await_digests = host_nothing_to_wait_for,
                                          .root = host_root,
                                          .finish = host_nothing_to_wait_for,
                                          .restore_prepare = host_restore_prepare,
                                          .restore = host_restore,
                                          .restore_over = host_restore_over,
                                          .write = host_write,
                                          .rest = host_rest,
                                          .free = host_free};
    struct host *host = calloc(1, sizeof(*host));

    if (host == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a client");
    }
    host->base.ops = &ops;
    *out = &host->base;
    return TCK_OK;
}
