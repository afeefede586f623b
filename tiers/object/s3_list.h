/* SPDX-License-Identifier: Apache-2.0
 * Listings of a store, all pages, as object_store.h describes them. */
#ifndef TCK_TIERS_S3_LIST_H
#define TCK_TIERS_S3_LIST_H

#include "tiers/object/object_store.h"

#define S3_LIST_MAX 1000000 /* entries of a listing; more is an error, as a server could go on for ever */

tck_status_t s3_list(struct object_store *store, const struct object_call *call, const char *prefix, bool folders,
                     struct object_listing *out, struct error *err);
/* Whether a listing has this very key. */
must_check tck_status_t s3_list_has(struct object_store *store, const struct object_call *call, const char *key,
                                    bool *has_out, struct error *err);
tck_status_t s3_uploads(struct object_store *store, const struct object_call *call, const char *prefix,
                        struct object_upload **out, size_t *count_out, struct error *err);

#endif
