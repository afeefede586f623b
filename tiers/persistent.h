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

#include "tiers/published_versions.h"
#include "tiers/term_holder.h"
#include "tiers/tier.h"

struct persistent;

struct persistent_setup {
    struct loop *loop; /* NULL, and pool too: for the blocking calls alone, in a command without a loop */
    struct pool *pool;
    const struct config *config; /* must stay; max_ckpt_num is read again at each publish */
    bool only_reads;             /* nothing is made or written, nor can be: there is no audit file, for one */
    /* Called whenever a blocking call has come further; NULL: nobody is. Not used with a pool. */
    void (*moved)(void *ctx);
    void *moved_ctx;
    /* A term that was claimed in the job's directory, so that this must be there; 0: none. */
    uint64_t claimed;
};

/* A directory with a version's name, and the state of what it contains. */
struct candidate {
    struct published which;
    enum standing standing;
    char *why; /* owned; NULL: nothing is wrong with it */
};

struct survey {
    uint64_t forgotten; /* what terms up to this one have saved does not count, and is not here */
    size_t count;
    struct candidate *candidates; /* owned; newest first */
};

/* Finds or makes the directories and the marker. TCK_ERR_DENIED if <save_dir>/<job> is there, not empty and not ours.
 * With only_reads TCK_ERR_NOENT if neither save_dir nor load_dir, which are there, has a directory of the job. */
must_check tck_status_t persistent_new(const struct persistent_setup *setup, struct persistent **out,
                                       struct error *err);
/* Ends the calls under way with TCK_ERR_CANCELED, here or, of those whose work is in the pool, in pool_free. The pool
 * may be freed before or after. */
void persistent_free(struct persistent *p);

/* When storage last did something for a call of this tier (clock_ms), 0: not yet. */
uint64_t persistent_moved_ms(const struct persistent *p);
/* The puts under way have been given up by their callers, whose slots may be used for something else from now on. Their
 * done still runs once, when storage lets it, and what they write gets no name. */
void persistent_give_up(struct persistent *p);

/* The job directory below save_dir (for the secret); stays p's. */
int persistent_dir_fd(const struct persistent *p);

/* Claims the lowest free term above at_least - 1 and syncs it. Blocking, milliseconds. */
must_check tck_status_t persistent_claim_term(struct persistent *p, uint64_t at_least, uint64_t *term_out,
                                              struct error *err);
/* The same, with whom the term belongs to. */
struct term_claim {
    uint64_t at_least;
    bool follows;  /* only if `seen` is still the newest here, else TCK_ERR_EXIST */
    uint64_t seen; /* of struct term_holders */
    const struct term_holder *holder;
};
must_check tck_status_t persistent_claim(struct persistent *p, const struct term_claim *claim, uint64_t *term_out,
                                         struct error *err);
/* TCK_ERR_NOENT if nobody has claimed this term in save_dir. Blocking. */
must_check tck_status_t persistent_find_claim(struct persistent *p, uint64_t term, struct error *err);
/* Notes in term.<T> who has joined it. */
must_check tck_status_t persistent_note_holder(struct persistent *p, uint64_t term, const struct term_holder *holder,
                                               struct error *err);
/* To whom the newest terms belong: newest first, down to the first one that all its ranks have joined. */
struct term_holders {
    uint64_t newest; /* claimed here; 0: none */
    uint64_t seen;   /* the same, with those that are reserved */
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
/* Reserves terms for the successors of the term `by`: files that nobody claims and that end no term, made by link(2),
 * so that each is there with all that it says, or not at all. */
struct term_reserve {
    uint64_t by;
    uint64_t first, last; /* how many, and from where on if they are free */
    bool follows;         /* only from there on */
};
/* 0 in both if there is none to be had; fewer than wanted is no error. Blocking. */
must_check tck_status_t persistent_reserve(struct persistent *p, const struct term_reserve *wanted, uint64_t *first_out,
                                           uint64_t *last_out, struct error *err);
/* Those that the caller has reserved and will not give to anyone. */
must_check tck_status_t persistent_unreserve(struct persistent *p, uint64_t first, uint64_t last, struct error *err);
/* The holder of a reserved term, to whom its owner has given it. TCK_ERR_EXIST: a start has claimed a higher one, past
 * the reservation. Blocking. */
must_check tck_status_t persistent_claim_reserved(struct persistent *p, uint64_t term, const struct term_holder *holder,
                                                  struct error *err);
/* The terms that this agent has reserved, 0 and 0 for none: they end no term, whatever their files say. */
void persistent_set_reserved(struct persistent *p, uint64_t first, uint64_t last);
/* Poison counter: notes in term.<T> that this term restores `version`; and which version the terms before this one
 * restored last with no commit after it and without ending well (an evaluation saves nothing), and how many of them in
 * a row. */
must_check tck_status_t persistent_note_restore(struct persistent *p, uint64_t term, struct version version,
                                                struct error *err);
must_check tck_status_t persistent_note_commit(struct persistent *p, uint64_t term, struct error *err);
must_check tck_status_t persistent_note_end(struct persistent *p, uint64_t term, struct error *err);
must_check tck_status_t persistent_restore_tries(struct persistent *p, uint64_t term, struct version *version_out,
                                                 uint32_t *tries_out, struct error *err);
/* What the notes of the terms below `term`, here and in load_dir, say of commits. With none, it also looks whether
 * save_dir has the same job under a name that was derived from another path (moved_job.h). */
struct commit_notes {
    uint64_t newest;     /* term that has noted one; 0: none has */
    struct error unsure; /* code TCK_OK: none. Else why it may be another one: a note that is damaged or cannot be read,
                            or a job that was moved */
};
must_check tck_status_t persistent_commit_notes(struct persistent *p, uint64_t term, struct commit_notes *out,
                                                struct error *err);
/* From now on nothing counts that was saved so far; it stays where it is. Claims a term, so that what still runs
 * no longer publishes: *term_out, up to which all is forgotten. */
must_check tck_status_t persistent_forget(struct persistent *p, uint64_t *term_out, struct error *err);

/* ---- drain --------------------------------------------------------------------------------------------------- */

/* Writes one shard file into the stage of its version: io_uring, O_DIRECT, 4 MiB requests, a few in flight; then
 * synced. After an error of write, sync or close the file is given up, never synced again: the next put uses a new
 * name. */
must_check tck_status_t persistent_put(struct persistent *p, const struct tier_item *item, tier_done_fn *done,
                                       void *ctx, struct error *err);
/* Called by the coordinator when all shards of the version are in the stage: checks that each file is there with its
 * size, writes the manifest, syncs, publishes by rename, syncs the directory: done. Then applies max_ckpt_num. Refused
 * with TCK_ERR_DENIED once a higher term than the coordinator's was claimed; the version may be of an older one, which
 * this one has restored. TCK_OK again if the same was published before, TCK_ERR_EXIST if something else stands there.
 */
struct publish_ask {
    const struct manifest *manifest; /* this and progress: the caller's until done */
    uint64_t term;
    struct progress *progress; /* NULL: nobody watches */
};
must_check tck_status_t persistent_publish(struct persistent *p, const struct publish_ask *ask, tier_done_fn *done,
                                           void *ctx, struct error *err);
/* Removes what acts that were cut off have left: stages of this term and older ones but that of `keep`, what lies in
 * the trash, part files (called when a term has formed, with the term before it). */
must_check tck_status_t persistent_sweep(struct persistent *p, uint64_t term, struct version keep, struct error *err);

/* ---- load ---------------------------------------------------------------------------------------------------- */

/* All that save_dir and load_dir have, each version once: of two with the same name the one of better standing. TCK_OK
 * only if both directories were listed completely. Blocking: reads manifests. */
must_check tck_status_t persistent_survey(struct persistent *p, struct survey *out, struct error *err);
void survey_free(struct survey *survey);
/* The good ones of them, newest first; the caller frees. What is wrong with the others is logged as warnings. */
must_check tck_status_t persistent_list(struct persistent *p, struct published **out, size_t *count_out,
                                        struct error *err);
/* Calls found for each directory of save_dir with a version's name that is no good version, and says why. Blocking. */
must_check tck_status_t persistent_list_invalid(struct persistent *p, void (*found)(void *ctx, const char *why),
                                                void *ctx, struct error *err);
must_check tck_status_t persistent_manifest(struct persistent *p, const struct published *which, struct manifest *out,
                                            struct error *err);
/* Where the version is that a recovery has chosen: in save_dir, or in load_dir if it has no good manifest there or
 * lacks this shard's file. Lists nothing. Blocking. */
must_check tck_status_t persistent_find(struct persistent *p, struct version version, struct hash128 shard,
                                        struct published *which_out, struct manifest *manifest_out, struct error *err);
/* Reads one shard file of a published version into the item's slot, checking size, chunks and root by the manifest. */
must_check tck_status_t persistent_get(struct persistent *p, const struct published *which,
                                       const struct manifest_file *file, struct tier_item *item, tier_done_fn *done,
                                       void *ctx, struct error *err);
/* Reads and checks every file of a published version. Blocking, as long as it takes: for the command. */
must_check tck_status_t persistent_verify(struct persistent *p, const struct published *which, struct error *err);
/* The same of chunks first to end - 1 of one of its files. Blocking: for a pool thread. */
must_check tck_status_t persistent_verify_part(struct persistent *p, const struct published *which,
                                               const struct manifest_file *file, uint32_t first, uint32_t end,
                                               struct error *err);

/* Rebuilds a damaged file of a version in save_dir, with the same bytes as ever: good chunks from the file itself,
 * the others from image, which may be something else by now, so each is checked by the manifest. TCK_ERR_CORRUPT if
 * neither has them. Blocking: for a pool thread. */
must_check tck_status_t persistent_repair(struct persistent *p, const struct published *which,
                                          const struct manifest_file *file, const uint8_t *image, struct error *err);

/* ---- retention ----------------------------------------------------------------------------------------------- */

/* Un-publishes and deletes all but the newest `keep` good ones of save_dir; never the newest, never `pinned`. With
 * dry_run only fills removed_out (may be NULL; caller frees). If one of them cannot be removed the others are, and it
 * is an error all the same, with removed_out filled. For the command: it is what a user asked for. A publish removes
 * only what it supersedes, ancestors of its version (core/retention.h). */
must_check tck_status_t persistent_prune(struct persistent *p, uint32_t keep, struct version pinned, bool dry_run,
                                         struct published **removed_out, size_t *count_out, struct error *err);

#endif
