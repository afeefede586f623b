/* SPDX-License-Identifier: Apache-2.0
 * A look at what a store does with conditions and checksums. */
#include "tiers/object/object_probe.h"
#include "base/crypto.h"
#include "base/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A store, and a key of its own. */
struct probe {
    struct object_store *store;
    const struct object_call *call;
    char key[OBJECT_KEY_MAX];
};

static tck_status_t begin(struct probe *p, const char *name, struct error *err)
{
    uint64_t suffix;
    tck_status_t status = random_bytes(&suffix, sizeof(suffix));
    if (status != TCK_OK) {
        return error_set(err, status, "%s: no random bytes for the name of a probe", p->store->name);
    }
    int len = snprintf(p->key, sizeof(p->key), "%s%016" PRIx64, name, suffix);
    return len < (int)sizeof(p->key) ? TCK_OK : error_set(err, TCK_ERR_INVAL, "%s: the key is too long", name);
}

static tck_status_t create(const struct probe *p, const char *text, struct error *err)
{
    struct object_bytes value = {.data = text, .bytes = strlen(text)};
    return p->store->ops->create(p->store, p->call, p->key, &value, err);
}

static tck_status_t probe_conditions(const struct probe *p, bool *honoured_out, struct error *err)
{
    struct error second, gone;
    tck_status_t status = create(p, "first", err);
    if (status != TCK_OK) {
        return status;
    }
    tck_status_t again = create(p, "second", &second);
    tck_status_t removed = p->store->ops->remove(p->store, p->call, p->key, &gone);
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

static tck_status_t probe_checksums(const struct probe *p, bool *checked_out, struct error *err)
{
    static const char text[] = "differs";
    uint32_t crc = crc32c(0, text, sizeof(text) - 1) ^ 1;
    struct object_bytes value = {.data = text, .bytes = sizeof(text) - 1, .crc32c = &crc};
    struct error gone;
    tck_status_t put = p->store->ops->put(p->store, p->call, p->key, &value, err);
    tck_status_t removed = p->store->ops->remove(p->store, p->call, p->key, &gone);
    if (put != TCK_OK && put != TCK_ERR_CORRUPT) {
        return error_prefix(err, "a value with a wrong checksum, to see whether it is refused");
    }
    if (removed != TCK_OK) {
        *err = gone;
        return removed;
    }
    *checked_out = put == TCK_ERR_CORRUPT;
    return TCK_OK;
}

tck_status_t object_probe(struct object_store *store, const struct object_call *call, const char *name,
                          struct object_traits *out, struct error *err)
{
    struct probe p = {.store = store, .call = call};
    struct object_traits traits = {0};
    tck_status_t status = begin(&p, name, err);
    if (status == TCK_OK) {
        status = probe_conditions(&p, &traits.honours_conditions, err);
    }
    if (status == TCK_OK) {
        status = probe_checksums(&p, &traits.checks_checksums, err);
    }
    if (status == TCK_OK) {
        *out = traits;
    }
    return status;
}
