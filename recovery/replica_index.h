/* SPDX-License-Identifier: Apache-2.0
 * What the planner sees: which versions exist at all, and which usable copies of a version's shards. */
#ifndef TCK_RECOVERY_COPIES_H
#define TCK_RECOVERY_COPIES_H

#include "recovery/plan.h"

struct seen_version {
    struct version version;
    bool layout_matches; /* something of it has the world's layout */
};

/* One usable copy in memory: right layout and size, not known to be bad. */
struct copy {
    struct version version;
    struct hash128 root;
    uint32_t shard; /* world index */
    uint32_t inventory;
};

struct replica_index {
    const struct plan_input *input;
    uint32_t seen_count;
    struct seen_version *seen; /* newest first, each version once */
    size_t count;
    struct copy *items;   /* newest version first, then by shard, root, inventory */
    struct bad_copy *bad; /* sorted */
};

/* Where the usable copies of one shard of one version are. All those in memory have the same root. */
struct coverage {
    size_t first; /* into copies.items */
    uint32_t count;
    bool stored;
};

must_check tck_status_t replica_index_build(const struct plan_input *input, struct replica_index *out,
                                            struct error *err);
void replica_index_free(struct replica_index *copies);

/* Fills out (world->shard_count entries) for this version; returns how many shards have no copy, and one of them. If
 * copies of a shard differ, only those with the most frequent root count; of equally frequent ones, those with the
 * smaller root. The others are never a source for another node, but a node that has one keeps it and restores from it,
 * whatever is planned for it (receive_fetch): twins that differ are reported, not repaired. */
uint32_t replica_index_cover(const struct replica_index *copies, struct version version, struct coverage *out,
                             uint32_t *example_out);

/* Whether some agent knows that this version was committed. */
bool replica_index_committed(const struct replica_index *copies, struct version version);
/* Whether this version, of another layout than the world's, is complete in memory. */
bool replica_index_whole_elsewhere(const struct replica_index *copies, struct version version);

#endif
