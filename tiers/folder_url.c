/* SPDX-License-Identifier: Apache-2.0
 * See folder_url.h. */
#include "tiers/folder_url.h"

#include "tiers/object/s3_store.h"

tck_status_t folder_of_url(const char *url, const char *below, uint32_t quiet_ms, struct folder *out, struct error *err)
{
    struct object_root root = {.quiet_ms = quiet_ms};
    struct object_folder *objects = NULL;
    tck_status_t status = s3_store_new(url, &root.store, err);
    if (status == TCK_OK) {
        status = object_folder_new(&root, below, &objects, err);
    }
    if (status == TCK_OK) {
        *out = folder_of_objects(objects);
    }
    return status;
}
