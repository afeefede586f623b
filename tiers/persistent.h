/* SPDX-License-Identifier: Apache-2.0
 * The persistent tier: published versions below <save_dir>/<job>/, and the one linearizable act that begins a term.
 *
 *     <save_dir>/<job>/.tierckpt               our marker: job name and format; a directory without it is not touched
 *     <save_dir>/<job>/term.<T>                claimed with O_EXCL, one per term
 *     <save_dir>/<job>/stage/<T>-<step>/       being written
 *     <save_dir>/<job>/v<step 12 digits>.t<T>/ published, by one rename without replace
 *     <save_dir>/<job>/trash/...               un-published, being deleted
 *
 * Nothing outside is opened, no symbolic link is followed (openat2 beneath). Each publish and delete is logged to the
 * audit file, intent before and result after. Calls and callbacks as in tier.h. */
#ifndef TCK_TIERS_PERSISTENT_H
#define TCK_TIERS_PERSISTENT_H

#include "base/secret.h"
#include "tiers/published_versions.h"
#include "tiers/term_holder.h"
#include "tiers/tier.h"

struct persistent;

struct persistent_setup {
    struct loop *loop; /* NULL (then pool is, too): blocking calls only, in a command without a loop */
    struct pool *pool;
    const struct config *config; /* must outlive the tier; max_ckpt_num is read again at each publish */
    bool only_reads;             /* nothing is made or written: there is not even an audit file */
    /* Called whenever a blocking call has made progress; may be NULL. Not used with a pool. */
    void (*moved)(void *ctx);
    void *moved_ctx;
    struct tier_pace pace; /* of puts */
    /* NULL, or the tier whose terms count here: this is an archive of that one (archive.h). */
    struct persistent *terms;
    /* A term known to be claimed in the job's directory, which must therefore exist; 0: none. */
    uint64_t claimed;
    /* Stores to use in place of those that save_dir and load_dir or archive_dir name; taken over, also if opening
     * fails. For tests. */
    struct object_store *save_store, *load_store;
};

/* A directory with a version's name, and the state of its content. */
struct candidate {
    struct published which;
    enum standing standing;
    char *why; /* owned; NULL: it is good */
    /* If it is good: */
    struct hash128 layout;
    uint32_t shard_count;
    struct hash128 *shards; /* owned */
};

/* Which versions a survey looks at. */
struct survey_range {
    uint32_t newest; /* so many of each place, in the second place of those that are not good in save_dir */
    uint64_t step;   /* and all of this step; TCK_NEWEST: no others */
};

struct survey {
    uint64_t forgotten; /* versions of terms up to this one do not count and are left out */
    size_t count;
    struct candidate *candidates; /* owned; newest first */
    struct error unread;          /* code TCK_OK: archive_dir was listed, too, or there is none */
    struct survey_range range;
    struct version deeper; /* the newest one that is out of this range; VERSION_NONE: none is */
};

/* Finds or makes the directories and the marker. TCK_ERR_DENIED if <save_dir>/<job> exists, is not empty and not ours.
 * With only_reads, TCK_ERR_NOENT if save_dir and load_dir or archive_dir exist, but neither has a directory of the job.
 */
must_check tck_status_t persistent_new(const struct persistent_setup *setup, struct persistent **out,
                                       struct error *err);
/* Ends the calls under way with TCK_ERR_CANCELED: here, or in pool_free if their work is in the pool. The pool may be
 * freed before or after. */
void persistent_free(struct persistent *p);

/* Ends calls to a store of objects, and later ones, with TCK_ERR_CANCELED, and the hashing of what is put: before the
 * threads are joined that do it. Harmless for NULL. */
void persistent_cancel(struct persistent *p);

/* When a call of this tier last made progress (clock_ms); 0: never. */
uint64_t persistent_moved_ms(const struct persistent *p);
/* Gives up the puts under way: their slots may be reused from now on. Their done still runs once, as soon as storage
 * returns. In a directory, what they write never gets its final name; in a store of objects, a request that was sent
 * before may still make the object, but only with the content that the put was given. */
void persistent_give_up(struct persistent *p);

/* The job's secret, which the first one to ask makes. Blocking. */
must_check tck_status_t persistent_secret(struct persistent *p, struct secret *out, struct error *err);

/* TCK_ERR_UNSUPPORTED, with the reason and the remedy: save_dir cannot decide between two starts, so only a job of one
 * node may use it. */
must_check tck_status_t persistent_may_be_shared(const struct persistent *p, struct error *err);

/* Claims and syncs the lowest free term that is at_least or higher. Blocking: milliseconds in a directory, and
 * in a store of objects at most as long as its calls may take. */
must_check tck_status_t persistent_claim_term(struct persistent *p, uint64_t at_least, uint64_t *term_out,
                                              struct error *err);
/* The same, with the owner of the term. */
struct term_claim {
    uint64_t at_least;
    bool follows;  /* only if `seen` is still the newest here, else TCK_ERR_EXIST */
    uint64_t seen; /* of struct term_holders */
    const struct term_holder *holder;
};
must_check tck_status_t persistent_claim(struct persistent *p, const struct term_claim *claim, uint64_t *term_out,
                                         struct error *err);
/* TCK_ERR_NOENT if this term is not claimed in save_dir. Blocking. */
must_check tck_status_t persistent_find_claim(struct persistent *p, uint64_t term, struct error *err);
/* Notes in term.<T> who has joined it. */
must_check tck_status_t persistent_note_holder(struct persistent *p, uint64_t term, const struct term_holder *holder,
                                               struct error *err);
/* The owners of the newest terms: newest first, down to the first one that all its ranks have joined. */
struct term_holders {
    uint64_t newest; /* claimed here; 0: none */
    uint64_t seen;   /* claimed or reserved here; 0: none */
    uint32_t count;
    struct held_term {
        uint64_t term, wall_ms; /* of the claim */
        struct term_holder holder;
    } * terms;
};
must_check tck_status_t persistent_term_holders(struct persistent *p, struct term_holders *out, struct error *err);
void term_holders_free(struct term_holders *holders);
/* Highest term ever claimed here, 0 if none. One that is reserved is not claimed. */
must_check tck_status_t persistent_newest_term(struct persistent *p, uint64_t *term_out, struct error *err);
/* Reserves terms for the successors of the term `by`: files that no start claims and that end no term, made by link(2),
 * so that each appears with its whole content or not at all. */
struct term_reserve {
    uint64_t by;
    uint64_t first, last; /* their number, and the preferred first one */
    bool follows;         /* that one or none */
};
/* Sets both to 0 if no term is available; fewer than wanted is no error. Blocking. */
must_check tck_status_t persistent_reserve(struct persistent *p, const struct term_reserve *wanted, uint64_t *first_out,
                                           uint64_t *last_out, struct error *err);
/* Releases terms that the caller has reserved and will not grant. */
must_check tck_status_t persistent_unreserve(struct persistent *p, uint64_t first, uint64_t last, struct error *err);
/* Notes the holder of a reserved term that was granted to it. TCK_ERR_EXIST: a start has claimed a higher one, past the
 * reservation. Blocking. */
must_check tck_status_t persistent_claim_reserved(struct persistent *p, uint64_t term, const struct term_holder *holder,
                                                  struct error *err);
/* Sets the terms that this agent has reserved (0, 0: none): they end no term, whatever their files say. */
void persistent_set_reserved(struct persistent *p, uint64_t first, uint64_t last);
/* Poison counter. Notes in term.<T> that this term restores `version`, has committed, or has ended well (an evaluation
 * saves nothing). restore_tries: how many terms in a row, right before this one, restored the same version and then
 * neither committed nor ended well. */
must_check tck_status_t persistent_note_restore(struct persistent *p, uint64_t term, struct version version,
                                                struct error *err);
must_check tck_status_t persistent_note_commit(struct persistent *p, uint64_t term, struct error *err);
must_check tck_status_t persistent_note_end(struct persistent *p, uint64_t term, struct error *err);
must_check tck_status_t persistent_restore_tries(struct persistent *p, uint64_t term, struct version *version_out,
                                                 uint32_t *tries_out, struct error *err);
/* The commits noted by the terms below `term`, here and in load_dir. If there are none, it also checks whether save_dir
 * has the same job under a name that was derived from another path (moved_job.h). */
struct commit_notes {
    uint64_t newest;     /* the newest term that has noted one; 0: none */
    struct error unsure; /* code TCK_OK: `newest` is certain. Else why not: a note that is damaged or cannot be read, or
                            a job that was moved */
};
must_check tck_status_t persistent_commit_notes(struct persistent *p, uint64_t term, struct commit_notes *out,
                                                struct error *err);
/* From now on, everything that was saved so far is ignored; the files stay. Claims a term, *term_out, so that a
 * training still running cannot publish any more; all terms up to it are forgotten, also in archive_dir, which must be
 * there for it. alone: no start is under way, which
 * the caller has to know where the server ignores conditions; else TCK_ERR_UNSUPPORTED there. */
must_check tck_status_t persistent_forget(struct persistent *p, bool alone, uint64_t *term_out, struct error *err);

/* ---- drain --------------------------------------------------------------------------------------------------- */

/* Writes one shard file into the stage of its version: io_uring, O_DIRECT, 4 MiB requests, a few in flight; then syncs
 * it. A file whose write, sync or close fails is abandoned and never synced again: the next put uses a new name. */
must_check tck_status_t persistent_put(struct persistent *p, const struct tier_item *item, tier_done_fn *done,
                                       void *ctx, struct error *err);
/* Puts that were throttled ask again. */
void persistent_resume(struct persistent *p);
/* Whether files in save_dir share blocks with those of the last published version where nothing has changed. */
enum clones_state {
    CLONES_OFF,     /* that is configured, or save_dir is no directory */
    CLONES_UNKNOWN, /* nothing was put yet */
    CLONES_WORK,
    CLONES_REFUSED, /* the file system cannot */
};
/* why_out: why the last file was written as a whole; "": it was not, or that is not known. */
enum clones_state persistent_clones(const struct persistent *p, const char **why_out);
/* Called by the coordinator when all shards of the version are in the stage: checks that each file exists with its
 * size, writes the manifest, syncs, publishes by rename, syncs the directory, calls done, and then applies
 * max_ckpt_num. TCK_ERR_DENIED once a higher term than the coordinator's is claimed; the version itself may be of an
 * older term, whose version this one has restored. TCK_OK if the same content is published already, TCK_ERR_EXIST if
 * another is. */
struct publish_ask {
    const struct manifest *manifest; /* like progress, the caller's until done */
    uint64_t term;
    struct progress *progress; /* NULL: not tracked */
    const atomic_bool
        *given_up;        /* NULL: it never is; set: it ends early with TCK_ERR_CANCELED, before its next change */
    uint64_t *newer_term; /* NULL: not wanted; set if the publish is refused because this newer term was claimed */
};
must_check tck_status_t persistent_publish(struct persistent *p, const struct publish_ask *ask, tier_done_fn *done,
                                           void *ctx, struct error *err);
/* The same at once, for an archive. Blocking. */
must_check tck_status_t persistent_publish_now(struct persistent *p, const struct publish_ask *ask, struct error *err);
/* Removes the remains of interrupted operations: stages of this term and older ones except that of `keep`, the content
 * of the trash, and part files. Called when a term has formed, with the term before it. */
must_check tck_status_t persistent_sweep(struct persistent *p, uint64_t term, struct version keep, struct error *err);

/* Publishes do not delete this version of save_dir until another one or VERSION_NONE is given: it is being copied. */
void persistent_pin(struct persistent *p, struct version version);

/* ---- load ---------------------------------------------------------------------------------------------------- */

/* All versions in save_dir and load_dir or archive_dir, each once: of two with the same name, the one of better
 * standing. TCK_OK only if both were listed completely, or if archive_dir was not and the newest version of save_dir is
 * good: then `unread` says why, and the archive, into which only such versions are copied, has no newer one. Blocking:
 * reads manifests. */
must_check tck_status_t persistent_survey(struct persistent *p, struct survey *out, struct error *err);
/* Only of these versions are the manifests read and the files looked at, which for all of them takes long if there are
 * hundreds; out->deeper names the newest of the others. */
must_check tck_status_t persistent_survey_newest(struct persistent *p, struct survey_range range, struct survey *out,
                                                 struct error *err);
void survey_free(struct survey *survey);
/* The good ones of them, newest first; the caller frees them. Warnings say what is wrong with the others. */
must_check tck_status_t persistent_list(struct persistent *p, struct published **out, size_t *count_out,
                                        struct error *err);
/* The same without archive_dir, which is not asked for anything: it may hang. */
must_check tck_status_t persistent_list_without_archive(struct persistent *p, struct published **out, size_t *count_out,
                                                        struct error *err);
/* Of save_dir alone; nothing if the job has no directory there. */
must_check tck_status_t persistent_survey_save_dir(struct persistent *p, struct survey *out, struct error *err);
/* Of archive_dir alone, also of versions that save_dir has. */
must_check tck_status_t persistent_survey_archive(struct persistent *p, struct survey *out, struct error *err);
/* Whether the job has a directory in save_dir: with only_reads it may have one in the second place alone. */
must_check bool persistent_is_in_save_dir(const struct persistent *p);
must_check tck_status_t persistent_manifest(struct persistent *p, const struct published *which, struct manifest *out,
                                            struct error *err);
/* One shard's file in a published version. */
struct found_file {
    struct hash128 shard;
    struct error outcome;      /* if it is TCK_OK: */
    struct published which;    /* where it is */
    struct manifest_file file; /* its crcs are the caller's */
};
/* Finds the files of these shards of the version that a recovery has chosen, each in save_dir, or in the second place
 * if save_dir has no good manifest of the version or lacks that file; files[i].shard says which. A manifest describes
 * all shards of the job, so each is read once for all of these, and only what it says about them is kept. Lists no
 * directory. If there is no second place, files in a directory are left to persistent_get. Blocking. */
void persistent_find(struct persistent *p, struct version version, struct found_file *files, uint32_t count);
/* Reads one shard file of a published version into the item's slot; checks size, chunks and root against the manifest.
 */
must_check tck_status_t persistent_get(struct persistent *p, const struct published *which,
                                       const struct manifest_file *file, struct tier_item *item, tier_done_fn *done,
                                       void *ctx, struct error *err);
/* Reads and checks every file of a published version. Blocking, without a time limit: for the command. */
must_check tck_status_t persistent_verify(struct persistent *p, const struct published *which, struct error *err);
/* The same for chunks first to end - 1 of one of its files. Blocking: for a pool thread. */
must_check tck_status_t persistent_verify_part(struct persistent *p, const struct published *which,
                                               const struct manifest_file *file, uint32_t first, uint32_t end,
                                               struct error *err);

/* Rebuilds a damaged file of a version in save_dir, with its original bytes: good chunks from the file itself, the
 * others from image. The image may have been overwritten, so each chunk is checked against the manifest.
 * TCK_ERR_CORRUPT if neither has a good one. Blocking: for a pool thread. */
must_check tck_status_t persistent_repair(struct persistent *p, const struct published *which,
                                          const struct manifest_file *file, const uint8_t *image, struct error *err);

/* ---- retention ----------------------------------------------------------------------------------------------- */

/* Un-publishes and deletes all but the newest `keep` good versions of save_dir; never the newest, never `pinned`. With
 * dry_run, only fills removed_out (may be NULL; the caller frees it). If one cannot be removed, the others still are,
 * and the call returns an error with removed_out filled. For the command, on a user's request: a publish removes only
 * the ancestors of its version (core/retention.h). */
must_check tck_status_t persistent_prune(struct persistent *p, uint32_t keep, struct version pinned, bool dry_run,
                                         struct published **removed_out, size_t *count_out, struct error *err);

#endif
