/* SPDX-License-Identifier: Apache-2.0
 * Shared by the files of the persistent tier, and by no others: persistent_open.c (directories, marker),
 * persistent_calls.c, term_*.c, persistent_publish.c (stage, publish), persistent_list.c, persistent_get.c,
 * persistent_prune.c, persistent_delete.c, persistent_sweep.c, persistent_file.c (one file's bytes). */
#ifndef TCK_TIERS_PERSISTENT_IMPL_H
#define TCK_TIERS_PERSISTENT_IMPL_H

#include "tiers/audit.h"
#include "tiers/names.h"
#include "tiers/persistent.h"
#include "tiers/safe_fs.h"
#include "tiers/uring.h"

#include <stdatomic.h>

#define STAGE_DIR "stage"
#define TRASH_DIR "trash"

/* uring, and the members from refs on, change in the loop's thread only; the rest is set once and read by pool threads,
 * too. */
struct persistent {
    struct loop *loop; /* NULL with pool and uring: only the blocking calls */
    struct pool *pool;
    const struct config *config;
    struct uring *uring;
    struct tier_pace pace;
    struct audit *audit;
    _Atomic uint64_t moved_ms;   /* by any thread */
    _Atomic uint64_t epoch;      /* grows when puts are given up */
    _Atomic uint64_t claim_seen; /* highest term whose claim was seen in the job directory; 0: none */
    _Atomic uint64_t reserved_first, reserved_last; /* by this agent; 0: nothing */
    void (*moved)(void *ctx);
    void *moved_ctx;
    int job_fd;               /* -1: there is none (with only_reads alone) */
    int load_fd;              /* <load_dir>/<job>; -1: there is none, or it is the job directory itself */
    uint32_t refs;            /* the owner's and one per call under way */
    bool closing;             /* persistent_free was called: uring is gone, and pool may be */
    bool tidying;             /* older versions are being removed after a publish */
    struct version tidy_next; /* published meanwhile: tidied next */
};

/* Records that storage has made progress. */
void persistent_moved(struct persistent *p);
/* The same for a blocking call. */
void persistent_came_further(const struct persistent *p);
void persistent_ref(struct persistent *p);
void persistent_unref(struct persistent *p);
/* Runs work and then done in the pool, or at once if the pool is gone: for the end of a call, which must not be
 * skipped.
 */
void persistent_run_last(struct persistent *p, pool_work_fn *work, pool_done_fn *done, void *ctx);

/* Opens directories again that a new mount has made stale, provided that they are the same ones. Fails if one is still
 * stale, or is another directory. Blocking; the descriptors keep their numbers. */
must_check tck_status_t persistent_open_again(struct persistent *p, struct error *err);
/* Fails, too, if save_dir no longer leads to the directory that is open: no later start would find what is published
 * there. Terms are still claimed in it, so that a job continues in memory meanwhile. */
must_check tck_status_t persistent_open_to_publish(struct persistent *p, struct error *err);

/* Writes one shard file, in the pool and by uring.h. dir_fd is the caller's and must stay open until done. The file
 * gets its name only when it is whole and synced. */
must_check tck_status_t persistent_write_file(struct persistent *p, int dir_fd, const char *name,
                                              const struct tier_item *item, tier_done_fn *done, void *ctx,
                                              struct error *err);
/* Fills item's image and the crcs of what was read; comparing them with the manifest is the caller's. A file of another
 * size than item's is TCK_ERR_CORRUPT. */
must_check tck_status_t persistent_read_file(struct persistent *p, int dir_fd, const char *name, struct tier_item *item,
                                             tier_done_fn *done, void *ctx, struct error *err);

/* The content of .metadata, which is a blob in the image of one of the version's shards. */
struct metadata {
    uint8_t *content; /* owned */
    uint64_t bytes;   /* 0: the image has none */
};
/* Copies it from an item's image, which may change meanwhile. */
must_check tck_status_t metadata_take(const struct tier_item *item, struct metadata *out, struct error *err);
/* Writes it, and reads it back. */
must_check tck_status_t metadata_write(int dir_fd, const struct metadata *metadata, struct error *err);
/* Size and digests of .metadata in a directory, for the manifest: 0 bytes if it has none. The crcs are the caller's. */
must_check tck_status_t metadata_describe(int dir_fd, struct manifest_file *out, struct error *err);

/* A buffer for any one chunk of an image of that size, aligned for O_DIRECT; NULL: no memory. The caller frees it. */
uint8_t *persistent_buffer(uint64_t image_bytes);

/* The directories of its published versions. */
struct version_dirs persistent_dirs(const struct persistent *p);
/* Returns the status; if it is an error, puts the version's name before its text. */
must_check tck_status_t name_version(tck_status_t status, struct version version, struct error *err);
/* The version that this term's note says it restored; VERSION_NONE: none. */
must_check tck_status_t term_restored(const struct persistent *p, uint64_t term, struct version *out,
                                      struct error *err);
/* After a publish: removes what this version supersedes, so that `keep` versions of its line of history are left. */
must_check tck_status_t prune_superseded(struct persistent *p, struct version published, uint32_t keep,
                                         struct error *err);

/* persistent_survey of save_dir alone. */
must_check tck_status_t survey_save_dir(struct persistent *p, struct survey *out, struct error *err);
/* The versions that are good; the caller frees them. Frees the survey, also when it fails. */
must_check tck_status_t survey_take_good(struct survey *survey, struct published **out, size_t *count_out,
                                         struct error *err);

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
must_check tck_status_t delete_version(const struct persistent *p, struct version version, struct error *err);
/* Finishes deletions that were interrupted. */
void empty_trash(const struct persistent *p);

#endif
