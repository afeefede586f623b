/* SPDX-License-Identifier: Apache-2.0
 * The recovery decision: from what exists and what is wanted to a version and where each piece comes from, or to the
 * reason why there is none. Pure and deterministic. */
#ifndef TCK_RECOVERY_PLAN_H
#define TCK_RECOVERY_PLAN_H

#include "recovery/inventory.h"
#include "recovery/placement.h"

/* A version on storage, as its manifest tells. */
struct stored_version {
    struct version version;
    struct hash128 layout;
    uint32_t shard_count;
    const struct hash128 *shards; /* sorted */
};

/* One copy that turned out to be bad: plan again without it. source NONE32: the one on storage. */
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
    uint32_t stored_count;
    const struct stored_version *stored; /* newest first */
    uint32_t bad_count;
    const struct bad_copy *bad;
    uint64_t step;          /* TCK_NEWEST or the one asked for */
    struct version only;    /* no other version is a candidate; VERSION_NONE: all are */
    struct version give_up; /* poisoned: not taken unless step asks for it; VERSION_NONE: none */
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
    struct version version;
    uint32_t missing;       /* shards without any copy */
    struct hash128 example; /* one of them */
    bool poisoned, other_layout;
    bool unsaved; /* committed, whole in memory, not on storage, and so it cannot be resharded */
};

#define PLAN_PASSED_MAX 16

struct plan {
    struct version version; /* VERSION_NONE: nothing restorable; see reason */
    bool nothing_saved;     /* a fresh start, not a loss: no copy of anything was seen, or only of versions that are not
                               complete and that nobody knows to be committed */
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
};

/* Candidates are all versions seen in memory or storage, newest first. The first one wins that has the world's layout
 * and a copy of every shard, or another layout and is published. One of another layout that is committed and only
 * memory has is not passed over for an older one: there is no version then, and the reason says what brings it to
 * storage. A copy in memory and one on storage of the same version may be mixed. Source by cost: this node's memory, a
 * twin's node (an owner in the world), another node's memory, storage; among equals the least loaded. */
must_check tck_status_t plan_build(const struct plan_input *input, struct plan *out, struct error *err);
/* No version, because one of another layout would have to be brought to storage first. */
bool plan_waits_for_storage(const struct plan *plan);
void plan_free(struct plan *plan);
const char *source_kind_name(uint32_t source);
/* The plan as JSON for `tierckpt plan`; shard, node and source named. The caller frees; NULL if out of memory. */
json_t *plan_json(const struct plan *plan, const struct plan_input *input);

#endif
