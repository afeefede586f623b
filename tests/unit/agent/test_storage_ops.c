/* SPDX-License-Identifier: Apache-2.0
 * A hanging operation on storage is given up because of its own lack of progress, even if other operations progress. A
 * queued operation is not given up while storage makes progress. */
#include "agent/driver/term_context.h"
#include "agent/storage/health.h"
#include "agent/storage/storage_ops.h"

#include "base/clock.h"
#include "tiers/persistent.h"

#include <criterion/criterion.h>
#include <string.h>

#define LONG_AGO_MS 5000

static struct config config;
static struct loop *loop;
static struct pool *io;
static struct storage_ops *ops;
static uint64_t moved_ms; /* by anybody */
static uint32_t given_up, troubles;
static char why_not[ERROR_TEXT_BYTES];

/* ---- what storage.c calls -------------------------------------------------------------------------------------- */

uint64_t persistent_moved_ms(const struct persistent *p)
{
    (void)p;
    return moved_ms;
}

void health_storage_failed(struct health *of, uint64_t step, const struct error *why)
{
    (void)of, (void)step, (void)why;
    troubles++;
}

void health_storage_works(struct health *of)
{
    (void)of;
}

void term_context_free(struct term_context *tc)
{
    (void)tc;
}

/* ---- */

static void give_up(void *ctx, const struct error *why)
{
    (void)ctx;
    given_up++;
    strcpy(why_not, why->text);
}

static void setup(void)
{
    struct error err;
    cr_assert_eq(loop_new(&loop, NULL), TCK_OK);
    cr_assert_eq(pool_new(loop, 1, &io, NULL), TCK_OK);
    strcpy(config.save_dir, "/save");
    strcpy(config.job, "job");
    config.storage_timeout_ms = 1000;
    const struct storage_ops_setup needs = {.config = &config, .io = io};
    cr_assert_eq(storage_ops_new(&needs, &ops, &err), TCK_OK);
    moved_ms = clock_ms();
}

static void teardown(void)
{
    storage_ops_free(ops);
    pool_free(io);
    loop_free(loop);
}

TestSuite(storage_ops, .init = setup, .fini = teardown);

/* Begins an operation as if long ago. */
static struct storage_op *begin(struct storage_op *op)
{
    *op = (struct storage_op){.what = "a drain", .give_up = give_up};
    storage_begin(op, ops, NULL);
    op->since_ms = clock_ms() - LONG_AGO_MS;
    return op;
}

static void call_since(struct storage_op *op, uint64_t ms)
{
    progress_call(&op->progress);
    op->progress.moved_ms = ms;
}

Test(storage_ops, a_call_that_hangs_while_others_progress_is_given_up)
{
    struct storage_op op, other;
    call_since(begin(&op), clock_ms() - LONG_AGO_MS);
    call_since(begin(&other), clock_ms());
    storage_tick(ops);
    cr_assert_eq(given_up, 1);
    cr_assert(op.late && !other.late);
    cr_assert_str_eq(why_not,
                     "/save/job does not answer: a drain has made no progress for 1000 ms (storage_timeout_ms)");
    storage_tick(ops);
    cr_assert_eq(given_up, 1);
}

/* Each of two files that share storage takes twice as long to sync. */
Test(storage_ops, a_part_that_hangs_while_other_parts_progress_is_given_up_after_the_time_of_them_all)
{
    struct storage_op op;
    struct progress parts[3] = {0};
    begin(&op);
    op.parts = parts;
    op.part_count = 3;
    progress_call(&parts[0]);
    progress_call(&parts[2]);
    parts[0].moved_ms = clock_ms() - config.storage_timeout_ms * 3 / 2;
    storage_tick(ops);
    cr_assert_eq(given_up, 0);
    parts[0].moved_ms = clock_ms() - config.storage_timeout_ms * 2;
    storage_tick(ops);
    cr_assert_eq(given_up, 1);
    cr_assert(op.late);
}

Test(storage_ops, parts_none_of_which_moves_are_given_up_at_once)
{
    struct storage_op op;
    struct progress parts[8] = {0};
    begin(&op);
    op.parts = parts;
    op.part_count = 8;
    for (uint32_t i = 0; i < 8; i++) {
        progress_call(&parts[i]);
        parts[i].moved_ms = clock_ms() - config.storage_timeout_ms;
    }
    storage_tick(ops);
    cr_assert_eq(given_up, 1);
}

Test(storage_ops, a_part_between_two_calls_waits_for_its_turn)
{
    struct storage_op op;
    struct progress parts[2] = {0};
    begin(&op);
    op.parts = parts;
    op.part_count = 2;
    progress_call(&parts[1]);
    progress_return(&parts[1]);
    parts[1].moved_ms = clock_ms() - LONG_AGO_MS;
    storage_tick(ops);
    cr_assert_eq(given_up, 0);
}

Test(storage_ops, one_that_waits_for_something_else_is_not_and_has_all_its_time_afterwards)
{
    struct storage_op op;
    begin(&op);
    moved_ms = 0;
    storage_pause(&op);
    storage_tick(ops);
    cr_assert_eq(given_up, 0);
    storage_resume(&op);
    storage_tick(ops);
    cr_assert_eq(given_up, 0);
    op.since_ms = clock_ms() - LONG_AGO_MS;
    storage_tick(ops);
    cr_assert_eq(given_up, 1);
}

Test(storage_ops, a_call_that_makes_progress_is_not)
{
    struct storage_op op;
    call_since(begin(&op), clock_ms());
    moved_ms = 0;
    storage_tick(ops);
    cr_assert_eq(given_up, 0);
}

Test(storage_ops, one_that_waits_for_its_turn_is_not_while_storage_moves)
{
    struct storage_op op;
    begin(&op);
    storage_tick(ops);
    cr_assert_eq(given_up, 0);
    moved_ms = clock_ms() - LONG_AGO_MS;
    storage_tick(ops);
    cr_assert_eq(given_up, 1);
}

Test(storage_ops, one_between_two_calls_waits_for_its_turn)
{
    struct storage_op op;
    call_since(begin(&op), clock_ms() - LONG_AGO_MS);
    progress_return(&op.progress);
    storage_tick(ops);
    cr_assert_eq(given_up, 0);
}
