/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as .index, of files whose number and sizes are the first bytes: refused, or headers that are these bytes
 * one after the other. */
#include "base/record.h"
#include "fuzz.h"
#include "published/headers.h"
#include <stdlib.h>

#define FILES_MAX 8

static void check(const struct manifest *manifest, const uint8_t *index, size_t len)
{
    struct headers headers = {0};
    struct error err;
    size_t at = 0;
    if (headers_new(manifest->file_count, &headers, &err) == TCK_OK &&
        headers_of_index(&headers, manifest, index, len, &err) == TCK_OK) {
        for (uint32_t i = 0; i < manifest->file_count; i++) {
            const struct header *header = &headers.of[i];
            MUST_HOLD(header->len % IMAGE_ALIGN == 0 && header->len <= manifest->files[i].bytes);
            MUST_HOLD(header->len <= len - at && memcmp(header->bytes, index + at, header->len) == 0);
            at += header->len;
        }
        MUST_HOLD(at == len);
    }
    headers_free(&headers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct manifest_file files[FILES_MAX] = {0};
    struct reader r = reader_of(data, size);
    struct manifest manifest = {.files = files, .file_count = read_u8(&r) % FILES_MAX + 1u};
    for (uint32_t i = 0; i < manifest.file_count; i++) {
        files[i].bytes = (uint64_t)read_u8(&r) * IMAGE_ALIGN;
    }
    size_t left = r.failed ? 0 : reader_left(&r);
    check(&manifest, left > 0 ? data + r.pos : data, left);
    return 0;
}
