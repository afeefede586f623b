/* SPDX-License-Identifier: Apache-2.0
 * Whether a store keeps the promises that all depends on; some servers ignore headers that they do not know. */
#ifndef TCK_TIERS_OBJECT_PROBE_H
#define TCK_TIERS_OBJECT_PROBE_H

#include "tiers/object/object_store.h"

struct object_traits {
    /* create refuses a key that is taken. Otherwise it replaces the value, so only one writer may use the store. */
    bool honours_conditions;
    /* A value or part that differs from its checksum is refused. Otherwise what has been damaged on its way is stored,
     * without any error: after each put, create and upload_finish, read the object back and compare it, before
     * anything counts as saved. */
    bool checks_checksums;
};

/* Writes the key <name><16 hex digits>, with random digits, and removes it again. */
must_check tck_status_t object_probe(struct object_store *store, const struct object_call *call, const char *name,
                                     struct object_traits *out, struct error *err);
/* In the folder of a job: begins like the marker, so the folder counts as unused even if the key is left over. */
#define PROBE_NAME ".tierckpt-probe-"

#endif
