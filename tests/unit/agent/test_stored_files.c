/* SPDX-License-Identifier: Apache-2.0
 * Reads of a version's manifest for all shards of a node at once. Storage, the pool and the list of operations are the
 * test's. */
#include "agent/driver/term.h"
#include "agent/replication/stored_files.h"
#include "agent/storage/storage_ops.h"
#include "base/pool.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define SHARDS 3

static const struct version saved = {3, 100}, older = {2, 50};

static struct node_shard shards[SHARDS] = {{.id = {9, 1}}, {.id = {9, 2}}, {.id = {9, 3}}};
static struct local_shard local_shards[SHARDS];
static struct term_context tc = {
    .setup = {.shard_count = SHARDS, .shards = shards}, .shards = shards, .local_shards = local_shards};
static struct stored_files *files;
static pool_work_fn *work;
static pool_done_fn *done;
static void *job;
static struct storage_op *op;
static uint32_t finds, looks, ops;
static struct error outcome;
static bool no_memory;

/* ---- what stored_files.c needs of the rest of the agent -------------------------------------------------------- */

tck_status_t pool_submit(struct pool *pool, pool_work_fn *work_fn, pool_done_fn *done_fn, void *ctx)
{
    (void)pool;
    if (no_memory) {
        return TCK_ERR_NOMEM;
    }
    cr_assert_null((void *)job, "one look at a time");
    work = work_fn;
    done = done_fn;
    job = ctx;
    return TCK_OK;
}

void storage_begin(struct storage_op *begun, struct storage_ops *of, struct term_context *in)
{
    (void)of;
    cr_assert_null((void *)in, "a look outlives its term");
    op = begun;
    ops++;
}

void storage_end(struct storage_op *ended)
{
    (void)ended;
    ops--;
}

/* The last shard is missing. */
void persistent_find(struct persistent *p, struct version version, struct found_file *found, uint32_t count)
{
    (void)p;
    finds++;
    for (uint32_t i = 0; i < count; i++) {
        if (found[i].shard.lo == SHARDS) {
            (void)error_set(&found[i].outcome, TCK_ERR_NOENT, "not there");
            continue;
        }
        found[i].which.version = version;
        found[i].file.crcs = calloc(1, sizeof(uint32_t));
    }
}

static void looked(void *ctx, const struct error *failed)
{
    (void)ctx;
    looks++;
    outcome = *failed;
}

static void end_look(bool canceled)
{
    void *ended = job;
    job = NULL;
    if (!canceled) {
        work(ended);
    }
    done(ended, canceled);
}

static tck_status_t look_for(struct version version)
{
    struct error err;
    return stored_files_look(files, &tc, version, &err);
}

static void look_to_the_end(struct version version)
{
    cr_assert_eq(look_for(version), TCK_OK);
    end_look(false);
}

static tck_status_t take(struct version version, uint64_t shard)
{
    struct found_file found;
    if (!stored_files_take(files, version, (struct hash128){9, shard}, &found)) {
        return TCK_ERR_BUSY;
    }
    free(found.file.crcs);
    return found.outcome.code;
}

static void set_up(void)
{
    struct stored_files_setup setup = {.looked = looked};
    struct error err;
    cr_assert_eq(stored_files_new(&setup, &files, &err), TCK_OK);
}

static void tear_down(void)
{
    stored_files_free(files);
    cr_assert_eq(ops, 0);
}

TestSuite(stored_files, .init = set_up, .fini = tear_down);

/* ---- tests ----------------------------------------------------------------------------------------------------- */

Test(stored_files, one_read_is_enough_for_all_shards_of_the_node)
{
    cr_assert_eq(take(saved, 1), TCK_ERR_BUSY);
    for (uint32_t i = 0; i < SHARDS; i++) {
        cr_assert_eq(look_for(saved), TCK_OK);
    }
    cr_assert_eq(looks, 0);
    end_look(false);
    cr_assert_eq(looks, 1);
    cr_assert_eq(outcome.code, TCK_OK);
    cr_assert_eq(take(saved, 2), TCK_OK);
    cr_assert_eq(take(saved, 1), TCK_OK);
    cr_assert_eq(take(saved, 3), TCK_ERR_NOENT);
    cr_assert_eq(finds, 1);
}

Test(stored_files, a_file_that_was_taken_is_read_again)
{
    look_to_the_end(saved);
    cr_assert_eq(take(saved, 1), TCK_OK);
    cr_assert_eq(take(saved, 1), TCK_ERR_BUSY);
    look_to_the_end(saved);
    cr_assert_eq(take(saved, 1), TCK_OK);
    cr_assert_eq(finds, 2);
}

Test(stored_files, the_files_of_one_version_are_not_those_of_another)
{
    look_to_the_end(saved);
    cr_assert_eq(take(older, 1), TCK_ERR_BUSY);
    look_to_the_end(older);
    cr_assert_eq(take(older, 1), TCK_OK);
    cr_assert_eq(take(saved, 2), TCK_ERR_BUSY, "only the last one is kept");
}

Test(stored_files, a_read_that_hangs_fails_for_all_waiting_callers_and_its_late_result_is_ignored)
{
    struct error why;
    (void)error_set(&why, TCK_ERR_TIMEDOUT, "it hangs");
    cr_assert_eq(look_for(saved), TCK_OK);
    void *late = job;
    op->give_up(op->ctx, &why);
    cr_assert_eq(looks, 1);
    cr_assert_eq(outcome.code, TCK_ERR_TIMEDOUT);
    job = NULL;
    cr_assert_eq(look_for(saved), TCK_OK, "another look may begin");
    end_look(false);
    cr_assert_eq(looks, 2);
    cr_assert_eq(take(saved, 1), TCK_OK);
    job = late;
    end_look(false);
    cr_assert_eq(looks, 2);
    cr_assert_eq(take(saved, 2), TCK_OK);
}

Test(stored_files, the_end_of_the_term_ends_the_read_and_drops_its_results)
{
    look_to_the_end(saved);
    cr_assert_eq(look_for(saved), TCK_OK);
    stored_files_reset(files);
    end_look(false);
    cr_assert_eq(looks, 1);
    cr_assert_eq(take(saved, 1), TCK_ERR_BUSY);
}

Test(stored_files, a_read_that_is_canceled_or_cannot_begin_is_an_error)
{
    cr_assert_eq(look_for(saved), TCK_OK);
    end_look(true);
    cr_assert_eq(looks, 1);
    cr_assert_eq(outcome.code, TCK_ERR_CANCELED);
    no_memory = true;
    cr_assert_eq(look_for(saved), TCK_ERR_NOMEM);
    cr_assert_eq(looks, 1);
}
