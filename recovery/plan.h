/* SPDX-License-Identifier: Apache-2.0
 * The recovery decision. From what exists and what the world needs it derives the version to restore and the source of
 * each piece, or the reason why no version can be restored. Pure and deterministic. */
#ifndef TCK_RECOVERY_PLAN_H
#define TCK_RECOVERY_PLAN_H

#include "recovery/inventory.h"
#include "recovery/placement.h"

/* A version on storage, as its manifest describes it. */
struct stored_version {
    struct version version;
    struct hash128 layout;
    uint32_t shard_count;
    const struct hash128 *shards; /* sorted */
};

/* A directory on storage with a version's name, but no good version. */
struct unfit_version {
    struct version version;
    enum standing standing;
    const char *why;
};

/* What is known about storage; zeroed: nothing. Everything belongs to the caller. */
struct storage_view {
    bool complete;    /* every directory was listed, or all but archive_dir, as newest_only says */
    bool newest_only; /* archive_dir was not listed: it has nothing newer than stored[0], and may have older ones that
                         stored lacks */
    const char *why;  /* not listed; NULL: it was, or storage has not answered yet */
    uint32_t stored_count;
    const struct stored_version *stored; /* newest first */
    uint32_t unfit_count;
    const struct unfit_version *unfit; /* newest first */
    struct version deeper; /* the newest one whose content was not read, because it is not among the newest ones, nor of
                              the step that is asked for; VERSION_NONE: all were */
    struct version noted; /* newest commit that is written down: the note of a term, which does not say the step (0), or
                             the catalog. VERSION_NONE: none is */
    const char *unsure;   /* why a newer one may be; NULL: none */
    bool unsure_passes;   /* that may be known later */
    uint64_t forgotten;   /* versions of terms up to this one no longer count */
    struct version give_up; /* poisoned: not taken unless step asks for it; VERSION_NONE: none */
};

/* One copy that turned out to be bad: the next plan does without it. source NONE32: the one on storage. */
struct bad_copy {
    struct hash128 shard;
    struct version version;
    uint32_t inventory;
};

struct plan_input {
    const struct world *world; /* wanted: shards and who needs them */
    const struct placement *placement;
    uint32_t inventory_count;
    const struct inventory *inventories; /* of reachable agents, in the world or not; world nodes matched by name and
                                            agent id */
    struct storage_view storage;
    uint32_t bad_count;
    const struct bad_copy *bad;
    uint64_t step;         /* TCK_NEWEST or the one asked for */
    struct version only;   /* no other version is a candidate; VERSION_NONE: all are */
    uint64_t unused_terms; /* as of struct recovery_setup */
};

struct plan_action {
    uint32_t shard;     /* world index */
    uint32_t node;      /* world node that needs it (owner or holder) */
    bool for_holder;    /* to protect again; owners come first */
    uint8_t source;     /* enum source_kind */
    uint32_t inventory; /* local, twin, peer: whose copy; NONE32: storage */
    uint64_t bytes;     /* to move: 0 if local */
};

/* Why a version newer than the chosen one was passed over. */
struct passed_over {
    struct version version; /* step 0: some of this term */
    uint32_t missing;       /* shards without any copy */
    struct hash128 example; /* one of them */
    bool poisoned, other_layout;
    bool unsaved; /* of another layout and complete in memory, but not on storage, so it cannot be resharded */
    bool counted; /* it was committed or published: passing it over is a loss, which is always reported */
    bool gone;    /* no copy of it was seen, but some agent knows of its commit, or it was restored before */
    const struct unfit_version *unfit; /* what is wrong with it on storage, of plan_input; or NULL */
};

/* Why no version can be chosen, although there may be some. */
enum plan_block {
    BLOCK_NONE,
    BLOCK_UNREADABLE, /* storage cannot be read now and may have a newer version; it may be readable later */
    BLOCK_DEEPER,     /* the next candidate is storage's `deeper`, or an older one: more of them have to be read */
    BLOCK_FOREIGN     /* the newest is of a format that this build does not read */
};

#define PLAN_PASSED_MAX 16

struct plan {
    struct version version;  /* VERSION_NONE: nothing restorable; see reason */
    struct version fallback; /* the newest complete one before it; VERSION_NONE: none */
    struct version newer; /* the newest complete one after it, of an earlier term than the world's, that may have been
                             committed (newer_version.h), if a step was requested; VERSION_NONE: none */
    enum plan_block blocked; /* then there is no version, and the reason names what blocks the choice */
    bool nothing_saved; /* a fresh start, not a loss: all of storage was seen, no commit is noted anywhere, nothing was
                           restored before, and no copy of anything is there, or only of versions that are not complete
                           and that no agent knows to be committed */
    struct version reshard; /* VERSION_NONE, or the version to take: published, and of another layout. version is none
                               then, and there are no actions: each rank reads what it needs */
    bool from_storage_only;
    uint32_t action_count;
    struct plan_action *actions; /* owned; one per (shard, node that owns or holds it); sorted: owners before holders,
                                    then by shard, then by node */
    uint64_t bytes_by_source[SOURCE_KINDS]; /* of all actions' shards, those already in place included */
    uint32_t passed_count;
    struct passed_over passed[PLAN_PASSED_MAX];
    struct version newest_seen; /* newest version of which anything was seen */
    char reason[512];
    char passed_text[PASSED_TEXT_BYTES]; /* "", or which newer version that counted was passed over, and why */
};

/* Candidates are all versions seen in memory or on storage, newest first. The first one is chosen that has the world's
 * layout and a copy of every shard, or that has another layout and is published. A version that is damaged on storage
 * is passed over, and reported. A version that cannot be read there blocks every older one. So does a listing that
 * failed, unless memory has a version of the term right before the world's, because none newer can be published then.
 * A version on storage whose content was not read yet blocks as well. If only archive_dir was not listed, what blocks
 * is a stored[0] that cannot be chosen. A version of another layout that is complete and that only memory has is not
 * passed over for an older one, nor is it lost: no version is chosen, and the reason says how to publish it. A copy in
 * memory and one on storage of the same version may be mixed. Sources by cost: this node's memory, a twin's node (an
 * owner in the world), another node's memory, storage; among equal ones the least loaded.
 */
must_check tck_status_t plan_build(const struct plan_input *input, struct plan *out, struct error *err);
/* No version is chosen, because one of another layout would have to be published first. */
bool plan_waits_for_storage(const struct plan *plan);
void plan_free(struct plan *plan);
/* The plan as JSON for `tierckpt plan`; shard, node and source named. The caller frees; NULL if out of memory. */
json_t *plan_json(const struct plan *plan, const struct plan_input *input);

#endif
