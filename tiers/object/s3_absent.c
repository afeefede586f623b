/* SPDX-License-Identifier: Apache-2.0
 * In a build without S3, an address of it is refused. */
#include "tiers/object/s3_store.h"

tck_status_t s3_store_new(const char *url, struct object_store **out, struct error *err)
{
    (void)out;
    return error_set(err, TCK_ERR_UNSUPPORTED,
                     "%.200s: this build has no S3 support: it was built without libcurl or expat", url);
}
