/* SPDX-License-Identifier: Apache-2.0
 * The safetensors image of a shard: where its records lie in it, and its header. For layout.c; readers of images
 * use image_check.h. */
#ifndef TCK_BASE_IMAGE_H
#define TCK_BASE_IMAGE_H

#include "base/record.h"

#define IMAGE_LARGE_BYTES  (1u << 20)          /* records from here on lie on pages of IMAGE_ALIGN bytes */
#define IMAGE_SMALL_ALIGN  64                  /* the others on cache lines */
#define IMAGE_HEADER_MAX   100000000u          /* what safetensors readers accept, without the length prefix */
#define IMAGE_NUMBER_MAX   (UINT64_C(1) << 53) /* every size and shape stays exact in a JSON reader that has doubles */
#define IMAGE_FILLER       "__pad_"            /* what the keys of gaps begin with */
#define IMAGE_METADATA     "__metadata__"
#define IMAGE_SHARDING     "DCP_SHARDING_INFO"
#define IMAGE_GLOBAL_SHAPE "tck_global_shapes"

static inline uint64_t align_up(uint64_t value, uint64_t align)
{
    return (value + align - 1) / align * align;
}

/* Places the shard's records, those of the rank's records that shard->records names in this order, prints shard->header
 * and sets image_bytes. What it has allocated is the shard's, also on failure. */
must_check tck_status_t image_build(struct record *records, struct shard *shard, struct error *err);

#endif
