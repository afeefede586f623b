/* SPDX-License-Identifier: Apache-2.0
 * Tries what an agent needs of a bucket: the credentials, the endpoint, the bucket, and the condition of a write. */
#include "cli/doctor_bucket.h"

#include "tiers/object/object_probe.h"
#include "tiers/object/s3_store.h"

#include <stdio.h>

/* A call must end before the process that waits for this one concludes that storage hangs. */
static struct object_call call_of(const struct config *config)
{
    return (struct object_call){.quiet_ms = config->storage_timeout_ms / 4 * 3};
}

static tck_status_t list(struct object_store *store, const struct config *config, struct error *err)
{
    char prefix[CONFIG_NAME + 1];
    struct object_listing listing = {0};
    const struct object_call call = call_of(config);
    snprintf(prefix, sizeof(prefix), "%s/", config->job);
    tck_status_t status = store->ops->list(store, &call, prefix, true, &listing, err);
    if (status == TCK_OK) {
        object_listing_free(&listing);
    }
    return status;
}

/* Reading comes first, since some servers create a bucket at the first write to it. */
tck_status_t doctor_write_bucket(const char *url, const struct config *config, bool *decides_out, struct error *err)
{
    struct object_store *store = NULL;
    const struct object_call call = call_of(config);
    tck_status_t status = s3_store_new(url, &store, err);
    if (status != TCK_OK) {
        return status;
    }
    status = list(store, config, err);
    if (status == TCK_OK) {
        char name[CONFIG_NAME + sizeof(PROBE_NAME) + 1];
        struct object_traits traits = {.honours_conditions = false};
        snprintf(name, sizeof(name), "%s/" PROBE_NAME, config->job);
        status = object_probe(store, &call, name, &traits, err);
        *decides_out = traits.honours_conditions;
    }
    store->ops->free(store);
    return status;
}

tck_status_t doctor_list_bucket(const struct config *config, struct error *err)
{
    struct object_store *store = NULL;
    tck_status_t status = s3_store_new(config->load_dir, &store, err);
    if (status == TCK_OK) {
        status = list(store, config, err);
        store->ops->free(store);
    }
    return status;
}
