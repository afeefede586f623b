/* SPDX-License-Identifier: Apache-2.0
 * Processes by number and start time. */
#include "base/process.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STAT_BYTES      1024 /* of /proc/PID/stat; the fields that are read here are among them */
#define FIELDS_TO_START 19   /* from the state, which follows the name in parentheses, to the start time */

/* 0: unknown. */
static uint64_t start_of(pid_t pid)
{
    char path[32], stat[STAT_BYTES];
    uint64_t start = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    size_t len = file == NULL ? 0 : fread(stat, 1, sizeof(stat) - 1, file);
    if (file != NULL) {
        fclose(file);
    }
    stat[len] = '\0';
    const char *at = strrchr(stat, ')'); /* the name may contain anything, including this */
    for (int field = 0; at != NULL && field <= FIELDS_TO_START; field++) {
        at = strchr(at + 1, ' ');
    }
    return at != NULL && sscanf(at, " %" SCNu64, &start) == 1 ? start : 0;
}

struct process process_of(pid_t pid)
{
    return (struct process){.pid = pid, .start = pid > 0 ? start_of(pid) : 0};
}

bool process_has_ended(struct process process)
{
    int fd = (int)syscall(SYS_pidfd_open, process.pid, 0);
    if (fd < 0) {
        return errno == ESRCH;
    }
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    uint64_t start = start_of(process.pid);
    bool other = process.start != 0 && start != 0 && start != process.start;
    bool is_over = poll(&ended, 1, 0) == 1 && (ended.revents & POLLIN) != 0;
    close(fd);
    return other || is_over;
}
