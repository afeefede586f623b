/* SPDX-License-Identifier: Apache-2.0
 * Copies that wait until their slot was compared with its base, by a pool that does its jobs when the test says so. */
#include "agent/replication/comparison.h"

#include "agent/driver/protocol_driver.h"
#include "agent/driver/term_context.h"
#include "tiers/segment.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define CHUNKS      20 /* two parts */
#define IMAGE_BYTES ((uint64_t)CHUNKS * CHUNK_BYTES)
#define NODES       4

enum { BASE_SLOT, SLOT, SLOTS };

static uint8_t *images[SLOTS];
static uint32_t crcs[SLOTS][CHUNKS];
static struct slot slots[SLOTS] = {{.version = {1, 6}, .root = {1, 1}}, {.version = {1, 7}, .root = {2, 2}}};
static struct local_shard local_shard;
static struct peer *peers[NODES];
static bool wanted[NODES];
static struct term_context tc;
static struct tier_item item;
static struct progress progress[NODES];
static struct tier_base bases[NODES];
static struct compared_copy copies[NODES];
static uint32_t offered[NODES], ended[NODES];
static int pins;
static pool_work_fn *job_work;
static pool_done_fn *job_done;
static void *job;
static uint32_t jobs;

/* ---- what comparison.c needs of the rest of the agent ------------------------------------------------------------ */

const struct slot *node_slot(const struct node *node, uint32_t slot)
{
    (void)node;
    return &slots[slot];
}

bool node_copy_wanted(const struct node *node, uint32_t slot, uint32_t holder)
{
    (void)node, (void)slot;
    return wanted[holder];
}

struct local_shard *term_context_slot(const struct term_context *context, uint32_t slot, uint32_t *slot_in_segment)
{
    (void)context;
    *slot_in_segment = slot;
    return &local_shard;
}

uint8_t *segment_image(const struct segment *segment, uint32_t slot)
{
    (void)segment;
    return images[slot];
}

uint32_t *segment_crcs(const struct segment *segment, uint32_t slot)
{
    (void)segment;
    return crcs[slot];
}

void driver_step_node(struct term_context *context, const struct event *event)
{
    (void)context;
    cr_assert_eq(event->slot, BASE_SLOT);
    pins += event->type == EVENT_PIN ? 1 : -1;
}

tck_status_t __wrap_pool_submit(struct pool *pool, pool_work_fn *work, pool_done_fn *done, void *ctx);
tck_status_t __wrap_pool_submit(struct pool *pool, pool_work_fn *work, pool_done_fn *done, void *ctx)
{
    (void)pool;
    cr_assert_null(job, "one part at a time");
    job_work = work;
    job_done = done;
    job = ctx;
    jobs++;
    return TCK_OK;
}

/* ---- a slot of which one chunk differs from the base ------------------------------------------------------------- */

static void do_job(void)
{
    void *ctx = job;
    cr_assert_not_null(ctx);
    job = NULL;
    job_work(ctx);
    job_done(ctx, false);
}

static void done(struct compared_copy *copy, bool still_wanted)
{
    offered[copy->node] += still_wanted;
    ended[copy->node] += !still_wanted;
}

static void set_up(void)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        images[i] = calloc(1, IMAGE_BYTES);
        cr_assert_not_null(images[i]);
    }
    images[SLOT][3 * (uint64_t)CHUNK_BYTES] = 1;
    crcs[SLOT][3] = 1;
    item = (struct tier_item){.version = slots[SLOT].version,
                              .root = slots[SLOT].root,
                              .image_bytes = IMAGE_BYTES,
                              .image = images[SLOT],
                              .crcs = crcs[SLOT]};
    tc.peers = peers;
    for (uint32_t n = 1; n < NODES; n++) {
        peers[n] = (struct peer *)&peers[n]; /* only known to be there */
        wanted[n] = true;
    }
}

static void tear_down(void)
{
    free(images[BASE_SLOT]);
    free(images[SLOT]);
    free(local_shard.unchanged.same);
    for (uint32_t n = 0; n < NODES; n++) {
        free(copies[n].same);
    }
}

TestSuite(comparison, .init = set_up, .fini = tear_down);

static bool waits(uint32_t node)
{
    static struct tier_item items[NODES];
    items[node] = item;
    items[node].progress = &progress[node];
    copies[node] = (struct compared_copy){
        .tc = &tc, .slot = SLOT, .node = node, .item = &items[node], .base = &bases[node], .done = done};
    return comparison_wait(&copies[node], BASE_SLOT, NULL);
}

static void expect_result(uint32_t node)
{
    cr_assert_eq(copies[node].same_bytes, IMAGE_BYTES - CHUNK_BYTES);
    cr_assert_not_null(copies[node].same);
    cr_assert_eq(copies[node].same, bases[node].same);
    cr_assert_eq(copies[node].same[0], 0xf7);
    cr_assert_eq(copies[node].same[2], 0x0f);
    cr_assert(version_is(bases[node].version, slots[BASE_SLOT].version));
}

Test(comparison, serves_all_copies_that_wait_for_it_and_those_that_begin_later)
{
    cr_assert(waits(1));
    cr_assert(waits(2));
    cr_assert_eq(jobs, 1);
    cr_assert_eq(pins, 1);
    do_job();
    cr_assert_eq(offered[1] + offered[2], 0, "that was the first part");
    cr_assert_neq(progress[1].moved_ms, 0);
    cr_assert_neq(progress[2].moved_ms, 0);
    do_job();
    cr_assert_eq(offered[1], 1);
    cr_assert_eq(offered[2], 1);
    expect_result(1);
    expect_result(2);
    cr_assert_eq(pins, 0);
    cr_assert_not(waits(3));
    expect_result(3);
    cr_assert_eq(jobs, 2);
}

Test(comparison, ends_a_copy_that_was_canceled_after_the_part)
{
    cr_assert(waits(1));
    cr_assert(waits(2));
    wanted[1] = false;
    do_job();
    cr_assert_eq(ended[1], 1);
    cr_assert_eq(ended[2], 0);
    wanted[2] = false;
    do_job();
    cr_assert_eq(ended[2], 1, "it is not offered");
    cr_assert_eq(offered[1] + offered[2], 0);
    cr_assert_eq(pins, 0);
    cr_assert_null(tc.comparisons);
}

Test(comparison, ends_with_its_term)
{
    cr_assert(waits(1));
    tc.closed = true;
    do_job();
    cr_assert_eq(ended[1], 1);
    cr_assert_null(job);
    cr_assert_eq(pins, 0);
}

Test(comparison, does_not_begin_without_the_node)
{
    peers[1] = NULL;
    cr_assert_not(waits(1));
    cr_assert_eq(jobs, 0);
    cr_assert_null(copies[1].same);
}

Test(comparison, is_not_used_for_another_root)
{
    cr_assert(waits(1));
    do_job();
    do_job();
    slots[BASE_SLOT].root.lo++;
    cr_assert(waits(2), "the base has other bytes");
    do_job();
    do_job();
    item.root.lo++;
    cr_assert(waits(3), "so has the version");
    do_job();
    do_job();
    cr_assert_eq(offered[3], 1);
}

Test(comparison, reads_no_image_if_everything_has_changed)
{
    for (uint32_t i = 0; i < CHUNKS; i++) {
        crcs[SLOT][i] = 1;
    }
    cr_assert_not(waits(1));
    cr_assert_eq(jobs, 0);
}
