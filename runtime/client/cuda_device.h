/* SPDX-License-Identifier: Apache-2.0
 * One device: the training's stream on it, our own streams beside that, and the copies between it and each shard.
 *
 *     training's stream   ... step n | eager | ready ...  forward, backward of step n+1 ... | wait done | step n+1
 *     our streams                            wait ready | gather, copy | gather, copy ... | done
 *
 * One thread at a time uses a cuda_device: the snapshot worker's from worker_begin until the copy is over, otherwise
 * the trainer's. During a copy the trainer's thread touches only the two events and its own stream
 * (cuda_device_hold). */
#ifndef TCK_CLIENT_CUDA_LANE_H
#define TCK_CLIENT_CUDA_LANE_H

#include "client/cuda_bounce.h"
#include "client/cuda_copy_plan.h"
#include "client/cuda_digest.h"

#define LANE_SIDES 2 /* our streams: one gathers while the other one copies */

struct side {
    void *stream;
    void *passed; /* event */
    void *buffer; /* on the device, of MOVE_GATHERED_MOST bytes; NULL: nothing is gathered */
};

struct cuda_device {
    const struct cuda_calls *calls;
    int device;
    bool broken;  /* it has failed permanently: no further call is made */
    bool told;    /* the training's stream is known */
    void *stream; /* the training's; NULL: the default stream */
    void *ready;  /* event: the training's stream has reached the save */
    void *known;  /* event: the digests of the snapshot are on the host */
    void *done;   /* event: all copies of the snapshot are over, */
    bool ended;   /* and it has been recorded */
    struct side sides[LANE_SIDES];
    unsigned next_side;
    struct bounce ring;
    struct copy_plan *lists, *restores; /* one per shard; the second only during a restore */
    uint32_t list_count;
    bool wants_digests;            /* set before cuda_device_prepare */
    struct device_digest *digests; /* one per shard; NULL: not wanted */
    /* Eager records are copied aside on the training's stream. */
    struct copy_plan eager; /* at most one move, into our buffer instead of an image */
    void *aside;
};

enum way { TO_IMAGE, FROM_IMAGE };

/* dev is zeroed before. */
must_check tck_status_t cuda_device_open(struct cuda_device *dev, const struct cuda_calls *calls, int device,
                                         struct error *err);
/* Waits for all of its streams, including one for which cuda_device_finish could not wait. */
void cuda_device_rest(const struct cuda_device *dev);
/* Frees everything; its streams must be idle. */
void cuda_device_close(struct cuda_device *dev);

/* Plans the copies and allocates everything that they need. */
must_check tck_status_t cuda_device_prepare(struct cuda_device *dev, const struct layout *layout, struct error *err);
/* Record r of the layout has moved. */
void cuda_device_relocate(struct cuda_device *dev, const struct layout *layout, uint32_t r);

/* For the trainer's thread. cuda_device_mark: the copies wait for the work that the training's stream has been given
 * so far; with eager, it also copies the eager records aside. cuda_device_hold: work that the stream is given from
 * now on waits for the copies. TCK_ERR_INVAL if the stream is being captured; the capture is not affected. */
must_check tck_status_t cuda_device_mark(struct cuda_device *dev, bool eager, struct error *err);
must_check tck_status_t cuda_device_hold(struct cuda_device *dev, struct error *err);

/* Copies are made in this order: start, digests, copy for each shard, end, and finish, which waits. finish is called
 * even if one of the others has failed; no copy is under way afterwards. pinned: whether the image of the shard is. */
must_check tck_status_t cuda_device_start(struct cuda_device *dev, struct error *err);
must_check tck_status_t cuda_device_copy(struct cuda_device *dev, const struct copy_plan *list, enum way way,
                                         bool pinned, uint8_t *image, struct error *err);
/* Queues the digests of a shard; cuda_device_digested is called after the last one. Called before the copies, so
 * that the digests are known while the copies are in progress. They are known once cuda_device_await_digests or
 * cuda_device_finish has returned. */
must_check tck_status_t cuda_device_digest(struct cuda_device *dev, uint32_t shard, struct error *err);
must_check tck_status_t cuda_device_digested(struct cuda_device *dev, struct error *err);
must_check tck_status_t cuda_device_await_digests(struct cuda_device *dev, struct error *err);
must_check tck_status_t cuda_device_end(struct cuda_device *dev, struct error *err);
must_check tck_status_t cuda_device_finish(struct cuda_device *dev, struct error *err);

/* Makes lists for a restore, straight to the records' own memory. */
must_check tck_status_t cuda_device_restore_prepare(struct cuda_device *dev, const struct layout *layout,
                                                    struct error *err);
void cuda_device_restore_over(struct cuda_device *dev);
/* Copies bytes of the caller's to the device, after all earlier work of the training's stream, and waits for them. */
must_check tck_status_t cuda_device_write(struct cuda_device *dev, void *to, const void *from, uint64_t bytes,
                                          struct error *err);

#endif
