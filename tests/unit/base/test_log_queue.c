/* SPDX-License-Identifier: Apache-2.0
 * Lines of a trainer reach the file in order, and a file that hangs delays neither writers nor the closing of the log.
 */
#include "base/log.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINES 2000 /* more than the queue can hold while nothing is written */

static char dir[32], path[64];
static atomic_bool hangs;
static sem_t goes_on;

ssize_t __real_write(int fd, const void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len)
{
    struct stat st;

    if (atomic_load(&hangs) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        sem_wait(&goes_on);
    }
    return __real_write(fd, data, len);
}

static void set_up(void)
{
    strcpy(dir, "/tmp/tck-log.XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/log", dir);
    sem_init(&goes_on, 0, 0);
}

static void tear_down(void)
{
    unlink(path);
    rmdir(dir);
}

static void open_it(void)
{
    struct error err;

    cr_assert(eq(int, log_open_queued(path, LOG_INFO, "a/rank0", &err), TCK_OK), "%s", err.text);
}

static size_t count(const char *what)
{
    FILE *file = fopen(path, "r");
    char line[512];
    size_t found = 0;

    cr_assert_not_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        found += strstr(line, what) != NULL;
    }
    fclose(file);
    return found;
}

TestSuite(log_queue, .init = set_up, .fini = tear_down);

Test(log_queue, lines_are_in_the_file_when_the_log_is_closed)
{
    open_it();
    log_info("one");
    log_debug("not this one");
    log_warn("two");
    log_close();
    cr_assert(eq(sz, count("info a/rank0 one"), 1));
    cr_assert(eq(sz, count("warn a/rank0 two"), 1));
    cr_assert(eq(sz, count(""), 2));
}

Test(log_queue, a_file_that_hangs_delays_no_thread_and_lines_are_counted, .timeout = 200)
{
    open_it();
    atomic_store(&hangs, true);
    for (int i = 0; i < LINES; i++) {
        log_info("line %d of those that find a file that hangs", i);
    }
    log_close(); /* abandons the thread */
    cr_assert(eq(sz, count("line"), 0));
    atomic_store(&hangs, false);
    sem_post(&goes_on);
    while (count("lines were dropped here") == 0) {
        usleep(10000);
    }
    cr_assert(gt(sz, count("line 0 "), 0));
    cr_assert(lt(sz, count("those that find"), LINES));
}

Test(log_queue, a_pipe_is_refused_at_once, .timeout = 200)
{
    struct error err;

    cr_assert(eq(int, mkfifo(path, 0600), 0));
    cr_assert(ne(int, log_open_queued(path, LOG_INFO, "a", &err), TCK_OK), "nobody reads it");
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    cr_assert(eq(int, log_open_queued(path, LOG_INFO, "a", &err), TCK_ERR_DENIED));
    cr_assert_not_null(strstr(err.text, "is not a regular file"));
    close(reader);
}

Test(log_queue, a_forked_child_writes_nothing_under_its_parents_name, .timeout = 200)
{
    int status;

    open_it();
    pid_t child = fork();
    if (child == 0) {
        log_after_fork();
        log_info("of the child");
        log_close();
        _exit(0);
    }
    cr_assert(eq(int, waitpid(child, &status, 0), child));
    cr_assert(eq(int, status, 0));
    log_info("of the parent");
    log_close();
    cr_assert(eq(sz, count("of the child"), 0));
    cr_assert(eq(sz, count("of the parent"), 1));
}
