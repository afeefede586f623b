/* SPDX-License-Identifier: Apache-2.0
 * The kinds of memory in which a trainer's records lie. Each implements one table: host memory (device_host.c) always,
 * CUDA devices (cuda.c) as soon as a record lies on one. devices.c calls all that a client has, so that nobody else
 * asks which there are. */
#ifndef TCK_CLIENT_DEVICE_H
#define TCK_CLIENT_DEVICE_H

#include "base/digest.h"
#include "base/layout.h"

struct device;
struct copier;

/* The image of one shard, in a slot or elsewhere. */
struct device_image {
    uint32_t shard;
    bool pinned; /* by pin, below */
    uint8_t *image;
};

struct device_setup {
    const struct layout *layout; /* this and copier: the caller's, until free */
    struct copier *copier;       /* what copies host memory */
    bool wants_digests;          /* as far as they can be made where records lie */
};

/* A snapshot is mark, save, await_digests, finish; a restore is restore_prepare, restore, finish, restore_over. Errors
 * are of a device; finish and restore_over come also after one, and then no copy is under way any more. */
struct device_ops {
    tck_memory_t memory;

    /* A record lies there, on the device of this number. */
    tck_status_t (*place)(struct device *device, int number, const void *addr, struct error *err);
    /* At registration; again after a failure does no harm. */
    tck_status_t (*prepare)(struct device *device, const struct device_setup *setup, struct error *err);
    /* A record of this memory has another address in the layout. No copy may be under way. */
    void (*relocate)(struct device *device, const struct layout *layout, uint32_t record);
    /* Has mapped slots pinned; false: they cannot be, or need not. */
    bool (*pin)(struct device *device, void *base, size_t bytes, uint32_t page_bytes);
    void (*unpin)(struct device *device, void *base);

    /* The trainer's thread. mark: copies eager records aside, and what the training does from now on to the others
     * comes after what they are now, if it waits as hold or the caller says. TCK_ERR_INVAL: a stream is being captured.
     */
    tck_status_t (*mark)(struct device *device, struct error *err);
    tck_status_t (*set_stream)(struct device *device, int number, void *stream, struct error *err);
    /* Whether it can be made to wait by itself for the copies, so that the caller need not; and has it do so. */
    bool (*can_hold)(const struct device *device);
    tck_status_t (*hold)(struct device *device, struct error *err);

    /* By the snapshot worker's thread: copies, or begins to. */
    tck_status_t (*save)(struct device *device, const struct device_image *images, uint32_t count, struct error *err);
    /* The digests of what save has begun to copy are there. */
    tck_status_t (*await_digests)(struct device *device, struct error *err);
    /* Then: the root of the shard's image, in which what does not come from this device is there already. False: its
     * digests were not made, or there is no memory. */
    bool (*root)(const struct device *device, const struct layout *layout, const struct device_image *image,
                 struct hash128 *out);
    /* Waits for the copies. err may be NULL. */
    tck_status_t (*finish)(struct device *device, struct error *err);

    /* The trainer's thread. prepare: before anything is agreed upon. */
    tck_status_t (*restore_prepare)(struct device *device, const struct layout *layout, struct error *err);
    tck_status_t (*restore)(struct device *device, const struct device_image *images, uint32_t count,
                            struct error *err);
    void (*restore_over)(struct device *device);
    /* Some bytes of the caller's to the device of this number, now. */
    tck_status_t (*write)(struct device *device, int number, void *to, const void *from, uint64_t bytes,
                          struct error *err);

    /* Waits until no copy writes into a slot any longer; before slots_close. free: after that. */
    void (*rest)(const struct device *device);
    void (*free)(struct device *device);
};

/* First member of every device. */
struct device {
    const struct device_ops *ops;
};

must_check tck_status_t device_host_new(struct device **out, struct error *err);

#endif
