/* SPDX-License-Identifier: Apache-2.0
 * Ranks as threads. */
#include "ranks.h"
#include "base/digest.h"

#include <stdlib.h>
#include <string.h>

/* A round's cards lie still while the next one is gathered: nobody is two ahead of anybody. */
static int allgather(void *ctx, const void *in, void *out, size_t len)
{
    struct rank *rank = ctx;
    struct ranks *all = rank->all;
    bool broken;

    pthread_mutex_lock(&all->lock);
    if (all->dies_at > 0 && rank->number == all->dies && rank->gathers == all->dies_at) {
        all->broken = true;
        pthread_cond_broadcast(&all->met);
    }
    if (all->broken) {
        pthread_mutex_unlock(&all->lock);
        return -1;
    }
    rank->gathers++;
    uint64_t round = all->round;
    struct cards *cards = &all->cards[round % 2];
    if (all->here == 0) {
        cards->bytes = len;
        cards->data = realloc(cards->data, len * all->world.world_size);
    }
    if (cards->bytes != len) {
        abort(); /* ranks in different places: a mistake that would hang elsewhere */
    }
    memcpy(cards->data + rank->number * len, in, len);
    if (++all->here == all->world.world_size) {
        all->here = 0;
        all->round++;
        pthread_cond_broadcast(&all->met);
    }
    while (all->round == round && !all->broken) {
        pthread_cond_wait(&all->met, &all->lock);
    }
    broken = all->round == round;
    memcpy(out, cards->data, len * all->world.world_size);
    pthread_mutex_unlock(&all->lock);
    return broken ? -1 : 0;
}

void ranks_begin(struct ranks *ranks, uint32_t count, const struct spread_ops *ops)
{
    memset(ranks, 0, sizeof(*ranks));
    ranks->world = (struct world){.world_size = count, .shards = ranks->shards, .shard_ranks = ranks->shard_ranks};
    ranks->ops = ops;
    ranks->timeout_ms = 60000;
    ranks->slow_bytes = 100000;
    pthread_mutex_init(&ranks->lock, NULL);
    pthread_cond_init(&ranks->met, NULL);
    for (uint32_t r = 0; r < count; r++) {
        struct rank *rank = &ranks->ranks[r];

        rank->all = ranks;
        rank->number = r;
        rank->oob = (struct oob){{allgather, rank}, r, count};
        rank->own = (struct spread_own){0, rank->roots, rank->images, rank->came};
    }
}

static void fill(uint8_t *image, uint64_t bytes, uint32_t seed)
{
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

    for (uint64_t i = 0; i < bytes; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        image[i] = (uint8_t)x;
    }
}

static struct hash128 digest(const uint8_t *image, uint64_t bytes)
{
    uint32_t *crcs = malloc(chunk_count(bytes) * sizeof(*crcs));
    struct hash128 root = digest_image(image, bytes, crcs);

    free(crcs);
    return root;
}

void ranks_shard(struct ranks *ranks, const char *text, uint64_t bytes)
{
    uint32_t n = ranks->world.shard_count++, first = n == 0 ? 0 : ranks->shards[n - 1].first_rank;

    first += n == 0 ? 0 : ranks->shards[n - 1].rank_count;
    ranks->shards[n] = (struct world_shard){{n + 1, 1}, bytes, first, (uint32_t)strlen(text)};
    ranks->images[n] = malloc(bytes);
    fill(ranks->images[n], bytes, n + 1);
    for (uint32_t i = 0; text[i] != '\0'; i++) {
        bool here = text[i] < 'a';
        struct rank *rank = &ranks->ranks[text[i] - (here ? 'A' : 'a')];
        uint32_t k = rank->own.count++;

        ranks->shard_ranks[first + i] = rank->number;
        rank->shards[k] = n;
        rank->roots[k] = here ? digest(ranks->images[n], bytes) : (struct hash128){0};
        rank->images[k] = here ? ranks->images[n] : NULL;
    }
}

static struct spread_run run_of(const struct ranks *ranks, const struct rank *rank)
{
    return (struct spread_run){&rank->oob, &ranks->world, ranks->ops, ranks->timeout_ms, ranks->slow_bytes};
}

static void *rank_main(void *arg)
{
    struct rank *rank = arg;
    struct spread_run run = run_of(rank->all, rank);

    if (rank->all->enter != NULL) {
        rank->all->enter(rank->number);
    }
    rank->status = TCK_ERR_INTERNAL; /* if it is gone before it returns */
    rank->status = spread_run(&run, &rank->own, &rank->err);
    return NULL;
}

void ranks_run(struct ranks *ranks)
{
    for (uint32_t r = 0; r < ranks->world.world_size; r++) {
        pthread_create(&ranks->ranks[r].thread, NULL, rank_main, &ranks->ranks[r]);
    }
    for (uint32_t r = 0; r < ranks->world.world_size; r++) {
        pthread_join(ranks->ranks[r].thread, NULL);
    }
}

const uint8_t *ranks_image(const struct ranks *ranks, uint32_t rank, uint32_t shard)
{
    const struct rank *of = &ranks->ranks[rank];

    for (uint32_t k = 0; k < of->own.count; k++) {
        if (of->shards[k] == shard) {
            return of->images[k];
        }
    }
    return NULL;
}

bool ranks_all_whole(const struct ranks *ranks)
{
    for (uint32_t n = 0; n < ranks->world.shard_count; n++) {
        const struct world_shard *shard = &ranks->shards[n];

        for (uint32_t i = shard->first_rank; i < shard->first_rank + shard->rank_count; i++) {
            const uint8_t *image = ranks_image(ranks, ranks->shard_ranks[i], n);

            if (image == NULL || memcmp(image, ranks->images[n], shard->image_bytes) != 0) {
                return false;
            }
        }
    }
    return true;
}

void ranks_end(struct ranks *ranks)
{
    for (uint32_t r = 0; r < ranks->world.world_size; r++) {
        struct spread_run run = run_of(ranks, &ranks->ranks[r]);

        spread_forget(&run, &ranks->ranks[r].own);
    }
    for (uint32_t n = 0; n < ranks->world.shard_count; n++) {
        free(ranks->images[n]);
    }
    free(ranks->cards[0].data);
    free(ranks->cards[1].data);
    pthread_cond_destroy(&ranks->met);
    pthread_mutex_destroy(&ranks->lock);
}
