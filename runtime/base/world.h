/* SPDX-License-Identifier: Apache-2.0
 * One term's world as every agent and rank sees it: nodes, which rank sits where, and the shards of the whole layout.
 * Built from what the ranks exchanged, so it is the same everywhere. */
#ifndef TCK_BASE_WORLD_H
#define TCK_BASE_WORLD_H

#include "base/config.h"
#include "base/schema.h"

#define WORLD_RANKS_MAX  (1u << 20)
#define WORLD_SHARDS_MAX (1u << 24) /* of all ranks, twins counted each */
#define ADDRESS_TEXT     96         /* "10.0.0.1:40123", or ADDRESSES_MAX of them (address_list.h) */

#define NODE_INFO_FIELDS(F)       \
    F(str, name, CONFIG_NAME)     \
    F(str, domain, CONFIG_NAME)   \
    F(str, address, ADDRESS_TEXT) \
    F(u64, agent_id) /* random per agent process group; survives an agent's restart, not a supervisor's end */
SCHEMA_STRUCT(node_info, NODE_INFO_FIELDS)
SCHEMA_DECLARE_PART(node_info, NODE_INFO_FIELDS)

/* A node that took part in a term: this one or, if it did so again, a later one. */
#define KNOWN_NODE_FIELDS(F) \
    F(part, node_info, node) \
    F(u64, term)
SCHEMA_STRUCT(known_node, KNOWN_NODE_FIELDS)
SCHEMA_DECLARE_PART(known_node, KNOWN_NODE_FIELDS)

/* What one rank reports at attach: of fixed size, ready for an allgather. */
struct rank_hello {
    struct node_info node;
    uint64_t term_seen; /* highest term its agent has adopted */
};
#define RANK_HELLO_FIELDS(F)              \
    F(padded, node.name, CONFIG_NAME)     \
    F(padded, node.domain, CONFIG_NAME)   \
    F(padded, node.address, ADDRESS_TEXT) \
    F(u64, node.agent_id)                 \
    F(u64, term_seen)
SCHEMA_DECLARE_PART(rank_hello, RANK_HELLO_FIELDS)
#define RANK_HELLO_BYTES ((size_t)rank_hello_LEAST_BYTES) /* of each */

/* What one rank reports about one of its shards. */
struct shard_info {
    struct hash128 id;
    uint64_t image_bytes;
    uint8_t private_to_rank; /* no replica group: never has twins */
};

struct world_shard {
    struct hash128 id;
    uint64_t image_bytes;
    uint32_t first_rank; /* into shard_ranks */
    uint32_t rank_count; /* ranks that hold it (twins), ascending */
};
/* Its ranks follow. */
#define WORLD_SHARD_FIELDS(F) \
    F(hash128, id)            \
    F(u64, image_bytes)       \
    F(u32, rank_count)

struct world {
    uint64_t term;
    uint32_t world_size;
    uint32_t node_count;
    struct node_info *nodes; /* by first rank: node 0 has rank 0 and is the coordinator's */
    uint32_t *by_agent;      /* numbers of the nodes, sorted by agent_id */
    uint32_t *node_of_rank;  /* world_size entries */
    /* After world_add_shards: */
    uint32_t shard_count;
    struct world_shard *shards; /* sorted by id */
    uint32_t *shard_ranks;
    struct hash128 layout; /* hash over (id, image_bytes) of all shards in order; zero before world_add_shards */
};

/* hellos: world_size entries in rank order. Ranks with the same node name must have the same agent_id (else
 * TCK_ERR_CONFIG naming the node: two machines with one name). Caller frees with world_free. */
must_check tck_status_t world_build(uint64_t term, const struct rank_hello *hellos, uint32_t world_size,
                                    struct world *out, struct error *err);
/* counts[r] shards of rank r stand one after the other in infos. The same id with another size, or a private id on two
 * ranks, is TCK_ERR_LAYOUT. */
must_check tck_status_t world_add_shards(struct world *world, const struct shard_info *infos, const uint32_t *counts,
                                         struct error *err);
void world_free(struct world *world);

/* Index of the shard, or -1. */
int64_t world_find_shard(const struct world *world, struct hash128 id);
int64_t world_find_node(const struct world *world, const char *name);
/* The same by the node's agent: without a look at each node. */
int64_t world_find_agent(const struct world *world, uint64_t agent_id);
/* Makes by_agent, for a world that was put together by hand. */
must_check tck_status_t world_sort_agents(struct world *world);

/* The whole world, for agents; the decoder is total. */
void world_encode(const struct world *world, struct writer *w);
must_check tck_status_t world_decode(struct reader *r, struct world *out, struct error *err);

/* The layout hash of a world with these shards, sorted by id. */
must_check tck_status_t world_hash_shards(const struct world_shard *shards, uint32_t count, struct hash128 *out);

#endif
