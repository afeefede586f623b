/* SPDX-License-Identifier: Apache-2.0
 * What is throttled and when, with a clock and a trainer of the test's. */
#include "agent/pace/nic_counter.h"
#include "agent/pace/pacing.h"

#include "agent/driver/term_context.h"
#include "agent/ipc/client.h"
#include "base/config.h"
#include "base/loop.h"
#include "base/message.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MS    UINT64_C(1000000)
#define S     UINT64_C(1000000000)
#define MIB   (UINT64_C(1) << 20)
#define CHUNK (4 * MIB)
#define TERM  3

static uint64_t fake_ns = 100 * S, tick_ns;
static struct config config;
static struct loop *loop;
static struct shared_status shared;
static struct client trainer;
static struct client *clients = &trainer;
static struct term_context term, *term_now = &term;
static struct pacing *pacing;
static bool hurry;
static uint32_t resumed;

uint64_t __wrap_clock_ns(void);
uint64_t __wrap_clock_ns(void)
{
    return fake_ns += tick_ns;
}

static void on_resume(void *ctx, enum lane lane)
{
    (void)ctx, (void)lane;
    resumed++;
}

static bool hurries(const void *ctx)
{
    (void)ctx;
    return hurry;
}

static void set_up(void)
{
    struct error err;
    cr_assert_eq(config_load(NULL, "{\"save_dir\":\"/x\",\"net_device\":\"none_such\"}", &config, &err), TCK_OK, "%s",
                 err.text);
    cr_assert_eq(loop_new(&loop, &err), TCK_OK, "%s", err.text);
    term.world.term = TERM;
    trainer = (struct client){.trainer = true, .term = TERM, .shared = &shared};
    const struct pacing_setup setup = {.config = &config,
                                       .loop = loop,
                                       .clients = &clients,
                                       .term = &term_now,
                                       .resume = on_resume,
                                       .hurries = hurries};
    cr_assert_eq(pacing_new(&setup, &pacing, &err), TCK_OK, "%s", err.text);
}

static void tear_down(void)
{
    pacing_free(pacing);
    loop_free(loop);
}

TestSuite(pacing, .init = set_up, .fini = tear_down, .timeout = 200);

static void step_to(uint64_t step)
{
    shared.step_ns = 100 * MS;
    shared.step_at_ns = fake_ns;
    shared.current_step = step;
}

/* Three versions, 10 s apart, of which the last one has just begun. */
static void three_versions(enum lane lane, uint64_t bytes)
{
    for (uint64_t i = 1; i <= 3; i++) {
        fake_ns += 10 * S;
        step_to(100 * i);
        pacing_begin(pacing, lane, (struct version){TERM, 100 * i}, bytes);
        if (i < 3) {
            pacing_end(pacing, lane, 0);
        }
    }
}

/* How many chunks go in so many milliseconds, while steps go on that are not quiet ones. */
static uint32_t chunks_in(enum lane lane, uint64_t ms)
{
    uint32_t sent = 0;
    for (uint64_t i = 0; i < ms; i++) {
        fake_ns += MS;
        step_to(shared.current_step);
        sent += pacing_take(pacing, lane, CHUNK);
    }
    return sent;
}

Test(pacing, spreads_copies_over_half_of_the_time_between_versions_at_first)
{
    three_versions(LANE_COPIES, 1000 * MIB);
    cr_assert_float_eq(pacing_figures(pacing).rate[LANE_COPIES], 200.0 * MIB, MIB);
    uint32_t sent = chunks_in(LANE_COPIES, 1000);
    cr_assert(sent >= 45 && sent <= 56, "%u chunks in a second, 50 are due", sent);
    cr_assert_eq(pacing_figures(pacing).wait[LANE_COPIES], PACING_RATE);
    cr_assert_eq(pacing_figures(pacing).left[LANE_COPIES], 1000 * MIB - sent * CHUNK);
    pacing_end(pacing, LANE_COPIES, 0);
    cr_assert_eq(pacing_figures(pacing).wait[LANE_COPIES], PACING_GOES);
    cr_assert_eq(pacing_figures(pacing).left[LANE_COPIES], 0);
}

/* The copy of one holder was canceled, while that of another holder goes on. */
Test(pacing, what_a_canceled_copy_has_not_sent_is_no_longer_spread)
{
    three_versions(LANE_COPIES, 1000 * MIB);
    pacing_begin(pacing, LANE_COPIES, (struct version){TERM, 300}, 1000 * MIB);
    uint32_t sent = chunks_in(LANE_COPIES, 1000);
    pacing_end(pacing, LANE_COPIES, 1000 * MIB - 3 * CHUNK);
    cr_assert_eq(pacing_figures(pacing).left[LANE_COPIES], 1000 * MIB - (sent - 3) * CHUNK);
    pacing_end(pacing, LANE_COPIES, 1000 * MIB);
    cr_assert_eq(pacing_figures(pacing).left[LANE_COPIES], 0);
}

Test(pacing, what_the_holder_lacks_of_the_base_is_sent_at_the_rate_of_all)
{
    three_versions(LANE_COPIES, MIB); /* as if the rest was the same */
    pacing_more(pacing, LANE_COPIES, 999 * MIB);
    cr_assert_eq(pacing_figures(pacing).left[LANE_COPIES], 1000 * MIB);
    cr_assert_float_eq(pacing_figures(pacing).rate[LANE_COPIES], 200.0 * MIB, MIB);
    uint32_t sent = chunks_in(LANE_COPIES, 1000);
    cr_assert(sent >= 45 && sent <= 56, "%u chunks in a second, 50 are due", sent);
}

Test(pacing, what_a_drain_need_not_write_makes_it_slower)
{
    three_versions(LANE_DRAIN, 1000 * MIB);
    pacing_less(pacing, LANE_DRAIN, 900 * MIB);
    cr_assert_eq(pacing_figures(pacing).left[LANE_DRAIN], 100 * MIB);
    cr_assert_float_eq(pacing_figures(pacing).rate[LANE_DRAIN], 20.0 * MIB, MIB);
    pacing_less(pacing, LANE_DRAIN, 100 * MIB);
    cr_assert_eq(pacing_figures(pacing).left[LANE_DRAIN], 0);
}

Test(pacing, a_drain_has_a_lane_of_its_own)
{
    three_versions(LANE_DRAIN, 1000 * MIB);
    cr_assert(pacing_take(pacing, LANE_COPIES, CHUNK) && pacing_take(pacing, LANE_COPIES, CHUNK));
    uint32_t sent = chunks_in(LANE_DRAIN, 1000);
    cr_assert(sent >= 45 && sent <= 56, "%u", sent);
}

Test(pacing, throttled_work_asks_again)
{
    three_versions(LANE_COPIES, 1000 * MIB);
    while (pacing_take(pacing, LANE_COPIES, CHUNK)) {
    }
    struct loop_timer *stop;
    tick_ns = MS / 4; /* the loop's timers need a clock that goes on */
    cr_assert_eq(loop_timer_add(loop, (loop_fn *)loop_stop, loop, &stop), TCK_OK);
    loop_timer_set(stop, 100, false);
    loop_run(loop);
    loop_timer_remove(stop);
    cr_assert_geq(resumed, 1);
}

/* Everything goes at once in these cases. */
static void expect_free(const char *why)
{
    three_versions(LANE_COPIES, 1000 * MIB);
    for (int i = 0; i < 250; i++) {
        cr_assert(pacing_take(pacing, LANE_COPIES, CHUNK), "%s: chunk %d was throttled", why, i);
    }
}

Test(pacing, holds_nothing_back_with_target_0)
{
    config.target_inflation_ppm = 0;
    expect_free("target 0");
}

Test(pacing, holds_nothing_back_without_trainers)
{
    clients = NULL;
    expect_free("no trainers");
}

Test(pacing, holds_nothing_back_once_the_agent_is_asked_to_end)
{
    hurry = true;
    expect_free("the agent ends");
}

Test(pacing, holds_nothing_back_while_the_training_rests)
{
    three_versions(LANE_COPIES, 1000 * MIB);
    while (pacing_take(pacing, LANE_COPIES, CHUNK)) {
    }
    fake_ns += 310 * MS; /* no step for more than twice its time, as at the end of a training */
    for (int i = 0; i < 200; i++) {
        cr_assert(pacing_take(pacing, LANE_COPIES, CHUNK), "chunk %d was throttled", i);
    }
}

Test(pacing, holds_nothing_back_before_an_interval_is_known)
{
    step_to(100);
    pacing_begin(pacing, LANE_COPIES, (struct version){TERM, 100}, 1000 * MIB);
    for (int i = 0; i < 250; i++) {
        cr_assert(pacing_take(pacing, LANE_COPIES, CHUNK));
    }
}

Test(pacing, holds_back_at_most_half_of_the_time_after_which_a_version_is_aborted)
{
    config.version_timeout_ms = 2000;
    three_versions(LANE_COPIES, 1000 * MIB);
    uint32_t sent = chunks_in(LANE_COPIES, 1000);
    cr_assert_eq(sent >= 250, true, "only %u of 250 chunks in half of version_timeout_ms", sent);
}

/* ---- a training whose all-reduce takes the last 40 of each 100 ms ---- */

#define STEP       (100 * MS)
#define COMPUTES   (60 * MS)
#define FIRST_STEP 1001u

static uint64_t train_from_ns; /* 0: the counters are the system's */
static uint64_t gap_step;      /* its all-reduce pauses from 70 to 85 ms */

bool __real_nic_counter_read(const struct nic_counter *c, uint64_t *out);
bool __wrap_nic_counter_read(const struct nic_counter *c, uint64_t *out);
bool __wrap_nic_counter_read(const struct nic_counter *c, uint64_t *out)
{
    if (train_from_ns == 0) {
        return __real_nic_counter_read(c, out);
    }
    uint64_t steps = (fake_ns - train_from_ns) / STEP, in_step = (fake_ns - train_from_ns) % STEP;
    uint64_t sends_ns = in_step > COMPUTES ? in_step - COMPUTES : 0;
    if (FIRST_STEP + steps == gap_step && in_step > 70 * MS) {
        sends_ns = 10 * MS + (in_step > 85 * MS ? in_step - 85 * MS : 0);
    }
    shared.step_ns = STEP;
    shared.step_at_ns = train_from_ns + steps * STEP;
    shared.current_step = FIRST_STEP + steps;
    *out = (steps * (STEP - COMPUTES) + sends_ns) * MIB / MS;
    return true;
}

/* Runs the loop until so long after the begin of a step. */
static void run_to(uint64_t step, uint64_t in_step_ms)
{
    uint64_t to_ns = train_from_ns + (step - FIRST_STEP) * STEP + in_step_ms * MS;
    struct loop_timer *stop;
    cr_assert_eq(loop_timer_add(loop, (loop_fn *)loop_stop, loop, &stop), TCK_OK);
    loop_timer_set(stop, (to_ns - fake_ns) / MS, false);
    loop_run(loop);
    loop_timer_remove(stop);
}

static bool is_measured_as_quiet(uint64_t step)
{
    return inflation_window(TERM, step + 1) == WINDOW_QUIET;
}

Test(pacing, copies_do_not_go_into_a_gap_of_an_all_reduce)
{
    for (uint64_t i = 1; i <= 3; i++) {
        fake_ns += 60 * S;
        step_to(100 * i);
        pacing_begin(pacing, LANE_COPIES, (struct version){TERM, 100 * i}, 1000 * MIB);
        if (i < 3) {
            pacing_end(pacing, LANE_COPIES, 0);
        }
    }
    train_from_ns = fake_ns;
    tick_ns = MS / 4;
    gap_step = FIRST_STEP + 20;
    while (is_measured_as_quiet(gap_step) || is_measured_as_quiet(gap_step + 1)) {
        gap_step++;
    }
    run_to(gap_step, 77);
    cr_expect_not(pacing_take(pacing, LANE_COPIES, CHUNK), "the all-reduce is not over");
    cr_expect_eq(pacing_figures(pacing).wait[LANE_COPIES], PACING_NETWORK);
    run_to(gap_step + 1, 20);
    cr_expect(pacing_take(pacing, LANE_COPIES, CHUNK), "the training computes");
    run_to(gap_step + 2, 58);
    cr_expect_not(pacing_take(pacing, LANE_COPIES, CHUNK), "the all-reduce is about to begin");
}

/* ---- counters ---- */

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

static void make_dirs(const char *path)
{
    char part[256];
    for (size_t i = 1; i <= strlen(path); i++) {
        if (path[i] == '/' || path[i] == '\0') {
            snprintf(part, sizeof(part), "%.*s", (int)i, path);
            mkdir(part, 0700);
        }
    }
}

Test(nic_counter, adds_what_interfaces_and_their_rdma_ports_have_sent)
{
    char dir[] = "nic-XXXXXX", path[256];
    struct nic_counter c;
    uint64_t sum = 0;
    cr_assert_not_null(mkdtemp(dir));
    const char *const files[][2] = {{"eth0/statistics/tx_bytes", "1000\n"},
                                    {"eth0/device/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "25\n"},
                                    {"eth1/statistics/tx_bytes", "7\n"},
                                    {"eth1/device/vendor", "0x15b3\n"},
                                    {"bond0/statistics/tx_bytes", "3007\n"},
                                    {"lo/statistics/tx_bytes", "500000\n"}};
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, files[i][0]);
        *strrchr(path, '/') = '\0';
        make_dirs(path);
        snprintf(path, sizeof(path), "%s/%s", dir, files[i][0]);
        write_file(path, files[i][1]);
    }
    nic_counter_open(&c, dir, "eth0");
    cr_assert(nic_counter_read(&c, &sum));
    cr_assert_eq(sum, 1100);
    snprintf(path, sizeof(path), "%s/eth0/statistics/tx_bytes", dir);
    write_file(path, "3000\n");
    cr_assert(nic_counter_read(&c, &sum));
    cr_assert_eq(sum, 3100, "it is read again");
    nic_counter_close(&c);
    nic_counter_open(&c, dir, "");
    cr_assert(nic_counter_read(&c, &sum));
    cr_assert_eq(sum, 3107, "those of adapters, which the bond uses");
    nic_counter_close(&c);
    nic_counter_open(&c, dir, "none");
    cr_assert_not(nic_counter_read(&c, &sum));
    snprintf(path, sizeof(path), "rm -r %s/*/device", dir);
    cr_assert_eq(system(path), 0);
    nic_counter_open(&c, dir, "");
    cr_assert(nic_counter_read(&c, &sum));
    cr_assert_eq(sum, 6014, "all but the loopback, as in a container");
    nic_counter_close(&c);
    snprintf(path, sizeof(path), "rm -r %s", dir);
    cr_assert_eq(system(path), 0);
}
