/* SPDX-License-Identifier: Apache-2.0
 * The records that lie on CUDA devices: the module, a lane for each device, and the pinning of the slots. There is one
 * as soon as a record lies on a device; a client without any has none, and calls nothing here. */
#ifndef TCK_CLIENT_CUDA_H
#define TCK_CLIENT_CUDA_H

#include "client/cuda_device.h"
#include "client/slots.h"

struct cuda;

/* Loads the module: from this path, or NULL: from beside the library. The error names the file. */
must_check tck_status_t cuda_new(const char *module, struct cuda **out, struct error *err);
/* The same with these calls. */
must_check tck_status_t cuda_new_with(const struct cuda_calls *calls, struct cuda **out, struct error *err);
/* Until no device writes any more into slots or staging memory, whatever became of the copies; NULL is allowed. Before
 * slots_close. */
void cuda_rest(const struct cuda *cuda);
/* After slots_close. The module stays loaded. */
void cuda_free(struct cuda *cuda);
/* Before cuda_prepare: digests are made on the devices. */
void cuda_want_digests(struct cuda *cuda);
/* Has slots_adopt pin what it maps, if the CUDA driver can. */
struct slot_pins cuda_pins(struct cuda *cuda);

/* A record lies there: opens the device if none before it did. */
must_check tck_status_t cuda_place_record(struct cuda *cuda, int device, const void *addr, struct error *err);
/* At registration; again after a failure does no harm. */
must_check tck_status_t cuda_prepare(struct cuda *cuda, const struct layout *layout, struct error *err);
/* No copy may be under way. */
void cuda_relocate(struct cuda *cuda, const struct layout *layout, uint32_t record);
must_check tck_status_t cuda_set_stream(struct cuda *cuda, int device, void *stream, struct error *err);

/* The trainer's thread. TCK_ERR_INVAL: one of its streams is being captured; any other error is of a device. */
must_check tck_status_t cuda_mark(struct cuda *cuda, bool eager, struct error *err);
/* Whether all devices' streams are known, so that they can be made to wait instead of the caller. */
bool cuda_can_hold(const struct cuda *cuda);
must_check tck_status_t cuda_hold(struct cuda *cuda, struct error *err);

/* Copies, by the snapshot worker's thread, or by the trainer's in a restore; as in cuda_lane.h. */
must_check tck_status_t cuda_start(struct cuda *cuda, struct error *err);
must_check tck_status_t cuda_digest(struct cuda *cuda, uint32_t shard, struct error *err);
must_check tck_status_t cuda_digested(struct cuda *cuda, struct error *err);
must_check tck_status_t cuda_await_digests(struct cuda *cuda, struct error *err);
must_check tck_status_t cuda_save(struct cuda *cuda, uint32_t shard, const struct shard_slots *slots, uint8_t *image,
                                  struct error *err);
must_check tck_status_t cuda_end(struct cuda *cuda, struct error *err);
must_check tck_status_t cuda_finish(struct cuda *cuda, struct error *err);
/* After cuda_await_digests: the root that the digests made on the devices give the image, in which what does not come
 * from devices is there already. False: none were made, or there is no memory. */
bool cuda_root(const struct cuda *cuda, const struct layout *layout, uint32_t shard, const uint8_t *image,
               struct hash128 *out);

/* A restore: prepare before anything is agreed upon, restore each shard between start and end, over in any case. */
must_check tck_status_t cuda_restore_prepare(struct cuda *cuda, const struct layout *layout, struct error *err);
must_check tck_status_t cuda_restore(struct cuda *cuda, uint32_t shard, bool pinned, uint8_t *image, struct error *err);
void cuda_restore_over(struct cuda *cuda);
/* Some bytes of the caller's to a device, now. */
must_check tck_status_t cuda_write(struct cuda *cuda, int device, void *to, const void *from, uint64_t bytes,
                                   struct error *err);

#endif
