/* SPDX-License-Identifier: Apache-2.0
 * A plain program, so that it also runs under ThreadSanitizer: threads write lines while the file of the log is opened
 * and closed and the program forks. Every line in the file must be complete, and the lines of a thread must be in
 * order. */
#include "base/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WRITERS 3
#define ROUNDS  60

static atomic_bool writing = true;

static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "stress_log_queue: %s\n", what);
        exit(1);
    }
}

static void *write_lines(void *arg)
{
    for (unsigned n = 0; atomic_load(&writing); n++) {
        log_warn("writer %d line %u.", *(const int *)arg, n);
    }
    return NULL;
}

static void check_file(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[256];
    int writer;
    unsigned n, next[WRITERS] = {0};

    require(file != NULL, "the file is gone");
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *text = strstr(line, "writer ");

        if (text == NULL) {
            require(strstr(line, "were dropped here") != NULL, "a line is not what was written");
            continue;
        }
        require(sscanf(text, "writer %d line %u.", &writer, &n) == 2 && writer < WRITERS, "a line is cut off");
        require(n >= next[writer], "lines of a thread are not in order");
        next[writer] = n + 1;
    }
    fclose(file);
    for (int i = 0; i < WRITERS; i++) {
        require(next[i] > 0, "no line of a thread is in the file");
    }
}

static void fork_once(void)
{
    int status = 1;
    pid_t child = fork();

    if (child == 0) {
        alarm(30);
        log_after_fork();
        log_warn("line of a child");
        _exit(0);
    }
    require(waitpid(child, &status, 0) == child && status == 0, "a forked child hangs");
}

int main(void)
{
    char dir[] = "/tmp/tck-log.XXXXXX", path[64];
    int numbers[WRITERS];
    pthread_t threads[WRITERS];
    struct error err;

    require(mkdtemp(dir) != NULL, "no directory");
    snprintf(path, sizeof(path), "%s/log", dir);
    for (int i = 0; i < WRITERS; i++) {
        numbers[i] = i;
        require(pthread_create(&threads[i], NULL, write_lines, &numbers[i]) == 0, "no thread");
    }
    for (int round = 0; round < ROUNDS; round++) {
        require(log_open_queued(path, LOG_INFO, "a/rank0", &err) == TCK_OK, err.text);
        usleep(1000);
        if (round % 10 == 0) {
            fork_once();
        }
        log_close();
    }
    atomic_store(&writing, false);
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
    }
    check_file(path);
    unlink(path);
    rmdir(dir);
    return 0;
}
