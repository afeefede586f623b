/* SPDX-License-Identifier: Apache-2.0
 * The persistent tier in a directory: what its files share. */
#ifndef TCK_TIERS_PERSISTENT_DIR_H
#define TCK_TIERS_PERSISTENT_DIR_H

#include "tiers/persistent_impl.h"

struct clone_put;

/* ---- persistent_open.c ----------------------------------------------------------------------------------------- */

/* Finds or makes save_dir, the job's directory and its marker; or finds them to read. */
must_check tck_status_t dir_open(struct persistent *p, struct error *err);
must_check tck_status_t dir_find(struct persistent *p, struct error *err);
/* The audit file, in the job's directory or elsewhere. */
must_check tck_status_t dir_open_audit(struct persistent *p, struct error *err);
/* <load_dir>/<job>, if it is configured; without versions of this job it is no error, since the job may be new. */
must_check tck_status_t dir_open_load(struct persistent *p, struct error *err);
/* Opens directories again that a new mount has made stale, provided that they are the same ones. Fails if one is still
 * stale, or is another directory. Blocking; the descriptors keep their numbers. */
must_check tck_status_t dir_open_again(struct persistent *p, struct error *err);
/* The same for load_dir alone, where that is a directory. */
must_check tck_status_t dir_open_load_again(struct persistent *p, struct error *err);
/* Fails, too, if save_dir no longer leads to the directory that is open: no later start would find what is published
 * there. Terms are still claimed in it, so that a job continues in memory meanwhile. */
must_check tck_status_t dir_open_to_publish(struct persistent *p, struct error *err);
must_check tck_status_t dir_secret(struct persistent *p, struct secret *out, struct error *err);

/* ---- term_file.c ----------------------------------------------------------------------------------------------- */

must_check tck_status_t dir_claim_one(const struct persistent *p, const struct term_note *note, json_t *holder,
                                      bool *full_out, struct error *err);
void dir_claimed(const struct persistent *p);
must_check tck_status_t dir_note(struct persistent *p, uint64_t term, const struct term_addition *what,
                                 struct error *err);

/* ---- persistent_stage.c ---------------------------------------------------------------------------------------- */

must_check tck_status_t dir_put(struct persistent *p, const struct tier_item *item, tier_done_fn *done, void *ctx,
                                struct error *err);
must_check tck_status_t dir_publish(struct persistent *p, const struct publish_ask *ask, const char *name,
                                    struct error *err);
void dir_published(const struct persistent *p, struct version version);

/* Makes the stage of a version, or finds it. */
must_check tck_status_t stage_make(const struct persistent *p, struct version version, int *fd_out, struct error *err);

/* ---- persistent_copy.c ----------------------------------------------------------------------------------------- */

must_check tck_status_t dir_copy(struct persistent *p, const struct copy_source *source, struct error *err);

/* ---- persistent_file.c ----------------------------------------------------------------------------------------- */

/* A file to be written. Directory and clone are the caller's until done. */
struct file_to_write {
    int dir_fd;
    const char *name;
    const struct tier_item *item;
    struct clone_put *clone; /* what it may share; NULL: nothing */
};
/* Writes one shard file, in the pool and by uring.h. It gets its name only when it is whole and synced. */
must_check tck_status_t dir_write_file(struct persistent *p, const struct file_to_write *file, tier_done_fn *done,
                                       void *ctx, struct error *err);
/* Fills item's image and the crcs of what was read; comparing them with the manifest is the caller's. A file of another
 * size than item's is TCK_ERR_CORRUPT. */
must_check tck_status_t dir_read_file(struct persistent *p, int dir_fd, const char *name, struct tier_item *item,
                                      tier_done_fn *done, void *ctx, struct error *err);
void dir_resume(struct persistent *p);
void dir_give_up(struct persistent *p);

/* ---- persistent_delete.c --------------------------------------------------------------------------------------- */

/* Deletes a directory that holds only regular files with names that may_delete accepts; if there is anything else,
 * nothing is touched and the status is TCK_ERR_DENIED. The manifest is deleted last, so that an interrupted deletion
 * can still be recognised. */
struct deletion {
    int parent_fd;
    const char *name;
    const char *what; /* the same as a path below the job directory, for the audit file */
    bool (*may_delete)(const void *ctx, const char *name);
    const void *ctx;
};
must_check tck_status_t delete_dir(const struct persistent *p, const struct deletion *deletion, struct error *err);
/* Whether delete_dir would delete it. */
must_check tck_status_t delete_allowed(const struct deletion *deletion, struct error *err);
/* Logs the intended deletion to the audit file; no room for that line is no error, since the deletion makes room. */
must_check tck_status_t intend_deletion(const struct persistent *p, const char *what, struct error *err);
/* Un-publishes and deletes it, unless its directory contains a foreign file. */
must_check tck_status_t dir_delete_version(const struct persistent *p, struct version version, struct error *err);
/* Finishes deletions that were interrupted. */
void empty_trash(const struct persistent *p);

/* ---- persistent_sweep.c, persistent_repair.c ------------------------------------------------------------------- */

must_check tck_status_t dir_sweep(struct persistent *p, uint64_t term, struct version keep, struct error *err);
must_check tck_status_t dir_repair(struct persistent *p, const struct published *which,
                                   const struct manifest_file *file, const uint8_t *image, struct error *err);

#endif
