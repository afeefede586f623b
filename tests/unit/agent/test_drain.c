/* SPDX-License-Identifier: Apache-2.0
 * The end of a publish and of writes, on the coordinator's node, which is the only one here and owns all shards. */
#include "../wish.h"
#include "agent/drain/drain.h"
#include "agent/driver/protocol_driver.h"
#include "agent/driver/twins.h"
#include "agent/ipc/ipc_server.h"
#include "agent/pace/pacing.h"
#include "agent/replication/peer_rpc.h"
#include "agent/scrub/memory_scrub.h"
#include "agent/state/adopt.h"
#include "agent/state/hard_state.h"
#include "agent/storage/health.h"
#include "agent/storage/storage_ops.h"
#include "base/config.h"
#include "one_node.h"
#include "tiers/memory.h"
#include "tiers/persistent.h"
#include "tiers/segment.h"
#include "tiers/slot_header.h"

#include <criterion/criterion.h>
#include <string.h>

#define TERM        5
#define NEWER       8
#define IMAGE_BYTES 4096
#define CAP_BYTES   ((uint64_t)64 << 20)

#define SHARDS 20
#define SHARED 96 /* bytes of each file that are not written */

static const struct hash128 shard = {1, 1};
static const struct version version = {TERM, 10};

static struct config config;
static struct memory *memory;
static struct client *trainers; /* none */
static struct term_context *tc;
static struct drain *drain;
static struct kept kept = {.term = {.joined = TERM, .adopted = TERM}};
static struct trouble no_trouble;
static struct adopt_setup adopt;

static uint32_t publishes;      /* under way, or ended */
static uint64_t *newer_term;    /* of the publish */
static tier_done_fn *published; /* likewise */
static void *published_ctx;
static struct storage_op *op;
static bool ignored;

static struct event told; /* to the coordinator, last */
static uint64_t adopted;  /* 0: none */

/* ---- what drain.c and term_context.c need of the rest of the agent ----------------------------------------------- */

const struct kept *hard_state_get(const struct hard_state *state)
{
    (void)state;
    return &kept;
}

static uint32_t paced; /* drains that have begun and not ended */

void pacing_begin(struct pacing *p, enum lane lane, struct version of, uint64_t bytes)
{
    (void)p;
    cr_assert(lane == LANE_DRAIN && version_is(of, version) && bytes > 0);
    paced++;
}

void pacing_end(struct pacing *p, enum lane lane, uint64_t unsent)
{
    (void)p;
    (void)unsent;
    cr_assert_eq(lane, LANE_DRAIN);
    paced--;
}

static struct event node_told; /* last */

void driver_step_node(struct term_context *term_context, const struct event *event)
{
    (void)term_context;
    node_told = *event;
}

void driver_step_coordinator(struct term_context *term_context, const struct event *event)
{
    (void)term_context;
    cr_assert_eq(adopted, 0, "the term is over before its coordinator has learned the outcome");
    told = *event;
}

void rpc_send_coordinator(struct term_context *term_context, uint16_t type, struct writer *w)
{
    (void)term_context, (void)type, (void)w;
}

void scrub_drop_copy(struct scrub *scrub, struct segment *segment, uint32_t k, const char *why)
{
    (void)scrub, (void)segment, (void)k, (void)why;
}

void adopt_term(const struct adopt_setup *by, uint64_t term)
{
    cr_assert_eq((const void *)by, (const void *)&adopt);
    adopted = term;
}

static struct error failed; /* last */
static uint32_t failures;

void health_storage_failed(struct health *of, uint64_t step, const struct error *why)
{
    (void)of, (void)step;
    failed = *why;
    failures++;
}

const struct trouble *health_own(const struct health *of)
{
    (void)of;
    return &no_trouble;
}

void storage_begin(struct storage_op *begun, struct storage_ops *ops, struct term_context *term_context)
{
    (void)ops, (void)term_context;
    op = begun;
}

void storage_end(struct storage_op *ended)
{
    cr_assert_eq((void *)ended, (void *)op);
    op = NULL;
}

bool storage_ignored(const struct storage_op *of)
{
    (void)of;
    return ignored;
}

bool storage_hangs(const struct storage_ops *ops, const char *what, struct error *err)
{
    (void)ops, (void)what, (void)err;
    return false;
}

static tier_done_fn *put_done;
static void *put_ctx;
static uint32_t given_up;

/* Those under way, in the order in which they were begun. */
static struct {
    tier_done_fn *done;
    void *ctx;
    struct hash128 shard;
    struct progress *progress;
} files[SHARDS];
static uint32_t file_count;

tck_status_t persistent_put(struct persistent *p, const struct tier_item *item, tier_done_fn *done, void *ctx,
                            struct error *err)
{
    (void)p, (void)err;
    put_done = done;
    put_ctx = ctx;
    cr_assert_lt(file_count, SHARDS);
    *item->shared = SHARED;
    files[file_count].shard = item->shard;
    files[file_count].progress = item->progress;
    files[file_count].done = done;
    files[file_count++].ctx = ctx;
    return TCK_OK;
}

void persistent_give_up(struct persistent *p)
{
    (void)p;
    given_up++;
}

tck_status_t persistent_publish(struct persistent *p, const struct publish_ask *ask, tier_done_fn *done, void *ctx,
                                struct error *err)
{
    (void)p, (void)err;
    cr_assert_eq(ask->term, TERM);
    publishes++;
    newer_term = ask->newer_term;
    published = done;
    published_ctx = ctx;
    return TCK_OK;
}

/* ---- one node ---------------------------------------------------------------------------------------------------- */

/* All that the version consists of is in the stage. */
static void report_drained(void)
{
    struct manifest_file file = {.shard = shard, .bytes = IMAGE_BYTES, .root = {7, 7}};
    uint32_t crcs[1] = {3};
    struct wire_drained m = {.term = TERM, .version = version, .attempt = 1, .ok = true, .count = 1, .files = &file};
    struct writer w = writer_new(0);
    file.crcs = crcs;
    wire_drained_encode(&m, &w);
    drain_handle_drained(drain, tc, 0, w.data, w.len);
    writer_free(&w);
}

static struct hash128 id_of(uint32_t i)
{
    return (struct hash128){shard.hi, shard.lo + i};
}

static void make_node(uint32_t shards)
{
    struct memory_setup setup = {.job = "job", .cap_bytes = CAP_BYTES, .hugetlb_mount = "", .threads = 1};
    struct shard_info infos[SHARDS];
    struct error err = {0};
    strcpy(config.node, "a");
    strcpy(config.job, "job");
    cr_assert_eq(memory_new(&setup, &memory, &err), TCK_OK, "%s", err.text);
    for (uint32_t i = 0; i < shards; i++) {
        struct segment *segment;
        infos[i] = (struct shard_info){.id = id_of(i), .image_bytes = IMAGE_BYTES};
        cr_assert_eq(add_segment(memory, wish_of(id_of(i), IMAGE_BYTES, 2, 2), &segment, &err), TCK_OK, "%s", err.text);
        struct slot_header copy = {.state = SLOT_VERIFIED, .version = version, .root = {7, 7}, .to_storage = true};
        segment_write_header(segment, 0, &copy);
    }
    struct term_setup term = {.config = &config, .memory = memory, .clients = &trainers};
    struct decision decision = {.term = TERM,
                                .seq = 9,
                                .readable = true,
                                .based = true,
                                .watermark = version,
                                .horizon = version.step + 1,
                                .drain = version,
                                .drain_attempt = 1};
    tc = one_node_with(&term, TERM, infos, shards, &decision);
    struct drain_setup needs = {.config = &config, .adopt = &adopt};
    cr_assert_eq(drain_new(&needs, &drain, &err), TCK_OK, "%s", err.text);
}

static void set_up(void)
{
    make_node(1);
    report_drained();
    cr_assert_eq((int)told.type, (int)EVENT_DRAINED);
    struct action publish = {.type = ACTION_PUBLISH, .version = version, .attempt = 1};
    drain_publish(drain, tc, &publish);
    cr_assert_eq(publishes, 1, "it was not published");
}

static void tear_down(void)
{
    cr_assert_eq((void *)op, NULL, "the operation on storage has not ended");
    drain_free(drain);
    term_context_free(tc);
    memory_free(memory);
}

TestSuite(drain, .init = set_up, .fini = tear_down);

static void refuse_for(uint64_t term)
{
    struct error err = {0};
    (void)error_set(&err, TCK_ERR_DENIED, "term %d is claimed", (int)term);
    *newer_term = term;
    published(published_ctx, &err);
}

static void assert_told(bool ok)
{
    cr_assert_eq((int)told.type, (int)EVENT_PUBLISHED);
    cr_assert_eq(told.ok, ok);
    cr_assert_eq(told.attempt, 1);
}

/* Otherwise the agent could grant a term that it has reserved before that one. */
Test(drain, a_newer_term_that_a_publish_finds_claimed_is_adopted)
{
    refuse_for(NEWER);
    assert_told(false);
    cr_assert_eq(adopted, NEWER);
    cr_assert_eq(failures, 0, "it counts as trouble with storage: %s", failed.text);
}

Test(drain, a_publish_that_finds_no_newer_term_ends_none)
{
    struct error err = {.code = TCK_OK};
    published(published_ctx, &err);
    assert_told(true);
    cr_assert_eq(adopted, 0);
}

Test(drain, a_publish_that_failed_otherwise_ends_no_term)
{
    struct error err = {0};
    (void)error_set(&err, TCK_ERR_NOSPC, "No space left on device");
    published(published_ctx, &err);
    assert_told(false);
    cr_assert_eq(adopted, 0);
    cr_assert_eq(failures, 1);
}

/* It had been given up, so its outcome changes nothing; but the claim is there. */
Test(drain, a_newer_term_that_a_late_publish_finds_claimed_is_adopted)
{
    struct error hangs = {0};
    (void)error_set(&hangs, TCK_ERR_TIMEDOUT, "it does not answer");
    ignored = true;
    op->give_up(op->ctx, &hangs);
    assert_told(false);
    told = (struct event){0};
    refuse_for(NEWER);
    cr_assert_eq((int)told.type, 0, "a late outcome was passed on");
    cr_assert_eq(adopted, NEWER);
}

/* ---- writes ------------------------------------------------------------------------------------------------------ */

static void begin_write(uint64_t attempt)
{
    struct action begin = {.type = ACTION_DRAIN, .version = version, .attempt = attempt};
    struct event learned = {.type = EVENT_DECISION, .term = TERM, .decision = *coordinator_decision(tc->coordinator)};
    published(published_ctx, &(struct error){.code = TCK_OK});
    node_step(tc->node, &learned, &tc->actions);
    put_done = NULL;
    drain_begin(drain, tc, &begin);
    cr_assert_not_null(put_done, "nothing is written");
}

static void end_write(void)
{
    struct error err = {0};
    (void)error_set(&err, TCK_ERR_CANCELED, "given up");
    put_done(put_ctx, &err);
}

Test(drain, a_write_goes_on_while_it_is_wanted)
{
    begin_write(1);
    drain_decided(drain);
    cr_assert_eq(given_up, 0);
    end_write();
}

/* Otherwise it would go on while its slot is filled with another version. */
Test(drain, a_write_is_given_up_once_when_its_term_is_over)
{
    begin_write(1);
    ignored = true;
    drain_decided(drain);
    drain_decided(drain);
    cr_assert_eq(given_up, 1);
    end_write();
}

Test(drain, a_write_is_given_up_when_its_attempt_was_abandoned)
{
    begin_write(2); /* the decision is the first one's */
    drain_decided(drain);
    cr_assert_eq(given_up, 1);
    end_write();
}

/* ---- several files ----------------------------------------------------------------------------------------------- */

static void make_many(void)
{
    make_node(SHARDS);
}

static void begin_many(void)
{
    struct event learned = {.type = EVENT_DECISION, .term = TERM, .decision = *coordinator_decision(tc->coordinator)};
    node_step(tc->node, &learned, &tc->actions);
    struct action begin = {.type = ACTION_DRAIN, .version = version, .attempt = 1};
    drain_begin(drain, tc, &begin);
}

static void set_up_many(void)
{
    make_many();
    begin_many();
}

TestSuite(drain_files, .init = set_up_many, .fini = tear_down);

static void end_file(uint32_t i, tck_status_t code)
{
    struct error err = {0};
    if (code != TCK_OK) {
        (void)error_set(&err, code, "file %u", (unsigned)i);
    }
    files[i].done(files[i].ctx, &err);
}

/* Otherwise storage would idle while a file is opened, synced, read back or named. */
Test(drain_files, several_are_under_way_and_each_end_begins_another)
{
    uint32_t at_first = file_count;
    cr_assert(at_first > 1 && at_first < SHARDS, "%u files were begun", at_first);
    for (uint32_t i = 0; i < SHARDS; i++) {
        cr_assert_eq(node_told.type, 0, "it has ended before file %u has", i);
        cr_assert(file_count == at_first + i || file_count == SHARDS, "%u files were begun", file_count);
        for (uint32_t k = 0; k < i; k++) {
            cr_assert(!hash128_is(files[k].shard, files[i].shard), "files %u and %u are the same shard", k, i);
        }
        end_file(i, TCK_OK);
    }
    cr_assert_eq((int)node_told.type, (int)EVENT_DRAINED_HERE);
    cr_assert(node_told.ok);
    cr_assert_eq(drain_counts(drain).written, 1);
    cr_assert_eq(drain_counts(drain).bytes, SHARDS * (IMAGE_BYTES - SHARED));
    cr_assert_eq(drain_counts(drain).shared_bytes, SHARDS * SHARED);
    cr_assert_eq(given_up, 0);
}

/* If the agent has to end before all is written, what is missing has another copy. */
Test(drain_order, what_has_another_copy_is_written_last, .init = make_many, .fini = tear_down)
{
    for (uint32_t i = 0; i < SHARDS; i += 2) {
        tc->local_shards[i].drained = (struct hash128){7, 7};
        tc->local_shards[i].drained_version = (struct version){TERM, version.step - 1};
    }
    begin_many();
    for (uint32_t i = 0; i < SHARDS; i++) {
        uint32_t wanted = i < SHARDS / 2 ? 2 * i + 1 : 2 * (i - SHARDS / 2);
        cr_assert(hash128_is(files[i].shard, id_of(wanted)), "file %u is not shard %u", i, wanted);
        end_file(i, TCK_OK);
        cr_assert(version_is(tc->local_shards[wanted].drained_version, version));
    }
    cr_assert_eq((int)node_told.type, (int)EVENT_DRAINED_HERE);
}

/* Otherwise a file that hangs would be hidden by one that moves (storage_ops.h). */
Test(drain_files, each_has_progress_of_its_own_that_is_watched)
{
    uint32_t begun = file_count;
    cr_assert_geq(op->part_count, begun);
    for (uint32_t i = 0; i < begun; i++) {
        cr_assert(files[i].progress >= op->parts && files[i].progress < op->parts + op->part_count);
        for (uint32_t k = 0; k < i; k++) {
            cr_assert_neq((void *)files[k].progress, (void *)files[i].progress);
        }
    }
    ignored = true;
    for (uint32_t i = 0; i < begun; i++) {
        end_file(i, TCK_ERR_CANCELED);
    }
}

/* The slots of the other files may be filled again as soon as the end is reported. */
Test(drain_files, a_failure_gives_up_the_others_and_is_the_one_that_is_reported)
{
    uint32_t begun = file_count;
    end_file(1, TCK_ERR_NOSPC);
    cr_assert_eq(given_up, 1);
    cr_assert_eq(node_told.type, 0, "the others have not ended");
    for (uint32_t i = 0; i < begun; i++) {
        if (i != 1) {
            end_file(i, TCK_ERR_CANCELED);
        }
    }
    cr_assert_eq(file_count, begun, "a file was begun after a failure");
    cr_assert_eq((int)node_told.type, (int)EVENT_DRAINED_HERE);
    cr_assert_not(node_told.ok);
    cr_assert_eq(failures, 1);
    cr_assert_not_null(strstr(failed.text, "file 1"), "%s", failed.text);
    cr_assert_eq(drain_counts(drain).failed, 1);
    cr_assert_eq(drain_counts(drain).written, 0);
}

/* The storage's own error says more than that it does not answer. */
Test(drain_files, a_hang_after_a_failure_ends_the_drain_and_is_not_reported)
{
    uint32_t begun = file_count;
    struct error hangs = {0};
    (void)error_set(&hangs, TCK_ERR_TIMEDOUT, "it does not answer");
    end_file(1, TCK_ERR_NOSPC);
    ignored = true;
    op->give_up(op->ctx, &hangs);
    cr_assert_eq((int)node_told.type, (int)EVENT_DRAINED_HERE);
    cr_assert_not(node_told.ok);
    cr_assert_eq(failures, 1);
    cr_assert_not_null(strstr(failed.text, "file 1"), "%s", failed.text);
    cr_assert_eq(drain_counts(drain).failed, 1);
    for (uint32_t i = 0; i < begun; i++) {
        if (i != 1) {
            end_file(i, TCK_ERR_CANCELED);
        }
    }
    cr_assert_eq(drain_counts(drain).failed, 1);
}

Test(drain_files, a_drain_whose_term_is_over_begins_no_more_and_ends_with_its_last_file)
{
    uint32_t begun = file_count;
    ignored = true;
    drain_decided(drain);
    cr_assert_eq(given_up, 1);
    for (uint32_t i = 0; i < begun; i++) {
        end_file(i, TCK_ERR_CANCELED);
    }
    cr_assert_eq(file_count, begun);
    cr_assert_eq(failures, 0);
    cr_assert_eq(node_told.type, 0);
}
