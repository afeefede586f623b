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

/* Open the job's folder in the store, which they take over, also if they fail, as dir_open and dir_find do. */
must_check tck_status_t objects_open(struct persistent *p, struct object_store *store, struct error *err);
must_check tck_status_t objects_find(struct persistent *p, struct object_store *store, struct error *err);
must_check tck_status_t objects_open_load(struct persistent *p, struct object_store *store, struct error *err);
must_check tck_status_t objects_open_archive(struct persistent *p, struct object_store *store, struct error *err);
must_check tck_status_t objects_open_again(struct persistent *p, struct error *err);
must_check tck_status_t objects_secret(struct persistent *p, struct secret *out, struct error *err);

/* ---- term_object.c --------------------------------------------------------------------------------------------- */

must_check tck_status_t objects_claim_one(const struct persistent *p, const struct term_note *note, json_t *holder,
                                          bool *full_out, struct error *err);
/* Nothing has to be made for a term. */
void objects_claimed(const struct persistent *p);
must_check tck_status_t objects_note(struct persistent *p, uint64_t term, const struct term_addition *what,
                                     struct error *err);

/* ---- object_put.c, object_get.c -------------------------------------------------------------------------------- */

must_check tck_status_t objects_put(struct persistent *p, const struct tier_item *item, tier_done_fn *done, void *ctx,
                                    struct error *err);
void objects_resume(struct persistent *p);
void objects_give_up(struct persistent *p);
/* As dir_read_file. */
must_check tck_status_t objects_read_file(struct persistent *p, const struct folder *dir, const char *name,
                                          struct tier_item *item, tier_done_fn *done, void *ctx, struct error *err);

/* ---- object_copy.c --------------------------------------------------------------------------------------------- */

must_check tck_status_t objects_copy(struct persistent *p, const struct copy_source *source, struct error *err);

/* ---- object_publish.c, object_delete.c, object_repair.c -------------------------------------------------------- */

must_check tck_status_t objects_publish(struct persistent *p, const struct publish_ask *ask, const char *name,
                                        struct error *err);
void objects_published(const struct persistent *p, struct version version);
must_check tck_status_t objects_delete_version(const struct persistent *p, struct version version, struct error *err);
must_check tck_status_t objects_sweep(struct persistent *p, uint64_t term, struct version keep, struct error *err);
must_check tck_status_t objects_repair(struct persistent *p, const struct published *which,
                                       const struct manifest_file *file, const uint8_t *image, struct error *err);

#endif
