/* SPDX-License-Identifier: Apache-2.0
 * Fuzzes ipc_header_decode: the first byte of the input is the number of descriptors, the rest the datagram. */
#include "base/ipc.h"
#include "base/ipc_header.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What ipc.c relies on when it reads the payload. */
static void check_accepted(const struct ipc_header *header, const uint8_t *datagram, size_t size, uint32_t fd_count)
{
    uint8_t again[IPC_HEADER_BYTES];

    if (header->in_memfd ? fd_count == 0 || header->len > IPC_MAX_BYTES : header->len != size - IPC_HEADER_BYTES) {
        abort();
    }
    ipc_header_encode(header, again);
    if (memcmp(again, datagram, IPC_HEADER_BYTES) != 0) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ipc_header header;
    struct error err;

    if (size == 0) {
        return 0;
    }
    if (ipc_header_decode(data + 1, size - 1, data[0], &header, &err) == TCK_OK) {
        check_accepted(&header, data + 1, size - 1, data[0]);
    }
    return 0;
}
