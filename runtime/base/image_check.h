/* SPDX-License-Identifier: Apache-2.0
 * Reading the header of an image that came from a file or a peer: checked before anything in it is used. */
#ifndef TCK_BASE_IMAGE_CHECK_H
#define TCK_BASE_IMAGE_CHECK_H

#include "base/dtype.h"
#include "base/status.h"

/* Checks that the first len bytes of an image are a well-formed safetensors header with our rules (total: any input).
 * Tells where data begins and the size of the whole file. Used before trusting a file or a pulled image. */
must_check tck_status_t image_check(const void *image, uint64_t len, uint64_t *data_start_out, uint64_t *bytes_out,
                                    struct error *err);

/* What an image holds, fillers left out. */
struct image_entry {
    const char *key; /* this and the arrays: valid during the call */
    tck_dtype_t dtype;
    uint32_t ndim;
    const uint64_t *global_shape, *offset, *shape; /* ndim numbers each */
    uint64_t begin, bytes;                         /* from the start of the image */
    bool blob;
};

struct image_visit {
    tck_status_t (*entry)(void *ctx, const struct image_entry *entry, struct error *err);
    void *ctx;
};

/* The size of the header, length prefix included, of an image whose first len bytes are at hand, at least 8. */
must_check tck_status_t image_header_bytes(const void *image, uint64_t len, uint64_t image_bytes, uint64_t *out,
                                           struct error *err);
/* The same check as image_check of a header that is there whole, and a call for each entry, in the order of their
 * bytes. An error of a call ends it. What was seen counts only if the whole header is found good. */
must_check tck_status_t image_walk(const void *image, uint64_t len, const struct image_visit *visit,
                                   uint64_t *bytes_out, struct error *err);

#endif
