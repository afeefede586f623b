/* SPDX-License-Identifier: Apache-2.0
 * See schema.h. */
#include "base/schema.h"

void *schema_array(struct reader *r, uint32_t count, size_t least_bytes, size_t size, tck_status_t *status)
{
    if (r->failed || count > reader_left(r) / least_bytes) {
        return schema_no_array(r);
    }
    void *array = calloc(count == 0 ? 1 : count, size);
    if (array == NULL) {
        *status = TCK_ERR_NOMEM;
        r->failed = true;
    }
    return array;
}
