/* SPDX-License-Identifier: Apache-2.0
 * Objects that are sent in parts, as object_store.h describes it. */
#ifndef TCK_TIERS_S3_UPLOADS_H
#define TCK_TIERS_S3_UPLOADS_H

#include "tiers/object/object_store.h"

#define S3_FINISH_MS 600000 /* deadline of an upload's end without one of its own: a server may work for minutes */

tck_status_t s3_upload_begin(struct object_store *store, const struct object_call *call, const char *key,
                             struct object_upload *out, struct error *err);
tck_status_t s3_upload_part(struct object_store *store, const struct object_call *call,
                            const struct object_upload *upload, uint32_t number, const struct object_bytes *value,
                            struct object_part *out, struct error *err);
tck_status_t s3_upload_finish(struct object_store *store, const struct object_call *call, struct object_upload *upload,
                              const struct object_part *parts, uint32_t count, struct error *err);
tck_status_t s3_upload_abort(struct object_store *store, const struct object_call *call, struct object_upload *upload,
                             struct error *err);

#endif
