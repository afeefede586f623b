/* SPDX-License-Identifier: Apache-2.0
 * The headers of the files of a published version, as bytes: read from storage, or received from others that have read
 * them. */
#ifndef TCK_READER_HEADERS_H
#define TCK_READER_HEADERS_H

#include "base/buf.h"
#include "published/checked_chunks.h"

struct header {
    uint8_t *bytes; /* owned; NULL: not read yet */
    uint64_t len;
};

/* All zero: none. */
struct headers {
    uint32_t count; /* files of the version */
    struct header *of;
};

/* Every step-th file, from first on. */
struct headers_part {
    uint32_t first, step;
};

/* The header of one file; the caller frees its bytes. The chunks that it lies in are read and checked. */
must_check tck_status_t header_read(struct chunks *chunks, uint32_t file, struct header *out, struct error *err);

must_check tck_status_t headers_new(uint32_t count, struct headers *out, struct error *err);
void headers_free(struct headers *headers);
must_check tck_status_t headers_read(struct headers *headers, struct chunks *chunks, struct headers_part part,
                                     struct error *err);
/* The headers of all files in a row, in the order of the manifest, as .index has them. Accepts any bytes. */
must_check tck_status_t headers_of_index(struct headers *headers, const struct manifest *manifest, const void *index,
                                         uint64_t len, struct error *err);
/* Logs why .index is not used. */
void headers_without_index(const struct chunks *chunks, const struct error *why);
/* A part's headers in a row, each behind its length. */
void headers_pack(const struct headers *headers, struct headers_part part, struct writer *w);
must_check tck_status_t headers_unpack(struct headers *headers, struct headers_part part, const void *data, size_t len,
                                       struct error *err);

#endif
