/* SPDX-License-Identifier: Apache-2.0
 * Ranks as threads of one process that pass shards to each other: their world, their images, an allgather among them,
 * and what one of them may do wrong. */
#ifndef TCK_TESTS_RANKS_H
#define TCK_TESTS_RANKS_H

#include "client/spread_run.h"

#include <pthread.h>

#define RANKS_MAX       8
#define RANK_SHARDS_MAX 6

struct ranks;

struct rank {
    struct ranks *all;
    uint32_t number;
    pthread_t thread;
    struct oob oob;
    struct spread_own own;
    struct hash128 roots[RANK_SHARDS_MAX];
    uint8_t *images[RANK_SHARDS_MAX]; /* as own.images */
    bool came[RANK_SHARDS_MAX];
    uint32_t shards[RANK_SHARDS_MAX]; /* of the world */
    uint32_t gathers;                 /* calls of its allgather */
    tck_status_t status;
    struct error err;
};

struct ranks {
    struct world world;
    struct world_shard shards[RANK_SHARDS_MAX];
    uint32_t shard_ranks[RANK_SHARDS_MAX * RANKS_MAX];
    uint8_t *images[RANK_SHARDS_MAX]; /* what each shard should be */
    struct rank ranks[RANKS_MAX];
    const struct spread_ops *ops;
    uint32_t timeout_ms, slow_bytes;
    void (*enter)(uint32_t rank); /* called first in a rank's thread; or NULL */
    /* the allgather */
    pthread_mutex_t lock;
    pthread_cond_t met;
    struct cards {
        uint8_t *data;
        size_t bytes;
    } cards[2];
    uint32_t here;
    uint64_t round;
    bool broken; /* a rank has gone: all calls fail, as a process group's do */
    /* told before ranks_run */
    uint32_t dies_at; /* gathers after which rank `dies` is gone for the others; 0: never */
    uint32_t dies;
};

void ranks_begin(struct ranks *ranks, uint32_t count, const struct spread_ops *ops);
/* As in unit tests of routes: "Abd" is a shard of ranks 0, 1, 3, of which rank 0 has it. */
void ranks_shard(struct ranks *ranks, const char *text, uint64_t bytes);
/* All ranks spread; each one's outcome lies in its status and err. */
void ranks_run(struct ranks *ranks);
/* The rank's image of that shard of the world; NULL if it has none. */
const uint8_t *ranks_image(const struct ranks *ranks, uint32_t rank, uint32_t shard);
/* Every rank of every shard has the right bytes. */
bool ranks_all_whole(const struct ranks *ranks);
void ranks_end(struct ranks *ranks);

#endif
