/* SPDX-License-Identifier: Apache-2.0
 * The NCCL way on real devices, one for each rank: the bytes, configurations that NCCL refuses, and a rank that does
 * not join. */
#include "base/clock.h"
#include "ranks.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>

#define SKIPPED 77

extern const struct spread_module tck_spread_module;
static struct ranks ranks;
static int failed;
static _Thread_local uint32_t me;

static void expect(bool right, const char *claim)
{
    printf("%s %s\n", right ? "ok    " : "FAILED", claim);
    failed += !right;
    for (uint32_t r = 0; r < ranks.world.world_size && !right; r++) {
        printf("       rank %u: %d %s\n", r, ranks.ranks[r].status, ranks.ranks[r].err.text);
    }
}

static void own_device(uint32_t rank)
{
    me = rank;
    (void)cudaSetDevice((int)rank);
}

static void first_device(uint32_t rank)
{
    (void)rank;
    (void)cudaSetDevice(0);
}

static bool all_are_ok(void)
{
    bool ok = true;

    for (uint32_t r = 0; r < ranks.world.world_size; r++) {
        ok = ok && ranks.ranks[r].status == TCK_OK;
    }
    return ok;
}

static void passes_shards_to_the_byte(uint32_t count)
{
    ranks_begin(&ranks, count, tck_spread_module.ops);
    ranks.enter = own_device;
    ranks_shard(&ranks, "aB", 70000001);
    ranks_shard(&ranks, "Ab", 1);
    ranks_shard(&ranks, count > 2 ? "abC" : "aB", (8 << 20) + 1);
    ranks_run(&ranks);
    expect(all_are_ok() && ranks_all_whole(&ranks), "gives every rank its shards to the byte");
    ranks_end(&ranks);
}

static void gives_up_on_one_device(void)
{
    ranks_begin(&ranks, 2, tck_spread_module.ops);
    ranks.enter = first_device;
    ranks.timeout_ms = 30000;
    ranks_shard(&ranks, "Ab", 1000);
    ranks_run(&ranks);
    expect(ranks.ranks[0].status != TCK_OK && ranks.ranks[1].status != TCK_OK,
           "fails on all ranks when two have one GPU");
    ranks_end(&ranks);
}

/* The other ranks' kernels wait for it until they are aborted. */
static tck_status_t stay_away(struct spread_way *way, const struct spread_route *route, uint8_t *image,
                              struct error *err)
{
    return me == 1 ? error_set(err, TCK_ERR_CANCELED, "it stays away")
                   : tck_spread_module.ops->pass(way, route, image, err);
}

static void gives_up_in_time_when_a_rank_stays_away(uint32_t count)
{
    struct spread_ops ops = *tck_spread_module.ops;
    uint64_t begin_ms = clock_ms();
    bool all_fail = true;

    ops.pass = stay_away;
    ranks_begin(&ranks, count, &ops);
    ranks.enter = own_device;
    ranks.timeout_ms = 10000;
    ranks_shard(&ranks, count > 2 ? "Abc" : "Ab", 70000001);
    ranks_run(&ranks);
    for (uint32_t r = 0; r < count; r++) {
        all_fail = all_fail && ranks.ranks[r].status != TCK_OK;
    }
    expect(all_fail && ranks.ranks[1].status == TCK_ERR_CANCELED, "fails on all ranks when one stays away");
    expect(clock_ms() - begin_ms < 60000, "aborts what waits for it in time");
    ranks_end(&ranks);
}

int main(void)
{
    int count = 0;

    if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2) {
        puts("skipped: NCCL refuses two ranks on one GPU, and there are fewer than two");
        return SKIPPED;
    }
    if (dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL) == NULL) {
        printf("skipped: %s\n", dlerror());
        return SKIPPED;
    }
    passes_shards_to_the_byte(count > RANKS_MAX ? RANKS_MAX : (uint32_t)count);
    gives_up_in_time_when_a_rank_stays_away(count > RANKS_MAX ? RANKS_MAX : (uint32_t)count);
    gives_up_on_one_device();
    passes_shards_to_the_byte(2); /* the devices are as before */
    return failed > 0;
}
