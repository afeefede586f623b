/* SPDX-License-Identifier: Apache-2.0
 * archive_dir: a second persistent tier with the layout of the first, into which versions that are published in
 * save_dir are copied file by file, the manifest last. It has no terms of its own: those of save_dir decide. Reading it
 * is part of persistent.h. All calls block, and any thread may make them. */
#ifndef TCK_TIERS_ARCHIVE_H
#define TCK_TIERS_ARCHIVE_H

#include "tiers/persistent.h"

#include <stdatomic.h>

struct archive;

/* config and from, the tier of save_dir, must outlive it. Opens nothing. store: in place of archive_dir's, for
 * tests; taken over, also if it fails. */
must_check tck_status_t archive_new(const struct config *config, struct persistent *from, struct object_store *store,
                                    struct archive **out, struct error *err);
/* No call may be under way. */
void archive_free(struct archive *archive);
/* Calls to a store of objects end with TCK_ERR_CANCELED, also later ones. NULL is allowed. */
void archive_cancel(struct archive *archive);
/* When a call last made progress (clock_ms); 0: never. */
uint64_t archive_moved_ms(const struct archive *archive);

/* The newest version that is whole in it; VERSION_NONE: it has none. *wall_ms_out: when that was saved. */
must_check tck_status_t archive_newest(struct archive *archive, struct version *out, uint64_t *wall_ms_out,
                                       struct error *err);
/* The manifest of a version in save_dir; the caller frees it. */
must_check tck_status_t archive_manifest(struct archive *archive, struct version version, struct manifest *out,
                                         struct error *err);
/* Deletes what interrupted copies of `term` and older ones have left, except of this version: before others are made,
 * so that copies that fail again and again do not fill the archive. */
must_check tck_status_t archive_sweep(struct archive *archive, uint64_t term, struct version keep, struct error *err);
/* Copies one file of a version, unless it is there already. Once *stops is set, it ends with TCK_ERR_CANCELED after the
 * chunk that is being copied. */
must_check tck_status_t archive_copy(struct archive *archive, struct version version, const struct manifest_file *file,
                                     const atomic_bool *stops, struct error *err);
/* Once all files are there: publishes the version in the archive, deletes what it supersedes there (max_archive_num),
 * and what interrupted copies of `term` and older ones have left. */
must_check tck_status_t archive_publish(struct archive *archive, const struct manifest *manifest, uint64_t term,
                                        struct error *err);

#endif
