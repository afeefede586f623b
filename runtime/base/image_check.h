/* SPDX-License-Identifier: Apache-2.0
 * Reads the header of an image that came from a file or a peer. It is checked before anything in it is used. */
#ifndef TCK_BASE_IMAGE_CHECK_H
#define TCK_BASE_IMAGE_CHECK_H

#include "base/dtype.h"
#include "base/status.h"

/* Checks that the first len bytes of an image are a well-formed safetensors header that follows our rules; accepts
 * any bytes. Returns where the data begins and the size of the whole file. Called before a file or a pulled image is
 * trusted. */
must_check tck_status_t image_check(const void *image, uint64_t len, uint64_t *data_start_out, uint64_t *bytes_out,
                                    struct error *err);

/* One entry of an image; fillers are left out. */
struct image_entry {
    const char *key; /* this and the arrays: valid during the call */
    tck_dtype_t dtype;
    uint32_t ndim;
    const uint64_t *global_shape, *offset, *shape; /* ndim numbers each */
    uint64_t begin, bytes;                         /* from the start of the image */
    bool blob;
};

struct image_visit {
    tck_status_t (*visit_entry)(void *ctx, const struct image_entry *entry, struct error *err);
    void *ctx;
};

/* The size of the header, including the length prefix, of an image whose first len bytes (at least 8) are given. */
must_check tck_status_t image_header_bytes(const void *image, uint64_t len, uint64_t image_bytes, uint64_t *out,
                                           struct error *err);
/* Makes the same check as image_check on a complete header, and calls a function for each entry, in the order of
 * their bytes. An error of that function ends the check. The entries passed to it count only if the whole header
 * turns out to be valid. */
must_check tck_status_t image_walk(const void *image, uint64_t len, const struct image_visit *visit,
                                   uint64_t *bytes_out, struct error *err);

#endif
