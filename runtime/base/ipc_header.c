/* SPDX-License-Identifier: Apache-2.0
 * Encoding and checking the header of an ipc frame. */
#include "base/ipc_header.h"

#include <endian.h>
#include <string.h>

#define IPC_MAGIC     0x696b6374u /* "tcki" */
#define FLAG_IN_MEMFD 1u

void ipc_header_encode(const struct ipc_header *header, uint8_t out[IPC_HEADER_BYTES])
{
    const uint32_t fields[] = {htole32(IPC_MAGIC), htole32(header->type), htole32(header->len),
                               htole32(header->in_memfd ? FLAG_IN_MEMFD : 0)};

    memcpy(out, fields, IPC_HEADER_BYTES);
}

/* What must hold between the header and what came with it; NULL if all is well. */
static const char *header_fault(const struct ipc_header *header, size_t size, uint32_t fd_count)
{
    if (!header->in_memfd) {
        return size - IPC_HEADER_BYTES != header->len ? "length differs from the datagram's" : NULL;
    }
    if (header->len <= IPC_INLINE_BYTES || header->len > IPC_MAX_BYTES) {
        return "length not allowed in a memfd";
    }
    if (size != IPC_HEADER_BYTES) {
        return "payload beside a memfd";
    }
    return fd_count == 0 ? "no memfd came with it" : NULL;
}

tck_status_t ipc_header_decode(const void *datagram, size_t size, uint32_t fd_count, struct ipc_header *out,
                               struct error *err)
{
    struct reader r = reader_of(datagram, size);
    uint32_t magic = read_u32(&r);
    struct ipc_header header = {.type = read_u32(&r)};
    uint32_t flags;
    const char *fault;

    header.len = read_u32(&r);
    flags = read_u32(&r);
    header.in_memfd = (flags & FLAG_IN_MEMFD) != 0;
    if (r.failed || magic != IPC_MAGIC || (flags & ~FLAG_IN_MEMFD) != 0) {
        return error_set(err, TCK_ERR_PROTO, "not an ipc frame: %zu bytes, magic %08x, flags %x", size, magic, flags);
    }
    fault = header_fault(&header, size, fd_count);
    if (fault != NULL) {
        return error_set(err, TCK_ERR_PROTO, "ipc frame of type %u: %s (length %u, datagram %zu)", header.type, fault,
                         header.len, size);
    }
    *out = header;
    return TCK_OK;
}
