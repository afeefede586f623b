/* SPDX-License-Identifier: Apache-2.0
 * Digests computed where the records are: a device computes what its records contribute to the CRCs of the image's
 * chunks, and the host computes the contribution of all other bytes (kernels_core.h says why they can be combined). */
#ifndef TCK_CLIENT_CUDA_DIGEST_H
#define TCK_CLIENT_CUDA_DIGEST_H

#include "base/layout.h"
#include "cuda/calls.h"

/* The digest work for one shard on one device. */
struct device_digest {
    struct gather_piece *pieces; /* in the order of the image; none crosses the end of a chunk */
    uint32_t count;              /* 0: no part of the shard is on this device */
    uint64_t image_bytes;
    bool stale;                  /* the table differs from the pieces */
    struct gather_piece *table;  /* their copy on the device */
    uint32_t *sums_there, *sums; /* a word per chunk, on the device and in pinned host memory */
};

/* addrs: the address of each record of the layout. Freed with device_digest_free, also after a failure. */
must_check tck_status_t device_digest_build(const struct layout *layout, const struct shard *shard, int device,
                                            const uint64_t *addrs, struct device_digest *out, struct error *err);
/* Updates the digest's pieces after the record of this shard has moved. */
void device_digest_relocate(struct device_digest *digest, const struct record *record, uint64_t addr);

/* These three are called between enter and leave, and return 0 or the error of a call. upload waits; make queues the
 * sums and their copy to the host on the stream. */
must_check int device_digest_upload(struct device_digest *digest, const struct cuda_calls *calls, void *stream);
must_check int device_digest_make(const struct device_digest *digest, const struct cuda_calls *calls, void *stream);
void device_digest_free(struct device_digest *digest, const struct cuda_calls *calls);

/* Adds the part of the image that the host wrote: all but the records on devices. One sum per chunk. */
void host_digest_add(const struct layout *layout, const struct shard *shard, const uint8_t *image, uint32_t *sums);
/* Turns the complete sums into chunk CRCs in place, and returns their root. */
struct hash128 digest_of_sums(uint32_t *sums, uint64_t image_bytes);

#endif
