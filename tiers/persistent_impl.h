/* SPDX-License-Identifier: Apache-2.0
 * Shared by the files of the persistent tier, and by no others. Common to all kinds of save_dir: persistent_life.c,
 * persistent_calls.c, term_*.c, persistent_publish.c, persistent_list.c, persistent_get.c, persistent_prune.c,
 * persistent_second.c, survey_second.c, persistent_metadata.c, persistent_index.c, persistent_beside.c, archive.c. A
 * directory: persistent_open.c (directories, marker), persistent_stage.c, term_file.c, persistent_delete.c,
 * persistent_sweep.c, persistent_repair.c, persistent_file.c (one file's bytes), clone_put.c (blocks that it shares),
 * persistent_copy.c, read_back.c. */
#ifndef TCK_TIERS_PERSISTENT_IMPL_H
#define TCK_TIERS_PERSISTENT_IMPL_H

#include "base/secret.h"
#include "tiers/audit.h"
#include "tiers/folder.h"
#include "tiers/names.h"
#include "tiers/persistent.h"
#include "tiers/term_note.h"
#include "tiers/uring.h"

#include <pthread.h>
#include <stdatomic.h>

struct clone_past;
struct index_kept;
struct kept_put;
struct version_look;
struct published_chunk;
struct put;
struct transfer;

/* What is added to a term's file: one of these. */
struct term_addition {
    const struct term_holder *holder;
    struct version restored;
    bool committed, ended_well;
};

/* A file of a published version that is to be copied. */
struct copy_source {
    struct version version;
    const struct manifest_file *file;
    const struct folder_file *from; /* open */
    const atomic_bool *stops;       /* set: the copy ends early, with TCK_ERR_CANCELED */
};

/* What depends on the kind of save_dir. All but put and resume block. */
struct persistent_ops {
    /* Called before something that a stale save_dir would spoil, and before something is written there for later
     * starts. */
    tck_status_t (*open_again)(struct persistent *p, struct error *err);
    tck_status_t (*open_to_publish)(struct persistent *p, struct error *err);
    tck_status_t (*secret)(struct persistent *p, struct secret *out, struct error *err);
    /* Makes the term's file. TCK_ERR_EXIST if the term is taken. *full_out: it is claimed, but there was no room for
     * its content. */
    tck_status_t (*claim_one)(const struct persistent *p, const struct term_note *note, json_t *holder, bool *full_out,
                              struct error *err);
    /* A term was claimed here. */
    void (*claimed)(const struct persistent *p);
    tck_status_t (*note)(struct persistent *p, uint64_t term, const struct term_addition *what, struct error *err);
    tck_status_t (*put)(struct persistent *p, const struct tier_item *item, tier_done_fn *done, void *ctx,
                        struct error *err);
    void (*resume)(struct persistent *p);
    /* Of puts that were given up: their calls under way end. Any thread. */
    void (*give_up)(struct persistent *p);
    /* Makes a published version of what was put; name is the version's. */
    tck_status_t (*publish)(struct persistent *p, const struct publish_ask *ask, const char *name, struct error *err);
    /* After a publish and before it is reported; the version is published already. */
    void (*published)(const struct persistent *p, struct version version);
    tck_status_t (*sweep)(struct persistent *p, uint64_t term, struct version keep, struct error *err);
    /* Un-publishes and deletes it, unless there is a foreign file in it. */
    tck_status_t (*delete_version)(const struct persistent *p, struct version version, struct error *err);
    tck_status_t (*repair)(struct persistent *p, const struct published *which, const struct manifest_file *file,
                           const uint8_t *image, struct error *err);
    /* Puts a copy of the file where publish looks for it, unless one is there already. */
    tck_status_t (*copy)(struct persistent *p, const struct copy_source *source, struct error *err);
};

struct index_limits {
    size_t bytes; /* of .index; also bounds what is kept */
    uint64_t ms;  /* that one publish reads headers for */
};
#define INDEX_LIMITS ((struct index_limits){.bytes = (size_t)64 << 20, .ms = 10000})

struct read_back_buffer;

/* Memory that files are read back into, a chunk each; freed while no file is. */
struct read_back_buffers {
    struct read_back_buffer *free;
    uint32_t made, users;
};

/* What puts into a directory share (clone_put.h). */
struct clones {
    enum clones_state state; /* CLONES_OFF is not used */
    struct error why;        /* why the last file that could have shared blocks does not; code TCK_OK: it does */
    struct clone_past *past;
};

#define DIR_MODE  0755 /* of directories that the configuration names */
#define STAGE_DIR "stage"
#define TRASH_DIR "trash"

/* uring, throttled, kept, clones, read_back, and the members from refs on, change in the loop's thread only; the rest
 * is set once and read by pool threads, too. */
struct persistent {
    const struct persistent_ops *ops; /* of save_dir */
    struct persistent *terms;         /* whose terms count: itself, or in an archive the tier of save_dir */
    struct loop *loop;                /* NULL with pool and uring: only the blocking calls */
    struct pool *pool;
    const struct config *config;
    struct uring *uring;
    struct tier_pace pace;
    struct pool *transfers;     /* threads for a store of objects; NULL: none is used, or no loop */
    struct transfer *throttled; /* those that wait for persistent_resume */
    struct kept_put *kept;      /* of puts that have ended, so that nothing is sent twice */
    struct clones clones;
    struct read_back_buffers read_back;
    pthread_mutex_t puts_lock;
    pthread_mutex_t versions_lock; /* of a store of objects: held while one is swept or gets its manifest */
    struct put *puts;              /* into a store of objects, under way; guarded by puts_lock */
    struct version pinned;         /* not to be deleted by a publish; guarded by puts_lock */
    struct index_kept *index;      /* NULL: nothing is kept; guarded by puts_lock */
    struct index_limits index_limits;
    struct audit *audit;
    _Atomic uint64_t moved_ms;   /* by any thread */
    _Atomic uint64_t epoch;      /* grows when puts are given up */
    _Atomic uint64_t claim_seen; /* highest term whose claim was seen in the job directory; 0: none */
    _Atomic uint64_t reserved_first, reserved_last; /* by this agent; 0: nothing */
    void (*moved)(void *ctx);
    void *moved_ctx;
    struct folder job;                 /* may be missing if the tier only reads */
    pthread_mutex_t second_lock;       /* held while archive_dir is opened */
    struct object_store *second_store; /* not opened yet; NULL: none was given */
    struct folder second;              /* <load_dir>/<job> or <archive_dir>/<job>, to be read as second_place() */
    _Atomic bool second_open;          /* false if it is the job's folder itself */
    bool second_known;                 /* a store of objects: its marker was found; guarded by second_lock */
    uint32_t refs;                     /* the owner's and one per call under way */
    bool closing;                      /* persistent_free was called: uring is gone, and pool may be */
    atomic_bool canceled;              /* persistent_cancel was called: long work in threads ends; any thread */
    bool unconditional;                /* the server ignores conditions */
    bool unchecked;                    /* the server ignores checksums, so what was put is read back */
    bool tidying;                      /* older versions are being removed after a publish */
    struct version tidy_next;          /* published meanwhile: tidied next */
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

/* A buffer for any one chunk of an image of that size, aligned for O_DIRECT; NULL: no memory. The caller frees it. */
uint8_t *persistent_buffer(uint64_t image_bytes);

/* The content of .metadata, which is a blob in the image of one of the version's shards. */
struct metadata {
    uint8_t *content; /* owned */
    uint64_t bytes;   /* 0: the image has none */
};
/* Copies it from an item's image, which may change meanwhile. */
must_check tck_status_t metadata_take(const struct tier_item *item, struct metadata *out, struct error *err);

/* Size and digests of .metadata or .index in a folder, for the manifest: 0 bytes if it has none. The crcs are the
 * caller's. */
must_check tck_status_t beside_describe(const struct folder *dir, const char *name, struct manifest_file *out,
                                        struct error *err);
/* Writes such a file, reads it back, and describes it. */
struct beside {
    const uint8_t *bytes;
    uint64_t len;
};
must_check tck_status_t beside_write(const struct folder *dir, const char *name, const struct beside *content,
                                     struct manifest_file *out, struct error *err);

/* Makes .index in the folder of a version that is about to be published, and describes it. 0 bytes: it gets none; if
 * its headers could not be read or it could not be written, the log says so. An error: what is there of it cannot be
 * removed. */
must_check tck_status_t index_make(struct persistent *p, const struct publish_ask *ask, const struct folder *dir,
                                   struct manifest_file *out, struct error *err);

/* ---- persistent_second.c: where versions are read from beside save_dir ------------------------------------------- */

/* None while it is not open. Any thread. */
const struct folder *second_place(const struct persistent *p);
/* Opens archive_dir, if it is configured, before it is listed or read. An error if it cannot be reached, or if it
 * lacks a job that was copied there before (archive_note.h). If no version was copied there yet, it stays
 * none. Makes nothing. Blocking; any thread. */
must_check tck_status_t second_find(struct persistent *p, struct error *err);
/* What is done in the place beside save_dir. It may touch nothing but the job and the folder, as in base/bounded.h. */
struct second_work {
    void (*work)(void *job, const struct folder *second);
    void (*drop)(void *job);
    void *job;
};
/* With the place that second_find has opened. In an archive that is a directory, which may hang, for at most a quarter
 * of storage_timeout_ms without progress (progress.h). TCK_OK: the job is the caller's again; else it is dropped. */
must_check tck_status_t second_do(struct persistent *p, const struct second_work *work, struct error *err);
/* An error if this open directory is the job's in save_dir. */
must_check tck_status_t second_check_other(const struct persistent *p, int fd, struct error *err);

/* Reads a copied file, which has this name in that folder, back and compares it with its digests: TCK_OK if it is
 * whole. */
must_check tck_status_t copy_check(const struct persistent *p, const struct folder *dir, const char *name,
                                   const struct copy_source *source, struct error *err);
/* Reads a chunk of the file that is copied; an error names save_dir. */
must_check tck_status_t copy_read(const struct persistent *p, const struct copy_source *source,
                                  const struct published_chunk *chunk, uint8_t *buffer, struct error *err);
/* Between two chunks of a copy: TCK_ERR_CANCELED if it is no longer wanted. */
must_check tck_status_t copy_goes_on(const struct persistent *p, const struct copy_source *source, struct error *err);
/* The key that names the place that it writes to: save_dir or archive_dir. */
static inline const char *persistent_key(const struct persistent *p)
{
    return p->terms == p ? "save_dir" : "archive_dir";
}

/* Puts "<key> <place>" before an error, or the key alone if the error names the place already: errors of a store of
 * objects begin with its URL. Returns the code. */
tck_status_t name_place(struct error *err, const char *key, const char *place);
/* The directories of its published versions. */
struct version_dirs persistent_dirs(const struct persistent *p);
/* Returns the status; if it is an error, puts the version's name before its text. */
must_check tck_status_t name_version(tck_status_t status, struct version version, struct error *err);
/* The version that this term's note says it restored; VERSION_NONE: none. */
must_check tck_status_t term_restored(const struct persistent *p, uint64_t term, struct version *out,
                                      struct error *err);
/* TCK_ERR_DENIED if a term newer than the coordinator's was claimed. */
must_check tck_status_t check_not_superseded(struct persistent *p, const struct publish_ask *ask, struct error *err);
/* TCK_ERR_CANCELED if this publish was given up: another attempt may be at work in the same place. */
must_check tck_status_t check_not_given_up(const struct publish_ask *ask, struct error *err);
/* Parses its own output first: a manifest that this build cannot read must not be published. The caller frees the
 * text. */
must_check tck_status_t print_manifest(const struct manifest *manifest, char **text_out, size_t *len_out,
                                       struct error *err);
/* After a publish: removes what this version supersedes, so that `keep` versions of its line of history are left. */
must_check tck_status_t prune_superseded(struct persistent *p, struct version published, uint32_t keep,
                                         struct error *err);

/* The newest good version in a place that has no second one, and when it was saved; VERSION_NONE: there is none. Looks
 * at none that is older. An error if a newer one cannot be read now. */
must_check tck_status_t persistent_newest_good(struct persistent *p, struct version *out, uint64_t *wall_ms_out,
                                               struct error *err);
/* Adds the candidate, with what a recovery needs of a good one's manifest; survey->candidates has room for it. False:
 * no memory. */
must_check bool survey_add(struct survey *survey, const struct published *which, const struct version_look *look);
void candidate_free(struct candidate *candidate);
/* Whether a version, before which its place has `before` newer ones, is in the survey's range. If not, it may be
 * survey->deeper. */
must_check bool survey_wants(struct survey *survey, struct version version, size_t before);
#define SURVEY_ALL ((struct survey_range){.newest = UINT32_MAX, .step = TCK_NEWEST})
/* The versions that are good; the caller frees them. Frees the survey, also when it fails. */
must_check tck_status_t survey_take_good(struct survey *survey, struct published **out, size_t *count_out,
                                         struct error *err);

#endif
