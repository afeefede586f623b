/* SPDX-License-Identifier: Apache-2.0
 * The metrics of a command: what the text says while it runs and afterwards, and that the end of the last run is read
 * back from it, but not that of another job. */
#include "cli/operation_text.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct operation_figures figures_of(const char *operation, bool verifies)
{
    return (struct operation_figures){.job = "llm",
                                      .node = "n7",
                                      .operation = operation,
                                      .verifies = verifies,
                                      .now_wall_ms = 1700000000123,
                                      .age_ms = 12345,
                                      .quiet_ms = 2001,
                                      .read_bytes = 1 << 20,
                                      .written_bytes = 7};
}

/* With a NUL; the caller frees. */
static char *text_of(const struct operation_figures *f)
{
    size_t len = 0;
    char *text = operation_text(f, &len);
    cr_assert_not_null(text);
    text = realloc(text, len + 1);
    text[len] = '\0';
    return text;
}

static void expect_line(const char *text, const char *line)
{
    char whole[256];
    snprintf(whole, sizeof(whole), "\n%s\n", line);
    cr_assert(strstr(text, whole) != NULL, "%s is missing:\n%s", line, text);
}

Test(operation_text, shows_the_progress_of_a_first_run_and_no_end)
{
    struct operation_figures f = figures_of("verify", true);
    char *text = text_of(&f);
    expect_line(text, "tierckpt_operation_seconds{job_id=\"llm\",node=\"n7\",operation=\"verify\"} 12.345");
    expect_line(text, "tierckpt_operation_quiet_seconds{job_id=\"llm\",node=\"n7\",operation=\"verify\"} 2.001");
    expect_line(text,
                "tierckpt_operation_bytes{job_id=\"llm\",node=\"n7\",operation=\"verify\",direction=\"in\"} 1048576");
    expect_line(text, "tierckpt_operation_bytes{job_id=\"llm\",node=\"n7\",operation=\"verify\",direction=\"out\"} 7");
    expect_line(text, "tierckpt_operation_updated_timestamp_seconds{job_id=\"llm\",node=\"n7\",operation=\"verify\"} "
                      "1700000000.123");
    cr_assert_null(strstr(text, "ended"), "%s", text);
    cr_assert_null(strstr(text, "findings"), "%s", text);
    free(text);
}

static struct operation_figures ended_verify(void)
{
    struct operation_figures f = figures_of("verify", true);
    f.age_ms = f.quiet_ms = 0;
    f.last = (struct operation_outcome){{[OUTCOME_ENDED_MS] = 1700000000009,
                                         [OUTCOME_GOOD] = 0,
                                         [OUTCOME_BAD] = 2,
                                         [OUTCOME_UNCHECKED] = 3,
                                         [OUTCOME_VERSIONS] = 4,
                                         [OUTCOME_SLOTS] = 50}};
    return f;
}

Test(operation_text, shows_how_the_last_run_ended)
{
    struct operation_figures f = ended_verify();
    char *text = text_of(&f);
    expect_line(text, "tierckpt_operation_seconds{job_id=\"llm\",node=\"n7\",operation=\"verify\"} 0.000");
    expect_line(text, "tierckpt_operation_ended_timestamp_seconds{job_id=\"llm\",node=\"n7\",operation=\"verify\"} "
                      "1700000000.009");
    expect_line(text, "tierckpt_operation_good{job_id=\"llm\",node=\"n7\",operation=\"verify\"} 0");
    expect_line(text, "tierckpt_verify_findings{job_id=\"llm\",node=\"n7\",result=\"bad\"} 2");
    expect_line(text, "tierckpt_verify_findings{job_id=\"llm\",node=\"n7\",result=\"unchecked\"} 3");
    expect_line(text, "tierckpt_verify_checked{job_id=\"llm\",node=\"n7\",what=\"versions\"} 4");
    expect_line(text, "tierckpt_verify_checked{job_id=\"llm\",node=\"n7\",what=\"slots\"} 50");
    free(text);
}

Test(operation_text, an_export_has_no_findings)
{
    struct operation_figures f = figures_of("export", false);
    f.last = (struct operation_outcome){{[OUTCOME_ENDED_MS] = 5000, [OUTCOME_GOOD] = 1}};
    char *text = text_of(&f);
    expect_line(text, "tierckpt_operation_good{job_id=\"llm\",node=\"n7\",operation=\"export\"} 1");
    cr_assert_null(strstr(text, "tierckpt_verify"), "%s", text);
    free(text);
}

Test(operation_text, each_family_begins_once)
{
    struct operation_figures f = ended_verify();
    char *text = text_of(&f);
    for (const char *type = strstr(text, "# TYPE "); type != NULL; type = strstr(type + 1, "# TYPE ")) {
        char *line = strndup(type, strcspn(type, "\n") + 1);
        cr_assert_null(strstr(type + 1, line), "twice: %s", line);
        free(line);
    }
    free(text);
}

Test(operation_text, the_end_is_read_back_exactly)
{
    struct operation_figures f = ended_verify();
    char *text = text_of(&f);
    struct operation_figures again = figures_of("verify", true);
    struct operation_outcome outcome = operation_text_outcome(text, &again);
    cr_assert_eq(memcmp(&outcome, &f.last, sizeof(outcome)), 0);
    free(text);
}

Test(operation_text, a_name_that_has_to_be_escaped_is_found_again)
{
    struct operation_figures f = ended_verify();
    f.job = "a \"b\"\\ c\n 1";
    char *text = text_of(&f);
    struct operation_outcome outcome = operation_text_outcome(text, &f);
    cr_assert_eq(memcmp(&outcome, &f.last, sizeof(outcome)), 0, "%s", text);
    free(text);
}

static void expect_nothing(const char *text, const struct operation_figures *whose)
{
    struct operation_outcome none = {{0}}, outcome = operation_text_outcome(text, whose);
    cr_assert_eq(memcmp(&outcome, &none, sizeof(none)), 0, "%s", text);
}

Test(operation_text, the_end_of_another_job_node_or_operation_is_not_taken)
{
    struct operation_figures f = ended_verify(), other = f;
    char *text = text_of(&f);
    other.job = "llm2";
    expect_nothing(text, &other);
    other.job = "llm";
    other.node = "n";
    expect_nothing(text, &other);
    free(text);
    text = text_of(&f);
    struct operation_figures export = figures_of("export", false);
    expect_nothing(text, &export);
    free(text);
}

Test(operation_text, what_is_no_such_text_says_nothing)
{
    struct operation_figures f = ended_verify();
    expect_nothing("", &f);
    expect_nothing("tierckpt_verify_findings", &f);
    expect_nothing("\ntierckpt_verify_findings{job_id=\"llm\",node=\"n7\",result=\"bad\"} ", &f);
    expect_nothing("\ntierckpt_verify_findings{job_id=\"llm\",node=\"n7\",result=\"bad\"} x\n", &f);
    expect_nothing("\ntierckpt_operation_ended_timestamp_seconds{job_id=\"llm\",node=\"n7\",operation=\"verify\"} 5\n",
                   &f);
}
