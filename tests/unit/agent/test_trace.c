/* SPDX-License-Identifier: Apache-2.0
 * The file of a trace: an array of events, after a kill and when it is full, too. */
#include "agent/report/trace.h"

#include "agent/driver/protocol_driver.h"
#include "agent/report/report.h"
#include "one_node.h"

#include "base/config.h"
#include "base/json.h"
#include "base/loop.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FULL ((off_t)65 << 20)

static const struct hash128 shard = {1, 1};
static char dir[] = "/tmp/tck-trace-XXXXXX";
static char path[128], full_path[160];
static struct config config;
static struct memory *memory;
static struct term_context *tc;
static struct loop *loop;
static struct loop_timer *timer;
static struct trace *trace;

/* What term_context.c needs of the rest of the agent. */
void driver_step_node(struct term_context *term_context, const struct event *event)
{
    (void)term_context;
    (void)event;
}

static void set_up(void)
{
    static struct client *clients;
    struct error err;
    cr_assert_not_null(mkdtemp(dir));
    strcpy(config.job, "job");
    strcpy(config.node, "a");
    snprintf(config.trace_dir, sizeof(config.trace_dir), "%s/traces", dir);
    snprintf(path, sizeof(path), "%s/traces/job.a.trace.json", dir);
    snprintf(full_path, sizeof(full_path), "%s.old", path);
    (void)one_node_memory(shard, 4096, &memory);
    const struct term_setup forms = {.config = &config, .memory = memory, .clients = &clients};
    tc = one_node(&forms, 5, shard, 4096);
    cr_assert_eq(loop_new(&loop, &err), TCK_OK);
}

static void tear_down(void)
{
    term_context_free(tc);
    memory_free(memory);
    loop_free(loop);
    unlink(path);
    unlink(full_path);
    rmdir(config.trace_dir);
    rmdir(dir);
}

TestSuite(trace, .init = set_up, .fini = tear_down, .timeout = 200);

static struct report report = {.pacing = {.target = 0.01}};

/* With each of them, the estimate is another one. */
static void note_others(void)
{
    const struct arrival arrival = {
        .shard = 3, .version = {4, 20}, .source = SOURCE_PEER, .from = "b", .bytes = UINT64_C(5) << 30};
    report.pacing.inflation = (struct inflation){
        .pairs = 8, .mean = 0.004, .low = -0.002, .high = 0.01, .quiet_ns = report.pacing.inflation.quiet_ns + 1e6};
    trace_arrived(trace, tc, &arrival);
    trace_figures(trace, &report);
    trace_figures(trace, &report);
}

static void note(uint64_t step)
{
    struct action grant = {
        .type = ACTION_GRANT, .rank = 0, .node = NONE32, .slot = NONE32, .shard = NONE32, .version = {5, step}};
    struct event seal = {.type = EVENT_SEAL, .rank = 0, .version = {0, step}};
    trace_note(trace, tc, NULL, &grant);
    trace_note(trace, tc, &seal, NULL);
}

static uint64_t wanted_step;
static bool with_others, with_figures;

/* Notes again until the file has it: it is opened in the background. */
static void note_until_there(void *ctx)
{
    static char text[1 << 16];
    char wanted[64];
    (void)ctx;
    if (with_others) {
        note_others();
    }
    if (with_figures) {
        trace_figures(trace, &report);
    }
    note(wanted_step);
    snprintf(wanted, sizeof(wanted), "\"step\":%" PRIu64, wanted_step);
    FILE *file = fopen(path, "r");
    size_t len = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    text[len] = '\0';
    if (strstr(text, wanted) != NULL) {
        loop_stop(loop);
    }
}

static void write_steps_to(uint64_t step)
{
    struct error err;
    wanted_step = step;
    cr_assert_eq(trace_new(loop, &config, &trace, &err), TCK_OK);
    cr_assert_eq(loop_timer_add(loop, note_until_there, NULL, &timer), TCK_OK);
    loop_timer_set(timer, 20, true);
    loop_run(loop);
    loop_timer_remove(timer);
    trace_free(trace);
}

/* The file as a whole array. Freed by the caller. */
static json_t *parsed(void)
{
    static char text[1 << 20];
    json_t *json;
    struct error err;
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    size_t len = fread(text, 1, sizeof(text) - 2, file);
    fclose(file);
    cr_assert_gt(len, 2);
    cr_assert_eq(memcmp(text + len - 2, ",\n", 2), 0, "a whole line");
    memcpy(text + len - 2, "]", 2);
    cr_assert_eq(json_parse(text, len - 1, &json, &err), TCK_OK, "%s", err.text);
    return json;
}

static const char *text_of(const json_t *event, const char *key)
{
    return json_str(json_get(event, key));
}

Test(trace, no_directory_no_trace)
{
    struct error err;
    config.trace_dir[0] = '\0';
    cr_assert_eq(trace_new(loop, &config, &trace, &err), TCK_OK);
    cr_assert_null(trace);
    note(1);
    trace_free(trace);
    snprintf(config.trace_dir, sizeof(config.trace_dir), "%s/traces", dir);
}

Test(trace, begin_and_end_share_an_id_and_name_rank_and_step)
{
    write_steps_to(30);
    json_t *json = parsed();
    const json_t *name = json_first(json), *begin = json_next(name), *end = json_next(begin);
    uint64_t step, rank, at, later;
    bool ok;
    cr_assert_str_eq(text_of(name, "name"), "process_name");
    cr_assert_str_eq(text_of(json_get(name, "args"), "name"), "a");
    cr_assert_str_eq(text_of(begin, "name"), "save");
    cr_assert_str_eq(text_of(begin, "ph"), "b");
    cr_assert_str_eq(text_of(end, "ph"), "e");
    cr_assert_str_eq(text_of(begin, "id"), text_of(end, "id"));
    cr_assert(json_u64(json_get(json_get(begin, "args"), "step"), &step) && step == 30);
    cr_assert(json_u64(json_get(json_get(begin, "args"), "rank"), &rank) && rank == 0);
    cr_assert(json_bool(json_get(json_get(end, "args"), "ok"), &ok) && ok);
    cr_assert(json_u64(json_get(begin, "ts"), &at) && json_u64(json_get(end, "ts"), &later) && at <= later);
    json_free(json);
}

static uint64_t u64_of(const json_t *args, const char *key)
{
    uint64_t value = 0;
    cr_assert(json_u64(json_get(args, key), &value), "%s", key);
    return value;
}

static double f64_of(const json_t *args, const char *key)
{
    double value = 0;
    cr_assert(json_f64(json_get(args, key), &value), "%s", key);
    return value;
}

Test(trace, shards_that_arrive_have_their_source_and_the_term_that_fetches_them)
{
    with_others = true;
    write_steps_to(30);
    json_t *json = parsed();
    const json_t *event = json_next(json_first(json)), *args = json_get(event, "args");
    cr_assert_str_eq(text_of(event, "name"), "fetched");
    cr_assert_str_eq(text_of(event, "ph"), "i");
    cr_assert_str_eq(text_of(args, "source"), "peer");
    cr_assert_str_eq(text_of(args, "node"), "b");
    cr_assert(u64_of(args, "term") == 4 && u64_of(args, "step") == 20 && u64_of(args, "shard") == 3);
    cr_assert(u64_of(args, "bytes") == UINT64_C(5) << 30 && u64_of(args, "in_term") == 5);
    json_free(json);
}

Test(trace, what_copies_cost_a_step_is_written_once_for_each_estimate)
{
    double quiet_us = 0;
    uint32_t count = 0;
    with_others = true;
    write_steps_to(30);
    json_t *json = parsed();
    for (const json_t *event = json_first(json); event != NULL; event = json_next(event)) {
        const json_t *args = json_get(event, "args");
        if (strcmp(text_of(event, "name"), "step inflation") == 0) {
            cr_assert_str_eq(text_of(event, "ph"), "C");
            cr_assert_float_eq(f64_of(args, "low"), -0.002, 1e-9);
            cr_assert_float_eq(f64_of(args, "mean"), 0.004, 1e-9);
            cr_assert_float_eq(f64_of(args, "high"), 0.01, 1e-9);
            cr_assert_float_eq(f64_of(args, "target"), 0.01, 1e-9);
            cr_assert_gt(f64_of(args, "quiet us"), quiet_us, "the same estimate twice");
            quiet_us = f64_of(args, "quiet us");
            count++;
        }
    }
    cr_assert_gt(count, 0);
    json_free(json);
}

Test(trace, a_line_that_a_kill_has_torn_is_cut_off)
{
    write_steps_to(30);
    FILE *file = fopen(path, "a");
    fputs("{\"name\":\"sa", file);
    fclose(file);
    write_steps_to(31);
    json_t *json = parsed();
    cr_assert_str_eq(text_of(json_first(json), "name"), "process_name");
    json_free(json);
}

static void fill(void)
{
    cr_assert_eq(truncate(path, FULL - 1), 0); /* a hole */
    FILE *file = fopen(path, "a");
    fputc('\n', file);
    fclose(file);
}

Test(trace, a_full_file_makes_room_for_a_new_one)
{
    write_steps_to(30);
    fill();
    write_steps_to(31);
    struct stat st;
    cr_assert_eq(stat(full_path, &st), 0);
    cr_assert_geq(st.st_size, FULL);
    json_t *json = parsed();
    cr_assert_str_eq(text_of(json_first(json), "name"), "process_name");
    json_free(json);
}

/* How often the counter is in the file; value_out: its last value of that key. */
static uint32_t times_there(const json_t *json, const char *name, const char *key, double *value_out)
{
    uint32_t times = 0;
    for (const json_t *event = json_first(json); event != NULL; event = json_next(event)) {
        if (strcmp(text_of(event, "ph"), "C") == 0 && strcmp(text_of(event, "name"), name) == 0) {
            *value_out = f64_of(json_get(event, "args"), key);
            times++;
        }
    }
    return times;
}

static void expect_once(const json_t *json, const char *name, const char *key, double value)
{
    double found = 0;
    cr_assert_eq(times_there(json, name, key, &found), 1, "%s", name);
    cr_assert_float_eq(found, value, 1e-9, "%s", name);
}

/* They do not change while the file does. */
Test(trace, a_new_file_has_the_newest_value_of_every_counter)
{
    write_steps_to(30);
    fill();
    with_figures = true;
    report.trainers.step = 7;
    report.tally.copied_bytes = 5;
    report.pacing.inflation =
        (struct inflation){.pairs = 8, .mean = 0.004, .low = 0.001, .high = 0.01, .quiet_ns = 3e6};
    write_steps_to(31);
    json_t *json = parsed();
    expect_once(json, "step", "value", 7);
    expect_once(json, "copied bytes", "value", 5);
    static const char *const zeros[] = {"step us",      "stalls",         "stall us",
                                        "memory bytes", "copies missing", "saves refused"};
    for (size_t i = 0; i < sizeof(zeros) / sizeof(*zeros); i++) {
        expect_once(json, zeros[i], "value", 0);
    }
    expect_once(json, "step inflation", "mean", 0.004);
    expect_once(json, "step inflation", "quiet us", 3000);
    json_free(json);
}
