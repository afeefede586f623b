/* SPDX-License-Identifier: Apache-2.0
 * A look at what a store does with conditions. */
#include "tiers/object/object_probe.h"
#include "base/crypto.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static tck_status_t create(struct object_store *store, const struct object_call *call, const char *key,
                           const char *text, struct error *err)
{
    struct object_bytes value = {.data = text, .bytes = strlen(text)};
    return store->ops->create(store, call, key, &value, err);
}

tck_status_t object_probe_conditions(struct object_store *store, const struct object_call *call, bool *honoured_out,
                                     struct error *err)
{
    char key[64];
    uint64_t suffix;
    struct error second, gone;
    tck_status_t status = random_bytes(&suffix, sizeof(suffix));
    if (status != TCK_OK) {
        return error_set(err, status, "%s: no random bytes for the name of a probe", store->name);
    }
    snprintf(key, sizeof(key), "probe-%016" PRIx64, suffix);
    status = create(store, call, key, "first", err);
    if (status != TCK_OK) {
        return status;
    }
    tck_status_t again = create(store, call, key, "second", &second);
    tck_status_t removed = store->ops->remove(store, call, key, &gone);
    if (again != TCK_OK && again != TCK_ERR_EXIST) {
        *err = second;
        return again;
    }
    if (removed != TCK_OK) {
        *err = gone;
        return removed;
    }
    *honoured_out = again == TCK_ERR_EXIST;
    return TCK_OK;
}
