/* SPDX-License-Identifier: Apache-2.0
 * A bucket of S3, or of a server with its interface, below a prefix, as a store of objects. */
#ifndef TCK_TIERS_S3_STORE_H
#define TCK_TIERS_S3_STORE_H

#include "tiers/object/object_store.h"

#define S3_DEADLINE_MS 60000 /* of a call that has none of its own */
/* A transfer of which nothing moves is cut and begun again: well before storage_timeout_ms is over, 20 s by default. */
#define S3_QUIET_S 6

/* url: s3://<bucket>[/<prefix>]. Endpoint, region and credentials are found as AWS's libraries find them. Sends nothing
 * yet. TCK_ERR_UNSUPPORTED: this build has no S3. */
must_check tck_status_t s3_store_new(const char *url, struct object_store **out, struct error *err);

#endif
