/* SPDX-License-Identifier: Apache-2.0
 * Passes shards among the ranks: finds out what each rank has, carries out the routes, and ends with the agreement
 * that all ranks have theirs. */
#include "client/spread_run.h"
#include "base/buf.h"
#include "base/digest.h"
#include "base/failpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROOT_BYTES 16

/* ---- this rank's shards -------------------------------------------------------------------------------------- */

static bool has_rank(const struct world *world, uint32_t s, uint32_t rank)
{
    const struct world_shard *shard = &world->shards[s];

    for (uint32_t i = shard->first_rank; i < shard->first_rank + shard->rank_count; i++) {
        if (world->shard_ranks[i] == rank) {
            return true;
        }
    }
    return false;
}

/* The world's number of the rank's k-th shard; NONE32 if it has fewer. */
static uint32_t own_shard(const struct world *world, uint32_t rank, uint32_t k)
{
    for (uint32_t s = 0; s < world->shard_count; s++) {
        if (has_rank(world, s, rank) && k-- == 0) {
            return s;
        }
    }
    return NONE32;
}

/* Where own->images has that shard of the world; NONE32 if it is not this rank's. */
static uint32_t own_index(const struct world *world, uint32_t rank, uint32_t shard)
{
    uint32_t k = 0;

    if (!has_rank(world, shard, rank)) {
        return NONE32;
    }
    for (uint32_t s = 0; s < shard; s++) {
        k += has_rank(world, s, rank);
    }
    return k;
}

static uint64_t own_bytes(const struct spread_run *run, uint32_t k)
{
    return run->world->shards[own_shard(run->world, run->oob->rank, k)].image_bytes;
}

void spread_forget(const struct spread_run *run, struct spread_own *own)
{
    for (uint32_t k = 0; k < own->count; k++) {
        if (own->came[k]) {
            munmap(own->images[k], own_bytes(run, k));
            own->images[k] = NULL;
            own->came[k] = false;
        }
    }
}

/* Allocates buffers for the images to receive. */
static tck_status_t make_room(const struct spread_run *run, struct spread_own *own, struct error *err)
{
    for (uint32_t k = 0; k < own->count; k++) {
        uint64_t bytes = own_bytes(run, k);
        void *image;

        if (own->images[k] != NULL) {
            continue;
        }
        image = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (image == MAP_FAILED) {
            return error_set(err, TCK_ERR_NOMEM,
                             "no memory for a shard of %" PRIu64 " bytes that comes from another rank", bytes);
        }
        own->images[k] = image;
        own->came[k] = true;
    }
    return TCK_OK;
}

/* ---- what all have ------------------------------------------------------------------------------------------- */

/* Counts the shards of each rank; returns the maximum. */
static uint32_t count_shards(const struct world *world, uint32_t *counts)
{
    uint32_t most = 0;

    for (uint32_t s = 0; s < world->shard_count; s++) {
        const struct world_shard *shard = &world->shards[s];

        for (uint32_t i = shard->first_rank; i < shard->first_rank + shard->rank_count; i++) {
            uint32_t count = ++counts[world->shard_ranks[i]];

            most = count > most ? count : most;
        }
    }
    return most;
}

/* Reorders the roots from by-rank to by-shard. taken: zeros, one for each rank. */
static void sort_roots(const struct world *world, const uint8_t *all, uint32_t most, uint32_t *taken,
                       struct hash128 *roots)
{
    for (uint32_t s = 0; s < world->shard_count; s++) {
        const struct world_shard *shard = &world->shards[s];

        for (uint32_t i = shard->first_rank; i < shard->first_rank + shard->rank_count; i++) {
            uint32_t rank = world->shard_ranks[i];
            size_t at = ((size_t)rank * most + taken[rank]++) * ROOT_BYTES;
            struct reader r = reader_of(all + at, ROOT_BYTES);

            roots[i] = read_hash128(&r);
        }
    }
}

static void encode_roots(const struct spread_own *own, uint8_t *out)
{
    for (uint32_t k = 0; k < own->count; k++) {
        struct writer w = writer_new(ROOT_BYTES);

        write_hash128(&w, own->roots[k]);
        if (!w.failed) { /* otherwise the shard counts as missing */
            memcpy(out + (size_t)k * ROOT_BYTES, w.data, ROOT_BYTES);
        }
        writer_free(&w);
    }
}

static size_t rank_entries(const struct world *world)
{
    size_t count = 0;

    for (uint32_t s = 0; s < world->shard_count; s++) {
        count += world->shards[s].rank_count;
    }
    return count;
}

/* Gathers the roots of every rank's images, by the entries of world->shard_ranks; the caller frees them. */
static tck_status_t exchange_roots(const struct spread_run *run, const struct spread_own *own, struct hash128 **out,
                                   struct error *err)
{
    uint32_t world_size = run->oob->world_size;
    uint32_t *counts = calloc(2 * (size_t)world_size, sizeof(*counts));
    uint32_t most = counts == NULL ? 0 : count_shards(run->world, counts);
    struct hash128 *roots = calloc(rank_entries(run->world) + 1, sizeof(*roots));
    uint8_t *mine = calloc(most + (size_t)1, ROOT_BYTES);
    uint8_t *all = calloc((size_t)world_size * most + 1, ROOT_BYTES);
    tck_status_t status = TCK_OK;

    if (counts == NULL || roots == NULL || mine == NULL || all == NULL) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for the roots of %u ranks", world_size);
    } else if (counts[run->oob->rank] != own->count) {
        status = error_set(err, TCK_ERR_INTERNAL, "rank %u has %u shards, but %u in its world", run->oob->rank,
                           own->count, counts[run->oob->rank]);
    } else {
        encode_roots(own, mine);
    }
    status = oob_exchange(run->oob, status, mine, all, (size_t)most * ROOT_BYTES, err);
    if (status == TCK_OK) {
        sort_roots(run->world, all, most, counts + world_size, roots);
        *out = roots;
        roots = NULL;
    }
    free(roots);
    free(all);
    free(mine);
    free(counts);
    return status;
}

/* ---- the bytes ----------------------------------------------------------------------------------------------- */

/* NULL: this rank does not take part in the route. */
static uint8_t *image_for(const struct spread_run *run, const struct spread *spread, const struct spread_route *route,
                          const struct spread_own *own)
{
    uint32_t k;

    if (spread_place(spread, route, run->oob->rank) == NONE32) {
        return NULL;
    }
    k = own_index(run->world, run->oob->rank, route->shard);
    return own->images[k];
}

static tck_status_t check_arrived(const struct spread_run *run, const struct spread_route *route, const uint8_t *image,
                                  struct error *err)
{
    const struct world_shard *shard = &run->world->shards[route->shard];
    uint32_t *crcs = malloc(chunk_count(shard->image_bytes) * sizeof(*crcs));
    char id[HASH128_TEXT];
    bool whole;

    if (crcs == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the digests of a shard");
    }
    whole = hash128_is(digest_image(image, shard->image_bytes, crcs), route->digest);
    free(crcs);
    if (!whole) {
        hash128_text(shard->id, id);
        return error_set(err, TCK_ERR_CORRUPT, "shard %s arrived damaged from rank %u", id, route->root);
    }
    return TCK_OK;
}

static tck_status_t check_all(const struct spread_run *run, const struct spread *spread, const struct spread_own *own,
                              struct error *err)
{
    tck_status_t status = TCK_OK;

    for (uint32_t i = 0; i < spread->route_count && status == TCK_OK; i++) {
        uint8_t *image = image_for(run, spread, &spread->routes[i], own);

        if (image != NULL && spread->routes[i].root != run->oob->rank) {
            failpoint_bytes(restore, spread, image, run->world->shards[spread->routes[i].shard].image_bytes);
            status = check_arrived(run, &spread->routes[i], image, err);
        }
    }
    return status;
}

static tck_status_t pass_all(const struct spread_run *run, const struct spread *spread, const struct spread_own *own,
                             struct spread_way *way, struct error *err)
{
    tck_status_t status = TCK_OK;

    for (uint32_t i = 0; i < spread->route_count && status == TCK_OK; i++) {
        const struct spread_route *route = &spread->routes[i];

        status = run->ops->pass(way, route, image_for(run, spread, route, own), err);
        failpoint(restore, spreading);
    }
    return status == TCK_OK ? run->ops->finish(way, err) : status;
}

/* Passes the bytes on and checks them, or fails on all ranks. status: of this rank so far. */
static tck_status_t carry_out(const struct spread_run *run, const struct spread *spread, const struct spread_own *own,
                              struct error *err)
{
    struct spread_params params = {run->oob, run->world, spread, run->timeout_ms, run->slow_bytes};
    struct spread_way *way = NULL;
    tck_status_t status = run->ops->open(&params, &way, err);
    bool passed;

    if (status != TCK_OK) {
        return error_prefix(err, "%s", run->ops->name);
    }
    status = pass_all(run, spread, own, way, err);
    passed = status == TCK_OK;
    if (!passed) {
        run->ops->abort(way); /* right away, since the others wait for this rank */
    } else {
        status = check_all(run, spread, own, err);
    }
    if (status != TCK_OK) {
        status = error_prefix(err, "%s", run->ops->name);
    }
    status = oob_agree(run->oob, status, err);
    if (passed && status != TCK_OK) {
        run->ops->abort(way);
    }
    run->ops->close(way);
    return status;
}

tck_status_t spread_run(const struct spread_run *run, struct spread_own *own, struct error *err)
{
    struct hash128 *roots = NULL;
    struct spread spread = {0};
    tck_status_t status = exchange_roots(run, own, &roots, err);

    if (status != TCK_OK) {
        return status;
    }
    status = spread_plan(run->world, roots, &spread, err);
    if (status == TCK_OK) {
        status = make_room(run, own, err);
    }
    status = oob_agree(run->oob, status, err);
    if (status == TCK_OK && spread.route_count > 0) {
        status = carry_out(run, &spread, own, err);
    }
    if (status != TCK_OK) {
        spread_forget(run, own);
    }
    spread_free(&spread);
    free(roots);
    return status;
}
