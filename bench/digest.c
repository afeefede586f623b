/* SPDX-License-Identifier: Apache-2.0
 * DIGEST: the digests of a sealed slot by all digest threads that an agent has on this machine, beside one thread;
 * .split: beside as many plain threads, each with its part of the slot; .small: those of a slot of one chunk, beside a
 * plain job of the same pool. */
#include "bench.h"
#include "buffer.h"

#include "agent/replication/slot_digest.h"
#include "base/digest.h"
#include "base/loop.h"
#include "base/pool.h"
#include "base/processors.h"
#include "core/digest_threads.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define SMALL_BYTES CHUNK_BYTES
#define SMALL_TIMES 100 /* one alone is shorter than what disturbs it */
#define THREADS_MAX 64

struct digests {
    struct slot_digest shared; /* the first member: shared_done */
    struct loop *loop;
    struct pool *pool;
    uint32_t threads;
    uint8_t *image;
    uint64_t bytes;
    uint32_t times; /* in one go */
    uint32_t *crcs;
    struct hash128 expected, root;
};

/* ---- the ways -------------------------------------------------------------------------------------------------- */

static void check_root(const struct digests *d, struct hash128 root)
{
    if (!hash128_is(root, d->expected)) {
        bench_die("the digests of %u threads are not those of one", d->threads);
    }
}

static void shared_done(struct chunk_jobs *jobs, bool canceled)
{
    (void)canceled;
    loop_stop(((struct digests *)jobs)->loop);
}

static void shared(void *ctx, struct bench_go *go)
{
    struct digests *d = ctx;
    bench_start(go);
    for (uint32_t i = 0; i < d->times; i++) {
        d->shared = (struct slot_digest){.jobs = {.pool = d->pool, .threads = d->threads, .done = shared_done},
                                         .image = d->image,
                                         .image_bytes = d->bytes,
                                         .crcs = d->crcs};
        bench_check(slot_digest_start(&d->shared), NULL, "digests");
        loop_run(d->loop);
    }
    bench_stop(go);
    check_root(d, d->shared.root);
}

static void one_thread(void *ctx, struct bench_go *go)
{
    struct digests *d = ctx;
    bench_start(go);
    d->root = digest_image(d->image, d->bytes, d->crcs);
    bench_stop(go);
    check_root(d, d->root);
}

struct part {
    const struct digests *of;
    uint32_t begin, end; /* chunks */
    pthread_t thread;
};

static void *digest_part(void *ctx)
{
    const struct part *p = ctx;
    for (uint32_t i = p->begin; i < p->end; i++) {
        p->of->crcs[i] = chunk_crc(p->of->image, p->of->bytes, i);
    }
    return NULL;
}

static void split(void *ctx, struct bench_go *go)
{
    struct digests *d = ctx;
    struct part parts[THREADS_MAX];
    uint32_t count = chunk_count(d->bytes);
    bench_start(go);
    for (uint32_t i = 0; i < d->threads; i++) {
        parts[i] = (struct part){.of = d, .begin = count * i / d->threads, .end = count * (i + 1) / d->threads};
        if (pthread_create(&parts[i].thread, NULL, digest_part, &parts[i]) != 0) {
            bench_die("start thread %u", i);
        }
    }
    for (uint32_t i = 0; i < d->threads; i++) {
        pthread_join(parts[i].thread, NULL);
    }
    d->root = digest_root(d->crcs, d->bytes);
    bench_stop(go);
    check_root(d, d->root);
}

static void job_work(void *ctx)
{
    struct digests *d = ctx;
    d->root = digest_image(d->image, d->bytes, d->crcs);
}

static void job_done(void *ctx, bool canceled)
{
    (void)canceled;
    loop_stop(((struct digests *)ctx)->loop);
}

static void plain_job(void *ctx, struct bench_go *go)
{
    struct digests *d = ctx;
    bench_start(go);
    for (uint32_t i = 0; i < d->times; i++) {
        bench_check(pool_submit(d->pool, job_work, job_done, d), NULL, "job");
        loop_run(d->loop);
    }
    bench_stop(go);
    check_root(d, d->root);
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

static void make(struct digests *d, const struct bench *bench, uint64_t bytes, uint32_t times)
{
    struct error err = {0};
    d->bytes = bytes;
    d->times = times;
    d->threads = digest_threads(processors_usable(""));
    d->image = buffer_shared(bench, bytes);
    buffer_fill(d->image, bytes, 1);
    d->crcs = bench_alloc(chunk_count(bytes) * sizeof(*d->crcs));
    d->expected = digest_image(d->image, bytes, d->crcs);
    bench_check(loop_new(&d->loop, &err), &err, "loop");
    bench_check(pool_new(d->loop, (int)d->threads, &d->pool, &err), &err, "pool");
}

static void drop(struct digests *d)
{
    pool_free(d->pool);
    loop_free(d->loop);
    free(d->crcs);
    buffer_free(d->image, d->bytes);
}

static void print_rate(const struct bench *bench, const char *id, const char *what, struct spread value,
                       const struct bench_way *reference)
{
    bench_print(
        &(struct bench_row){.id = id,
                            .what = what,
                            .unit = "ratio of GB/s",
                            .value = value,
                            .better = BENCH_MORE,
                            .goal = 0.9,
                            .rounds = bench->rounds,
                            .reference = reference->name,
                            .reference_value = (double)GIB / GB / bench_seconds(reference, bench->rounds).median,
                            .reference_unit = "GB/s"});
}

static void bench_large(const struct bench *bench)
{
    static struct bench_way ways[3];
    static struct digests d;
    char what[128];
    make(&d, bench, GIB, 1);
    ways[0] = (struct bench_way){.name = "one thread", .run = one_thread, .ctx = &d};
    ways[1] = (struct bench_way){.name = "plain threads with a part each", .run = split, .ctx = &d};
    ways[2] = (struct bench_way){.name = "shared", .run = shared, .ctx = &d};
    bench_rounds(bench->rounds, ways, 3);
    struct spread value = bench_ratio(&ways[0], &ways[2], bench->rounds);
    value.median /= d.threads;
    snprintf(what, sizeof(what), "digests of a slot of 1 GiB by %u threads / %u times those by one", d.threads,
             d.threads);
    print_rate(bench, "DIGEST", what, value, &ways[0]);
    snprintf(what, sizeof(what), "the same / %u plain threads", d.threads);
    print_rate(bench, "DIGEST.split", what, bench_ratio(&ways[1], &ways[2], bench->rounds), &ways[1]);
    drop(&d);
}

static void bench_small(const struct bench *bench)
{
    static struct bench_way ways[2];
    static struct digests d;
    make(&d, bench, SMALL_BYTES, SMALL_TIMES);
    ways[0] = (struct bench_way){.name = "a plain job of the pool", .run = plain_job, .ctx = &d};
    ways[1] = (struct bench_way){.name = "shared", .run = shared, .ctx = &d};
    bench_rounds(bench->rounds, ways, 2);
    bench_print(
        &(struct bench_row){.id = "DIGEST.small",
                            .what = "digests of a slot of 4 MiB / a plain job of the pool",
                            .unit = "ratio of seconds",
                            .value = bench_ratio(&ways[1], &ways[0], bench->rounds),
                            .goal = 1.05,
                            .rounds = bench->rounds,
                            .reference = ways[0].name,
                            .reference_value = bench_seconds(&ways[0], bench->rounds).median / SMALL_TIMES * 1e6,
                            .reference_unit = "us"});
    drop(&d);
}

int main(int argc, char **argv)
{
    static const struct bench_entry entries[] = {{"DIGEST", bench_large}, {"DIGEST.small", bench_small}};
    return bench_main(argc, argv, entries, 2);
}
