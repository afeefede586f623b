/* SPDX-License-Identifier: Apache-2.0
 * Routes of shards between twins. Every rank goes through the routes in the same order and skips those that it does
 * not take part in. So all ranks of the first unfinished route are waiting at it, and no deadlock is possible. */
#include "client/spread.h"

#include <stdlib.h>
#include <string.h>

static bool is_here(struct hash128 root)
{
    return !hash128_is(root, (struct hash128){0});
}

/* The ranks that have one shard. */
struct stock {
    uint32_t have, lack;
    uint32_t holder; /* the first rank that has it, */
    uint32_t other;  /* and one that has other bytes; NONE32: none */
};

static struct stock take_stock(const struct world *world, const struct world_shard *shard, const struct hash128 *roots)
{
    struct stock stock = {.holder = NONE32, .other = NONE32};

    for (uint32_t i = shard->first_rank; i < shard->first_rank + shard->rank_count; i++) {
        if (!is_here(roots[i])) {
            stock.lack++;
            continue;
        }
        stock.have++;
        if (stock.holder == NONE32) {
            stock.holder = i;
        } else if (!hash128_is(roots[i], roots[stock.holder])) {
            stock.other = i;
        }
    }
    if (stock.other != NONE32) {
        stock.other = world->shard_ranks[stock.other];
    }
    return stock;
}

static tck_status_t check_stock(const struct world *world, const struct world_shard *shard, const struct stock *stock,
                                struct error *err)
{
    char id[HASH128_TEXT];

    hash128_text(shard->id, id);
    if (stock->have == 0) {
        return error_set(err, TCK_ERR_NOENT, "no rank has shard %s", id);
    }
    if (stock->other != NONE32) {
        return error_set(err, TCK_ERR_CORRUPT, "ranks %u and %u have different bytes of shard %s",
                         world->shard_ranks[stock->holder], stock->other, id);
    }
    return TCK_OK;
}

/* Chooses, among the ranks that have the shard, the one that sends the fewest bytes so far; the lowest of several. */
static uint32_t choose_root(const struct world *world, const struct world_shard *shard, const struct hash128 *roots,
                            const uint64_t *sent)
{
    uint32_t best = NONE32;

    for (uint32_t i = shard->first_rank; i < shard->first_rank + shard->rank_count; i++) {
        uint32_t rank = world->shard_ranks[i];

        if (is_here(roots[i]) && (best == NONE32 || sent[rank] < sent[best])) {
            best = rank;
        }
    }
    return best;
}

/* Room for all: each rank of a shard receives it at most once. */
struct draft {
    struct spread spread;
    uint32_t receiver_count;
    uint64_t *sent; /* bytes, by rank */
    uint64_t *busy; /* bytes, by rank: when it finishes its routes so far, including the time that it waits for
                       others */
    bool *member;
};

/* A route occupies all its ranks at once, and each rank takes one route at a time. */
static void queue_route(struct draft *d, struct spread_route *route, uint64_t bytes)
{
    for (uint32_t place = 0; place <= route->count; place++) {
        uint64_t busy = d->busy[spread_rank_at(&d->spread, route, place)];

        route->ahead = busy > route->ahead ? busy : route->ahead;
    }
    for (uint32_t place = 0; place <= route->count; place++) {
        d->busy[spread_rank_at(&d->spread, route, place)] = route->ahead + bytes;
    }
}

static void add_route(struct draft *d, const struct world *world, uint32_t s, const struct hash128 *roots)
{
    const struct world_shard *shard = &world->shards[s];
    struct spread_route *route = &d->spread.routes[d->spread.route_count++];

    *route = (struct spread_route){
        .shard = s, .root = choose_root(world, shard, roots, d->sent), .first = d->receiver_count};
    d->sent[route->root] += shard->image_bytes;
    d->member[route->root] = true;
    for (uint32_t i = shard->first_rank; i < shard->first_rank + shard->rank_count; i++) {
        if (is_here(roots[i])) {
            route->digest = roots[i];
            continue;
        }
        d->spread.receivers[d->receiver_count++] = world->shard_ranks[i];
        d->member[world->shard_ranks[i]] = true;
        route->count++;
    }
    queue_route(d, route, shard->image_bytes);
}

static tck_status_t add_routes(struct draft *d, const struct world *world, const struct hash128 *roots,
                               struct error *err)
{
    for (uint32_t s = 0; s < world->shard_count; s++) {
        struct stock stock = take_stock(world, &world->shards[s], roots);
        tck_status_t status;

        if (stock.lack == 0) {
            continue;
        }
        status = check_stock(world, &world->shards[s], &stock, err);
        if (status != TCK_OK) {
            return status;
        }
        add_route(d, world, s, roots);
    }
    for (uint32_t r = 0; r < world->world_size; r++) {
        if (d->member[r]) {
            d->spread.members[d->spread.member_count++] = r;
        }
    }
    return TCK_OK;
}

static size_t rank_entries(const struct world *world)
{
    size_t count = 0;

    for (uint32_t s = 0; s < world->shard_count; s++) {
        count += world->shards[s].rank_count;
    }
    return count;
}

static bool draft_begin(struct draft *d, const struct world *world)
{
    *d = (struct draft){
        .spread.routes = calloc(world->shard_count + (size_t)1, sizeof(*d->spread.routes)),
        .spread.receivers = calloc(rank_entries(world) + 1, sizeof(*d->spread.receivers)),
        .spread.members = calloc(world->world_size + (size_t)1, sizeof(*d->spread.members)),
        .sent = calloc(world->world_size + (size_t)1, sizeof(*d->sent)),
        .busy = calloc(world->world_size + (size_t)1, sizeof(*d->busy)),
        .member = calloc(world->world_size + (size_t)1, sizeof(*d->member)),
    };
    return d->spread.routes != NULL && d->spread.receivers != NULL && d->spread.members != NULL && d->sent != NULL &&
           d->busy != NULL && d->member != NULL;
}

tck_status_t spread_plan(const struct world *world, const struct hash128 *roots, struct spread *out, struct error *err)
{
    struct draft d;
    tck_status_t status = TCK_OK;

    if (!draft_begin(&d, world)) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for the routes of %u shards", world->shard_count);
    }
    if (status == TCK_OK) {
        status = add_routes(&d, world, roots, err);
    }
    free(d.sent);
    free(d.busy);
    free(d.member);
    if (status != TCK_OK) {
        spread_free(&d.spread);
        return status;
    }
    *out = d.spread;
    return TCK_OK;
}

void spread_free(struct spread *spread)
{
    free(spread->routes);
    free(spread->receivers);
    free(spread->members);
    *spread = (struct spread){0};
}

/* Index of the rank among ascending ones. */
static uint32_t find_rank(const uint32_t *ranks, uint32_t count, uint32_t rank)
{
    uint32_t low = 0, high = count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (ranks[middle] < rank) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && ranks[low] == rank ? low : NONE32;
}

uint32_t spread_place(const struct spread *spread, const struct spread_route *route, uint32_t rank)
{
    uint32_t at;

    if (rank == route->root) {
        return 0;
    }
    at = find_rank(spread->receivers + route->first, route->count, rank);
    return at == NONE32 ? NONE32 : at + 1;
}

uint32_t spread_rank_at(const struct spread *spread, const struct spread_route *route, uint32_t place)
{
    return place == 0 ? route->root : spread->receivers[route->first + place - 1];
}

uint32_t spread_member(const struct spread *spread, uint32_t rank)
{
    return find_rank(spread->members, spread->member_count, rank);
}
