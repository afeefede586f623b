/* SPDX-License-Identifier: Apache-2.0
 * Replaces the agent in the supervisor's tests: fake_agent park|exit|fail|environment. Runs in the supervisor's runtime
 * directory, and reports what it found in files there. */
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

static void report(const char *name, const char *text)
{
    char temporary[64];
    snprintf(temporary, sizeof(temporary), "%s.new", name);
    FILE *file = fopen(temporary, "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0 || rename(temporary, name) != 0) {
        _exit(9);
    }
}

static void report_line(const char *name, const char *line)
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
    report_line("found", name);
    report("content", text);
}

static bool store_fd(const char *notify_socket, int fd)
{
    return sd_notify_store(notify_socket, PARK_WAIT_MS, NOT_PARKED, fd, NULL) == TCK_OK &&
           sd_notify_store(notify_socket, PARK_WAIT_MS, PARKED, fd, NULL) == TCK_OK &&
           sd_notify_remove(notify_socket, PARK_WAIT_MS, NOT_PARKED, NULL) == TCK_OK &&
           sd_notify_send(notify_socket, PARK_WAIT_MS, "READY=1", NULL) == TCK_OK;
}

/* Exits cleanly, so that the supervisor exits as well. */
static void exit_cleanly(int signal_number)
{
    (void)signal_number;
    _exit(0);
}

/* Parks a file, repeats that whenever a new supervisor answers, and runs until it is killed. */
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
    signal(SIGALRM, exit_cleanly);
    alarm(FOREVER_S);
    for (;;) {
        char pid[32];
        bool answers = sd_notify_send(notify_socket, PARK_WAIT_MS, "STATUS=running", NULL) == TCK_OK;
        if (answers && !stored) {
            stored = store_fd(notify_socket, fd);
            snprintf(pid, sizeof(pid), "%d", (int)getpid());
            report(stored ? "parked" : "not-parked", pid);
        } else if (!answers && stored) {
            stored = false;
            unlink("parked");
        }
        usleep(TICK_US);
    }
}

static int report_environment(void)
{
    char dir[4096], text[8192];
    const char *put = getenv("UCX_TCP_PUT_ENABLE"), *device = getenv("UCX_NET_DEVICES");
    if (getcwd(dir, sizeof(dir)) == NULL) {
        return 9;
    }
    snprintf(text, sizeof(text), "%s put=%s device=%s", dir, put == NULL ? "" : put, device == NULL ? "" : device);
    report("environment", text);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    const char *notify_socket = getenv("NOTIFY_SOCKET");
    report_line("starts", mode);
    if (strcmp(mode, "environment") == 0) {
        return report_environment();
    }
    if (strcmp(mode, "park") == 0 && notify_socket != NULL) {
        return stay(notify_socket);
    }
    return strcmp(mode, "exit") == 0 ? 0 : 3;
}
