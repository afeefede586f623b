/* SPDX-License-Identifier: Apache-2.0
 * Whether a store keeps the one promise that all depends on. */
#ifndef TCK_TIERS_OBJECT_PROBE_H
#define TCK_TIERS_OBJECT_PROBE_H

#include "tiers/object/object_store.h"

/* Creates a key of a random name twice, and removes it again. *honoured_out: the second time was refused. A server that
 * ignores the condition replaces the value, so only one writer may use it. */
must_check tck_status_t object_probe_conditions(struct object_store *store, const struct object_call *call,
                                                bool *honoured_out, struct error *err);

#endif
