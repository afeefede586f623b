/* SPDX-License-Identifier: Apache-2.0
 * The export of metrics over the life of an agent: whose file stays and whose goes, and what is reported as wrong. */
#include "agent/metrics/metrics.h"
#include "agent/report/report.h"
#include "base/loop.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/tck-metrics-XXXXXX";
static struct config config;
static struct trouble no_trouble;
static struct loop *loop;
static struct loop_timer *timer;
static struct metrics *metrics;

static void collect(void *ctx, struct report *out)
{
    (void)ctx;
    *out = (struct report){.config = &config, .storage.trouble = &no_trouble, .parked.with = "none"};
}

static void set_up(void)
{
    struct error err;
    cr_assert_not_null(mkdtemp(dir));
    snprintf(config.metrics_textfile, sizeof(config.metrics_textfile), "%s/t.prom", dir);
    cr_assert_eq(loop_new(&loop, &err), TCK_OK);
    const struct metrics_setup setup = {.config = &config, .loop = loop, .collect = collect};
    cr_assert_eq(metrics_new(&setup, &metrics, &err), TCK_OK, "%s", err.text);
}

static void tear_down(void)
{
    loop_free(loop);
    cr_assert_eq(rmdir(dir), 0, "something is left in %s", dir);
}

TestSuite(metrics, .init = set_up, .fini = tear_down, .timeout = 200);

static bool exists(void)
{
    return access(config.metrics_textfile, F_OK) == 0;
}

static bool in_trouble(void)
{
    return metrics_trouble(metrics)[0] != '\0';
}

static void stop_if(void *ctx)
{
    bool (*done)(void) = *(bool (**)(void))ctx;
    if (done()) {
        loop_stop(loop);
    }
}

static void run_until(bool (*done)(void))
{
    cr_assert_eq(loop_timer_add(loop, stop_if, &done, &timer), TCK_OK);
    loop_timer_set(timer, 1, true);
    metrics_tick(metrics);
    loop_run(loop);
    loop_timer_remove(timer);
}

Test(metrics, an_agent_that_ends_takes_its_file_away)
{
    run_until(exists);
    metrics_free(metrics);
    cr_assert(!exists());
}

Test(metrics, an_agent_that_ends_before_it_knows_of_its_first_write_takes_the_file_away)
{
    metrics_tick(metrics);
    while (!exists()) {
        usleep(1000); /* the loop, which would be told, does not run */
    }
    metrics_free(metrics);
    cr_assert(!exists());
}

Test(metrics, an_agent_that_does_not_start_leaves_the_file_of_one_that_died)
{
    FILE *file = fopen(config.metrics_textfile, "w");
    cr_assert_not_null(file);
    fclose(file);
    metrics_free(metrics);
    cr_assert(exists());
    unlink(config.metrics_textfile);
}

Test(metrics, a_file_that_cannot_be_written_is_reported_with_its_setting)
{
    char want[CONFIG_PATH + 128];
    cr_assert_eq(rmdir(dir), 0);
    run_until(in_trouble);
    snprintf(want, sizeof(want), "metrics_textfile: create %s.tmp: No such file or directory", config.metrics_textfile);
    cr_assert_str_eq(metrics_trouble(metrics), want);
    metrics_free(metrics);
    cr_assert_eq(mkdir(dir, 0700), 0);
}
