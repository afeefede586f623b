/* SPDX-License-Identifier: Apache-2.0
 * Element types: their sizes, and their names in safetensors files. */
#ifndef TCK_BASE_DTYPE_H
#define TCK_BASE_DTYPE_H

#include "tierckpt.h"

#include <stdbool.h>
#include <stdint.h>

uint32_t dtype_bytes(tck_dtype_t dtype);
const char *dtype_name(tck_dtype_t dtype); /* safetensors' name */
bool dtype_parse(const char *name, tck_dtype_t *out);

#endif
