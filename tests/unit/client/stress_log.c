/* SPDX-License-Identifier: Apache-2.0
 * A plain program, so that it also runs under ThreadSanitizer: threads write lines while the program replaces the
 * function that receives them, takes lines itself and forks. A function gets no line after it was replaced, and never
 * two lines at the same time. */
#include "base/log.h"
#include "client/forks.h"
#include "client/log_sink.h"
#include "tierckpt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WRITERS 3
#define ROUNDS  300

struct listener {
    atomic_bool chosen;
    atomic_int inside;
    atomic_uint_fast64_t lines;
};

static atomic_bool writing = true;

static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "stress_log: %s\n", what);
        exit(1);
    }
}

static void receive_line(void *ctx, tck_log_level_t level, const char *text)
{
    struct listener *listener = ctx;

    require(atomic_load(&listener->chosen), "a line came to a function that was replaced");
    require(atomic_fetch_add(&listener->inside, 1) == 0, "two lines came at the same time");
    require(level == TCK_LOG_WARN && strncmp(text, "line ", 5) == 0, "a line is not what was written");
    atomic_fetch_add(&listener->lines, 1);
    atomic_fetch_sub(&listener->inside, 1);
}

static void *write_lines(void *arg)
{
    for (unsigned n = 0; atomic_load(&writing); n++) {
        log_warn("line %u", n);
        log_debug("nobody wants %u", n);
    }
    return arg;
}

static void *take_lines(void *arg)
{
    tck_log_level_t level;
    char text[128];

    while (atomic_load(&writing)) {
        while (tck_next_log(&level, text, sizeof(text))) {
            require(strstr(text, "line") != NULL, "a line that was kept is not what was written");
        }
    }
    return arg;
}

static void listen_once(struct listener *listener)
{
    atomic_store(&listener->chosen, true);
    tck_set_log(receive_line, listener, TCK_LOG_WARN);
    while (atomic_load(&listener->lines) == 0) {
        usleep(10);
    }
    tck_set_log(NULL, NULL, TCK_LOG_ERROR);
    atomic_store(&listener->chosen, false);
}

/* The child has no other threads, so a lock that one of them held would never be released there. */
static void fork_once(void)
{
    int status = 1;
    pid_t child = fork();

    if (child == 0) {
        alarm(30);
        tck_set_log(NULL, NULL, TCK_LOG_ERROR);
        log_warn("line of a child");
        _exit(0);
    }
    require(waitpid(child, &status, 0) == child && status == 0, "a forked child hangs");
}

int main(void)
{
    static struct listener listeners[ROUNDS];
    pthread_t threads[WRITERS + 1];
    struct error err;

    require(forks_watch(&err) == TCK_OK, "forks cannot be watched");
    log_sink_begin();
    for (int i = 0; i < WRITERS + 1; i++) {
        require(pthread_create(&threads[i], NULL, i < WRITERS ? write_lines : take_lines, NULL) == 0, "no thread");
    }
    for (int round = 0; round < ROUNDS; round++) {
        listen_once(&listeners[round]);
        if (round % 30 == 0) {
            fork_once();
        }
    }
    atomic_store(&writing, false);
    for (int i = 0; i < WRITERS + 1; i++) {
        pthread_join(threads[i], NULL);
    }
    return 0;
}
