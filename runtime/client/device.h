/* SPDX-License-Identifier: Apache-2.0
 * How bytes move between the trainer's memory and a slot: one table per kind of memory. */
#ifndef TCK_CLIENT_DEVICE_H
#define TCK_CLIENT_DEVICE_H

#include "base/status.h"

/* A stretch of the trainer's memory and where it lies in the image. */
struct piece {
    uint64_t offset; /* from the start of the image */
    uint8_t *addr;
    uint64_t bytes;
};

struct device;

/* Both copies may be called by several threads at once, for different pieces. When they return, the bytes are in place
 * for every other thread and process that is told so. */
struct device_ops {
    const char *name;
    void (*to_slot)(struct device *device, const struct piece *pieces, uint32_t count, uint8_t *image);
    void (*from_slot)(struct device *device, const struct piece *pieces, uint32_t count, const uint8_t *image);
    void (*free)(struct device *device);
};

/* First member of every device. */
struct device {
    const struct device_ops *ops;
};

/* Ordinary memory. Freed through its ops. */
must_check tck_status_t device_host_new(struct device **out, struct error *err);

#endif
