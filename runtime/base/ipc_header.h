/* SPDX-License-Identifier: Apache-2.0
 * The fixed header of an ipc frame: magic, type, payload length, flags (u32 each). Pure, so that it can be fuzzed. */
#ifndef TCK_BASE_IPC_HEADER_H
#define TCK_BASE_IPC_HEADER_H

#include "base/buf.h"

#define IPC_HEADER_BYTES 16
#define IPC_INLINE_BYTES (32u << 10)  /* a longer payload travels in a memfd */
#define IPC_MAX_BYTES    (256u << 20) /* of a payload */

struct ipc_header {
    uint32_t type;
    uint32_t len;  /* of the payload */
    bool in_memfd; /* the payload is in the memfd that travels as the last descriptor, else it follows the header */
};

void ipc_header_encode(const struct ipc_header *header, uint8_t out[IPC_HEADER_BYTES]);

/* Decodes the header of a datagram of this size that came with fd_count descriptors. On success the payload is
 * inside the datagram or there is a descriptor for it, and its length is within the limits above. Else
 * TCK_ERR_PROTO. */
must_check tck_status_t ipc_header_decode(const void *datagram, size_t size, uint32_t fd_count, struct ipc_header *out,
                                          struct error *err);

#endif
