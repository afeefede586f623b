/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct error err;
static char path[64];
static char content[1 << 20];

static void make_path(void)
{
    snprintf(path, sizeof(path), "/tmp/tck-log-XXXXXX");
    close(mkstemp(path));
    unlink(path);
}

static void remove_path(void)
{
    unlink(path);
}

TestSuite(log, .init = make_path, .fini = remove_path);

static const char *read_log(void)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len;

    cr_assert_geq(fd, 0);
    len = read(fd, content, sizeof(content) - 1);
    cr_assert_geq(len, 0);
    content[len] = '\0';
    close(fd);
    return content;
}

static void open_log(enum log_level max)
{
    cr_assert_eq(log_open(path, max, "node0", &err), TCK_OK, "%s", err.text);
}

static bool matches(const char *text, const char *pattern)
{
    regex_t regex;
    bool match;

    cr_assert_eq(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    match = regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return match;
}

Test(log, line_has_time_level_and_name)
{
    open_log(LOG_INFO);
    log_info("version %d committed", 3);
    cr_assert(matches(read_log(), "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z "
                                  "info node0 version 3 committed\n$"),
              "%s", content);
}

Test(log, levels_above_the_maximum_are_left_out)
{
    open_log(LOG_WARN);
    log_error("one");
    log_warn("two");
    log_info("three");
    log_debug("four");
    read_log();
    cr_assert_not_null(strstr(content, "error node0 one\n"));
    cr_assert_not_null(strstr(content, "warn node0 two\n"));
    cr_assert_null(strstr(content, "three"));
    cr_assert_null(strstr(content, "four"));
}

Test(log, text_cannot_forge_a_line)
{
    open_log(LOG_INFO);
    log_info("a\nb\r\x1b[31m\x7f ü");
    cr_assert_not_null(strstr(read_log(), " a\\x0ab\\x0d\\x1b[31m\\x7f ü\n"), "%s", content);
}

Test(log, line_is_bounded)
{
    char *text = malloc(1 << 16);

    cr_assert_not_null(text);
    memset(text, '\n', (1 << 16) - 1);
    text[(1 << 16) - 1] = '\0';
    open_log(LOG_INFO);
    log_info("%s", text);
    log_info("next");
    read_log();
    cr_assert_lt(strlen(content), 20000);
    cr_assert_not_null(strstr(content, "\n20"));
    free(text);
}

Test(log, errno_is_kept_and_percent_m_works)
{
    open_log(LOG_INFO);
    errno = ENOSPC;
    log_info("write: %m");
    cr_assert_eq(errno, ENOSPC);
    cr_assert_not_null(strstr(read_log(), strerror(ENOSPC)));
}

Test(log, silent_until_opened_and_after_closing)
{
    log_error("before");
    open_log(LOG_DEBUG);
    log_close();
    log_error("after");
    cr_assert_str_eq(read_log(), "");
}

Test(log, no_path_means_silent)
{
    open_log(LOG_DEBUG);
    cr_assert_eq(log_open("", LOG_DEBUG, "node0", &err), TCK_OK);
    log_error("x");
    cr_assert_str_eq(read_log(), "");
}

Test(log, reopening_makes_the_file_anew_and_goes_on_with_the_new_name)
{
    open_log(LOG_INFO);
    log_info("old");
    unlink(path);
    cr_assert_eq(log_open(path, LOG_INFO, "rank3", &err), TCK_OK);
    log_info("new");
    cr_assert_not_null(strstr(read_log(), "info rank3 new\n"));
    cr_assert_null(strstr(content, "old"));
}

/* Each process has its own descriptor, as the agent and trainers of a node do. */
Test(log, lines_of_several_processes_in_one_file_stay_whole)
{
    enum { WRITERS = 4, LINES = 200 };
    char text[400];
    int status = 0, count = 0;

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    for (int i = 0; i < WRITERS; i++) {
        if (fork() == 0) {
            open_log(LOG_INFO);
            for (int n = 0; n < LINES; n++) {
                log_info("%s.", text);
            }
            _exit(0);
        }
    }
    while (wait(&status) > 0) {
        cr_assert_eq(status, 0);
    }
    FILE *file = fopen(path, "re");
    cr_assert_not_null(file);
    for (char line[1024]; fgets(line, sizeof(line), file) != NULL; count++) {
        cr_assert_eq(strlen(line), strlen("2026-01-31T12:00:00.123Z info node0 ") + sizeof(text) + 1, "%s", line);
    }
    fclose(file);
    cr_assert_eq(count, WRITERS * LINES);
}

Test(log, failed_open_names_the_path_and_keeps_the_log)
{
    open_log(LOG_INFO);
    cr_assert_eq(log_open("/nonexistent/dir/log", LOG_INFO, "x", &err), TCK_ERR_NOENT);
    cr_assert_not_null(strstr(err.text, "/nonexistent/dir/log"));
    log_info("still here");
    cr_assert_not_null(strstr(read_log(), "still here"));
}

Test(log, file_is_private)
{
    struct stat st;

    umask(0);
    open_log(LOG_INFO);
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0600);
}

static void *write_lines(void *arg)
{
    for (int i = 0; i < 200; i++) {
        log_info("thread %s says the same long sentence again", (const char *)arg);
    }
    return NULL;
}

Test(log, lines_of_several_threads_do_not_mix)
{
    static char name_a[] = "a", name_b[] = "b";
    pthread_t a, b;
    int lines = 0;

    open_log(LOG_INFO);
    cr_assert_eq(pthread_create(&a, NULL, write_lines, name_a), 0);
    cr_assert_eq(pthread_create(&b, NULL, write_lines, name_b), 0);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    read_log();
    for (char *line = strtok(content, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        cr_assert(matches(line, "Z info node0 thread [ab] says the same long sentence again$"), "%s", line);
        lines++;
    }
    cr_assert_eq(lines, 400);
}

Test(log, repeated_lines_are_logged_ever_more_rarely)
{
    struct log_limit limit = {0};
    uint32_t said = 0;
    for (uint32_t i = 1; i <= 1000; i++) {
        bool due = log_limit_pass(&limit);
        cr_assert(due || (i & (i - 1)) != 0, "the %u. time is not said", i);
        said += due;
    }
    cr_assert_lt(said, 20);
    limit.said_ms -= 60000; /* long ago */
    cr_assert(log_limit_pass(&limit));
}
