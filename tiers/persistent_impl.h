/* SPDX-License-Identifier: Apache-2.0
 * What the files of the persistent tier share, and nobody else includes: persistent.c (directories, marker, names),
 * persistent_term.c, persistent_publish.c (stage, publish, sweep), persistent_list.c, persistent_get.c,
 * persistent_prune.c and the file transfers of posix.c. */
#ifndef TCK_TIERS_PERSISTENT_IMPL_H
#define TCK_TIERS_PERSISTENT_IMPL_H

#include "tiers/audit.h"
#include "tiers/beneath.h"
#include "tiers/names.h"
#include "tiers/persistent.h"
#include "tiers/uring.h"
#include "tiers/version_files.h"

#define STAGE_DIR   "stage"
#define TRASH_DIR   "trash"
#define LATEST_NAME "LATEST" /* for people and scripts; never read by us */

/* uring, refs and what follows change in the loop's thread alone; the rest is set once, and read by pool threads too.
 */
struct persistent {
    struct loop *loop; /* NULL with pool and uring: only the blocking calls */
    struct pool *pool;
    const struct config *config;
    const struct persistent_ops *ops;
    struct uring *uring;
    struct audit *audit;
    int job_fd;
    int load_fd;              /* <load_dir>/<job>; -1: there is none, or it is the job directory itself */
    uint32_t refs;            /* the owner's and one per call under way */
    bool closing;             /* persistent_free was called: uring is gone, and pool may be */
    bool tidying;             /* older versions are being removed after a publish, */
    struct version tidy_next; /* and this one was published meanwhile */
};

extern const struct persistent_ops posix_ops;

void persistent_ref(struct persistent *p);
void persistent_unref(struct persistent *p);
/* Runs work and then done in the pool, or at once if there is none any more: for the end of a call, which must not be
 * left out. */
void persistent_run_last(struct persistent *p, pool_work_fn *work, pool_done_fn *done, void *ctx);

void stage_dir_name(struct version version, char out[DIR_NAME_MAX]);
bool stage_dir_parse(const char *name, struct version *out);
bool term_name_parse(const char *name, uint64_t *out);
/* A name that manifest_file_name gives. */
bool shard_name_parse(const char *name);

/* Reads and checks the manifest in an open version directory: that it is of this job and version. */
must_check tck_status_t version_manifest(const struct persistent *p, int dir_fd, struct version version,
                                         struct manifest *out, struct error *err);
must_check tck_status_t version_open(const struct persistent *p, const struct published *which, int *fd_out,
                                     struct error *err);
/* Valid versions of one directory, in any order, appended to *out; the invalid ones are logged. */
must_check tck_status_t list_versions(const struct persistent *p, int dir_fd, bool from_load_dir,
                                      struct published **out, size_t *count, struct error *err);

/* Deletes a directory that may hold only regular files with names that may_delete accepts; if there is anything else,
 * nothing is touched and the status is TCK_ERR_DENIED. The manifest goes last: an interrupted deletion can still be
 * recognised. */
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
/* Writes what is to be deleted into the audit file; if there is no room for the line, the deletion makes some. */
must_check tck_status_t intend_deletion(const struct persistent *p, const char *what, struct error *err);
/* Finishes deletions that were interrupted. */
void empty_trash(const struct persistent *p);

#endif
