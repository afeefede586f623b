/* SPDX-License-Identifier: Apache-2.0
 * The metrics: the text of a report, what is left out, and that no value can break the format. */
#include "agent/metrics/metrics_text.h"
#include "agent/report/report.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

static struct config config;
static struct trouble trouble;

static struct report some_report(void)
{
    memset(&config, 0, sizeof(config));
    memset(&trouble, 0, sizeof(trouble));
    strcpy(config.job, "llm");
    strcpy(config.node, "n7");
    strcpy(config.domain, "rack3");
    config.copies = 2;
    config.slots = 3;
    struct report r = {.config = &config, .now_ms = 90000, .now_wall_ms = 1700000000123, .term = 4};
    r.storage.trouble = &trouble;
    r.parked.with = "supervisor";
    r.in_term.passed_over = "";
    return r;
}

static struct report in_a_term(void)
{
    struct report r = some_report();
    r.in_term = (struct report_term){.joined = true, .coordinator = true, .ranks = 16, .shards = 24, .passed_over = ""};
    r.in_term.nodes[NODE_SELF] = 1;
    r.in_term.nodes[NODE_UP] = 2;
    r.in_term.nodes[NODE_LOST] = 1;
    r.in_term.lost[0] = "n3";
    r.in_term.sessions[0] = 5;
    r.in_term.sessions[1] = 1;
    r.in_term.silent_count = 1;
    r.in_term.silent[0] = (struct report_silent){.node = "n4", .address = "10.0.0.4:40000"};
    r.in_term.decision.watermark = (struct version){4, 120};
    return r;
}

/* With a NUL; the caller frees. */
static char *text_of(const struct report *r)
{
    size_t len = 0;
    char *text = metrics_text(r, &len);
    cr_assert_not_null(text);
    text = realloc(text, len + 1);
    text[len] = '\0';
    return text;
}

static void expect_line(const struct report *r, const char *line)
{
    char *text = text_of(r), whole[512];
    snprintf(whole, sizeof(whole), "\n%s\n", line);
    cr_assert(strstr(text, whole) != NULL, "no line '%s' in:\n%s", line, text);
    free(text);
}

static void expect_no_sample(const struct report *r, const char *name)
{
    char *text = text_of(r), start[128];
    snprintf(start, sizeof(start), "\n%s{", name);
    cr_assert(strstr(text, start) == NULL, "there is a sample of %s in:\n%s", name, text);
    free(text);
}

Test(metrics_text, every_sample_names_job_and_node)
{
    struct report r = in_a_term();
    char *text = text_of(&r), *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        cr_assert(*line == '\0' || *line == '#' || strstr(line, "{job_id=\"llm\",node=\"n7\"") != NULL, "%s", line);
    }
    free(text);
}

Test(metrics_text, reports_what_is_committed_and_what_is_lost)
{
    struct report r = in_a_term();
    expect_line(&r, "tierckpt_newest_version_step{job_id=\"llm\",node=\"n7\",tier=\"memory\"} 120");
    expect_line(&r, "tierckpt_nodes{job_id=\"llm\",node=\"n7\",state=\"lost\"} 1");
    expect_line(&r, "tierckpt_node_lost{job_id=\"llm\",node=\"n7\",peer=\"n3\"} 1");
    expect_line(&r, "tierckpt_sessions{job_id=\"llm\",node=\"n7\",address=\"2\"} 1");
    expect_line(&r, "tierckpt_address_silent{job_id=\"llm\",node=\"n7\",peer=\"n4\",address=\"10.0.0.4:40000\"} 1");
    expect_line(&r, "tierckpt_ranks{job_id=\"llm\",node=\"n7\"} 16");
    expect_line(&r, "tierckpt_updated_timestamp_seconds{job_id=\"llm\",node=\"n7\"} 1700000000.123");
}

Test(metrics_text, leaves_out_unknown_values)
{
    struct report r = some_report();
    expect_no_sample(&r, "tierckpt_nodes");
    expect_no_sample(&r, "tierckpt_newest_version_step");
    expect_no_sample(&r, "tierckpt_newest_version_timestamp_seconds");
    expect_no_sample(&r, "tierckpt_training_step");
    expect_no_sample(&r, "tierckpt_last_recovery_duration_seconds");
    r.memory.changing = true;
    expect_no_sample(&r, "tierckpt_memory_used_bytes");
    expect_no_sample(&r, "tierckpt_slots");
}

Test(metrics_text, says_nothing_of_an_archive_that_is_not_used)
{
    struct report r = in_a_term();
    char *text = text_of(&r);
    cr_assert(strstr(text, "tierckpt_archive") == NULL, "%s", text);
    free(text);
    r.archive.used = true;
    expect_line(&r, "tierckpt_archive_good{job_id=\"llm\",node=\"n7\"} 1");
    expect_line(&r, "tierckpt_archived_files_total{job_id=\"llm\",node=\"n7\"} 0");
    expect_no_sample(&r, "tierckpt_archived_step");
    r.archive.archived = (struct version){4, 100};
    expect_line(&r, "tierckpt_archived_step{job_id=\"llm\",node=\"n7\"} 100");
}

/* Its peers look lost, since its sessions are closed, and another start may have gone back behind its versions. */
Test(metrics_text, no_interval_of_storage_if_nothing_is_published)
{
    struct report r = some_report();
    r.save_storage_steps = 100;
    config.save_storage_interval.seconds = 60;
    expect_line(&r, "tierckpt_save_interval_steps{job_id=\"llm\",node=\"n7\",tier=\"storage\"} 100");
    expect_line(&r, "tierckpt_save_interval_seconds{job_id=\"llm\",node=\"n7\",tier=\"storage\"} 60.000");
    config.storage_format = STORAGE_FORMAT_FRAMEWORK;
    expect_line(&r, "tierckpt_save_interval_steps{job_id=\"llm\",node=\"n7\",tier=\"storage\"} 0");
    expect_line(&r, "tierckpt_save_interval_seconds{job_id=\"llm\",node=\"n7\",tier=\"storage\"} 0.000");
}

Test(metrics_text, a_node_whose_term_is_over_says_nothing_of_the_job)
{
    struct report r = in_a_term();
    r.in_term.decision.not_before = 130;
    r.in_term.closed = true;
    expect_line(&r, "tierckpt_term_over{job_id=\"llm\",node=\"n7\"} 1");
    expect_no_sample(&r, "tierckpt_node_lost");
    expect_no_sample(&r, "tierckpt_sessions");
    expect_no_sample(&r, "tierckpt_address_silent");
    expect_no_sample(&r, "tierckpt_nodes");
    expect_no_sample(&r, "tierckpt_coordinator");
    expect_no_sample(&r, "tierckpt_ranks");
    expect_no_sample(&r, "tierckpt_newest_version_step");
    expect_no_sample(&r, "tierckpt_newest_version_term");
    expect_no_sample(&r, "tierckpt_saves_held_back");
    r.in_term.closed = false;
    expect_line(&r, "tierckpt_saves_held_back{job_id=\"llm\",node=\"n7\"} 1");
}

Test(metrics_text, stalls_are_a_histogram_whose_buckets_include_the_smaller_ones)
{
    struct report r = some_report();
    r.trainers.stalls =
        (struct stalls){.buckets = {[0] = 5, [1] = 2, [STALL_BUCKETS - 1] = 1}, .total_ns = 20500000000};
    expect_line(&r, "# TYPE tierckpt_save_stall_seconds histogram");
    expect_line(&r, "tierckpt_save_stall_seconds_bucket{job_id=\"llm\",node=\"n7\",le=\"0.0001\"} 5");
    expect_line(&r, "tierckpt_save_stall_seconds_bucket{job_id=\"llm\",node=\"n7\",le=\"0.00025\"} 7");
    expect_line(&r, "tierckpt_save_stall_seconds_bucket{job_id=\"llm\",node=\"n7\",le=\"10\"} 7");
    expect_line(&r, "tierckpt_save_stall_seconds_bucket{job_id=\"llm\",node=\"n7\",le=\"+Inf\"} 8");
    expect_line(&r, "tierckpt_save_stall_seconds_sum{job_id=\"llm\",node=\"n7\"} 20.500000000");
    expect_line(&r, "tierckpt_save_stall_seconds_count{job_id=\"llm\",node=\"n7\"} 8");
}

Test(metrics_text, counts_of_events_that_never_happened_are_zero)
{
    struct report r = some_report();
    expect_line(&r, "tierckpt_digest_mismatches_total{job_id=\"llm\",node=\"n7\",tier=\"memory\"} 0");
    expect_line(&r, "tierckpt_saves_refused_total{job_id=\"llm\",node=\"n7\",reason=\"no_slot\"} 0");
    expect_line(&r, "tierckpt_versions_total{job_id=\"llm\",node=\"n7\",result=\"committed\"} 0");
}

Test(metrics_text, an_operation_in_progress_has_its_age)
{
    struct report r = in_a_term();
    expect_line(&r, "tierckpt_operation_seconds{job_id=\"llm\",node=\"n7\",operation=\"drain\"} 0.000");
    r.tally.draining = (struct version){4, 100};
    r.tally.draining_since_ms = 47500;
    expect_line(&r, "tierckpt_operation_seconds{job_id=\"llm\",node=\"n7\",operation=\"drain\"} 42.500");
}

Test(metrics_text, trouble_with_storage_has_a_beginning)
{
    struct report r = some_report();
    expect_line(&r, "tierckpt_storage_good{job_id=\"llm\",node=\"n7\"} 1");
    expect_no_sample(&r, "tierckpt_storage_failing_since_timestamp_seconds");
    trouble = (struct trouble){.code = TCK_ERR_IO, .since_ms = 1700000000000, .steps = 3};
    expect_line(&r, "tierckpt_storage_good{job_id=\"llm\",node=\"n7\"} 0");
    expect_line(&r, "tierckpt_storage_failing_since_timestamp_seconds{job_id=\"llm\",node=\"n7\"} 1700000000.000");
    expect_line(&r, "tierckpt_storage_steps_missed{job_id=\"llm\",node=\"n7\"} 3");
}

Test(metrics_text, one_node_alone_lacks_no_domains)
{
    struct report r = in_a_term();
    r.in_term.shards_short = 24;
    expect_line(&r, "tierckpt_shards_short_of_domains{job_id=\"llm\",node=\"n7\"} 24");
    r.in_term.nodes[NODE_UP] = r.in_term.nodes[NODE_LOST] = 0;
    expect_line(&r, "tierckpt_shards_short_of_domains{job_id=\"llm\",node=\"n7\"} 0");
}

/* The samples of a metric in a text; the metric's first one is at *at afterwards. */
static size_t samples_of(const char *text, const char *name, const char **at)
{
    char start[128];
    size_t count = 0;
    snprintf(start, sizeof(start), "\n%s{", name);
    for (const char *c = text; (c = strstr(c, start)) != NULL; c++) {
        *at = count++ == 0 ? c + 1 : *at;
    }
    return count;
}

Test(metrics_text, the_table_names_the_labels_that_samples_have)
{
    struct report r = in_a_term();
    struct metrics_help h;
    char *text = text_of(&r);
    for (size_t i = 0; metrics_family(i, &h); i++) {
        const char *sample;
        char labels[256] = "", *rest;
        if (samples_of(text, h.name, &sample) == 0) {
            continue;
        }
        rest = strndup(sample, strcspn(sample, "\n"));
        for (char *c = strstr(rest, "node=\"n7\"") + 9; *c != '}'; c = strchr(strchr(c, '"') + 1, '"') + 1) {
            char *name = c + 1;
            strncat(labels, labels[0] != '\0' ? ", " : "", 3);
            strncat(labels, name, strcspn(name, "="));
        }
        cr_assert_str_eq(labels, h.labels, "%s", rest);
        free(rest);
    }
    free(text);
}

Test(metrics_text, names_follow_the_conventions)
{
    struct metrics_help h;
    for (size_t i = 0; metrics_family(i, &h); i++) {
        size_t len = strlen(h.name);
        bool total = len > 6 && strcmp(h.name + len - 6, "_total") == 0;
        cr_assert_eq(strncmp(h.name, "tierckpt_", 9), 0, "%s", h.name);
        cr_assert_eq(total, strcmp(h.kind, "counter") == 0, "%s", h.name);
        cr_assert_eq(h.help[strlen(h.help) - 1], '.', "%s: %s", h.name, h.help);
    }
}

static size_t lines_of(const char *text)
{
    size_t lines = 0;
    for (; (text = strchr(text, '\n')) != NULL; text++) {
        lines++;
    }
    return lines;
}

/* Names of nodes come from other machines. */
Test(metrics_text, no_value_breaks_the_format)
{
    struct report r = in_a_term();
    char *text = text_of(&r), name[CONFIG_NAME];
    size_t lines = lines_of(text);
    free(text);
    unsigned random = 1;
    for (int round = 0; round < 500; round++) {
        for (size_t i = 0; i < sizeof(name) - 1; i++) {
            name[i] = (char)(1 + rand_r(&random) % 255);
        }
        name[sizeof(name) - 1] = '\0';
        r.in_term.lost[0] = name;
        text = text_of(&r);
        const char *c = strstr(text, "\ntierckpt_node_lost{");
        cr_assert_not_null(c);
        for (c = strstr(c, "peer=\"") + 6; *c != '"'; c += *c == '\\' ? 2 : 1) {
            cr_assert(!iscntrl((unsigned char)*c), "round %d: %s", round, text);
        }
        cr_assert_eq(strncmp(c, "\"} 1\n", 5), 0, "round %d: %s", round, text);
        cr_assert_eq(lines_of(text), lines, "round %d: %s", round, text);
        free(text);
    }
}

Test(metrics_text, step_inflation_is_left_out_until_it_is_known)
{
    struct report r = in_a_term();
    expect_no_sample(&r, "tierckpt_step_inflation_ratio");
    r.pacing = (struct pacing_figures){.target = 0.01,
                                       .spread = 0.5,
                                       .rate = {[LANE_COPIES] = 2e9},
                                       .inflation = {.pairs = 9, .mean = 0.0042, .low = -0.001, .high = 0.0095}};
    expect_line(&r, "tierckpt_step_inflation_ratio{job_id=\"llm\",node=\"n7\",bound=\"mean\"} 0.004200");
    expect_line(&r, "tierckpt_step_inflation_ratio{job_id=\"llm\",node=\"n7\",bound=\"low\"} 0.000000");
    expect_line(&r, "tierckpt_step_inflation_target_ratio{job_id=\"llm\",node=\"n7\"} 0.010000");
    expect_line(&r, "tierckpt_pace_bytes_per_second{job_id=\"llm\",node=\"n7\",tier=\"peer\"} 2000000000");
}
