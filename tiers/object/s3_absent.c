/* SPDX-License-Identifier: Apache-2.0
 * In a build without S3, an address of it is refused. */
#include "base/path.h"
#include "tiers/object/s3_store.h"

tck_status_t s3_store_new(const char *url, struct object_store **out, struct error *err)
{
    char shown[PATH_SHOWN_BYTES];
    (void)out;
    path_shown(url, shown);
    return error_set(err, TCK_ERR_UNSUPPORTED,
                     "%s: this build has no S3 support: it was built without libcurl or expat", shown);
}
