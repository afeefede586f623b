/* SPDX-License-Identifier: Apache-2.0
 * Copies between a device and host memory that is not pinned: through a few pinned buffers in turn. The calling
 * thread moves the bytes between these buffers and their destination, so it is busy for about as long as the copies
 * take. */
#ifndef TCK_CLIENT_CUDA_RING_H
#define TCK_CLIENT_CUDA_RING_H

#include "base/status.h"
#include "cuda/calls.h"

#define RING_PARTS      4
#define RING_PART_BYTES (4u << 20)

struct ring_part {
    uint8_t *memory;
    void *event;    /* recorded when its last copy is over */
    uint8_t *to;    /* where its bytes then go; NULL: they went to the device */
    uint64_t bytes; /* 0: the part is free */
};

/* Zeroed at first; its buffers are allocated at the first use. */
struct bounce {
    struct ring_part parts[RING_PARTS];
    unsigned next;
};

/* A stretch of device memory and its place on the host. */
struct ring_copy {
    void *device, *host;
    uint64_t bytes;
};

/* All return 0 or the error of a CUDA call, and are called between enter and leave. When they return, host memory that
 * is copied from may change, and host memory that is copied to may be incomplete until bounce_drain. */
must_check int bounce_to_host(struct bounce *ring, const struct cuda_calls *calls, const struct ring_copy *copy,
                              void *stream);
must_check int bounce_to_device(struct bounce *ring, const struct cuda_calls *calls, const struct ring_copy *copy,
                                void *stream);
must_check int bounce_drain(struct bounce *ring, const struct cuda_calls *calls);
void bounce_free(struct bounce *ring, const struct cuda_calls *calls);

#endif
