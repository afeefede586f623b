/* SPDX-License-Identifier: Apache-2.0
 * The coordinator's part of the copies to archive_dir, on the first of two nodes: the second one's reports, what fails,
 * and terms that change meanwhile. Pool, clock and archive are the test's. */
#include "agent/drain/archiver.h"

#include "agent/driver/term_context.h"
#include "agent/replication/peer_rpc.h"
#include "base/config.h"
#include "base/pool.h"
#include "core/coordinator.h"
#include "tiers/archive.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES 2

static struct config config;
static struct node_info nodes[64];
static struct term_context terms[2], *term;
static struct decision decision;
static struct archiver *archiver;
static uint64_t now_ms = 1000000;

static const struct version one = {5, 10};

/* ---- what archiver.c needs ------------------------------------------------------------------------------------- */

static struct {
    pool_work_fn *work;
    pool_done_fn *done;
    void *ctx;
} jobs[16];
static uint32_t job_count;

uint64_t __wrap_clock_ms(void);
tck_status_t __wrap_pool_new(struct loop *loop, int threads, struct pool **out, struct error *err);
tck_status_t __wrap_pool_submit(struct pool *pool, pool_work_fn *work, pool_done_fn *done, void *ctx);
void __wrap_pool_free(struct pool *pool);

uint64_t __wrap_clock_ms(void)
{
    return now_ms;
}

tck_status_t __wrap_pool_new(struct loop *loop, int threads, struct pool **out, struct error *err)
{
    (void)loop, (void)threads, (void)err;
    *out = (struct pool *)&jobs;
    return TCK_OK;
}

tck_status_t __wrap_pool_submit(struct pool *pool, pool_work_fn *work, pool_done_fn *done, void *ctx)
{
    (void)pool;
    cr_assert_lt(job_count, 16);
    jobs[job_count].work = work;
    jobs[job_count].done = done;
    jobs[job_count++].ctx = ctx;
    return TCK_OK;
}

/* Runs the oldest job. */
static void run_one(void)
{
    cr_assert_gt(job_count, 0, "nothing is under way");
    pool_work_fn *work = jobs[0].work;
    pool_done_fn *done = jobs[0].done;
    void *ctx = jobs[0].ctx;
    memmove(jobs, jobs + 1, --job_count * sizeof(jobs[0]));
    work(ctx);
    done(ctx, false);
}

static void run_all(void)
{
    while (job_count > 0) {
        run_one();
    }
}

void __wrap_pool_free(struct pool *pool)
{
    (void)pool;
    while (job_count > 0) {
        job_count--;
        jobs[job_count].done(jobs[job_count].ctx, true);
    }
}

static struct version pinned, published;
static uint32_t copies, publishes, looks, sweeps;
static tck_status_t copy_fails, publish_fails, sweep_fails;

void persistent_pin(struct persistent *p, struct version version)
{
    (void)p;
    pinned = version;
}

tck_status_t archive_new(const struct config *of, struct persistent *from, struct object_store *store,
                         struct archive **out, struct error *err)
{
    (void)of, (void)from, (void)store, (void)err;
    *out = (struct archive *)&published;
    return TCK_OK;
}

void archive_free(struct archive *archive)
{
    (void)archive;
}

void archive_cancel(struct archive *archive)
{
    (void)archive;
}

uint64_t archive_moved_ms(const struct archive *archive)
{
    (void)archive;
    return now_ms;
}

tck_status_t archive_newest(struct archive *archive, struct version *out, uint64_t *wall_ms_out, struct error *err)
{
    (void)archive, (void)err;
    looks++;
    *out = published;
    *wall_ms_out = 0;
    return TCK_OK;
}

tck_status_t archive_manifest(struct archive *archive, struct version version, struct manifest *out, struct error *err)
{
    (void)archive, (void)err;
    *out = (struct manifest){.version = version, .file_count = 1};
    out->files = calloc(1, sizeof(*out->files));
    out->files[0].shard = (struct hash128){1, 1};
    return TCK_OK;
}

tck_status_t archive_sweep(struct archive *archive, uint64_t of, struct version keep, struct error *err)
{
    (void)archive;
    cr_assert_eq(of, term->world.term);
    cr_assert(version_is(keep, decision.published));
    cr_assert(version_is(pinned, keep));
    sweeps++;
    return sweep_fails == TCK_OK ? TCK_OK : error_set(err, sweep_fails, "no sweep");
}

tck_status_t archive_copy(struct archive *archive, struct version version, const struct manifest_file *file,
                          const atomic_bool *stops, struct error *err)
{
    (void)archive, (void)version, (void)file, (void)stops;
    copies++;
    return copy_fails == TCK_OK ? TCK_OK : error_set(err, copy_fails, "no copy");
}

tck_status_t archive_publish(struct archive *archive, const struct manifest *manifest, uint64_t of, struct error *err)
{
    (void)archive, (void)of;
    publishes++;
    if (publish_fails != TCK_OK) {
        return error_set(err, publish_fails, "no publish");
    }
    published = manifest->version;
    return TCK_OK;
}

const struct decision *coordinator_decision(const struct coordinator *c)
{
    (void)c;
    return &decision;
}

static uint32_t announced;

static void announce(struct term_context *tc)
{
    (void)tc;
    announced++;
}

static void deliver(struct term_context *tc, uint32_t node, bool ok)
{
    struct wire_archived m = {.term = tc->world.term, .version = archiver_choice(archiver), .ok = ok};
    struct writer w = writer_new(0);
    snprintf(m.why, sizeof(m.why), "%s", ok ? "" : "its disk is full");
    wire_archived_encode(&m, &w);
    archiver_handle(archiver, tc, node, w.data, w.len);
    writer_free(&w);
}

void rpc_send_coordinator(struct term_context *tc, uint16_t type, struct writer *w)
{
    cr_assert_eq(type, WIRE_ARCHIVED);
    archiver_handle(archiver, tc, 0, w->data, w->len);
}

/* ---- a term ---------------------------------------------------------------------------------------------------- */

static void form_term(uint64_t number, uint32_t node_count)
{
    static struct node_shard shard = {.id = {1, 1}, .drains_here = true};
    struct term_context *next = term == &terms[0] ? &terms[1] : &terms[0];
    *next = (struct term_context){.shards = &shard, .coordinator = (struct coordinator *)&decision};
    next->world.term = number;
    next->world.node_count = node_count;
    next->world.nodes = nodes;
    next->setup.shard_count = 1;
    term = next;
}

static void begin(void)
{
    struct error err;
    config.storage_timeout_ms = 10000;
    config.save_archive_interval.steps = 10;
    snprintf(config.archive_dir, sizeof(config.archive_dir), "/archive");
    const struct archiver_setup setup = {.config = &config, .term = &term, .announce = announce};
    form_term(5, NODES);
    decision.published = one;
    cr_assert_eq(archiver_new(&setup, &archiver, &err), TCK_OK);
}

static void end(void)
{
    archiver_free(archiver);
}

TestSuite(archiver, .init = begin, .fini = end, .timeout = 200);

/* Ticks until nothing is under way; time does not pass. */
static void settle(void)
{
    for (int i = 0; i < 8; i++) {
        archiver_tick(archiver);
        run_all();
    }
}

static void expect_chosen(struct version version)
{
    struct version chosen = archiver_choice(archiver);
    cr_assert(version_is(chosen, version), "%u.%u", (unsigned)chosen.term, (unsigned)chosen.step);
}

Test(archiver, a_version_is_published_once_all_nodes_have_copied_it)
{
    cr_assert_not(archiver_figures(archiver).known);
    settle();
    cr_assert(archiver_figures(archiver).known);
    expect_chosen(one);
    cr_assert(version_is(pinned, one), "a publish in save_dir does not delete it meanwhile");
    cr_assert_eq(copies, 1);
    cr_assert_eq(publishes, 0, "the second node has not reported");
    deliver(term, 1, true);
    settle();
    cr_assert_eq(publishes, 1);
    expect_chosen(VERSION_NONE);
    cr_assert(version_is(archiver_figures(archiver).archived, one));
    cr_assert(version_none(pinned));
}

Test(archiver, a_term_of_more_nodes_that_forms_during_a_publish_is_not_touched_by_its_end)
{
    settle();
    deliver(term, 1, true);
    archiver_tick(archiver);
    cr_assert_eq(job_count, 1, "the publish");
    uint32_t before = announced;
    form_term(6, 64);
    run_one();
    cr_assert_eq(announced, before);
    expect_chosen(VERSION_NONE);
    deliver(term, 63, true);
    settle();
    cr_assert(version_is(published, one));
    expect_chosen(VERSION_NONE);
}

Test(archiver, a_copy_that_ends_in_another_term_is_not_reported_there)
{
    for (int i = 0; i < 2; i++) {
        archiver_tick(archiver);
        run_all(); /* what is in the archive, and the sweep */
    }
    archiver_tick(archiver);
    cr_assert_gt(job_count, 0);
    form_term(6, 64);
    run_all();
    expect_chosen(VERSION_NONE);
    settle();
    expect_chosen(one);
    deliver(term, 1, true);
    settle();
    cr_assert_eq(publishes, 0, "62 nodes of the new term have not reported");
}

Test(archiver, a_publish_that_fails_is_repeated_without_copying_again)
{
    settle();
    publish_fails = TCK_ERR_IO;
    deliver(term, 1, true);
    settle();
    cr_assert_eq(publishes, 1);
    now_ms += 9999;
    settle();
    cr_assert_eq(publishes, 1, "after a pause");
    now_ms += 1;
    settle();
    cr_assert_eq(publishes, 2);
    now_ms += 10000;
    settle();
    cr_assert_eq(publishes, 2, "which grows");
    publish_fails = TCK_OK;
    now_ms += 10000;
    settle();
    cr_assert_eq(publishes, 3);
    cr_assert_eq(copies, 1);
    cr_assert(version_is(published, one));
    cr_assert_eq(archiver_figures(archiver).trouble.code, TCK_OK);
}

Test(archiver, files_that_a_publish_finds_missing_are_copied_again)
{
    settle();
    publish_fails = TCK_ERR_NOENT;
    deliver(term, 1, true);
    settle();
    publish_fails = TCK_OK;
    now_ms += 10000;
    settle();
    cr_assert_eq(copies, 2);
    deliver(term, 1, true);
    settle();
    cr_assert(version_is(published, one));
}

Test(archiver, a_node_that_fails_each_time_does_not_fill_the_archive)
{
    uint32_t choices = 0;
    settle();
    cr_assert_eq(sweeps, 1);
    for (int i = 0; i < 60; i++) { /* an hour; another version each minute */
        decision.published.step += 10;
        deliver(term, 1, false);
        uint32_t before = sweeps;
        settle();
        choices += sweeps - before;
        now_ms += 60000;
    }
    cr_assert_eq(copies, sweeps, "what the copies before have left is removed before each");
    cr_assert(choices >= 5 && choices <= 12, "%u", choices);
    cr_assert_neq(archiver_figures(archiver).trouble.code, TCK_OK);
}

Test(archiver, a_look_that_ends_in_another_term_says_nothing)
{
    archiver_tick(archiver);
    cr_assert_eq(job_count, 1, "the look");
    published = (struct version){7, 5};
    form_term(8, NODES);
    decision.published = (struct version){8, 10};
    run_one();
    cr_assert_not(archiver_figures(archiver).known, "another coordinator may have published meanwhile");
    cr_assert_eq(archiver_figures(archiver).trouble.code, TCK_OK, "term 7 is no news in term 8");
    settle();
    cr_assert_eq(looks, 2);
    expect_chosen(decision.published);
}

Test(archiver, a_copy_that_is_no_longer_wanted_may_fail)
{
    for (int i = 0; i < 2; i++) {
        archiver_tick(archiver);
        run_all(); /* what is in the archive, and the sweep */
    }
    archiver_tick(archiver);
    cr_assert_gt(job_count, 0, "the copy");
    archiver_want(archiver, (struct version){5, 20});
    copy_fails = TCK_ERR_NOENT;
    run_all();
    cr_assert_eq(archiver_figures(archiver).trouble.code, TCK_OK, "%s", archiver_figures(archiver).trouble.text);
    copy_fails = TCK_OK;
    uint32_t before = copies;
    settle();
    cr_assert_eq(copies, before + 1, "the next one does not wait");
}

Test(archiver, nothing_is_copied_while_the_coordinator_cannot_reach_the_archive)
{
    sweep_fails = TCK_ERR_IO;
    settle();
    cr_assert_eq(sweeps, 1);
    expect_chosen(VERSION_NONE);
    cr_assert(version_none(pinned));
    cr_assert_eq(copies, 0);
    sweep_fails = TCK_OK;
    now_ms += 10000;
    settle();
    expect_chosen(one);
    cr_assert_eq(copies, 1);
}

Test(archiver, a_version_of_a_term_that_save_dir_has_not_reached_is_named_and_nothing_is_copied)
{
    published = (struct version){7, 5};
    settle();
    struct archiver_figures figures = archiver_figures(archiver);
    cr_assert_eq(figures.trouble.code, TCK_ERR_EXIST);
    cr_assert_not_null(strstr(figures.trouble.text, "version 7.5"), "%s", figures.trouble.text);
    cr_assert_not_null(strstr(figures.trouble.text, "Nothing is copied"), "%s", figures.trouble.text);
    cr_assert_eq(copies, 0);
    form_term(8, NODES);
    decision.published = (struct version){8, 10};
    settle();
    cr_assert_eq(archiver_figures(archiver).trouble.code, TCK_OK, "the next start goes on from there");
    expect_chosen(decision.published);
}
