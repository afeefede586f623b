/* SPDX-License-Identifier: Apache-2.0
 * What a snapshot and a restore of records on a CUDA device cost, through the public API. The agent is the one of the
 * tests: it gives slots and makes no digests, so that what is measured is the client's side. */
#include "base/digest.h"
#include "buffer.h"
#include "device.h"
#include "fake_agent.h"
#include "trainer.h"

#include <stdio.h>
#include <string.h>

#define STATE_MIB    4096
#define LARGE_BYTES  (64 * MIB)
#define SMALL_COUNT  100000
#define SMALL_BYTES  4096
#define POST_MIB     256
#define DIGEST_MIB   1024
#define MIB_OF(b, m) (MIB * ((b)->mib == 0 || (b)->mib > (m) ? (m) : (b)->mib))

/* A rank, its agent, and pinned memory of the same size. */
struct rank {
    struct device device;
    struct trainer trainer;
    struct fake_agent agent;
    struct device_copy_job plain;
};

static void rank_make(struct rank *r, const struct bench *bench, uint32_t count, size_t tensor_bytes)
{
    char dir[sizeof(bench->dir) + 8];
    size_t bytes = count * tensor_bytes;
    r->device = device_open();
    trainer_make_on_device(&r->trainer, count, tensor_bytes, device_alloc(&r->device, bytes));
    device_fill(&r->device, r->trainer.state, bytes);
    r->plain = (struct device_copy_job){&r->device, device_pinned(&r->device, bytes), r->trainer.state, bytes};
    snprintf(dir, sizeof(dir), "%s/run", bench->dir);
    fake_agent_start(&r->agent, dir, "gpu", "bench0");
}

static void run_snapshot(void *ctx, struct bench_go *go)
{
    trainer_snapshot(ctx, go); /* nobody has told a stream, so the fence waits for the copy */
}

static void print_rate(const struct bench *bench, const char *id, const char *what, double goal,
                       const struct bench_way ways[2], size_t bytes)
{
    bench_print(
        &(struct bench_row){.id = id,
                            .what = what,
                            .unit = "ratio of GB/s",
                            .value = bench_ratio(&ways[1], &ways[0], bench->rounds),
                            .better = BENCH_MORE,
                            .goal = goal,
                            .rounds = bench->rounds,
                            .reference = ways[1].name,
                            .reference_value = (double)bytes / GB / bench_seconds(&ways[1], bench->rounds).median,
                            .reference_unit = "GB/s"});
}

/* ---- device to slots ------------------------------------------------------------------------------------------- */

static void snapshots_of(const struct bench *bench, uint32_t count, size_t tensor_bytes, const char *id, double goal)
{
    static struct bench_way ways[2];
    static struct rank r;
    char what[160];
    rank_make(&r, bench, count, tensor_bytes);
    trainer_attach(&r.trainer, bench, "gpu");
    ways[0] = (struct bench_way){.name = "snapshot", .run = run_snapshot, .ctx = &r.trainer};
    ways[1] = (struct bench_way){.name = "one pinned copy from the device", .run = device_copy_run, .ctx = &r.plain};
    bench_rounds(bench->rounds, ways, 2);
    trainer_detach(&r.trainer, true);
    fake_agent_free(&r.agent);
    snprintf(what, sizeof(what), "snapshot of %u tensors of %zu KiB into slots, %u KiB pages / one pinned copy", count,
             tensor_bytes / 1024, r.trainer.page_bytes / 1024);
    print_rate(bench, id, what, goal, ways, trainer_bytes(&r.trainer));
    trainer_free(&r.trainer);
}

static void bench_d2h(const struct bench *bench)
{
    size_t bytes = MIB_OF(bench, STATE_MIB), tensor = bytes < LARGE_BYTES ? bytes / 4 : LARGE_BYTES;
    snapshots_of(bench, (uint32_t)(bytes / tensor), tensor, "GPU.d2h", 0.95);
}

static void bench_small(const struct bench *bench)
{
    uint64_t most = MIB_OF(bench, STATE_MIB) / SMALL_BYTES;
    snapshots_of(bench, most < SMALL_COUNT ? (uint32_t)most : SMALL_COUNT, SMALL_BYTES, "GPU.small", NAN);
}

/* ---- what the host pays ---------------------------------------------------------------------------------------- */

/* Save and fence, as a trainer calls them: its stream waits, it does not. */
static void run_fenced(void *ctx, struct bench_go *go)
{
    struct trainer *t = ctx;
    bench_start(go);
    trainer_check(t, tck_snapshot(t->client, ++t->step, TCK_SAVE_MEMORY), "snapshot");
    trainer_check(t, tck_fence(t->client), "fence");
    bench_stop(go);
    trainer_check(t, tck_wait(t->client, t->step, TCK_STAGE_COMMITTED, 60000), "commit");
}

static void run_post(void *ctx, struct bench_go *go)
{
    trainer_post(ctx, go);
}

static void print_host(const struct bench *bench, const char *id, const char *call, uint32_t tensors,
                       const struct bench_way *way, const struct bench_way *plain)
{
    char what[160];
    struct spread seconds = bench_seconds(way, bench->rounds);
    snprintf(what, sizeof(what), "%s of %u tensors, time of the calling thread", call, tensors);
    bench_print(&(struct bench_row){.id = id,
                                    .what = what,
                                    .unit = "us",
                                    .value = {seconds.median * 1e6, seconds.spread},
                                    .goal = NAN,
                                    .rounds = bench->rounds,
                                    .reference = plain->name,
                                    .reference_value = bench_seconds(plain, bench->rounds).median * 1e6,
                                    .reference_unit = "us"});
}

static void post_of(const struct bench *bench, uint32_t tensors)
{
    static struct bench_way ways[3];
    static struct rank r;
    char id[64];
    memset(&r, 0, sizeof(r));
    rank_make(&r, bench, tensors, MIB_OF(bench, POST_MIB) / tensors / 64 * 64);
    trainer_attach(&r.trainer, bench, "gpu");
    trainer_check(&r.trainer, tck_set_stream(r.trainer.client, 0, r.device.stream), "set the stream");
    ways[0] = (struct bench_way){.run = run_post, .ctx = &r.trainer};
    ways[1] = (struct bench_way){.run = run_fenced, .ctx = &r.trainer};
    ways[2] = (struct bench_way){.name = "one pinned copy of them", .run = device_copy_run, .ctx = &r.plain};
    bench_rounds(bench->rounds, ways, 3);
    trainer_detach(&r.trainer, true);
    fake_agent_free(&r.agent);
    snprintf(id, sizeof(id), "GPU.post.%u", tensors);
    print_host(bench, id, "snapshot call", tensors, &ways[0], &ways[2]);
    snprintf(id, sizeof(id), "GPU.fenced.%u", tensors);
    print_host(bench, id, "snapshot call and fence at once", tensors, &ways[1], &ways[2]);
    trainer_free(&r.trainer);
}

static void bench_post(const struct bench *bench)
{
    post_of(bench, 100);
    post_of(bench, 1000);
    post_of(bench, 20000);
}

/* ---- slots to device ------------------------------------------------------------------------------------------- */

struct restart {
    struct rank rank;
    const struct bench *bench;
    void *zeros;
};

static void run_restart(void *ctx, struct bench_go *go)
{
    struct restart *restart = ctx;
    struct trainer *t = &restart->rank.trainer;
    tck_restored_t restored = {.struct_size = sizeof(restored)};
    struct bench_go after;
    device_copy(&restart->rank.device, t->state, restart->zeros, trainer_bytes(t));
    trainer_attach(t, restart->bench, "gpu");
    bench_start(go);
    trainer_check(t, tck_restore(t->client, TCK_NEWEST, &restored), "restore");
    bench_stop(go);
    trainer_snapshot(t, &after);
    trainer_detach(t, false);
}

/* What is on the device is what device_fill puts there. */
static void check_state(const struct restart *restart, void *pinned)
{
    size_t bytes = trainer_bytes(&restart->rank.trainer);
    void *expected = buffer_private(bytes);
    device_copy(&restart->rank.device, pinned, restart->rank.trainer.state, bytes);
    if (memcmp(pinned, expected, bytes) != 0) {
        bench_die("what was restored is not what was saved");
    }
    buffer_free(expected, bytes);
}

static void bench_restore(const struct bench *bench)
{
    static struct bench_way ways[2];
    static struct restart restart;
    size_t bytes = MIB_OF(bench, STATE_MIB), tensor = bytes < LARGE_BYTES ? bytes / 4 : LARGE_BYTES;
    struct rank *r = &restart.rank;
    struct bench_go go;
    rank_make(r, bench, (uint32_t)(bytes / tensor), tensor);
    restart.bench = bench;
    restart.zeros = device_pinned(&r->device, bytes);
    memset(restart.zeros, 0, bytes);
    trainer_attach(&r->trainer, bench, "gpu");
    trainer_snapshot(&r->trainer, &go);
    trainer_detach(&r->trainer, false);
    struct device_copy_job plain = {&r->device, device_alloc(&r->device, bytes), r->plain.to, bytes};
    ways[0] = (struct bench_way){.name = "restore", .run = run_restart, .ctx = &restart};
    ways[1] = (struct bench_way){.name = "one pinned copy to the device", .run = device_copy_run, .ctx = &plain};
    bench_rounds(bench->rounds, ways, 2);
    check_state(&restart, r->plain.to);
    fake_agent_free(&r->agent);
    print_rate(bench, "GPU.restore", "restore from slots, which no agent checks here / one pinned copy", NAN, ways,
               bytes);
    trainer_free(&r->trainer);
}

/* ---- digests --------------------------------------------------------------------------------------------------- */

struct digests {
    const struct device *device;
    void *image, *on_host;
    size_t bytes;
    uint32_t *crcs, *host_crcs; /* the first on the device */
};

static void run_device_digest(void *ctx, struct bench_go *go)
{
    const struct digests *d = ctx;
    bench_start(go);
    device_check(d->device, d->device->calls->digest(d->device->stream, d->image, d->bytes, d->crcs), "digest");
    device_check(d->device, d->device->calls->stream_sync(d->device->stream), "digest");
    bench_stop(go);
}

static void run_host_digest(void *ctx, struct bench_go *go)
{
    const struct digests *d = ctx;
    bench_start(go);
    digest_image(d->on_host, d->bytes, d->host_crcs);
    bench_stop(go);
}

static void bench_digest(const struct bench *bench)
{
    static struct bench_way ways[3];
    struct device device = device_open();
    size_t bytes = MIB_OF(bench, DIGEST_MIB), crc_bytes = chunk_count(bytes) * sizeof(uint32_t);
    struct digests d = {&device, device_alloc(&device, bytes),     device_pinned(&device, bytes),
                        bytes,   device_alloc(&device, crc_bytes), bench_alloc(crc_bytes)};
    struct device_copy_job plain = {&device, d.on_host, d.image, bytes};
    uint32_t *got = bench_alloc(crc_bytes);
    device_fill(&device, d.image, bytes);
    ways[0] = (struct bench_way){.name = "digests on the device", .run = run_device_digest, .ctx = &d};
    ways[1] = (struct bench_way){.name = "one pinned copy from the device", .run = device_copy_run, .ctx = &plain};
    ways[2] = (struct bench_way){.name = "digests by one thread of the host", .run = run_host_digest, .ctx = &d};
    bench_rounds(bench->rounds, ways, 3);
    device_copy(&device, got, d.crcs, crc_bytes);
    if (memcmp(got, d.host_crcs, crc_bytes) != 0) {
        bench_die("the device's digests are not the host's");
    }
    print_rate(bench, "GPU.digest", "chunk digests on the device / one pinned copy of the same bytes", NAN, ways,
               bytes);
    ways[1] = ways[2];
    print_rate(bench, "GPU.digest.host", "chunk digests on the device / by one thread of the host", NAN, ways, bytes);
}

int main(int argc, char **argv)
{
    static const struct bench_entry entries[] = {{"GPU.d2h", bench_d2h},
                                                 {"GPU.small", bench_small},
                                                 {"GPU.post", bench_post},
                                                 {"GPU.restore", bench_restore},
                                                 {"GPU.digest", bench_digest}};
    return bench_main(argc, argv, entries, sizeof(entries) / sizeof(*entries));
}
