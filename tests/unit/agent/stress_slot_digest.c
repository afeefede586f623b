/* SPDX-License-Identifier: Apache-2.0
 * Digests of slots by several numbers of threads, several at once, and in a pool that ends meanwhile. A plain program,
 * so that it also runs under ThreadSanitizer. */
#include "agent/replication/slot_digest.h"

#include "base/digest.h"
#include "base/loop.h"
#include "base/pool.h"
#include "base/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS       4
#define BYTES_MAX   ((uint64_t)20 * CHUNK_BYTES + 4321)
#define CHUNKS_MAX  21
#define THREADS_MAX 5
#define ENDS        40 /* of a pool with digests under way */

static const uint64_t sizes[SLOTS] = {1, 5 * (uint64_t)CHUNK_BYTES, BYTES_MAX, 20 * (uint64_t)CHUNK_BYTES - 8};

struct slot {
    struct slot_digest digest; /* the first member: ended */
    struct progress progress;
    uint32_t crcs[CHUNKS_MAX], expected_crcs[CHUNKS_MAX];
    struct hash128 expected;
    uint32_t ends, cancels;
};

static uint8_t *image; /* of all slots, which begin at different places in it */
static struct slot slots[SLOTS];
static struct loop *loop;
static uint32_t under_way;

static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "stress_slot_digest: %s\n", what);
        exit(1);
    }
}

static void ended(struct chunk_jobs *jobs, bool canceled)
{
    struct slot *slot = (struct slot *)jobs;
    slot->ends++;
    slot->cancels += canceled;
    if (--under_way == 0) {
        loop_stop(loop);
    }
}

static const uint8_t *image_of(uint32_t i)
{
    return image + 64 * (size_t)i;
}

static void make_images(void)
{
    image = malloc(BYTES_MAX + 64 * SLOTS);
    require(image != NULL, "out of memory");
    uint32_t state = 1;
    for (uint64_t at = 0; at < BYTES_MAX + 64 * SLOTS; at++) {
        image[at] = (uint8_t)((state = state * 1664525 + 1013904223) >> 24);
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        slots[i].expected = digest_image(image_of(i), sizes[i], slots[i].expected_crcs);
    }
}

static void start_all(struct pool *pool, uint32_t threads)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct slot *s = &slots[i];
        memset(s->crcs, 0, sizeof(s->crcs));
        s->progress = (struct progress){0};
        s->ends = s->cancels = 0;
        s->digest = (struct slot_digest){.jobs = {.pool = pool, .threads = threads, .done = ended},
                                         .image = image_of(i),
                                         .image_bytes = sizes[i],
                                         .progress = &s->progress,
                                         .crcs = s->crcs};
        under_way++;
        require(slot_digest_start(&s->digest) == TCK_OK, "a digest is begun");
    }
}

static void check_made(const struct slot *s)
{
    require(hash128_is(s->digest.root, s->expected), "the root is that of one thread");
    require(memcmp(s->crcs, s->expected_crcs, sizeof(s->crcs)) == 0, "the CRCs are those of one thread");
    require(atomic_load(&s->progress.bytes) == s->digest.image_bytes, "each byte has counted once as progress");
}

static void with_threads(uint32_t threads)
{
    struct pool *pool;
    require(pool_new(loop, (int)threads, &pool, NULL) == TCK_OK, "pool_new");
    start_all(pool, threads);
    loop_run(loop);
    for (uint32_t i = 0; i < SLOTS; i++) {
        require(slots[i].ends == 1 && slots[i].cancels == 0, "a digest ends once");
        check_made(&slots[i]);
    }
    pool_free(pool);
}

/* What was begun is finished, and the rest is canceled; nothing works any more when the pool is freed. */
static uint32_t ended_meanwhile(void)
{
    struct pool *pool;
    uint32_t canceled = 0;
    require(pool_new(loop, 2, &pool, NULL) == TCK_OK, "pool_new");
    start_all(pool, 2);
    pool_free(pool);
    for (uint32_t i = 0; i < SLOTS; i++) {
        require(slots[i].ends == 1, "a digest ends once, although its pool has ended");
        canceled += slots[i].cancels;
        if (slots[i].cancels == 0) {
            check_made(&slots[i]);
        } else {
            require(atomic_load(&slots[i].progress.bytes) == 0, "nothing of a canceled digest was begun");
        }
    }
    return canceled;
}

int main(void)
{
    uint32_t canceled = 0;
    require(loop_new(&loop, NULL) == TCK_OK, "loop_new");
    make_images();
    for (uint32_t threads = 1; threads <= THREADS_MAX; threads++) {
        with_threads(threads);
    }
    for (uint32_t i = 0; i < ENDS; i++) {
        canceled += ended_meanwhile();
    }
    require(canceled > 0, "a pool that ends at once cancels digests");
    free(image);
    loop_free(loop);
    return 0;
}
