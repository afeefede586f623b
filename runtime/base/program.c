/* SPDX-License-Identifier: Apache-2.0
 * See program.h. */
#include "base/program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static bool read_line(int fd, char *out, size_t cap)
{
    FILE *file = fdopen(fd, "re");
    if (file == NULL) {
        close(fd);
        return false;
    }
    bool any = fgets(out, (int)cap, file) != NULL;
    while (any && fgetc(file) != EOF) { /* so that the program does not die of a closed pipe */
    }
    fclose(file);
    if (any) {
        out[strcspn(out, "\n")] = '\0';
    }
    return any;
}

bool program_line(const char *const *argv, const struct program_variable *variables, char *out, size_t cap)
{
    int fds[2], ended = 0;
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
    bool any = read_line(fds[0], out, cap);
    pid_t waited;
    do {
        waited = waitpid(child, &ended, 0);
    } while (waited < 0 && errno == EINTR);
    return any && waited == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
}
