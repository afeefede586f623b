/* SPDX-License-Identifier: Apache-2.0
 * See program.h. */
#include "base/program.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_NOT_STARTED 127 /* as in shells */

/* In the child. */
static void run(const char *const *argv, const struct program_variable *variables, int out_fd)
{
    int null_fd = open("/dev/null", O_RDWR);
    for (const struct program_variable *v = variables; v != NULL && v->name != NULL; v++) {
        setenv(v->name, v->value, 1); /* NOLINT(concurrency-mt-unsafe): this process has one thread */
    }
    if (null_fd >= 0 && dup2(null_fd, STDIN_FILENO) >= 0 && dup2(out_fd, STDOUT_FILENO) >= 0 &&
        dup2(null_fd, STDERR_FILENO) >= 0) {
        execv(argv[0], (char *const *)(uintptr_t)argv); /* does not write to argv */
    }
    _exit(EXIT_NOT_STARTED);
}

static int left_ms(uint64_t until_ms)
{
    uint64_t now = clock_ms();
    return now < until_ms ? (int)(until_ms - now) : 0;
}

/* False: the time is over. */
static bool wait_for(int fd, uint64_t until_ms)
{
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    int count;
    do {
        count = poll(&polled, 1, left_ms(until_ms));
    } while (count < 0 && errno == EINTR);
    return count > 0;
}

/* Reads to the end, so that the program does not die of a closed pipe, and keeps the first line. False: there is
 * nothing, or the time is over. */
static bool read_line(int fd, uint64_t until_ms, char *out, size_t cap)
{
    char bytes[4096];
    size_t len = 0;
    bool any = false, whole = false;
    while (wait_for(fd, until_ms)) {
        ssize_t count = read(fd, bytes, sizeof(bytes));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            out[len] = '\0';
            return any && count == 0;
        }
        any = true;
        for (ssize_t i = 0; i < count && !whole; i++) {
            whole = bytes[i] == '\n' || len + 1 == cap;
            out[len] = bytes[i];
            len += !whole;
        }
    }
    return false;
}

/* Kills it if it is still there when the time is over. */
static bool ends_well(pid_t child, uint64_t until_ms)
{
    int ended = 0, pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    bool late = pidfd >= 0 ? !wait_for(pidfd, until_ms) : left_ms(until_ms) == 0;
    pid_t waited;
    if (late) {
        kill(child, SIGKILL);
    }
    do {
        waited = waitpid(child, &ended, 0);
    } while (waited < 0 && errno == EINTR);
    if (pidfd >= 0) {
        close(pidfd);
    }
    return waited == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
}

bool program_line(const char *const *argv, const struct program_variable *variables, uint32_t timeout_ms, char *out,
                  size_t cap)
{
    uint64_t until_ms = clock_ms() + timeout_ms;
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return false;
    }
    pid_t child = fork();
    if (child == 0) {
        run(argv, variables, fds[1]);
    }
    close(fds[1]);
    if (child < 0) {
        close(fds[0]);
        return false;
    }
    bool any = read_line(fds[0], until_ms, out, cap);
    close(fds[0]);
    return ends_well(child, until_ms) && any;
}
