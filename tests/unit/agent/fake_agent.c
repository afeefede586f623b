/* SPDX-License-Identifier: Apache-2.0
 * Replaces the agent in the supervisor's tests: fake_agent park|many|exit|fail|environment. Runs in the supervisor's
 * runtime directory, and reports what it found in files there. */
#include "tiers/sd_notify.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define CONTENT    "kept"
#define FOREVER_S  120 /* ends by itself if a failed test does not end it */
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

/* ---- many segments --------------------------------------------------------------------------------------------- */

#define MANY_SEGMENTS 16384u
#define SPARE         256u /* descriptors for other uses */
#define PAGE_BYTES    4096

/* Of the segments' files: which are here, and whether each has the content of its number. */
struct many {
    uint32_t found, wrong;
    bool has[2 * MANY_SEGMENTS];
};

/* Two files each; fewer where the supervisor may not open so many. */
static uint32_t segments_here(void)
{
    struct rlimit limit;
    uint32_t most =
        getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < UINT32_MAX ? (uint32_t)limit.rlim_cur : UINT32_MAX;
    most = most > SPARE ? (most - SPARE) / 2 : 0;
    return most < MANY_SEGMENTS ? most : MANY_SEGMENTS;
}

static void file_name(uint32_t file, char *name, size_t cap)
{
    snprintf(name, cap, "%c.%032x", file % 2 == 0 ? 'd' : 'm', file / 2);
}

static void found_of_many(void *ctx, const char *name, int fd)
{
    struct many *many = ctx;
    char want[PARK_NAME_MAX];
    uint32_t file = 0;
    bool right = pread(fd, &file, sizeof(file), 0) == sizeof(file) && file < 2 * MANY_SEGMENTS;
    if (right) {
        file_name(file, want, sizeof(want));
        right = strcmp(name, want) == 0 && !many->has[file];
        many->has[file] = true;
    }
    many->found++;
    many->wrong += !right;
    close(fd);
}

/* A file of one page that begins with its number. It is closed at once: the supervisor keeps it. */
static bool park_file(const char *notify_socket, uint32_t file)
{
    char page[PAGE_BYTES] = {0}, name[PARK_NAME_MAX];
    int fd = memfd_create("many", MFD_CLOEXEC);
    memcpy(page, &file, sizeof(file));
    file_name(file, name, sizeof(name));
    bool parked = fd >= 0 && write(fd, page, sizeof(page)) == sizeof(page) &&
                  sd_notify_store(notify_socket, PARK_WAIT_MS, name, fd, NULL) == TCK_OK;
    close(fd);
    return parked;
}

/* Parks segments, and kills itself in the middle of its first life, between the two files of one. The next life parks
 * the rest. Each reports how many files it was given, and how many of them were wrong. */
static int park_many(const char *notify_socket)
{
    static struct many many;
    char text[64];
    uint32_t all = 2 * segments_here(), half = all / 2 | 1;
    sd_notify_take_back(found_of_many, &many);
    snprintf(text, sizeof(text), "found %u of %u, wrong %u", many.found, all, many.wrong);
    report_line("found", text);
    if (sd_notify_send(notify_socket, PARK_WAIT_MS, "READY=1", NULL) != TCK_OK) {
        return 9;
    }
    for (uint32_t file = many.found; file < all; file++) {
        if (!park_file(notify_socket, file)) {
            return 9;
        }
        if (many.found == 0 && file + 1 == half) {
            raise(SIGKILL);
        }
    }
    snprintf(text, sizeof(text), "%d", (int)getpid());
    report("parked", text);
    signal(SIGALRM, exit_cleanly);
    alarm(FOREVER_S);
    for (;;) {
        pause();
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
    if (strcmp(mode, "many") == 0 && notify_socket != NULL) {
        return park_many(notify_socket);
    }
    return strcmp(mode, "exit") == 0 ? 0 : 3;
}
