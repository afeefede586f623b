/* SPDX-License-Identifier: Apache-2.0
 * The persistent tier in a store of objects. Nothing there is renamed or changed:
 *
 *     <job>/.tierckpt                our marker
 *     <job>/term.<T>                 created only if absent: the claim of a term
 *     <job>/term.<T>.<what>          what is noted of it later (names.h)
 *     <job>/v<step>.t<T>/<file>      put by the agents; no version before the next is there:
 *     <job>/v<step>.t<T>/manifest.json, created only if absent, and deleted first */
#ifndef TCK_TIERS_PERSISTENT_OBJECTS_H
#define TCK_TIERS_PERSISTENT_OBJECTS_H

#include "tiers/persistent_impl.h"

/* ---- persistent_bucket.c --------------------------------------------------------------------------------------- */

/* Open the job's folder in the store, which they take over in any case, as dir_open and dir_find do. */
must_check tck_status_t objects_open(struct persistent *p, struct object_store *store, struct error *err);
must_check tck_status_t objects_find(struct persistent *p, struct object_store *store, struct error *err);
must_check tck_status_t objects_open_load(struct persistent *p, struct object_store *store, struct error *err);
must_check tck_status_t objects_open_again(struct persistent *p, struct error *err);
must_check tck_status_t objects_secret(struct persistent *p, struct secret *out, struct error *err);

/* ---- term_object.c --------------------------------------------------------------------------------------------- */

must_check tck_status_t objects_claim_one(const struct persistent *p, const struct term_note *note, json_t *holder,
                                          bool *full_out, struct error *err);
/* Nothing has to be made for a term. */
void objects_claimed(const struct persistent *p);
must_check tck_status_t objects_note(struct persistent *p, uint64_t term, const struct term_addition *what,
                                     struct error *err);

#endif
