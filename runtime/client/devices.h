/* SPDX-License-Identifier: Apache-2.0
 * All kinds of memory of a client. Each operation is applied to all of them, since a snapshot is complete or
 * useless. */
#ifndef TCK_CLIENT_DEVICES_H
#define TCK_CLIENT_DEVICES_H

#include "client/device.h"
#include "client/slots.h"

#define DEVICES_MAX 2

/* Host memory comes last: its copies are made inside the call, while those of the others are already running. */
struct devices {
    uint32_t count;
    struct device *list[DEVICES_MAX]; /* owned */
    struct copier *copier;            /* of the host memory: the client's, which sets it before it saves */
};

/* Takes ownership of the device. */
void devices_add(struct devices *devices, struct device *device);
/* The device of this kind of memory, NULL if none was added. */
struct device *devices_find(const struct devices *devices, tck_memory_t memory);
/* Calls to all, in the order of the list, until one fails; as in struct device_ops. */
must_check tck_status_t devices_prepare(const struct devices *devices, const struct device_setup *setup,
                                        struct error *err);
must_check tck_status_t devices_mark(const struct devices *devices, struct error *err);
must_check tck_status_t devices_save_eager(const struct devices *devices, const struct device_image *images,
                                           uint32_t count, struct error *err);
must_check tck_status_t devices_save(const struct devices *devices, const struct device_image *images, uint32_t count,
                                     struct error *err);
must_check tck_status_t devices_await_digests(const struct devices *devices, struct error *err);
must_check tck_status_t devices_restore_prepare(const struct devices *devices, const struct layout *layout,
                                                struct error *err);
must_check tck_status_t devices_restore(const struct devices *devices, const struct device_image *images,
                                        uint32_t count, struct error *err);
/* Calls to all of them in any case; finish returns the first error. */
must_check tck_status_t devices_finish(const struct devices *devices, struct error *err);
void devices_restore_over(const struct devices *devices);
void devices_rest(const struct devices *devices);
void devices_free(struct devices *devices);
/* Calls to those that support it. */
bool devices_await_eager(const struct devices *devices);
bool devices_root(const struct devices *devices, const struct layout *layout, const struct device_image *image,
                  struct hash128 *out);
must_check tck_status_t devices_set_stream(const struct devices *devices, int number, void *stream, struct error *err);
/* TCK_ERR_UNSUPPORTED: none does. */
must_check tck_status_t devices_hold(const struct devices *devices, struct error *err);
struct slot_pins devices_pins(struct devices *devices);

#endif
