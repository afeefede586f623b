/* SPDX-License-Identifier: Apache-2.0
 * The table of element types, from the one list in tierckpt.h. */
#include "base/dtype.h"

#include <string.h>

struct dtype {
    const char *name;
    uint32_t bytes;
};

static const struct dtype dtypes[TCK_DTYPE_COUNT] = {
#define DTYPE_ROW(id, size, text) [TCK_##id] = {.name = (text), .bytes = (size)},
    TCK_DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
};

uint32_t dtype_bytes(tck_dtype_t dtype)
{
    return dtypes[dtype].bytes;
}

const char *dtype_name(tck_dtype_t dtype)
{
    return dtypes[dtype].name;
}

bool dtype_parse(const char *name, tck_dtype_t *out)
{
    for (unsigned i = 0; i < TCK_DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *out = (tck_dtype_t)i;
            return true;
        }
    }
    return false;
}
