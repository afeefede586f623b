/* SPDX-License-Identifier: Apache-2.0
 * The table of versions, shards, holders and drain progress (RocksDB; catalog_rocksdb.c is the only file that includes
 * its header). It serves the command and keeps hints over restarts, but it is never the truth: deleting it does not
 * change any recovery. Each transition is one write batch. A torn tail of its log is tolerated; if it cannot be opened
 * for another reason, it is moved aside and rebuilt from the rows that the caller adds (from headers and manifests).
 * Keys and values: docs/formats.md. */
#ifndef TCK_RECOVERY_CATALOG_H
#define TCK_RECOVERY_CATALOG_H

#include "base/world.h"

struct catalog;

enum catalog_state { CATALOG_OPEN, CATALOG_PROTECTED, CATALOG_COMMITTED, CATALOG_PUBLISHED, CATALOG_ABORTED };
const char *catalog_state_name(enum catalog_state state);

#define CATALOG_VERSION_FIELDS(F)                             \
    F(version, version)                                       \
    F(choice, enum catalog_state, state, CATALOG_ABORTED + 1) \
    F(u64, wall_ms) /* of the last transition */              \
    F(u32, shard_count)                                       \
    F(u64, bytes)                                             \
    F(u32, drained_shards) /* of this node's part */
SCHEMA_STRUCT(catalog_version, CATALOG_VERSION_FIELDS)

#define CATALOG_HOLDERS_MAX 8

#define CATALOG_SHARD_FIELDS(F) \
    F(version, version)         \
    F(hash128, shard)           \
    F(hash128, root)            \
    F(u64, bytes)               \
    F(few, holder_count, CATALOG_HOLDERS_MAX, str, holders, CONFIG_NAME) /* node names */
SCHEMA_STRUCT(catalog_shard, CATALOG_SHARD_FIELDS)

/* rebuilt_out: the old one would not open and was moved to <dir>.bad-<time>; the caller should feed what it knows. In
 * use by another process: TCK_ERR_BUSY. The parent directory must exist. */
must_check tck_status_t catalog_open(const char *dir, struct catalog **out, bool *rebuilt_out, struct error *err);
void catalog_close(struct catalog *catalog);

/* One transition: the version's row and its shards' rows, in one batch; sync waits for the device (commits only). */
must_check tck_status_t catalog_put(struct catalog *catalog, const struct catalog_version *version,
                                    const struct catalog_shard *shards, uint32_t shard_count, bool sync,
                                    struct error *err);
/* Deletes the version and its shards in one batch. */
must_check tck_status_t catalog_drop(struct catalog *catalog, struct version version, struct error *err);

/* Newest first; the caller frees. */
must_check tck_status_t catalog_versions(struct catalog *catalog, struct catalog_version **out, size_t *count_out,
                                         struct error *err);
/* The newest version of a term before this one that is committed or published; 0.0 if there is none. */
must_check tck_status_t catalog_newest_commit(struct catalog *catalog, uint64_t before, struct version *out,
                                              struct error *err);
must_check tck_status_t catalog_shards(struct catalog *catalog, struct version version, struct catalog_shard **out,
                                       size_t *count_out, struct error *err);

/* Members of earlier terms, by name, so that a node outside the newest world still gives its copies. */
must_check tck_status_t catalog_remember_node(struct catalog *catalog, const struct node_info *node, uint64_t term,
                                              struct error *err);
must_check tck_status_t catalog_nodes(struct catalog *catalog, struct known_node **out, size_t *count_out,
                                      struct error *err);
/* All of them, in one batch. */
must_check tck_status_t catalog_forget_nodes(struct catalog *catalog, const struct known_node *nodes, size_t count,
                                             struct error *err);

/* Total decoders of values, for the fuzzers. */
must_check tck_status_t catalog_version_decode(const void *data, size_t len, struct catalog_version *out);
must_check tck_status_t catalog_shard_decode(const void *data, size_t len, struct catalog_shard *out);

#endif
