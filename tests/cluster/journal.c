/* SPDX-License-Identifier: Apache-2.0 */
#include "journal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static int journal_fd = -1;
static int journal_rank;
static uint64_t journal_launch;

int journal_open(const char *path, int rank, uint64_t launch)
{
    journal_rank = rank;
    journal_launch = launch;
    if (path == NULL) {
        return 0;
    }
    journal_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    return journal_fd < 0 ? -1 : 0;
}

void journal(const char *event, const char *format, ...)
{
    char line[512];
    struct timespec now;
    va_list args;
    int len;

    if (journal_fd < 0) {
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    len = snprintf(line, sizeof(line), "{\"t\":%lld.%06ld,\"event\":\"%s\",\"launch\":%" PRIu64 ",\"rank\":%d",
                   (long long)now.tv_sec, now.tv_nsec / 1000, event, journal_launch, journal_rank);
    va_start(args, format);
    len += vsnprintf(line + len, sizeof(line) - (size_t)len, format, args);
    va_end(args);
    if (len + 2 > (int)sizeof(line)) {
        return;
    }
    line[len++] = '}';
    line[len++] = '\n';
    if (write(journal_fd, line, (size_t)len) != len) { /* one write: lines of several processes do not mix */
        _exit(9);
    }
}
