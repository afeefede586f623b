/* SPDX-License-Identifier: Apache-2.0
 * What the catalog says about commits. */
#include "recovery/catalog.h"

#include <stdlib.h>

tck_status_t catalog_newest_commit(struct catalog *catalog, uint64_t before, struct version *out, struct error *err)
{
    struct catalog_version *rows = NULL;
    size_t count = 0;
    tck_status_t status = catalog_versions(catalog, &rows, &count, err);
    if (status != TCK_OK) {
        return status;
    }
    *out = (struct version){0};
    for (size_t i = 0; i < count; i++) {
        bool committed = rows[i].state == CATALOG_COMMITTED || rows[i].state == CATALOG_PUBLISHED;
        if (committed && rows[i].version.term < before && version_cmp(rows[i].version, *out) > 0) {
            *out = rows[i].version;
        }
    }
    free(rows);
    return TCK_OK;
}
