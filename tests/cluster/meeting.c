/* SPDX-License-Identifier: Apache-2.0
 * One file per rank and round, or per key, which appears whole. */
#include "meeting.h"

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 120000

static int put_file(const char *path, const void *data, size_t len)
{
    char temp[600];
    snprintf(temp, sizeof(temp), "%s.%d", path, (int)getpid());
    int fd = open(temp, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, len) != (ssize_t)len || close(fd) != 0) {
        return -1;
    }
    return rename(temp, path);
}

/* Waits for the file, and copies its first cap bytes; returns how many were copied, -1: it does not come. */
static ssize_t get_file(const char *path, void *data, size_t cap)
{
    for (int waited = 0; waited < WAIT_MS; waited++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            ssize_t n = read(fd, data, cap);
            close(fd);
            return n;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return -1;
}

int meeting_allgather(void *ctx, const void *in, void *out, size_t len)
{
    struct connectivity *m = ctx;
    char path[512];
    unsigned round = m->round++;
    snprintf(path, sizeof(path), "%s/%u.%d", m->dir, round, m->rank);
    if (put_file(path, in, len) != 0) {
        return -1;
    }
    for (int r = 0; r < m->world; r++) {
        snprintf(path, sizeof(path), "%s/%u.%d", m->dir, round, r);
        if (get_file(path, (char *)out + (size_t)r * len, len) != (ssize_t)len) {
            return -1;
        }
    }
    return 0;
}

int meeting_put(void *ctx, const char *key, const void *value, size_t len)
{
    const struct connectivity *m = ctx;
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", m->dir, key);
    return put_file(path, value, len);
}

int meeting_get(void *ctx, const char *key, void *value, size_t cap, size_t *len_out)
{
    const struct connectivity *m = ctx;
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", m->dir, key);
    ssize_t n = get_file(path, value, cap);
    *len_out = n < 0 ? 0 : (size_t)n;
    return n < 0 ? -1 : 0;
}
