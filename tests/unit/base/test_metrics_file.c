/* SPDX-License-Identifier: Apache-2.0
 * The file of the metrics: replaced at once, readable by everyone, gone with the agent. */
#include "base/metrics_file.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/tck-metrics-XXXXXX", path[64], work[64];

static void set_up(void)
{
    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/t.prom", dir);
    snprintf(work, sizeof(work), "%s/t.prom.tmp", dir);
}

static void tear_down(void)
{
    cr_assert_eq(metrics_file_remove(path, NULL), TCK_OK);
    cr_assert_eq(rmdir(dir), 0, "something is left in %s", dir);
}

TestSuite(metrics_file, .init = set_up, .fini = tear_down);

static void put(const char *text)
{
    struct error err = {0};
    cr_assert_eq(metrics_file_write(path, text, strlen(text), &err), TCK_OK, "%s", err.text);
}

static size_t get(char *out, size_t cap)
{
    int fd = open(path, O_RDONLY);
    cr_assert_geq(fd, 0, "%m");
    ssize_t len = read(fd, out, cap);
    close(fd);
    return (size_t)len;
}

Test(metrics_file, has_the_newest_text_and_everyone_may_read_it)
{
    char text[16];
    struct stat st;
    umask(077);
    put("a 1\na 3\n");
    put("a 2\n");
    cr_assert_eq(get(text, sizeof(text)), 4);
    cr_assert_eq(memcmp(text, "a 2\n", 4), 0);
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0644);
    cr_assert_neq(access(work, F_OK), 0);
}

static void *write_both(void *large)
{
    for (int i = 0; i < 300; i++) {
        put(i % 2 ? "a 1\n" : large);
    }
    return NULL;
}

Test(metrics_file, is_never_seen_half_written)
{
    static char large[100001], text[200000];
    pthread_t thread;
    memset(large, 'b', sizeof(large) - 1);
    put("a 1\n");
    cr_assert_eq(pthread_create(&thread, NULL, write_both, large), 0);
    for (int i = 0; i < 1000; i++) {
        size_t len = get(text, sizeof(text));
        cr_assert(len == 4 || len == sizeof(large) - 1, "%zu bytes", len);
    }
    pthread_join(thread, NULL);
}

Test(metrics_file, does_not_follow_a_link_that_somebody_has_put_there)
{
    char other[64], text[16];
    snprintf(other, sizeof(other), "%s/other", dir);
    cr_assert_eq(symlink(other, work), 0);
    put("a 1\n");
    cr_assert_neq(access(other, F_OK), 0);
    cr_assert_eq(get(text, sizeof(text)), 4);
}

Test(metrics_file, that_cannot_be_written_is_an_error_with_its_name)
{
    struct error err = {0};
    cr_assert_neq(metrics_file_write("/nonexistent/t.prom", "a", 1, &err), TCK_OK);
    cr_assert_str_eq(err.text, "create /nonexistent/t.prom.tmp: No such file or directory");
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_neq(metrics_file_write(path, "a", 1, &err), TCK_OK);
    cr_assert_neq(access(work, F_OK), 0, "what it wrote is left");
    cr_assert_neq(metrics_file_remove(path, &err), TCK_OK);
    cr_assert(strstr(err.text, path) != NULL, "%s", err.text);
    rmdir(path);
}
