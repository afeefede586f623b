/* SPDX-License-Identifier: Apache-2.0
 * See devices.h. */
#include "client/devices.h"

void devices_add(struct devices *devices, struct device *device)
{
    bool host_last = devices->count > 0 && devices->list[devices->count - 1]->ops->memory == TCK_HOST;

    devices->list[devices->count] = device;
    if (host_last) {
        devices->list[devices->count] = devices->list[devices->count - 1];
        devices->list[devices->count - 1] = device;
    }
    devices->count++;
}

struct device *devices_find(const struct devices *devices, tck_memory_t memory)
{
    for (uint32_t i = 0; i < devices->count; i++) {
        if (devices->list[i]->ops->memory == memory) {
            return devices->list[i];
        }
    }
    return NULL;
}

/* ---- until one fails ------------------------------------------------------------------------------------------- */

tck_status_t devices_prepare(const struct devices *devices, const struct device_setup *setup, struct error *err)
{
    tck_status_t status = TCK_OK;

    for (uint32_t i = 0; i < devices->count && status == TCK_OK; i++) {
        status = devices->list[i]->ops->prepare(devices->list[i], setup, err);
    }
    return status;
}

tck_status_t devices_mark(const struct devices *devices, struct error *err)
{
    tck_status_t status = TCK_OK;

    for (uint32_t i = 0; i < devices->count && status == TCK_OK; i++) {
        status = devices->list[i]->ops->mark(devices->list[i], err);
    }
    return status;
}

tck_status_t devices_save_eager(const struct devices *devices, const struct device_image *images, uint32_t count,
                                struct error *err)
{
    tck_status_t status = TCK_OK;

    for (uint32_t i = 0; i < devices->count && status == TCK_OK; i++) {
        status = devices->list[i]->ops->save_eager(devices->list[i], images, count, err);
    }
    return status;
}

tck_status_t devices_save(const struct devices *devices, const struct device_image *images, uint32_t count,
                          struct error *err)
{
    tck_status_t status = TCK_OK;

    for (uint32_t i = 0; i < devices->count && status == TCK_OK; i++) {
        status = devices->list[i]->ops->save(devices->list[i], images, count, err);
    }
    return status;
}

tck_status_t devices_await_digests(const struct devices *devices, struct error *err)
{
    tck_status_t status = TCK_OK;

    for (uint32_t i = 0; i < devices->count && status == TCK_OK; i++) {
        status = devices->list[i]->ops->await_digests(devices->list[i], err);
    }
    return status;
}

tck_status_t devices_restore_prepare(const struct devices *devices, const struct layout *layout, struct error *err)
{
    tck_status_t status = TCK_OK;

    for (uint32_t i = 0; i < devices->count && status == TCK_OK; i++) {
        status = devices->list[i]->ops->restore_prepare(devices->list[i], layout, err);
    }
    return status;
}

tck_status_t devices_restore(const struct devices *devices, const struct device_image *images, uint32_t count,
                             struct error *err)
{
    tck_status_t status = TCK_OK;

    for (uint32_t i = 0; i < devices->count && status == TCK_OK; i++) {
        status = devices->list[i]->ops->restore(devices->list[i], images, count, err);
    }
    return status;
}

/* ---- all in any case ------------------------------------------------------------------------------------------- */

tck_status_t devices_finish(const struct devices *devices, struct error *err)
{
    tck_status_t status = TCK_OK;

    for (uint32_t i = 0; i < devices->count; i++) {
        tck_status_t mine = devices->list[i]->ops->finish(devices->list[i], status == TCK_OK ? err : NULL);

        status = status == TCK_OK ? mine : status;
    }
    return status;
}

void devices_restore_over(const struct devices *devices)
{
    for (uint32_t i = 0; i < devices->count; i++) {
        devices->list[i]->ops->restore_over(devices->list[i]);
    }
}

void devices_rest(const struct devices *devices)
{
    for (uint32_t i = 0; i < devices->count; i++) {
        devices->list[i]->ops->rest(devices->list[i]);
    }
}

void devices_free(struct devices *devices)
{
    for (uint32_t i = 0; i < devices->count; i++) {
        devices->list[i]->ops->free(devices->list[i]);
    }
    *devices = (struct devices){0};
}

/* ---- those that can -------------------------------------------------------------------------------------------- */

bool devices_await_eager(const struct devices *devices)
{
    for (uint32_t i = 0; i < devices->count; i++) {
        if (devices->list[i]->ops->awaits_eager(devices->list[i])) {
            return true;
        }
    }
    return false;
}

bool devices_root(const struct devices *devices, const struct layout *layout, const struct device_image *image,
                  struct hash128 *out)
{
    for (uint32_t i = 0; i < devices->count; i++) {
        if (devices->list[i]->ops->root(devices->list[i], layout, image, out)) {
            return true;
        }
    }
    return false;
}

tck_status_t devices_set_stream(const struct devices *devices, int number, void *stream, struct error *err)
{
    tck_status_t status = TCK_ERR_INVAL;

    for (uint32_t i = 0; i < devices->count && status != TCK_OK; i++) {
        status = devices->list[i]->ops->set_stream(devices->list[i], number, stream, err);
    }
    return status;
}

tck_status_t devices_hold(const struct devices *devices, struct error *err)
{
    for (uint32_t i = 0; i < devices->count; i++) {
        if (devices->list[i]->ops->can_hold(devices->list[i])) {
            return devices->list[i]->ops->hold(devices->list[i], err);
        }
    }
    return TCK_ERR_UNSUPPORTED;
}

/* ---- slots ----------------------------------------------------------------------------------------------------- */

static bool pin(void *ctx, void *base, size_t bytes, uint32_t page_bytes)
{
    const struct devices *devices = ctx;
    bool pinned = false;

    for (uint32_t i = 0; i < devices->count; i++) {
        pinned |= devices->list[i]->ops->pin(devices->list[i], base, bytes, page_bytes);
    }
    return pinned;
}

static void unpin(void *ctx, void *base)
{
    const struct devices *devices = ctx;

    for (uint32_t i = 0; i < devices->count; i++) {
        devices->list[i]->ops->unpin(devices->list[i], base);
    }
}

struct slot_pins devices_pins(struct devices *devices)
{
    return (struct slot_pins){.ctx = devices, .pin = pin, .unpin = unpin};
}
