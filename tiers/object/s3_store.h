/* SPDX-License-Identifier: Apache-2.0
 * A bucket, or what is below a prefix in it, as a store of objects. */
#ifndef TCK_TIERS_S3_STORE_H
#define TCK_TIERS_S3_STORE_H

#include "tiers/object/object_store.h"

/* url: s3://<bucket>[/<prefix>]. Looks nothing up. */
must_check tck_status_t s3_store_new(const char *url, struct object_store **out, struct error *err);

#endif
