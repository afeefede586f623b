/* SPDX-License-Identifier: Apache-2.0
 * A build without S3 refuses its addresses by name. */
#include "tiers/object/s3_store.h"

#include <criterion/criterion.h>
#include <string.h>

Test(s3_absent, an_address_is_refused_by_name)
{
    struct object_store *store = NULL;
    struct error err;
    cr_assert_eq(s3_store_new("s3://bucket/job", &store, &err), TCK_ERR_UNSUPPORTED);
    cr_assert(strstr(err.text, "s3://bucket/job: this build has no S3 support") != NULL, "%s", err.text);
    cr_assert(store == NULL);
}
