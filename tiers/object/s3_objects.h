/* SPDX-License-Identifier: Apache-2.0
 * Operations of a store on single objects, as object_store.h describes them. */
#ifndef TCK_TIERS_S3_OBJECTS_H
#define TCK_TIERS_S3_OBJECTS_H

#include "tiers/object/object_store.h"

tck_status_t s3_put(struct object_store *store, const struct object_call *call, const char *key,
                    const struct object_bytes *value, struct error *err);
tck_status_t s3_create(struct object_store *store, const struct object_call *call, const char *key,
                       const struct object_bytes *value, struct error *err);
tck_status_t s3_get(struct object_store *store, const struct object_call *call, const char *key, uint64_t max,
                    char **out, size_t *bytes_out, struct error *err);
tck_status_t s3_get_range(struct object_store *store, const struct object_call *call, const char *key, uint64_t offset,
                          void *buffer, uint64_t bytes, struct error *err);
tck_status_t s3_head(struct object_store *store, const struct object_call *call, const char *key,
                     struct object_info *out, struct error *err);
tck_status_t s3_remove(struct object_store *store, const struct object_call *call, const char *key, struct error *err);

#endif
