/* SPDX-License-Identifier: Apache-2.0
 * The client library with a fake agent: saves, restores, and its behaviour when the agent or other ranks fail. */
#include "base/image_check.h"
#include "client/client.h"
#include "client/slot_copy.h"
#include "fake_agent.h"
#include "published/published.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 60000 /* limit for events that must happen, even on a slow machine */
#define SHORT_MS    100   /* for what does not happen */
#define WEIGHTS     5000

static char runtime_dir[] = "/tmp/tck-client-XXXXXX";
static struct fake_agent agent;
static int block_time_ms = PATIENCE_MS; /* tests in which the agent does not answer set a short one */
static int copy_threads;                /* 0: as many as fit this machine */

static void start_agent(void)
{
    fake_agent_start(&agent, runtime_dir, "job", "node");
}

static void setup(void)
{
    cr_assert_not_null(mkdtemp(runtime_dir));
    start_agent();
}

static void teardown(void)
{
    char command[128];
    fake_agent_free(&agent);
    snprintf(command, sizeof(command), "rm -rf '%s'", runtime_dir);
    cr_assert_eq(system(command), 0);
}

TestSuite(client, .init = setup, .fini = teardown, .timeout = 200);

static void sleep_ms(long ms)
{
    struct timespec pause = {.tv_nsec = ms * 1000000};
    nanosleep(&pause, NULL);
}

static const char *config_text(void)
{
    static _Thread_local char text[512]; /* ranks are threads, which call this concurrently */
    snprintf(text, sizeof(text),
             "{\"job\":\"job\",\"node\":\"node\",\"runtime_dir\":\"%s\",\"save_dir\":\"%s\",\"block_time_ms\":%d,"
             "\"copy_threads\":%d}",
             runtime_dir, runtime_dir, block_time_ms, copy_threads);
    return text;
}

static tck_attach_params_t params_of(int rank, int world_size)
{
    return (tck_attach_params_t){.struct_size = sizeof(tck_attach_params_t),
                                 .config_json = config_text(),
                                 .rank = rank,
                                 .world_size = world_size};
}

/* A trainer's client and tensors. */
struct trainer {
    tck_client_t *client;
    float weights[WEIGHTS];
    uint64_t counter;
    uint32_t weights_record;
};

static void fill(struct trainer *t, float value)
{
    for (int i = 0; i < WEIGHTS; i++) {
        t->weights[i] = value + (float)i;
    }
    t->counter = (uint64_t)value;
}

static void expect(const struct trainer *t, float value)
{
    for (int i = 0; i < WEIGHTS; i++) {
        cr_assert_float_eq(t->weights[i], value + (float)i, 0);
    }
    cr_assert_eq(t->counter, (uint64_t)value);
}

static void ok(const struct trainer *t, tck_status_t status)
{
    cr_assert_eq(status, TCK_OK, "%s: %s", tck_strerror(status), tck_errmsg(t->client));
}

static void add_records(struct trainer *t, const char *group)
{
    tck_record_t weights = {.struct_size = sizeof(weights),
                            .key = "weights",
                            .dtype = TCK_F32,
                            .ndim = 1,
                            .global_shape = {WEIGHTS},
                            .local_shape = {WEIGHTS},
                            .addr = t->weights,
                            .replica_group = group};
    tck_record_t counter = {.struct_size = sizeof(counter),
                            .key = "counter",
                            .dtype = TCK_U64,
                            .addr = &t->counter,
                            .replica_group = group,
                            .when = TCK_EAGER};
    ok(t, tck_add_record(t->client, &weights, &t->weights_record));
    ok(t, tck_add_record(t->client, &counter, NULL));
    ok(t, tck_add_blob(t->client, "rng", 100, group));
}

static void attach(struct trainer *t)
{
    tck_attach_params_t params = params_of(0, 1);
    memset(t, 0, sizeof(*t));
    cr_assert_eq(tck_attach(&params, &t->client), TCK_OK, "%s", tck_errmsg(NULL));
}

static void begin(struct trainer *t)
{
    attach(t);
    add_records(t, NULL);
    ok(t, tck_register(t->client));
}

static void save(struct trainer *t, uint64_t step)
{
    ok(t, tck_snapshot(t->client, step, TCK_SAVE_MEMORY));
    ok(t, tck_fence(t->client));
}

/* Saves and waits until the agent knows of it: from then on, its image is the newest sealed one. */
static void save_known(struct trainer *t, uint64_t step)
{
    save(t, step);
    ok(t, tck_wait(t->client, step, TCK_STAGE_COMMITTED, PATIENCE_MS));
}

static tck_stats_t stats_of(struct trainer *t)
{
    tck_stats_t stats = {.struct_size = sizeof(stats)};
    ok(t, tck_stats(t->client, &stats));
    return stats;
}

/* ---- arguments that are missing ---- */

static void refuses_null(struct trainer *t, tck_status_t status, const char *text)
{
    cr_assert_eq(status, TCK_ERR_INVAL, "%s", text);
    cr_assert_str_eq(tck_errmsg(t ? t->client : NULL), text);
}

Test(client, a_pointer_that_is_missing_is_named)
{
    struct trainer t;
    char data[4];
    size_t size;
    refuses_null(NULL, tck_attach(NULL, NULL), "no parameters or no place for the client");
    refuses_null(NULL, tck_job_name(NULL, config_text(), NULL, 64), "tck_job_name: job_out is NULL");
    cr_assert_eq(tck_next_log(NULL, NULL, 0), 0);
    tck_detach(NULL, 0);
    attach(&t);
    refuses_null(&t, tck_add_record(t.client, NULL, NULL), "tck_add_record: record is NULL");
    refuses_null(&t, tck_add_blob(t.client, NULL, 1, NULL), "a record has no key");
    refuses_null(&t, tck_set_reshard(t.client, NULL, TCK_RESHARD_ANY), "tck_set_reshard: key is NULL");
    add_records(&t, NULL);
    ok(&t, tck_register(t.client));
    refuses_null(&t, tck_set_blob(t.client, "rng", NULL, 1), "tck_set_blob: data is NULL");
    refuses_null(&t, tck_set_blob(t.client, NULL, data, 1), "the key of the blob is NULL");
    refuses_null(&t, tck_get_blob(t.client, "rng", data, 4, NULL), "tck_get_blob: size_out is NULL");
    refuses_null(&t, tck_get_blob(t.client, "rng", NULL, 4, &size), "tck_get_blob: data is NULL");
    refuses_null(&t, tck_get_blob(t.client, NULL, data, 4, &size), "the key of the blob is NULL");
    refuses_null(&t, tck_set_address(t.client, t.weights_record, NULL), "record \"weights\": no address");
    refuses_null(&t, tck_save_due(t.client, 1, NULL), "tck_save_due: due_out is NULL");
    refuses_null(&t, tck_skip(t.client, 1, NULL), "step 1 cannot be skipped, or no reason is given");
    refuses_null(&t, tck_query(t.client, NULL), "tck_query: version_out is NULL");
    refuses_null(&t, tck_stats(t.client, NULL), "tck_stats: stats_out is NULL");
    refuses_null(&t, tck_health(t.client, NULL), "tck_health: health_out is NULL");
    cr_assert_eq(tck_await_copied(t.client, 0, NULL), TCK_ERR_INVAL);
    ok(&t, tck_set_blob(t.client, "rng", NULL, 0));
    ok(&t, tck_get_blob(t.client, "rng", NULL, 0, &size));
    ok(&t, tck_set_check(t.client, NULL, NULL));
    ok(&t, tck_save_if_needed(t.client, 1, NULL));
    tck_detach(t.client, 0);
}

/* ---- the usual course ---- */

Test(client, restores_what_was_saved)
{
    struct trainer t;
    tck_restored_t restored = {.struct_size = sizeof(restored)};
    char rng[100];
    size_t rng_size = 0;
    begin(&t);
    fill(&t, 7);
    ok(&t, tck_set_blob(t.client, "rng", "seed", 4));
    save(&t, 5);
    fill(&t, 100);
    ok(&t, tck_set_blob(t.client, "rng", "another", 7));
    ok(&t, tck_restore(t.client, TCK_NEWEST, &restored));
    expect(&t, 7);
    ok(&t, tck_get_blob(t.client, "rng", rng, sizeof(rng), &rng_size));
    cr_assert_eq(rng_size, 4);
    cr_assert_eq(memcmp(rng, "seed", 4), 0);
    cr_assert_eq(restored.version.step, 5);
    cr_assert_eq(restored.bytes_local, t.client->layout.shards[0].image_bytes);
    tck_detach(t.client, 1);
}

Test(client, restores_into_a_successor)
{
    struct trainer first, second;
    begin(&first);
    fill(&first, 3);
    save(&first, 9);
    tck_detach(first.client, 0);
    begin(&second);
    ok(&second, tck_restore(second.client, TCK_NEWEST, NULL));
    expect(&second, 3);
    tck_detach(second.client, 0);
}

Test(client, slot_is_the_file_image_with_zeros_between_records)
{
    struct trainer t;
    struct error err = {0};
    uint64_t data_start = 0, bytes = 0;
    begin(&t);
    fill(&t, 7);
    save(&t, 1);
    const struct shard *shard = &t.client->layout.shards[0];
    const uint8_t *image = fake_agent_image(&agent, 0);
    cr_assert_eq(image_check(image, shard->image_bytes, &data_start, &bytes, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(bytes, shard->image_bytes);
    cr_assert_eq(image[bytes - 1], 0, "the filler at the end has what was there before");
    cr_assert_eq(memcmp(image + t.client->layout.records[0].image_offset, t.weights, sizeof(t.weights)), 0);
    tck_detach(t.client, 0);
}

Test(client, a_head_lies_right_before_its_record_at_the_place_that_is_known_after_the_registration)
{
    struct trainer t;
    tck_place_t place = TCK_PLACE_INIT, blob = TCK_PLACE_INIT;
    char name[TCK_MAX_FILE + 1];
    uint8_t byte = 7;
    uint32_t number;
    tck_record_t record = {.struct_size = sizeof(record),
                           .key = "byte",
                           .dtype = TCK_U8,
                           .addr = &byte,
                           .head = "the head",
                           .head_bytes = 8};
    attach(&t);
    add_records(&t, NULL);
    ok(&t, tck_add_record(t.client, &record, &number));
    cr_assert_eq(tck_record_place(t.client, number, &place), TCK_ERR_INVAL, "there is no layout yet");
    ok(&t, tck_register(t.client));
    save(&t, 1);
    ok(&t, tck_record_place(t.client, number, &place));
    ok(&t, tck_blob_place(t.client, "rng", &blob));
    const uint8_t *image = fake_agent_image(&agent, 0);
    cr_assert_eq(place.bytes, 1);
    cr_assert_eq(image[place.offset], 7);
    cr_assert_eq(memcmp(image + place.offset - 8, "the head", 8), 0);
    cr_assert_eq(image[place.offset - 9], 0);
    cr_assert_eq(blob.bytes, 108);
    published_file_name(t.client->layout.shards[0].id, name, sizeof(name));
    cr_assert_str_eq(place.file, name);
    cr_assert_str_eq(blob.file, name);
    cr_assert_eq(tck_record_place(t.client, 99, &place), TCK_ERR_INVAL);
    cr_assert_eq(tck_blob_place(t.client, "none", &place), TCK_ERR_NOENT);
    refuses_null(&t, tck_blob_place(t.client, NULL, &place), "tck_blob_place: key is NULL");
    refuses_null(&t, tck_record_place(t.client, number, NULL), "tck_record_place: place_out is NULL");
    place.struct_size = 8;
    cr_assert_eq(tck_record_place(t.client, number, &place), TCK_ERR_INVAL);
    tck_detach(t.client, 0);
}

Test(client, what_changed_a_slot_is_not_in_the_next_snapshot_in_it)
{
    struct trainer t;
    begin(&t);
    fill(&t, 7);
    for (uint64_t step = 1; step <= FAKE_SLOTS; step++) {
        save_known(&t, step);
    }
    const struct shard *shard = &t.client->layout.shards[0];
    uint8_t *image = fake_agent_image(&agent, 0);
    image[12] ^= 1;                     /* in the header */
    image[shard->image_bytes - 1] ^= 1; /* in the filler at the end */
    for (uint64_t step = 1; step <= FAKE_SLOTS; step++) {
        save_known(&t, FAKE_SLOTS + step);
    }
    cr_assert_eq(fake_agent_image(&agent, 0), image, "another slot");
    cr_assert_eq(memcmp(image, shard->header, shard->header_bytes), 0, "the header");
    cr_assert_eq(image[shard->image_bytes - 1], 0, "the filler");
    tck_detach(t.client, 0);
}

Test(client, copies_eager_records_inside_the_call)
{
    struct trainer t;
    begin(&t);
    fill(&t, 7);
    atomic_store(&agent.mode, FAKE_HOLDS);
    ok(&t, tck_snapshot(t.client, 1, TCK_SAVE_MEMORY));
    t.counter = 1000;
    ok(&t, tck_set_blob(t.client, "rng", "later", 5));
    atomic_store(&agent.mode, FAKE_GRANTS);
    ok(&t, tck_fence(t.client));
    t.counter = 0;
    ok(&t, tck_restore(t.client, TCK_NEWEST, NULL));
    cr_assert_eq(t.counter, 7);
    tck_detach(t.client, 0);
}

/* ---- copies of many bytes ---- */

#define MANY_BYTES ((size_t)3 * COPY_BATCH_BYTES)

/* So many copies wait for each other, which only different threads can reach. */
static atomic_int to_meet;
static pthread_barrier_t meeting;

void __real_host_copy_to_slot(struct host_copy *host, const struct piece *pieces, uint32_t count, uint8_t *image);
void __wrap_host_copy_to_slot(struct host_copy *host, const struct piece *pieces, uint32_t count, uint8_t *image);

void __wrap_host_copy_to_slot(struct host_copy *host, const struct piece *pieces, uint32_t count, uint8_t *image)
{
    if (atomic_fetch_sub(&to_meet, 1) > 0) {
        pthread_barrier_wait(&meeting);
    }
    __real_host_copy_to_slot(host, pieces, count, image);
}

static void let_two_threads_meet(void)
{
    pthread_barrier_init(&meeting, NULL, 2);
    to_meet = 2;
}

/* A trainer with one more record, which the caller frees. */
static uint8_t *begin_with_many(struct trainer *t, tck_when_t when, uint32_t *record_out)
{
    uint8_t *many = calloc(1, MANY_BYTES);
    tck_record_t record = {.struct_size = sizeof(record),
                           .key = "many",
                           .dtype = TCK_U8,
                           .ndim = 1,
                           .global_shape = {MANY_BYTES},
                           .local_shape = {MANY_BYTES},
                           .addr = many,
                           .when = when};
    copy_threads = 1;
    attach(t);
    add_records(t, NULL);
    ok(t, tck_add_record(t->client, &record, record_out));
    ok(t, tck_register(t->client));
    return many;
}

static void expect_all(const uint8_t *many, uint8_t value)
{
    for (size_t i = 0; i < MANY_BYTES; i++) {
        cr_assert_eq(many[i], value, "byte %zu is %u", i, many[i]);
    }
}

Test(client, a_fence_takes_part_in_the_copy)
{
    struct trainer t;
    uint8_t *many = begin_with_many(&t, TCK_LAZY, NULL);
    memset(many, 1, MANY_BYTES);
    let_two_threads_meet(); /* hangs if only one thread copies */
    save(&t, 1);
    memset(many, 2, MANY_BYTES);
    ok(&t, tck_restore(t.client, TCK_NEWEST, NULL));
    expect_all(many, 1);
    tck_detach(t.client, 0);
    free(many);
}

Test(client, many_eager_records_are_copied_inside_the_call_with_the_trainers_help)
{
    struct trainer t;
    uint8_t *many = begin_with_many(&t, TCK_EAGER, NULL);
    fill(&t, 3);
    memset(many, 1, MANY_BYTES);
    let_two_threads_meet();
    ok(&t, tck_snapshot(t.client, 1, TCK_SAVE_MEMORY));
    cr_assert_leq(to_meet, 0, "the call has not copied");
    memset(many, 2, MANY_BYTES);
    t.counter = 1000;
    ok(&t, tck_fence(t.client));
    ok(&t, tck_restore(t.client, TCK_NEWEST, NULL));
    expect(&t, 3);
    expect_all(many, 1);
    tck_detach(t.client, 0);
    free(many);
}

Test(client, many_eager_records_are_read_at_their_new_address)
{
    struct trainer t;
    uint32_t record;
    uint8_t *many = begin_with_many(&t, TCK_EAGER, &record), *moved = malloc(MANY_BYTES);
    memset(moved, 5, MANY_BYTES);
    ok(&t, tck_set_address(t.client, record, moved));
    save(&t, 1);
    memset(moved, 6, MANY_BYTES);
    ok(&t, tck_restore(t.client, TCK_NEWEST, NULL));
    expect_all(moved, 5);
    expect_all(many, 0);
    tck_detach(t.client, 0);
    free(moved);
    free(many);
}

Test(client, a_call_with_many_eager_records_returns_when_the_agent_refuses_or_hangs)
{
    struct trainer t;
    block_time_ms = SHORT_MS;
    uint8_t *many = begin_with_many(&t, TCK_EAGER, NULL);
    atomic_store(&agent.mode, FAKE_REFUSES);
    save(&t, 1);
    cr_assert_eq(stats_of(&t).saves_skipped, 1);
    cr_assert_eq(tck_wait(t.client, 1, TCK_STAGE_COPIED, 0), TCK_ERR_CANCELED);
    cr_assert_not_null(strstr(tck_errmsg(t.client), "undecided"), "%s", tck_errmsg(t.client));
    atomic_store(&agent.mode, FAKE_HANGS);
    save(&t, 2);
    cr_assert_eq(stats_of(&t).saves_skipped, 2);
    cr_assert_eq(tck_wait(t.client, 2, TCK_STAGE_COPIED, 0), TCK_ERR_CANCELED);
    fake_agent_stop(&agent); /* otherwise detach would wait for it */
    tck_detach(t.client, 0);
    free(many);
}

/* The agent dies at BEGIN, or when it has granted slots. */
static void dies_in_the_call(enum fake_mode mode, bool saved)
{
    struct trainer t;
    uint8_t *many = begin_with_many(&t, TCK_EAGER, NULL);
    memset(many, 1, MANY_BYTES);
    save_known(&t, 1);
    memset(many, 2, MANY_BYTES);
    atomic_store(&agent.mode, mode);
    ok(&t, tck_snapshot(t.client, 2, TCK_SAVE_MEMORY));
    memset(many, 3, MANY_BYTES);
    ok(&t, tck_fence(t.client));
    cr_assert_eq(stats_of(&t).saves_copied, saved ? 2 : 1);
    for (int i = 0; i < PATIENCE_MS / 10 && !atomic_load(&t.client->session.connected); i++) {
        sleep_ms(10);
    }
    ok(&t, tck_restore(t.client, TCK_NEWEST, NULL));
    expect_all(many, saved ? 2 : 1);
    atomic_store(&agent.mode, FAKE_GRANTS);
    save_known(&t, 3);
    tck_detach(t.client, 0);
    free(many);
}

Test(client, an_agent_that_dies_before_it_grants_leaves_the_version_before)
{
    dies_in_the_call(FAKE_DIES_ASKED, false);
}

Test(client, what_the_call_copies_is_sealed_though_the_agent_dies_meanwhile)
{
    dies_in_the_call(FAKE_DIES_GRANTING, true);
}

Test(client, saves_at_the_interval_in_the_shared_status)
{
    struct trainer t;
    int started_count = 0;
    atomic_store(&agent.interval, 3);
    begin(&t);
    for (uint64_t step = 1; step <= 10; step++) {
        int started = 0;
        ok(&t, tck_fence(t.client));
        ok(&t, tck_save_if_needed(t.client, step, &started));
        cr_assert_eq(started, step % 3 == 0);
        started_count += started;
    }
    ok(&t, tck_fence(t.client));
    cr_assert_eq(started_count, 3);
    cr_assert_eq(stats_of(&t).saves_copied, 3);
    tck_detach(t.client, 0);
}

Test(client, returns_what_is_due)
{
    struct trainer t;
    const tck_due_t expected[] = {TCK_DUE_NOTHING, TCK_DUE_NOTHING, TCK_DUE_MEMORY,
                                  TCK_DUE_NOTHING, TCK_DUE_STORAGE, TCK_DUE_MEMORY};
    atomic_store(&agent.interval, 3);
    atomic_store(&agent.storage_interval, 5);
    begin(&t);
    for (uint64_t step = 1; step <= 6; step++) {
        tck_due_t due;
        ok(&t, tck_save_due(t.client, step, &due));
        cr_assert_eq(due, expected[step - 1]);
    }
    tck_detach(t.client, 0);
}

Test(client, counts_a_step_that_the_caller_saves_by_itself)
{
    struct trainer t;
    tck_due_t due;
    atomic_store(&agent.interval, 2);
    begin(&t);
    ok(&t, tck_save_due(t.client, 2, &due));
    ok(&t, tck_snapshot(t.client, 2, TCK_SAVE_MEMORY));
    cr_assert_eq(atomic_load(&t.client->session.shared->current_step), 2);
    ok(&t, tck_fence(t.client));
    ok(&t, tck_snapshot(t.client, 5, TCK_SAVE_MEMORY));
    cr_assert_eq(atomic_load(&t.client->session.shared->current_step), 2, "it did not ask");
    tck_detach(t.client, 0);
}

Test(client, reads_a_moved_record_at_its_new_address)
{
    static float moved[WEIGHTS];
    struct trainer t;
    begin(&t);
    fill(&t, 1);
    memcpy(moved, t.weights, sizeof(moved));
    moved[0] = 77;
    ok(&t, tck_set_address(t.client, t.weights_record, moved));
    save(&t, 1);
    moved[0] = 0;
    ok(&t, tck_restore(t.client, TCK_NEWEST, NULL));
    cr_assert_float_eq(moved[0], 77, 0);
    cr_assert_float_eq(t.weights[0], 1, 0);
    tck_detach(t.client, 0);
}

/* Each call of a forked child that a parent's client got into: the numbers of those that did not fail as they should.
 */
static uint32_t wrong_calls(struct trainer *t)
{
    tck_stats_t stats = {.struct_size = sizeof(stats)};
    tck_health_t health = {.struct_size = sizeof(health)};
    tck_version_t version;
    uint64_t step = 0;
    size_t size;
    int flag;
    tck_due_t due;
    uint8_t byte = 0;
    const tck_status_t got[] = {tck_add_blob(t->client, "late", 8, NULL),
                                tck_set_blob(t->client, "rng", &byte, 1),
                                tck_get_blob(t->client, "rng", &byte, 1, &size),
                                tck_set_address(t->client, t->weights_record, t->weights),
                                tck_register(t->client),
                                tck_save_due(t->client, 5, &due),
                                tck_save_if_needed(t->client, 5, &flag),
                                tck_snapshot(t->client, 5, TCK_SAVE_MEMORY),
                                tck_skip(t->client, 5, "no reason"),
                                tck_set_stream(t->client, 0, NULL),
                                tck_fence(t->client),
                                tck_confirm(t->client, 5, NULL),
                                tck_await_copied(t->client, PATIENCE_MS, &step),
                                tck_wait(t->client, 4, TCK_STAGE_COMMITTED, PATIENCE_MS),
                                tck_save_last(t->client, 5, PATIENCE_MS),
                                tck_query(t->client, &version),
                                tck_restore(t->client, TCK_NEWEST, NULL),
                                tck_stats(t->client, &stats),
                                tck_health(t->client, &health)};
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < sizeof(got) / sizeof(got[0]); i++) {
        wrong |= got[i] == TCK_ERR_INVAL ? 0 : 1u << i;
    }
    wrong |= strstr(tck_errmsg(t->client), "is a fork of process") != NULL ? 0 : 1u << 31;
    tck_detach(t->client, 1);
    return wrong;
}

/* During the fork, the snapshot worker's thread is copying and holds locks that are never released in the child. */
Test(client, of_a_forked_child_is_refused_at_once_and_stays_the_parents)
{
    struct trainer t;
    int ends[2];
    uint32_t wrong = 1;
    begin(&t);
    save_known(&t, 4);
    atomic_store(&agent.mode, FAKE_HOLDS);
    ok(&t, tck_snapshot(t.client, 5, TCK_SAVE_MEMORY));
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        wrong = wrong_calls(&t);
        _exit(write(ends[1], &wrong, sizeof(wrong)) == sizeof(wrong) ? 0 : 1);
    }
    cr_assert_eq(read(ends[0], &wrong, sizeof(wrong)), (ssize_t)sizeof(wrong));
    cr_assert_eq(waitpid(child, NULL, 0), child);
    cr_assert_eq(wrong, 0, "%x", wrong);
    atomic_store(&agent.mode, FAKE_GRANTS);
    ok(&t, tck_fence(t.client));
    ok(&t, tck_wait(t.client, 5, TCK_STAGE_COMMITTED, PATIENCE_MS));
    cr_assert_eq(atomic_load(&agent.detaches), 0);
    tck_detach(t.client, 0);
    cr_assert_eq(atomic_load(&agent.detaches), 1);
}

static int writing[2], going_on[2];

static void hold_line(void *ctx, tck_log_level_t level, const char *text)
{
    char byte = 0;
    (void)ctx, (void)level, (void)text;
    if (write(writing[1], &byte, 1) != 1 || read(going_on[0], &byte, 1) != 1) {
        abort();
    }
}

static void *skip_a_step(void *arg)
{
    struct trainer *t = arg;
    return (void *)(intptr_t)tck_skip(t->client, 5, "no reason");
}

/* During the fork, another thread writes a line to the log. */
Test(client, a_forked_child_may_attach_by_itself)
{
    struct trainer t;
    pthread_t thread;
    char byte = 0;
    int status = 0;
    begin(&t);
    cr_assert_eq(pipe(writing) | pipe(going_on), 0);
    tck_set_log(hold_line, NULL, TCK_LOG_WARN);
    cr_assert_eq(pthread_create(&thread, NULL, skip_a_step, &t), 0);
    cr_assert_eq(read(writing[0], &byte, 1), 1);
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_MS / 1000); /* ends the child if it waits for a lock */
        tck_set_log(NULL, NULL, TCK_LOG_ERROR);
        _exit(tck_next_log(&(tck_log_level_t){TCK_LOG_INFO}, &byte, 1));
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status), "killed by signal %d", WTERMSIG(status));
    cr_assert_eq(write(going_on[1], &byte, 1), 1);
    pthread_join(thread, NULL);
    tck_set_log(NULL, NULL, TCK_LOG_ERROR);
    tck_detach(t.client, 0);
}

Test(client, waits_for_a_stage)
{
    struct trainer t;
    begin(&t);
    save(&t, 4);
    ok(&t, tck_wait(t.client, 4, TCK_STAGE_COPIED, 0));
    ok(&t, tck_wait(t.client, 4, TCK_STAGE_COMMITTED, PATIENCE_MS));
    cr_assert_eq(tck_wait(t.client, 4, TCK_STAGE_DRAINED, 10), TCK_ERR_TIMEDOUT);
    cr_assert_eq(tck_wait(t.client, 5, TCK_STAGE_COPIED, 10), TCK_ERR_NOENT);
    tck_detach(t.client, 0);
}

Test(client, a_wait_for_a_skipped_step_ends_though_a_later_one_was_skipped_too)
{
    struct trainer t;
    begin(&t);
    atomic_store(&agent.mode, FAKE_REFUSES);
    save(&t, 4);
    save(&t, 5);
    cr_assert_eq(tck_wait(t.client, 5, TCK_STAGE_COPIED, PATIENCE_MS), TCK_ERR_CANCELED);
    cr_assert_eq(tck_wait(t.client, 4, TCK_STAGE_COMMITTED, PATIENCE_MS), TCK_ERR_CANCELED);
    cr_assert_not_null(strstr(tck_errmsg(t.client), "step 4 was skipped"), "%s", tck_errmsg(t.client));
    tck_detach(t.client, 0);
}

Test(client, a_wait_for_an_aborted_step_ends_though_a_later_one_was_aborted_too)
{
    struct trainer t;
    begin(&t);
    atomic_store(&agent.aborts, true);
    save(&t, 4);
    save(&t, 5);
    cr_assert_eq(tck_wait(t.client, 5, TCK_STAGE_COMMITTED, PATIENCE_MS), TCK_ERR_CANCELED);
    cr_assert_eq(tck_wait(t.client, 4, TCK_STAGE_COMMITTED, PATIENCE_MS), TCK_ERR_CANCELED);
    cr_assert_not_null(strstr(tck_errmsg(t.client), "step 4 was refused or aborted"), "%s", tck_errmsg(t.client));
    ok(&t, tck_wait(t.client, 4, TCK_STAGE_COPIED, 0));
    atomic_store(&agent.aborts, false);
    save(&t, 6);
    ok(&t, tck_wait(t.client, 6, TCK_STAGE_COMMITTED, PATIENCE_MS));
    tck_detach(t.client, 0);
}

Test(client, a_wait_ends_when_agent_and_supervisor_are_gone)
{
    struct trainer t;
    begin(&t);
    save(&t, 4);
    ok(&t, tck_wait(t.client, 4, TCK_STAGE_COMMITTED, PATIENCE_MS));
    fake_agent_stop(&agent);
    cr_assert_eq(tck_wait(t.client, 4, TCK_STAGE_DRAINED, PATIENCE_MS), TCK_ERR_CANCELED);
    cr_assert_not_null(strstr(tck_errmsg(t.client), "agent and supervisor of this node are gone"), "%s",
                       tck_errmsg(t.client));
    ok(&t, tck_wait(t.client, 4, TCK_STAGE_COMMITTED, 0)); /* known results are kept */
    tck_detach(t.client, 0);
}

/* The agent sees a seal as soon as it is set, which is before the client considers the copy complete. */
Test(client, what_was_waited_for_is_also_copied)
{
    struct trainer t;
    begin(&t);
    atomic_store(&agent.mode, FAKE_HOLDS);
    atomic_store(&agent.hasty, true);
    ok(&t, tck_snapshot(t.client, 4, TCK_SAVE_MEMORY));
    cr_assert_eq(tck_wait(t.client, 4, TCK_STAGE_COMMITTED, 20), TCK_ERR_TIMEDOUT);
    atomic_store(&agent.mode, FAKE_GRANTS);
    ok(&t, tck_wait(t.client, 4, TCK_STAGE_COMMITTED, PATIENCE_MS));
    ok(&t, tck_set_address(t.client, t.weights_record, t.weights));
    tck_detach(t.client, 0);
}

Test(client, returns_the_newest_version)
{
    struct trainer t;
    tck_version_t version = {0};
    begin(&t);
    cr_assert_eq(tck_query(t.client, &version), TCK_ERR_NOENT);
    save(&t, 4);
    ok(&t, tck_query(t.client, &version));
    cr_assert_eq(version.step, 4);
    cr_assert_eq(version.term, 1);
    tck_detach(t.client, 0);
}

Test(client, detach_notifies_the_agent)
{
    struct trainer t;
    begin(&t);
    tck_detach(t.client, 1);
    cr_assert_eq(agent.detaches, 1);
}

/* ---- refusals, and agents that hang or die ---- */

Test(client, skips_and_names_a_refused_snapshot)
{
    struct trainer t;
    begin(&t);
    atomic_store(&agent.mode, FAKE_REFUSES);
    save(&t, 3);
    cr_assert_eq(stats_of(&t).saves_skipped, 1);
    cr_assert_eq(tck_wait(t.client, 3, TCK_STAGE_COMMITTED, PATIENCE_MS), TCK_ERR_CANCELED);
    cr_assert_not_null(strstr(tck_errmsg(t.client), "undecided"), "%s", tck_errmsg(t.client));
    tck_detach(t.client, 0);
}

Test(client, a_step_that_was_skipped_may_be_saved_again)
{
    struct trainer t;
    begin(&t);
    fake_agent_stop(&agent);
    save(&t, 4);
    cr_assert_eq(tck_wait(t.client, 4, TCK_STAGE_COPIED, PATIENCE_MS), TCK_ERR_CANCELED);
    atomic_store(&agent.mode, FAKE_HOLDS);
    start_agent();
    const uint64_t before = stats_of(&t).saves_started;
    for (int i = 0; i < PATIENCE_MS / 10 && stats_of(&t).saves_started == before; i++) {
        sleep_ms(10);
        ok(&t, tck_snapshot(t.client, 4, TCK_SAVE_MEMORY));
    }
    cr_assert_eq(tck_wait(t.client, 4, TCK_STAGE_COMMITTED, 20), TCK_ERR_TIMEDOUT, "it is being saved");
    atomic_store(&agent.mode, FAKE_GRANTS);
    ok(&t, tck_wait(t.client, 4, TCK_STAGE_COMMITTED, PATIENCE_MS));
    tck_detach(t.client, 0);
}

Test(client, step_0_is_no_last_step)
{
    struct trainer t;
    begin(&t);
    cr_assert_eq(tck_save_last(t.client, 0, 0), TCK_ERR_INVAL);
    cr_assert_eq(tck_save_last(t.client, TCK_NEWEST, 0), TCK_ERR_INVAL);
    tck_detach(t.client, 0);
}

Test(client, the_last_step_is_asked_for_until_there_is_room)
{
    struct trainer t;
    begin(&t);
    atomic_store(&agent.no_room, 3);
    cr_assert_eq(tck_save_last(t.client, 4, 400), TCK_ERR_TIMEDOUT, "nothing drains it here");
    cr_assert_eq(atomic_load(&agent.no_room), 0);
    cr_assert_eq(stats_of(&t).saves_copied, 1);
    cr_assert_eq(stats_of(&t).saves_skipped, 0, "it was put off, no more");
    cr_assert_eq(stats_of(&t).saves_started, 1);
    cr_assert_not_null(strstr(tck_errmsg(t.client), "step 4 is committed, but not on storage after 400 ms"));
    tck_detach(t.client, 0);
}

Test(client, the_error_of_a_last_step_without_room_says_so)
{
    struct trainer t;
    begin(&t);
    atomic_store(&agent.no_room, 1000);
    cr_assert_eq(tck_save_last(t.client, 4, 200), TCK_ERR_TIMEDOUT);
    cr_assert_not_null(
        strstr(tck_errmsg(t.client), "step 4 is not saved, since earlier steps are still being drained"));
    cr_assert_eq(stats_of(&t).saves_copied, 0);
    atomic_store(&agent.no_room, 0);
    save_known(&t, 5);
    tck_detach(t.client, 0);
}

Test(client, a_last_step_that_memory_has_is_brought_to_storage)
{
    struct trainer t;
    begin(&t);
    save_known(&t, 4);
    ok(&t, tck_save_last(t.client, 4, PATIENCE_MS));
    cr_assert_eq(stats_of(&t).saves_copied, 1);
    tck_detach(t.client, 0);
}

Test(client, fence_returns_and_training_goes_on_when_the_agent_hangs)
{
    struct trainer t;
    block_time_ms = SHORT_MS;
    begin(&t);
    atomic_store(&agent.mode, FAKE_HANGS);
    save(&t, 1);
    cr_assert_eq(stats_of(&t).saves_skipped, 1);
    cr_assert_eq(tck_wait(t.client, 1, TCK_STAGE_COPIED, 0), TCK_ERR_CANCELED);
    fake_agent_stop(&agent); /* otherwise detach would wait for it */
    tck_detach(t.client, 0);
}

Test(client, hung_agent_is_asked_again_only_after_its_loop_turned)
{
    struct trainer t;
    block_time_ms = SHORT_MS;
    begin(&t);
    atomic_store(&agent.mode, FAKE_HANGS);
    for (uint64_t step = 1; step <= 5; step++) {
        save(&t, step);
    }
    cr_assert_eq(stats_of(&t).saves_started, 1);
    cr_assert_eq(stats_of(&t).saves_skipped, 5);
    atomic_store(&agent.mode, FAKE_GRANTS);
    for (int i = 0; i < PATIENCE_MS / 10 && stats_of(&t).saves_copied == 0; i++) {
        sleep_ms(10);
        save(&t, 6 + (uint64_t)i);
    }
    cr_assert_eq(stats_of(&t).saves_copied, 1);
    cr_assert_geq(agent.abandons, 1, "the snapshot whose grant never came");
    tck_detach(t.client, 0);
}

Test(client, does_not_copy_into_slots_that_do_not_exist)
{
    struct trainer t;
    begin(&t);
    atomic_store(&agent.mode, FAKE_NONSENSE);
    save(&t, 1);
    cr_assert_eq(stats_of(&t).saves_copied, 0);
    cr_assert_eq(stats_of(&t).saves_skipped, 1);
    tck_detach(t.client, 0);
}

Test(client, a_snapshot_without_a_fence_waits_for_the_one_before)
{
    struct trainer t;
    int started = 0;
    atomic_store(&agent.interval, 1);
    begin(&t);
    for (uint64_t step = 1; step <= 20; step++) {
        ok(&t, tck_save_if_needed(t.client, step, &started));
        cr_assert_eq(started, 1);
    }
    ok(&t, tck_fence(t.client));
    cr_assert_eq(stats_of(&t).saves_copied, 20);
    tck_detach(t.client, 0);
}

static void count_line(void *ctx, tck_log_level_t level, const char *text)
{
    int *counts = ctx;
    counts[level]++;
    cr_assert_not_null(text);
}

Test(client, lines_go_to_the_function_that_was_set)
{
    struct trainer t;
    int counts[TCK_LOG_DEBUG + 1] = {0};
    tck_log_level_t level;
    char text[1024];
    tck_set_log(count_line, counts, TCK_LOG_INFO);
    begin(&t);
    save(&t, 8);
    cr_assert_eq(tck_snapshot(t.client, 3, TCK_SAVE_MEMORY), TCK_ERR_INVAL);
    cr_assert_eq(tck_snapshot(t.client, 4, TCK_SAVE_MEMORY), TCK_ERR_INVAL);
    tck_detach(t.client, 0);
    tck_set_log(NULL, NULL, TCK_LOG_INFO);
    cr_assert_eq(counts[TCK_LOG_ERROR], 1);
    cr_assert_geq(counts[TCK_LOG_INFO], 1, "it is attached");
    cr_assert_eq(tck_next_log(&level, text, sizeof(text)), 0);
}

static const char *log_of_node(void)
{
    static char text[1 << 16];
    char path[256];
    snprintf(path, sizeof(path), "%s/job/node/agent.log", runtime_dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    cr_assert_geq(len, 0);
    text[len] = '\0';
    close(fd);
    return text;
}

Test(client, lines_also_go_to_the_log_of_the_node_with_rank_and_process)
{
    struct trainer t;
    char head[64];
    begin(&t);
    tck_detach(t.client, 0);
    snprintf(head, sizeof(head), "Z info node/rank0[%d] attached to job job, term 1", (int)getpid());
    cr_assert_not_null(strstr(log_of_node(), head), "%s is not in: %s", head, log_of_node());
}

Test(client, a_log_that_cannot_be_opened_costs_a_warning_and_no_training)
{
    struct trainer t;
    tck_log_level_t level;
    char path[256], text[1024];
    snprintf(path, sizeof(path), "%s/job/node/agent.log", runtime_dir);
    cr_assert_eq(symlink("/nowhere", path), 0);
    begin(&t);
    cr_assert_eq(tck_next_log(&level, text, sizeof(text)), 1);
    cr_assert_eq(level, TCK_LOG_WARN);
    cr_assert_not_null(strstr(text, "rank 0: lines of this process are not in the log of the node: log file"), "%s",
                       text);
    tck_detach(t.client, 0);
}

Test(client, a_forked_child_has_none_of_the_lines_of_its_parent)
{
    struct trainer t;
    int status = 0;
    begin(&t);
    pid_t child = fork();
    if (child == 0) {
        char text[1024];
        _exit(tck_next_log(&(tck_log_level_t){TCK_LOG_INFO}, text, sizeof(text)));
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    tck_detach(t.client, 0);
}

Test(client, lines_are_kept_until_they_are_taken)
{
    struct trainer t;
    tck_log_level_t level = TCK_LOG_DEBUG;
    char text[1024] = "";
    begin(&t);
    fake_agent_stop(&agent);
    for (uint64_t step = 1; step <= 6; step++) {
        save(&t, step);
    }
    int told = 0;
    cr_assert_eq(tck_next_log(&level, text, sizeof(text)), 1);
    cr_assert_eq(level, TCK_LOG_INFO);
    cr_assert_not_null(strstr(text, "attached to job job, term 1, 1 rank on 1 node"), "%s", text);
    while (tck_next_log(&level, text, sizeof(text))) {
        told += strstr(text, "saves are skipped") != NULL;
    }
    cr_assert(told >= 1 && told <= 2, "once for each cause, and not with each of six steps: %d", told);
    tck_detach(t.client, 0);
}

Test(client, a_record_is_not_moved_while_it_is_copied)
{
    struct trainer t;
    begin(&t);
    atomic_store(&agent.mode, FAKE_HOLDS);
    ok(&t, tck_snapshot(t.client, 1, TCK_SAVE_MEMORY));
    cr_assert_eq(tck_set_address(t.client, t.weights_record, t.weights), TCK_ERR_BUSY);
    atomic_store(&agent.mode, FAKE_GRANTS);
    ok(&t, tck_fence(t.client));
    tck_detach(t.client, 0);
}

Test(client, a_step_that_goes_back_is_refused_and_a_wait_for_it_ends)
{
    struct trainer t;
    int started = 1;
    atomic_store(&agent.interval, 1);
    begin(&t);
    save(&t, 8);
    ok(&t, tck_save_if_needed(t.client, 3, &started));
    cr_assert_eq(started, 0);
    cr_assert_not_null(strstr(tck_errmsg(t.client), "step 3 comes after step 8"), "%s", tck_errmsg(t.client));
    cr_assert_eq(tck_wait(t.client, 3, TCK_STAGE_COMMITTED, PATIENCE_MS), TCK_ERR_NOENT);
    cr_assert_eq(tck_snapshot(t.client, 4, TCK_SAVE_MEMORY), TCK_ERR_INVAL);
    cr_assert_eq(tck_wait(t.client, 3, TCK_STAGE_COMMITTED, PATIENCE_MS), TCK_ERR_NOENT, "of two that were refused");
    cr_assert_eq(tck_wait(t.client, 4, TCK_STAGE_COMMITTED, PATIENCE_MS), TCK_ERR_NOENT);
    ok(&t, tck_wait(t.client, 8, TCK_STAGE_COMMITTED, PATIENCE_MS));
    save(&t, 9);
    ok(&t, tck_wait(t.client, 9, TCK_STAGE_COMMITTED, PATIENCE_MS));
    cr_assert_eq(stats_of(&t).saves_started, 2);
    tck_detach(t.client, 0);
}

Test(client, the_same_step_is_saved_once)
{
    struct trainer t;
    int started = 0;
    atomic_store(&agent.interval, 1);
    begin(&t);
    ok(&t, tck_save_if_needed(t.client, 8, &started));
    cr_assert_eq(started, 1);
    ok(&t, tck_save_if_needed(t.client, 8, &started));
    cr_assert_eq(started, 0);
    cr_assert_not_null(strstr(tck_errmsg(t.client), "saved already"), "%s", tck_errmsg(t.client));
    ok(&t, tck_snapshot(t.client, 8, TCK_SAVE_MEMORY));
    ok(&t, tck_fence(t.client));
    cr_assert_eq(stats_of(&t).saves_copied, 1);
    tck_detach(t.client, 0);
}

/* The copy takes longer than the block time, because this test holds the session that it needs. */
Test(client, a_step_that_is_asked_for_again_while_it_is_copied_is_not_skipped)
{
    struct trainer t;
    block_time_ms = SHORT_MS;
    begin(&t);
    pthread_mutex_lock(&t.client->session.lock);
    ok(&t, tck_snapshot(t.client, 8, TCK_SAVE_MEMORY));
    cr_assert_eq(tck_snapshot(t.client, 8, TCK_SAVE_MEMORY), TCK_ERR_BUSY);
    cr_assert_eq(tck_wait(t.client, 8, TCK_STAGE_COPIED, 0), TCK_ERR_TIMEDOUT, "%s", tck_errmsg(t.client));
    atomic_store(&agent.mode, FAKE_GRANTS);
    t.client->worker.deadline_ms += PATIENCE_MS;
    pthread_mutex_unlock(&t.client->session.lock);
    ok(&t, tck_wait(t.client, 8, TCK_STAGE_COMMITTED, PATIENCE_MS));
    tck_detach(t.client, 0);
}

Test(client, a_step_that_the_caller_skips_is_given_up_at_the_agent)
{
    struct trainer t;
    begin(&t);
    ok(&t, tck_skip(t.client, 5, "the loader's state cannot be taken"));
    cr_assert_eq(tck_wait(t.client, 5, TCK_STAGE_COPIED, PATIENCE_MS), TCK_ERR_CANCELED);
    cr_assert_not_null(strstr(tck_errmsg(t.client), "the loader's state"), "%s", tck_errmsg(t.client));
    for (int i = 0; i < PATIENCE_MS / 10 && atomic_load(&agent.abandons) == 0; i++) {
        sleep_ms(10);
    }
    cr_assert_eq(agent.abandoned_step, 5);
    cr_assert_eq(stats_of(&t).saves_copied, 0);
    save(&t, 6);
    cr_assert_eq(stats_of(&t).saves_copied, 1);
    tck_detach(t.client, 0);
}

/* ---- snapshots that need a word ---- */

static void begin_confirmed(struct trainer *t)
{
    begin(t);
    fill(t, 7);
    save_known(t, 1);
    ok(t, tck_set_confirm(t->client, 1));
    fill(t, 50);
    ok(t, tck_snapshot(t->client, 2, TCK_SAVE_MEMORY));
}

static void expect_restored(struct trainer *t, float value)
{
    fill(t, 100);
    ok(t, tck_restore(t->client, TCK_NEWEST, NULL));
    expect(t, value);
}

Test(client, a_snapshot_is_sealed_only_when_the_trainer_confirms_it)
{
    struct trainer t;
    uint64_t step = 0;
    begin_confirmed(&t);
    ok(&t, tck_await_copied(t.client, PATIENCE_MS, &step));
    cr_assert_eq(step, 2);
    ok(&t, tck_fence(t.client));
    cr_assert_eq(tck_wait(t.client, 2, TCK_STAGE_COPIED, 0), TCK_ERR_TIMEDOUT);
    ok(&t, tck_confirm(t.client, 2, NULL));
    ok(&t, tck_wait(t.client, 2, TCK_STAGE_COMMITTED, PATIENCE_MS));
    cr_assert_eq(tck_await_copied(t.client, 0, &step), TCK_ERR_NOENT);
    expect_restored(&t, 50);
    tck_detach(t.client, 1);
}

Test(client, a_snapshot_whose_records_changed_is_given_up_and_says_why)
{
    struct trainer t;
    begin_confirmed(&t);
    ok(&t, tck_fence(t.client));
    ok(&t, tck_confirm(t.client, 2, "weights was written to"));
    ok(&t, tck_confirm(t.client, 2, NULL)); /* too late */
    cr_assert_eq(tck_wait(t.client, 2, TCK_STAGE_COMMITTED, PATIENCE_MS), TCK_ERR_CANCELED);
    cr_assert_neq(strstr(tck_errmsg(t.client), "weights was written to"), NULL, "%s", tck_errmsg(t.client));
    cr_assert_eq(stats_of(&t).saves_skipped, 1);
    expect_restored(&t, 7);
    tck_detach(t.client, 1);
}

Test(client, an_unconfirmed_snapshot_is_given_up_when_something_else_begins)
{
    struct trainer t;
    begin_confirmed(&t);
    expect_restored(&t, 7);
    cr_assert_eq(stats_of(&t).saves_skipped, 1);
    tck_detach(t.client, 1);
}

Test(client, an_unconfirmed_snapshot_is_not_restored_by_a_successor)
{
    struct trainer first, second;
    uint64_t step = 0;
    begin_confirmed(&first);
    ok(&first, tck_await_copied(first.client, PATIENCE_MS, &step));
    tck_detach(first.client, 0);
    begin(&second);
    expect_restored(&second, 7);
    tck_detach(second.client, 1);
}

Test(client, a_confirmation_may_come_before_the_copy_is_done)
{
    struct trainer t;
    atomic_store(&agent.mode, FAKE_GRANTS);
    begin(&t);
    ok(&t, tck_set_confirm(t.client, 1));
    atomic_store(&agent.mode, FAKE_HOLDS);
    ok(&t, tck_snapshot(t.client, 2, TCK_SAVE_MEMORY));
    ok(&t, tck_confirm(t.client, 2, NULL));
    atomic_store(&agent.mode, FAKE_GRANTS);
    ok(&t, tck_wait(t.client, 2, TCK_STAGE_COMMITTED, PATIENCE_MS));
    tck_detach(t.client, 1);
}

/* As if the comparing thread had run late: the next snapshot has begun and is still being copied. */
Test(client, a_late_confirmation_does_not_count_for_the_next_snapshot)
{
    struct trainer t;
    uint64_t step = 0;
    begin_confirmed(&t);
    ok(&t, tck_await_copied(t.client, PATIENCE_MS, &step));
    ok(&t, tck_confirm(t.client, step, NULL));
    atomic_store(&agent.mode, FAKE_HOLDS);
    ok(&t, tck_snapshot(t.client, 3, TCK_SAVE_MEMORY));
    ok(&t, tck_confirm(t.client, step, NULL));
    atomic_store(&agent.mode, FAKE_GRANTS);
    ok(&t, tck_await_copied(t.client, PATIENCE_MS, &step));
    cr_assert_eq(step, 3);
    ok(&t, tck_confirm(t.client, step, "weights was written to"));
    expect_restored(&t, 50);
    tck_detach(t.client, 1);
}

static bool copies_again(struct trainer *t, uint64_t step)
{
    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        save(t, step + (uint64_t)i);
        if (stats_of(t).saves_copied == 2) {
            return true;
        }
        sleep_ms(10);
    }
    return false;
}

Test(client, reconnects_to_a_restarted_agent_and_keeps_its_mappings)
{
    struct trainer t;
    begin(&t);
    fill(&t, 1);
    save(&t, 1);
    const uint8_t *base = t.client->slots.shards[0].base;
    fake_agent_stop(&agent);
    save(&t, 2);
    cr_assert_eq(stats_of(&t).saves_skipped, 1);
    start_agent();
    fill(&t, 9);
    cr_assert(copies_again(&t, 3));
    cr_assert_eq(agent.returns, 1);
    cr_assert_eq(t.client->slots.shards[0].base, base);
    fill(&t, 0);
    ok(&t, tck_restore(t.client, TCK_NEWEST, NULL));
    expect(&t, 9);
    tck_detach(t.client, 0);
}

static void wait_until(atomic_int *counter, int count)
{
    for (int i = 0; i < PATIENCE_MS / 10 && atomic_load(counter) < count; i++) {
        sleep_ms(10);
    }
    cr_assert_geq(atomic_load(counter), count);
}

Test(client, seals_and_says_so_later_when_the_agent_dies_while_it_copies)
{
    struct trainer t;
    begin(&t);
    fill(&t, 5);
    atomic_store(&agent.mode, FAKE_DIES_GRANTING);
    save(&t, 7);
    cr_assert_eq(stats_of(&t).saves_copied, 1, "the slots outlive the agent");
    wait_until(&agent.seals, 1);
    cr_assert_eq(agent.returns, 1);
    cr_assert_eq(agent.abandons, 0);
    const struct fake_shard *shard = &agent.shards[0];
    cr_assert(version_is(seal_read(&shard->seals[shard->granted_slot]).version, (struct version){agent.term, 7}));
    fill(&t, 0);
    ok(&t, tck_restore(t.client, TCK_NEWEST, NULL));
    expect(&t, 5);
    tck_detach(t.client, 0);
}

Test(client, abandons_a_snapshot_that_the_agent_died_over_before_it_granted_it)
{
    struct trainer t;
    begin(&t);
    save(&t, 6);
    wait_until(&agent.seals, 1);
    atomic_store(&agent.mode, FAKE_DIES_ASKED);
    save(&t, 7);
    cr_assert_eq(stats_of(&t).saves_skipped, 1);
    wait_until(&agent.abandons, 1);
    cr_assert_eq(agent.abandoned_step, 7);
    cr_assert_eq(agent.seals, 2, "what was sealed before is said again");
    tck_detach(t.client, 0);
}

static void wait_unreachable(const struct trainer *t)
{
    for (int i = 0; i < PATIENCE_MS / 10 && atomic_load(&t->client->session.connected); i++) {
        sleep_ms(10);
    }
    cr_assert(!atomic_load(&t->client->session.connected));
}

Test(client, a_saved_step_goes_to_storage_when_the_agent_is_back)
{
    struct trainer t;
    begin(&t);
    save_known(&t, 6);
    fake_agent_stop(&agent);
    wait_unreachable(&t);
    ok(&t, tck_snapshot(t.client, 6, TCK_SAVE_STORAGE));
    ok(&t, tck_fence(t.client));
    cr_assert_eq(tck_wait(t.client, 6, TCK_STAGE_DRAINED, 50), TCK_ERR_TIMEDOUT, "%s", tck_errmsg(t.client));
    start_agent();
    ok(&t, tck_wait(t.client, 6, TCK_STAGE_DRAINED, PATIENCE_MS));
    tck_detach(t.client, 0);
}

Test(client, a_saved_step_goes_to_storage_though_the_agent_dies_when_it_is_told)
{
    struct trainer t;
    begin(&t);
    save_known(&t, 6);
    atomic_store(&agent.mode, FAKE_DIES_ASKED);
    ok(&t, tck_snapshot(t.client, 6, TCK_SAVE_STORAGE));
    wait_until(&agent.returns, 1);
    atomic_store(&agent.mode, FAKE_GRANTS);
    ok(&t, tck_wait(t.client, 6, TCK_STAGE_DRAINED, PATIENCE_MS));
    cr_assert_eq(stats_of(&t).saves_skipped, 0);
    tck_detach(t.client, 0);
}

Test(client, a_request_for_storage_is_repeated_when_the_agent_was_restarted)
{
    struct trainer t;
    begin(&t);
    save_known(&t, 6);
    ok(&t, tck_snapshot(t.client, 6, TCK_SAVE_STORAGE));
    ok(&t, tck_wait(t.client, 6, TCK_STAGE_DRAINED, PATIENCE_MS));
    const int before = atomic_load(&agent.begins);
    fake_agent_stop(&agent);
    wait_unreachable(&t);
    start_agent();
    wait_until(&agent.begins, before + 1);
    tck_detach(t.client, 0);
}

Test(client, leaves_no_seal_on_a_slot_that_it_was_refused)
{
    struct trainer t;
    begin(&t);
    atomic_store(&agent.mode, FAKE_REFUSES);
    save(&t, 7);
    for (uint32_t slot = 0; slot < FAKE_SLOTS; slot++) {
        cr_assert(version_none(seal_read(&agent.shards[0].seals[slot]).version));
    }
    tck_detach(t.client, 0);
}

Test(client, detaches_while_the_agent_is_gone)
{
    struct trainer t;
    tck_version_t version;
    begin(&t);
    fake_agent_stop(&agent);
    wait_unreachable(&t);
    cr_assert_eq(tck_query(t.client, &version), TCK_ERR_UNREACHABLE);
    tck_detach(t.client, 0);
}

/* ---- restores that must not happen ---- */

Test(client, a_restore_of_nothing_returns_noent)
{
    struct trainer t;
    begin(&t);
    cr_assert_eq(tck_restore(t.client, TCK_NEWEST, NULL), TCK_ERR_NOENT);
    tck_detach(t.client, 0);
}

/* A trainer that has saved 1. */
static void begin_saved(struct trainer *t)
{
    begin(t);
    fill(t, 1);
    save(t, 1);
}

/* A restore fails with this status, and the trainer keeps its state. */
static void expect_refused(struct trainer *t, tck_status_t code)
{
    fill(t, 50);
    cr_assert_eq(tck_restore(t->client, TCK_NEWEST, NULL), code);
    expect(t, 50);
}

Test(client, refuses_to_restore_from_slots_that_do_not_exist)
{
    struct trainer t;
    begin_saved(&t);
    atomic_store(&agent.mode, FAKE_NONSENSE);
    expect_refused(&t, TCK_ERR_PROTO);
    tck_detach(t.client, 0);
}

Test(client, refuses_an_image_with_another_header_and_changes_nothing)
{
    struct trainer t;
    begin_saved(&t);
    fake_agent_image(&agent, 0)[100] ^= 1;
    expect_refused(&t, TCK_ERR_LAYOUT);
    tck_detach(t.client, 0);
}

Test(client, refuses_a_blob_longer_than_its_capacity_and_changes_nothing)
{
    struct trainer t;
    begin_saved(&t);
    fake_agent_image(&agent, 0)[t.client->layout.records[2].image_offset] = 101;
    expect_refused(&t, TCK_ERR_CORRUPT);
    tck_detach(t.client, 0);
}

static void expect_text(const struct trainer *t, const char *part)
{
    cr_assert_not_null(strstr(tck_errmsg(t->client), part), "%s", tck_errmsg(t->client));
}

static bool torn(const struct trainer *t)
{
    tck_health_t health = {.struct_size = sizeof(health)};
    ok(t, tck_health(t->client, &health));
    return health.records_torn;
}

Test(client, digests_that_went_bad_after_the_check_change_nothing)
{
    struct trainer t;
    begin_saved(&t);
    atomic_store(&agent.rots, INT_MAX);
    expect_refused(&t, TCK_ERR_CORRUPT);
    expect_text(&t, "were damaged in this node's memory");
    cr_assert_not(torn(&t));
    tck_detach(t.client, 0);
    cr_assert_eq(agent.restores_done, 0, "or the version would be blamed for it");
}

/* A byte of this record is damaged after the agent has checked the copy, in each of the next restores. */
static void damage_restores(const struct trainer *t, uint32_t record, uint64_t byte, int restores)
{
    atomic_store(&agent.flip_at, t->client->layout.records[record].image_offset + byte);
    atomic_store(&agent.flips, restores);
}

Test(client, a_record_table_that_went_bad_after_the_check_is_damage_and_not_another_layout)
{
    struct trainer t;
    begin_saved(&t);
    atomic_store(&agent.flip_at, 100);
    atomic_store(&agent.flips, INT_MAX);
    expect_refused(&t, TCK_ERR_CORRUPT);
    expect_text(&t, "was damaged in this node's memory");
    cr_assert_not(torn(&t));
    atomic_store(&agent.flips, 1);
    ok(&t, tck_restore(t.client, TCK_NEWEST, NULL));
    tck_detach(t.client, 0);
}

/* A restore fails after it has begun to write. */
static void tear(struct trainer *t)
{
    damage_restores(t, t->weights_record, WEIGHTS * sizeof(float) - 1, INT_MAX);
    fill(t, 50);
    cr_assert_eq(tck_restore(t->client, TCK_NEWEST, NULL), TCK_ERR_CORRUPT);
    expect_text(t, "hold parts of several states");
    expect_text(t, "was damaged in this node's memory");
    cr_assert(torn(t));
}

Test(client, nothing_is_saved_after_a_restore_that_has_failed_while_it_copied)
{
    struct trainer t;
    int started = 1;
    begin_saved(&t);
    tear(&t);
    int begins = agent.begins;
    cr_assert_eq(tck_snapshot(t.client, 2, TCK_SAVE_MEMORY), TCK_ERR_CORRUPT);
    expect_text(&t, "step 2 is not saved: a restore failed after it had begun to write the records");
    atomic_store(&t.client->session.shared->mem_target_step, 3);
    cr_assert_eq(tck_save_if_needed(t.client, 3, &started), TCK_ERR_CORRUPT);
    cr_assert_eq(tck_save_last(t.client, 4, 1000), TCK_ERR_CORRUPT);
    cr_assert_eq(agent.begins, begins);
    cr_assert_eq(agent.restores_done, 0, "or the version would be blamed for it");
    atomic_store(&agent.flips, 0);
    ok(&t, tck_restore(t.client, TCK_NEWEST, NULL));
    expect(&t, 1);
    cr_assert_not(torn(&t));
    fill(&t, 5);
    save_known(&t, 5);
    tck_detach(t.client, 1);
}

Test(client, records_that_a_restore_has_torn_are_no_fresh_start)
{
    struct trainer t;
    begin_saved(&t);
    tear(&t);
    agent.sealed = (struct version){0};
    cr_assert_eq(tck_restore(t.client, TCK_NEWEST, NULL), TCK_ERR_UNRECOVERABLE);
    expect_text(&t, "do not train with them");
    expect_text(&t, "nothing was saved");
    cr_assert(torn(&t));
    tck_detach(t.client, 0);
}

Test(client, what_went_bad_is_restored_in_another_term_from_another_copy)
{
    struct trainer t;
    begin_saved(&t);
    uint64_t term = agent.term;
    damage_restores(&t, t.weights_record, 0, 1);
    fill(&t, 50);
    ok(&t, tck_restore(t.client, TCK_NEWEST, NULL));
    expect(&t, 1);
    cr_assert_gt(agent.term, term);
    cr_assert_not(torn(&t));
    tck_detach(t.client, 0);
    cr_assert_eq(agent.restores_done, 1, "once, by the term that came to it");
}

/* ---- arguments ---- */

/* Refuses if `ctx` is not a text, and otherwise records the blob's contents at the time of the call. */
static int record_blob(void *ctx, char *why_not, size_t cap)
{
    struct trainer *t = ctx;
    char rng[100] = "";
    size_t size = 0;

    ok(t, tck_get_blob(t->client, "rng", rng, sizeof(rng), &size));
    expect(t, 100);
    snprintf(why_not, cap, "the blob says %s", rng);
    return strcmp(rng, "good") != 0;
}

Test(client, a_restore_asks_the_trainer_before_it_changes_anything)
{
    struct trainer t;
    const char *const blobs[] = {"good", "bad"};
    begin(&t);
    ok(&t, tck_set_check(t.client, record_blob, &t));
    for (uint64_t i = 0; i < 2; i++) {
        fill(&t, 7);
        ok(&t, tck_set_blob(t.client, "rng", blobs[i], strlen(blobs[i])));
        save_known(&t, i + 1);
        fill(&t, 100);
        if (i == 0) {
            ok(&t, tck_restore(t.client, TCK_NEWEST, NULL));
            expect(&t, 7);
        }
    }
    cr_assert_eq(tck_restore(t.client, TCK_NEWEST, NULL), TCK_ERR_LAYOUT);
    cr_assert_neq(strstr(tck_errmsg(t.client), "the blob says bad"), NULL, "%s", tck_errmsg(t.client));
    expect(&t, 100);
    tck_detach(t.client, 1);
}

static int count_call(void *ctx, char *why_not, size_t cap)
{
    ++*(int *)ctx;
    (void)why_not, (void)cap;
    return 0;
}

Test(client, a_trainer_is_not_asked_about_damaged_blobs)
{
    struct trainer t;
    int calls = 0;
    begin(&t);
    ok(&t, tck_set_blob(t.client, "rng", "good", 4));
    fill(&t, 1);
    save_known(&t, 1);
    ok(&t, tck_set_check(t.client, count_call, &calls));
    damage_restores(&t, 2, BLOB_PREFIX_BYTES + 1, INT_MAX);
    expect_refused(&t, TCK_ERR_CORRUPT);
    cr_assert_eq(calls, 0);
    cr_assert_not(torn(&t));
    damage_restores(&t, 2, BLOB_PREFIX_BYTES + 1, 1);
    ok(&t, tck_restore(t.client, TCK_NEWEST, NULL));
    cr_assert_eq(calls, 1);
    expect(&t, 1);
    tck_detach(t.client, 0);
}

Test(client, refuses_calls_in_the_wrong_order)
{
    struct trainer t;
    cr_assert_eq(tck_register(NULL), TCK_ERR_INVAL);
    cr_assert_neq(strstr(tck_errmsg(NULL), "tck_register was called in the wrong order: there is no client"), NULL);
    cr_assert_eq(tck_fence(NULL), TCK_ERR_INVAL);
    cr_assert_eq(tck_confirm(NULL, 1, NULL), TCK_ERR_INVAL);
    attach(&t);
    cr_assert_eq(tck_snapshot(t.client, 1, TCK_SAVE_MEMORY), TCK_ERR_INVAL);
    cr_assert_neq(strstr(tck_errmsg(t.client), "call tck_register first"), NULL, "%s", tck_errmsg(t.client));
    cr_assert_eq(tck_restore(t.client, TCK_NEWEST, NULL), TCK_ERR_INVAL);
    add_records(&t, NULL);
    ok(&t, tck_register(t.client));
    cr_assert_eq(tck_register(t.client), TCK_ERR_INVAL);
    cr_assert_neq(strstr(tck_errmsg(t.client), "was called already"), NULL, "%s", tck_errmsg(t.client));
    cr_assert_eq(tck_add_blob(t.client, "late", 1, NULL), TCK_ERR_INVAL);
    cr_assert_eq(tck_snapshot(t.client, 0, TCK_SAVE_MEMORY), TCK_ERR_INVAL);
    cr_assert_eq(tck_snapshot(t.client, TCK_NEWEST, TCK_SAVE_MEMORY), TCK_ERR_INVAL);
    tck_detach(t.client, 0);
}

Test(client, keeps_blobs_within_their_capacity)
{
    struct trainer t;
    char data[200] = {0};
    size_t size = 0;
    attach(&t);
    add_records(&t, NULL);
    cr_assert_eq(tck_set_blob(t.client, "rng", data, 101), TCK_ERR_NOSPC);
    cr_assert_eq(tck_set_blob(t.client, "weights", data, 1), TCK_ERR_NOENT);
    ok(&t, tck_set_blob(t.client, "rng", data, 100));
    cr_assert_eq(tck_get_blob(t.client, "rng", data, 99, &size), TCK_ERR_NOSPC);
    cr_assert_eq(size, 100);
    tck_detach(t.client, 0);
}

Test(client, attach_names_a_bad_configuration)
{
    tck_attach_params_t params = params_of(0, 1);
    tck_client_t *client = NULL;
    params.config_json = "{\"no_such_key\":1}";
    cr_assert_eq(tck_attach(&params, &client), TCK_ERR_CONFIG);
    cr_assert_not_null(strstr(tck_errmsg(NULL), "no_such_key"));
    cr_assert_null(client);
    params = params_of(1, 1);
    cr_assert_eq(tck_attach(&params, &client), TCK_ERR_INVAL);
    params = params_of(0, 2);
    cr_assert_eq(tck_attach(&params, &client), TCK_ERR_INVAL, "no allgather");
}

/* ---- starting an agent ---- */

static void write_program(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    fputs(text, f);
    fclose(f);
    cr_assert_eq(chmod(path, 0700), 0);
}

Test(client, names_where_it_looked_for_the_programs)
{
    tck_attach_params_t params = params_of(0, 1);
    tck_client_t *client;
    fake_agent_stop(&agent);
    setenv("TIERCKPT_BIN_DIR", "/no/such/directory", 1);
    cr_assert_eq(tck_attach(&params, &client), TCK_ERR_NOENT);
    cr_assert_not_null(strstr(tck_errmsg(NULL), "/no/such/directory"), "%s", tck_errmsg(NULL));
}

Test(client, says_how_the_supervisor_ended)
{
    tck_attach_params_t params = params_of(0, 1);
    tck_client_t *client;
    fake_agent_stop(&agent);
    write_program(runtime_dir, "tierckptd", "");
    write_program(runtime_dir, "tierckpt-supervisor", "#!/bin/sh\nexit 7\n");
    setenv("TIERCKPT_BIN_DIR", runtime_dir, 1);
    cr_assert_eq(tck_attach(&params, &client), TCK_ERR_UNREACHABLE);
    cr_assert_not_null(strstr(tck_errmsg(NULL), "status 7"), "%s", tck_errmsg(NULL));
}

/* The agent hangs until the client waits for its welcome, dies, and is restarted. */
static void *die_before_welcome(void *arg)
{
    sleep_ms(50);
    fake_agent_stop(&agent);
    atomic_store(&agent.mode, FAKE_GRANTS);
    start_agent();
    return arg;
}

Test(client, greets_again_when_the_agent_dies_before_its_welcome)
{
    struct trainer t;
    pthread_t thread;
    write_program(runtime_dir, "tierckptd", "");
    write_program(runtime_dir, "tierckpt-supervisor",
                  "#!/bin/sh\nexit 3\n"); /* a supervisor is already running there */
    setenv("TIERCKPT_BIN_DIR", runtime_dir, 1);
    atomic_store(&agent.mode, FAKE_HANGS);
    cr_assert_eq(pthread_create(&thread, NULL, die_before_welcome, NULL), 0);
    attach(&t);
    pthread_join(thread, NULL);
    tck_detach(t.client, 0);
}

/* Starts the agent once the supervisor's script has run. */
static void *start_when_asked(void *arg)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/asked", (const char *)arg);
    for (int i = 0; i < PATIENCE_MS / 10 && access(path, F_OK) != 0; i++) {
        sleep_ms(10);
    }
    start_agent();
    return NULL;
}

static void read_file(const char *name, char *out, size_t cap)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", runtime_dir, name);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    out[fread(out, 1, cap - 1, f)] = '\0';
    fclose(f);
}

Test(client, starts_the_supervisor_with_the_configuration_and_waits_for_the_agent)
{
    struct trainer t;
    char text[8192], script[512];
    pthread_t thread;
    struct config config;
    int leaked = fcntl(STDERR_FILENO, F_DUPFD, 200); /* not closed on exec, and a number that no shell uses */
    fake_agent_stop(&agent);
    snprintf(script, sizeof(script),
             "#!/bin/sh\necho \"$@\" > '%s/arguments'\n[ -e /proc/$$/fd/%d ] && echo leak >> '%s/arguments'\n"
             "touch '%s/asked'\n",
             runtime_dir, leaked, runtime_dir, runtime_dir);
    write_program(runtime_dir, "tierckptd", "");
    write_program(runtime_dir, "tierckpt-supervisor", script);
    setenv("TIERCKPT_BIN_DIR", runtime_dir, 1);
    cr_assert_eq(pthread_create(&thread, NULL, start_when_asked, runtime_dir), 0);
    begin(&t);
    pthread_join(thread, NULL);
    read_file("arguments", text, sizeof(text));
    cr_assert_not_null(strstr(text, "--runtime-dir"));
    cr_assert_not_null(strstr(text, "tierckptd --config"));
    cr_assert_null(strstr(text, "leak"), "the trainer's descriptors are open in the supervisor");
    read_file("job/node/config.json", text, sizeof(text));
    cr_assert_eq(config_load(NULL, text, &config, NULL), TCK_OK);
    cr_assert_eq(config.block_time_ms, PATIENCE_MS);
    tck_detach(t.client, 0);
}

/* ---- two ranks ---- */

struct connectivity {
    pthread_barrier_t barrier;
    uint8_t buffer[1 << 16];
};

struct rank {
    struct connectivity *connectivity;
    int number;
    const char *config;
    struct trainer trainer;
    tck_status_t attached;
    char text[ERROR_TEXT_BYTES];
};

static int meet(void *ctx, const void *in, void *out, size_t len)
{
    const struct rank *rank = ctx;
    memcpy(rank->connectivity->buffer + (size_t)rank->number * len, in, len);
    pthread_barrier_wait(&rank->connectivity->barrier);
    memcpy(out, rank->connectivity->buffer, 2 * len);
    pthread_barrier_wait(&rank->connectivity->barrier);
    return 0;
}

static void attach_rank(struct rank *rank)
{
    tck_attach_params_t params = params_of(rank->number, 2);
    params.oob = (tck_oob_t){meet, rank};
    if (rank->config != NULL) {
        params.config_json = rank->config;
    }
    rank->attached = tck_attach(&params, &rank->trainer.client);
    snprintf(rank->text, sizeof(rank->text), "%s", tck_errmsg(NULL));
}

static void *twin_main(void *arg)
{
    struct rank *rank = arg;
    struct trainer *t = &rank->trainer;
    tck_restored_t restored = {.struct_size = sizeof(restored)};
    attach_rank(rank);
    cr_assert_eq(rank->attached, TCK_OK, "%s", rank->text);
    add_records(t, "dp");
    ok(t, tck_register(t->client));
    fill(t, 6);
    save(t, 2);
    fill(t, 0);
    ok(t, tck_wait(t->client, 2, TCK_STAGE_COMMITTED, PATIENCE_MS));
    pthread_barrier_wait(&rank->connectivity->barrier);
    ok(t, tck_restore(t->client, TCK_NEWEST, &restored));
    expect(t, 6);
    cr_assert_eq(rank->number == 0 ? restored.bytes_twin : restored.bytes_local, 0);
    tck_detach(t->client, 1);
    return NULL;
}

static void run_ranks(struct rank ranks[2], struct connectivity *connectivity, void *(*rank_main)(void *))
{
    pthread_t thread;
    pthread_barrier_init(&connectivity->barrier, NULL, 2);
    for (int i = 0; i < 2; i++) {
        ranks[i].connectivity = connectivity;
        ranks[i].number = i;
    }
    cr_assert_eq(pthread_create(&thread, NULL, rank_main, &ranks[1]), 0);
    rank_main(&ranks[0]);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&connectivity->barrier);
}

static struct connectivity connectivity;
static struct rank ranks[2];

Test(client, twins_share_slots_and_both_restore)
{
    run_ranks(ranks, &connectivity, twin_main);
    cr_assert_eq(agent.shard_count, 1);
    cr_assert_eq(agent.seals, 2);
}

static void *attach_main(void *arg)
{
    attach_rank(arg);
    return NULL;
}

Test(client, failure_of_one_rank_fails_all_and_names_it)
{
    ranks[1].config = "{\"no_such_key\":1}";
    run_ranks(ranks, &connectivity, attach_main);
    cr_assert_eq(ranks[0].attached, TCK_ERR_CONFIG);
    cr_assert_eq(ranks[1].attached, TCK_ERR_CONFIG);
    cr_assert_not_null(strstr(ranks[0].text, "rank 1: "), "%s", ranks[0].text);
    cr_assert_not_null(strstr(ranks[0].text, "no_such_key"), "%s", ranks[0].text);
}

static void *register_main(void *arg)
{
    struct rank *rank = arg;
    struct trainer *t = &rank->trainer;
    attach_rank(rank);
    cr_assert_eq(rank->attached, TCK_OK, "%s", rank->text);
    add_records(t, NULL);
    if (rank->number == 1) {
        add_records(t, NULL);
    }
    cr_assert_eq(tck_register(t->client), TCK_ERR_INVAL);
    snprintf(rank->text, sizeof(rank->text), "%s", tck_errmsg(t->client));
    tck_detach(t->client, 0);
    return NULL;
}

Test(client, bad_record_table_of_one_rank_fails_register_on_all)
{
    run_ranks(ranks, &connectivity, register_main);
    cr_assert_not_null(strstr(ranks[0].text, "rank 1: "), "%s", ranks[0].text);
}
