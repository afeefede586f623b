/* SPDX-License-Identifier: Apache-2.0
 * The kinds of memory in which a trainer's records lie. Each implements one table: host memory (device_host.c)
 * always, CUDA devices (cuda.c) as soon as a record lies on one. devices.c calls all that a client has, so that no
 * other file needs to know which there are. */
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
    const uint32_t *crcs; /* a restore checks the image against these while it copies; NULL: it was checked before. Only
                             of images whose records all lie in host memory */
};

struct device_setup {
    const struct layout *layout; /* this and copier belong to the caller and must outlive the device */
    struct copier *copier;       /* copies host memory */
    bool wants_digests;          /* where the device can compute them */
};

/* A snapshot is mark, save_eager, save, await_digests, finish; a restore is restore_prepare, restore, finish,
 * restore_over. Errors are those of the device. finish and restore_over are called after an error, too; no copy is
 * under way after finish. */
struct device_ops {
    tck_memory_t memory;

    /* Adds a record at this address, on the device with this number. */
    tck_status_t (*place)(struct device *device, int number, const void *addr, struct error *err);
    /* Called at registration. After a failure it may be called again. */
    tck_status_t (*prepare)(struct device *device, const struct device_setup *setup, struct error *err);
    /* A record of this memory has a new address in the layout. Must not be called while a copy is under way. */
    void (*relocate)(struct device *device, const struct layout *layout, uint32_t record);
    /* Pins mapped slots; false: they cannot or need not be pinned. */
    bool (*pin)(struct device *device, void *base, size_t bytes, uint32_t page_bytes);
    void (*unpin)(struct device *device, void *base);

    /* Called by the trainer's thread. mark copies the eager records aside, unless awaits_eager. The snapshot gets the
     * other records as they are now, provided that the training waits (hold, or the caller) before it changes them.
     * TCK_ERR_INVAL: a stream is being captured. */
    tck_status_t (*mark)(struct device *device, struct error *err);
    /* Whether the save call has to wait until save_eager has copied the eager records. Known after prepare. */
    bool (*awaits_eager)(const struct device *device);
    tck_status_t (*set_stream)(struct device *device, int number, void *stream, struct error *err);
    /* can_hold: whether the device can wait for the copies itself, so that the caller need not. hold: makes it wait. */
    bool (*can_hold)(const struct device *device);
    tck_status_t (*hold)(struct device *device, struct error *err);

    /* Called by the snapshot worker's thread, as the next four are. Copies the eager records that were not copied
     * aside. */
    tck_status_t (*save_eager)(struct device *device, const struct device_image *images, uint32_t count,
                               struct error *err);
    /* Copies the others and those copied aside, or starts the copies. */
    tck_status_t (*save)(struct device *device, const struct device_image *images, uint32_t count, struct error *err);
    /* Waits until the digests of what save has begun to copy are known. */
    tck_status_t (*await_digests)(struct device *device, struct error *err);
    /* After that: computes the root of the shard's image, to which everything that does not come from this device
     * has been copied already. False: its digests were not computed, or there is no memory. */
    bool (*root)(const struct device *device, const struct layout *layout, const struct device_image *image,
                 struct hash128 *out);
    /* Waits for the copies. err may be NULL. */
    tck_status_t (*finish)(struct device *device, struct error *err);

    /* Called by the trainer's thread; restore_prepare before the ranks agree on anything. */
    tck_status_t (*restore_prepare)(struct device *device, const struct layout *layout, struct error *err);
    /* TCK_ERR_CORRUPT: the image is damaged, which was noticed after a part of it was copied. */
    tck_status_t (*restore)(struct device *device, const struct device_image *images, uint32_t count,
                            struct error *err);
    void (*restore_over)(struct device *device);
    /* Copies bytes of the caller's to the device with this number, and waits for them. */
    tck_status_t (*write)(struct device *device, int number, void *to, const void *from, uint64_t bytes,
                          struct error *err);

    /* rest waits until no copy writes into a slot any longer. It is called before slots_close, and free after that. */
    void (*rest)(const struct device *device);
    void (*free)(struct device *device);
};

/* First member of every device. */
struct device {
    const struct device_ops *ops;
};

must_check tck_status_t device_host_new(struct device **out, struct error *err);

#endif
