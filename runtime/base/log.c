/* SPDX-License-Identifier: Apache-2.0
 * The log sink of the process, the one global of the project: a log must be reachable from everywhere. One line is one
 * write(2) to a file opened with O_APPEND, so lines of several processes do not mix. Failing writes are ignored: there
 * is nowhere left to report them. */
#include "base/log.h"
#include "base/clock.h"
#include "base/log_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOG_OFF        (-1)
#define LIMIT_MS       10000
#define LOG_TEXT_BYTES 2048
#define LOG_NAME_BYTES 112 /* a node, a rank and a process */
#define ESCAPE_BYTES   4   /* \xNN */
#define LOG_LINE_BYTES (LOG_NAME_BYTES + 64 + LOG_TEXT_BYTES * ESCAPE_BYTES)

struct sink {
    atomic_int max; /* the higher level of the two, LOG_OFF if there is neither file nor function; read without the lock
                       so that a silent log costs nothing */
    pthread_mutex_t lock; /* of all below */
    int fd, fd_max;
    struct log_queue *queue; /* writes to its own descriptor, and fd is then -1; NULL: none */
    char name[LOG_NAME_BYTES];
    log_line_fn *fn;
    void *ctx;
    int fn_max;
};

static struct sink sink = {
    .max = LOG_OFF, .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .fd_max = LOG_OFF, .fn_max = LOG_OFF};

static const char *level_name(enum log_level level)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};

    return names[level];
}

/* With the lock held. */
static void note_max(void)
{
    int max = sink.fd_max > sink.fn_max ? sink.fd_max : sink.fn_max;

    atomic_store_explicit(&sink.max, max, memory_order_relaxed);
}

void log_after_fork(void)
{
    pthread_mutex_init(&sink.lock, NULL);
    if (sink.queue != NULL) { /* its lines would carry the parent's name */
        log_queue_after_fork(sink.queue);
        sink.queue = NULL;
        sink.fd_max = LOG_OFF;
        note_max();
    }
}

void log_hand(log_line_fn *fn, void *ctx, enum log_level max)
{
    pthread_mutex_lock(&sink.lock);
    sink.fn = fn;
    sink.ctx = ctx;
    sink.fn_max = fn == NULL ? LOG_OFF : (int)max;
    note_max();
    pthread_mutex_unlock(&sink.lock);
}

/* Takes over fd (-1: none) and queue (NULL: none), and closes the previous ones. */
static void sink_replace(int fd, struct log_queue *queue, int max, const char *name)
{
    int old;
    struct log_queue *old_queue;

    pthread_mutex_lock(&sink.lock);
    old = sink.fd;
    old_queue = sink.queue;
    sink.fd = fd;
    sink.queue = queue;
    sink.fd_max = max;
    snprintf(sink.name, sizeof(sink.name), "%s", name);
    note_max();
    pthread_mutex_unlock(&sink.lock);
    if (old >= 0) {
        close(old);
    }
    if (old_queue != NULL) {
        log_queue_end(old_queue);
    }
}

static tck_status_t open_file(const char *path, int flags, int *fd_out, struct error *err)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | flags, 0600);

    if (fd < 0 && errno == ELOOP) {
        return error_set(err, TCK_ERR_DENIED,
                         "log file %s is a symbolic link: name the file itself, or - for standard error", path);
    }
    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "open log file %s: %m", path);
    }
    *fd_out = fd;
    return TCK_OK;
}

static void note_dropped(uint64_t dropped, char *text)
{
    snprintf(text, LOG_QUEUE_NOTE, "(%" PRIu64 " lines were dropped here: the file took too long)\n", dropped);
}

tck_status_t log_open_queued(const char *path, enum log_level max, const char *name, struct error *err)
{
    struct log_queue *queue;
    struct stat st;
    int fd = -1;
    tck_status_t status = open_file(path, O_NONBLOCK, &fd, err);

    if (status != TCK_OK) {
        return status;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return error_set(err, TCK_ERR_DENIED, "log file %s is not a regular file", path);
    }
    status = log_queue_new(fd, note_dropped, &queue, err);
    if (status == TCK_OK) {
        sink_replace(-1, queue, (int)max, name);
    }
    return status;
}

tck_status_t log_open(const char *path, enum log_level max, const char *name, struct error *err)
{
    int fd = -1;

    if (path == NULL || path[0] == '\0') {
        log_close();
        return TCK_OK;
    }
    if (strcmp(path, "-") == 0) {
        fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
        if (fd < 0) {
            return error_set(err, status_of_errno(errno), "open log file %s: %m", path);
        }
    } else {
        tck_status_t status = open_file(path, 0, &fd, err);

        if (status != TCK_OK) {
            return status;
        }
    }
    sink_replace(fd, NULL, (int)max, name);
    return TCK_OK;
}

void log_close(void)
{
    sink_replace(-1, NULL, LOG_OFF, "");
}

/* "2026-01-31T12:00:00.123Z info node0 " */
static size_t put_head(char *line, size_t cap, enum log_level level, const char *name)
{
    uint64_t now_ms = clock_wall_ms();
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm utc;
    size_t len;

    gmtime_r(&seconds, &utc);
    len = strftime(line, cap, "%Y-%m-%dT%H:%M:%S", &utc);
    len += (size_t)snprintf(line + len, cap - len, ".%03uZ %s %s ", (unsigned)(now_ms % 1000), level_name(level), name);
    return len;
}

/* Copies text with control characters as \xNN, so that no argument can forge or split a line. */
static size_t put_text(char *out, const char *text)
{
    static const char hex[] = "0123456789abcdef";
    size_t len = 0;

    for (const char *c = text; *c != '\0'; c++) {
        unsigned char byte = (unsigned char)*c;

        if (byte >= 0x20 && byte != 0x7f) {
            out[len++] = *c;
            continue;
        }
        out[len++] = '\\';
        out[len++] = 'x';
        out[len++] = hex[byte >> 4];
        out[len++] = hex[byte & 0xf];
    }
    return len;
}

static void write_line(enum log_level level, const char *text)
{
    char line[LOG_LINE_BYTES];
    size_t len = put_head(line, sizeof(line), level, sink.name);

    len += put_text(line + len, text);
    line[len++] = '\n';
    if (sink.queue != NULL) {
        log_queue_put(sink.queue, line, len);
    } else if (write(sink.fd, line, len) < 0) {
        /* nowhere to report it */
    }
}

static void sink_write(enum log_level level, const char *text)
{
    pthread_mutex_lock(&sink.lock);
    if ((sink.fd >= 0 || sink.queue != NULL) && (int)level <= sink.fd_max) {
        write_line(level, text);
    }
    if (sink.fn != NULL && (int)level <= sink.fn_max) {
        sink.fn(sink.ctx, level, text);
    }
    pthread_mutex_unlock(&sink.lock);
}

void log_write(enum log_level level, const char *fmt, ...)
{
    int saved_errno = errno;
    char text[LOG_TEXT_BYTES];
    va_list args;

    if ((int)level > atomic_load_explicit(&sink.max, memory_order_relaxed)) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    sink_write(level, text);
    errno = saved_errno;
}

bool log_limit_pass(struct log_limit *limit)
{
    uint64_t now_ms = clock_ms();
    uint64_t count = ++limit->count;

    if ((count & (count - 1)) != 0 && now_ms - limit->said_ms < LIMIT_MS) {
        return false;
    }
    limit->said_ms = now_ms;
    return true;
}
