/* SPDX-License-Identifier: Apache-2.0
 * Copying between the trainer's host memory and a slot, by the kernel that is best on this machine. */
#ifndef TCK_CLIENT_HOST_COPY_H
#define TCK_CLIENT_HOST_COPY_H

#include "base/status.h"

/* A stretch of the trainer's memory and where it lies in the image. */
struct piece {
    uint64_t offset; /* from the start of the image */
    uint8_t *addr;
    uint64_t bytes;
};

struct host_copy;

must_check tck_status_t host_copy_new(struct host_copy **out, struct error *err);
void host_copy_free(struct host_copy *host);
/* Both may be called by several threads at once, for different pieces. When they return, the bytes are visible to
 * every thread and process that is notified afterwards. */
void host_copy_to_slot(struct host_copy *host, const struct piece *pieces, uint32_t count, uint8_t *image);
void host_copy_from_slot(struct host_copy *host, const struct piece *pieces, uint32_t count, const uint8_t *image);
/* The same for the bytes [begin, end) of the image: copies those that belong to pieces (sorted by offset, the first one
 * ends behind begin), and returns the CRC32C of all of them. Each byte comes from memory once. */
uint32_t host_copy_checked(const struct host_copy *host, const struct piece *pieces, uint32_t count,
                           const uint8_t *image, uint64_t begin, uint64_t end);

#endif
