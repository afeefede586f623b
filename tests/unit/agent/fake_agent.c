/* SPDX-License-Identifier: Apache-2.0
 * Stands for the agent in the supervisor's tests: fake_agent park|exit|fail|environment. Works in the supervisor's
 * runtime directory, which is its current one, and tells by files there what it found. */
#include "tiers/sd_notify.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CONTENT    "kept"
#define FOREVER_S  20 /* ends by itself if a failed test does not end it */
#define TICK_US    10000
#define PARKED     "d.0123"
#define NOT_PARKED "d.4567" /* stored and removed again */

static void tell(const char *name, const char *text)
{
    char temporary[64];
    snprintf(temporary, sizeof(temporary), "%s.new", name);
    FILE *file = fopen(temporary, "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0 || rename(temporary, name) != 0) {
        _exit(9);
    }
}

static void tell_line(const char *name, const char *line)
{
    FILE *file = fopen(name, "a");
    if (file == NULL || fprintf(file, "%s\n", line) < 0 || fclose(file) != 0) {
        _exit(9);
    }
}

static void found(void *ctx, const char *name, int fd)
{
    int *kept = ctx;
    char text[64] = {0};
    if (strcmp(name, PARKED) == 0 && pread(fd, text, sizeof(text) - 1, 0) > 0) {
        *kept = fd;
    }
    tell_line("found", name);
    tell("content", text);
}

static bool store_fd(const char *notify_socket, int fd)
{
    return sd_notify_store(notify_socket, PARK_WAIT_MS, NOT_PARKED, fd, NULL) == TCK_OK &&
           sd_notify_store(notify_socket, PARK_WAIT_MS, PARKED, fd, NULL) == TCK_OK &&
           sd_notify_remove(notify_socket, PARK_WAIT_MS, NOT_PARKED, NULL) == TCK_OK &&
           sd_notify_send(notify_socket, PARK_WAIT_MS, "READY=1", NULL) == TCK_OK;
}

/* Cleanly, so that the supervisor goes too. */
static void leave(int signal_number)
{
    (void)signal_number;
    _exit(0);
}

/* Parks a file, again whenever a new supervisor answers, and lives until it is killed. */
static int stay(const char *notify_socket)
{
    int fd = -1;
    bool stored = false;
    sd_notify_take_back(found, &fd);
    if (fd < 0) {
        fd = memfd_create("fake", MFD_CLOEXEC);
        if (fd < 0 || write(fd, CONTENT, strlen(CONTENT)) < 0) {
            return 9;
        }
    }
    signal(SIGALRM, leave);
    alarm(FOREVER_S);
    for (;;) {
        char pid[32];
        bool answers = sd_notify_send(notify_socket, PARK_WAIT_MS, "STATUS=running", NULL) == TCK_OK;
        if (answers && !stored) {
            stored = store_fd(notify_socket, fd);
            snprintf(pid, sizeof(pid), "%d", (int)getpid());
            tell(stored ? "parked" : "not-parked", pid);
        } else if (!answers && stored) {
            stored = false;
            unlink("parked");
        }
        usleep(TICK_US);
    }
}

static int tell_environment(void)
{
    char dir[4096], text[8192];
    const char *put = getenv("UCX_TCP_PUT_ENABLE"), *device = getenv("UCX_NET_DEVICES");
    if (getcwd(dir, sizeof(dir)) == NULL) {
        return 9;
    }
    snprintf(text, sizeof(text), "%s put=%s device=%s", dir, put == NULL ? "" : put, device == NULL ? "" : device);
    tell("environment", text);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    const char *notify_socket = getenv("NOTIFY_SOCKET");
    tell_line("starts", mode);
    if (strcmp(mode, "environment") == 0) {
        return tell_environment();
    }
    if (strcmp(mode, "park") == 0 && notify_socket != NULL) {
        return stay(notify_socket);
    }
    return strcmp(mode, "exit") == 0 ? 0 : 3;
}
