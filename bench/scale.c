/* SPDX-License-Identifier: Apache-2.0
 * SCALE: what the pure parts cost in worlds far larger than this machine: placement, the recovery plan after the loss
 * of a node, and the coordinator's work per commit. One process, no network; eight ranks a node, each with optimizer
 * state of its own and parameters that it shares with its twins. */
#include "bench.h"

#include "core/coordinator.h"
#include "recovery/plan.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_PER_NODE 8
#define NODES_PER_RACK 16
#define MODEL_PARALLEL 64 /* ranks that share out one model, at most */
#define COPIES         2
#define VERSIONS       2 /* kept by every holder */
#define COMMITS        50
#define LOST_NODE      1

struct scale {
    uint32_t ranks;
    struct world world;
    struct placement placement;
    struct inventory *inventories;
    struct coordinator_setup setup;
    struct coordinator *coordinator;
    uint64_t step;
};

/* ---- the world ------------------------------------------------------------------------------------------------- */

static void make_world(struct scale *s)
{
    struct error err = {0};
    struct rank_hello *hellos = bench_alloc(s->ranks * sizeof(*hellos));
    for (uint32_t r = 0; r < s->ranks; r++) {
        uint32_t node = r / RANKS_PER_NODE;
        struct node_info *info = &hellos[r].node;
        snprintf(info->name, sizeof(info->name), "node%05u", node);
        snprintf(info->domain, sizeof(info->domain), "rack%04u", s->ranks == 16 ? node : node / NODES_PER_RACK);
        snprintf(info->address, sizeof(info->address), "10.0.%u.%u:4000", node / 256, node % 256);
        info->agent_id = node + 1;
    }
    bench_check(world_build(2, hellos, s->ranks, &s->world, &err), &err, "world");
    free(hellos);
}

static void make_shards(struct scale *s)
{
    struct error err = {0};
    uint32_t model = s->ranks / 2 < MODEL_PARALLEL ? s->ranks / 2 : MODEL_PARALLEL;
    struct shard_info *infos = bench_alloc(2 * (size_t)s->ranks * sizeof(*infos));
    uint32_t *counts = bench_alloc(s->ranks * sizeof(*counts));
    for (uint32_t r = 0; r < s->ranks; r++) {
        counts[r] = 2;
        infos[2 * r] = (struct shard_info){.id = {1, r % model}, .image_bytes = 2 * GIB};
        infos[2 * r + 1] = (struct shard_info){.id = {2, r}, .image_bytes = GIB, .private_to_rank = 1};
    }
    bench_check(world_add_shards(&s->world, infos, counts, &err), &err, "shards");
    free(infos);
    free(counts);
}

static void hold(struct scale *s, uint32_t node, uint32_t shard)
{
    struct inventory *inventory = &s->inventories[node];
    for (uint64_t v = 0; v < VERSIONS; v++) {
        inventory->holdings[inventory->count++] = (struct holding){.shard = s->world.shards[shard].id,
                                                                   .layout = s->world.layout,
                                                                   .version = {1, 100 + v},
                                                                   .root = {shard, v},
                                                                   .image_bytes = s->world.shards[shard].image_bytes,
                                                                   .committed = true};
    }
}

static uint32_t copies_at(const struct placement *p, uint32_t node)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->shard_count; i++) {
        count += placement_is_owner(p, i, node) || placement_is_holder(p, i, node);
    }
    return count;
}

/* What every agent tells when the lost node's successor has come up with empty memory. */
static void make_inventories(struct scale *s)
{
    const struct placement *p = &s->placement;
    uint32_t most = copies_at(p, 0) * 4 + 64; /* room enough: holders are balanced by bytes */
    s->inventories = bench_alloc(s->world.node_count * sizeof(*s->inventories));
    for (uint32_t n = 0; n < s->world.node_count; n++) {
        s->inventories[n].node = s->world.nodes[n];
        s->inventories[n].watermark = (struct version){1, 100 + VERSIONS - 1};
        s->inventories[n].holdings = bench_alloc(most * VERSIONS * sizeof(struct holding));
    }
    for (uint32_t i = 0; i < p->shard_count; i++) {
        const struct shard_placement *shard = &p->shards[i];
        for (uint32_t k = 0; k < shard->owner_count; k++) {
            hold(s, p->owners[shard->first_owner + k], i);
        }
        for (uint32_t k = 0; k < shard->holder_count; k++) {
            hold(s, shard->holders[k], i);
        }
    }
    for (uint32_t n = 0; n < s->world.node_count; n++) {
        inventory_sort(&s->inventories[n]);
    }
    s->inventories[LOST_NODE].count = 0;
}

static void make_coordinator(struct scale *s)
{
    bool *drains = bench_alloc(s->world.node_count);
    s->setup = (struct coordinator_setup){.term = 2,
                                          .node_count = s->world.node_count,
                                          .layout = s->world.layout,
                                          .version_timeout_ms = 60000,
                                          .drains = drains};
    s->coordinator = coordinator_init(bench_alloc(coordinator_memory(&s->setup)), &s->setup, NULL, 1);
}

/* ---- what is measured ------------------------------------------------------------------------------------------ */

static void place(void *ctx, struct bench_go *go)
{
    struct scale *s = ctx;
    struct placement placement;
    struct error err = {0};
    bench_start(go);
    bench_check(placement_build(&s->world, COPIES, &placement, &err), &err, "placement");
    bench_stop(go);
    placement_free(&placement);
}

static void plan(void *ctx, struct bench_go *go)
{
    struct scale *s = ctx;
    struct plan_input input = {.world = &s->world,
                               .placement = &s->placement,
                               .inventory_count = s->world.node_count,
                               .inventories = s->inventories,
                               .step = TCK_NEWEST};
    struct plan found;
    struct error err = {0};
    bench_start(go);
    bench_check(plan_build(&input, &found, &err), &err, "plan");
    bench_stop(go);
    if (found.version.step != 100 + VERSIONS - 1) {
        bench_die("the plan took step %" PRIu64 ": %s", found.version.step, found.reason);
    }
    plan_free(&found);
}

static void commit(void *ctx, struct bench_go *go)
{
    struct scale *s = ctx;
    struct action items[2];
    struct event ready = {.type = EVENT_READY, .now_ms = 1, .term = 2, .layout = s->world.layout};
    bench_start(go);
    for (int i = 0; i < COMMITS; i++) {
        ready.version = (struct version){2, ++s->step};
        for (ready.node = 0; ready.node < s->world.node_count; ready.node++) {
            struct actions out = {.items = items, .cap = 2};
            coordinator_step(s->coordinator, &ready, &out);
        }
    }
    bench_stop(go);
    if (coordinator_decision(s->coordinator)->watermark.step != s->step) {
        bench_die("step %" PRIu64 " was not committed", s->step);
    }
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* One kind of work in the three worlds, per unit of it, so that growth shows. */
struct kind {
    const char *name, *unit, *what;
    void (*run)(void *ctx, struct bench_go *go);
};

static double units(const struct scale *s, const struct kind *kind)
{
    return kind->run == commit ? (double)COMMITS * s->world.node_count : (double)s->world.shard_count;
}

static void print_kind(const struct bench *bench, const struct scale *s, const struct kind *kind,
                       const struct bench_way *way, double least)
{
    char id[64], what[160];
    struct spread seconds = bench_seconds(way, bench->rounds);
    double one_us = seconds.median * 1e6 / (kind->run == commit ? COMMITS : 1);
    snprintf(id, sizeof(id), "SCALE.%s.%u", kind->name, s->ranks);
    snprintf(what, sizeof(what), "%s, %u nodes, %u shards: %.3g us each", kind->what, s->world.node_count,
             s->world.shard_count, one_us);
    bench_print(&(struct bench_row){.id = id,
                                    .what = what,
                                    .unit = kind->unit,
                                    .value = {seconds.median * 1e6 / units(s, kind), seconds.spread},
                                    .goal = (double)NAN,
                                    .rounds = bench->rounds,
                                    .reference = "the same at 16 ranks",
                                    .reference_value = least,
                                    .reference_unit = kind->unit});
}

static void bench_scale(const struct bench *bench)
{
    static const uint32_t sizes[] = {16, 1024, 16384};
    static const struct kind kinds[] = {{"place", "us per shard", "placement of two copies", place},
                                        {"plan", "us per shard", "recovery plan after a node's loss", plan},
                                        {"commit", "us per READY", "commit by the coordinator", commit}};
    static struct scale scales[3];
    static struct bench_way ways[3];
    struct error err = {0};
    for (uint32_t i = 0; i < 3; i++) {
        struct scale *s = &scales[i];
        s->ranks = sizes[i];
        make_world(s);
        make_shards(s);
        bench_check(placement_build(&s->world, COPIES, &s->placement, &err), &err, "placement");
        make_inventories(s);
        make_coordinator(s);
    }
    for (uint32_t k = 0; k < 3; k++) {
        for (uint32_t i = 0; i < 3; i++) {
            ways[i] = (struct bench_way){.name = kinds[k].name, .run = kinds[k].run, .ctx = &scales[i]};
        }
        bench_rounds(bench->rounds, ways, 3);
        double least = bench_seconds(&ways[0], bench->rounds).median * 1e6 / units(&scales[0], &kinds[k]);
        for (uint32_t i = 0; i < 3; i++) {
            print_kind(bench, &scales[i], &kinds[k], &ways[i], least);
        }
    }
}

int main(int argc, char **argv)
{
    static const struct bench_entry entries[] = {{"SCALE", bench_scale}};
    return bench_main(argc, argv, entries, 1);
}
