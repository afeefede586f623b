/* SPDX-License-Identifier: Apache-2.0
 * Log lines: "2026-01-31T12:00:00.123Z info node0 text". Levels are chosen by volume: error and warn per fault, info
 * per version, debug per message. Silent until log_open: the client library never writes to the trainer's terminal. */
#ifndef TCK_BASE_LOG_H
#define TCK_BASE_LOG_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Appends to the file at path ("-": standard error; NULL or "": stays silent). name appears in every line (a node,
 * or a rank on it). Several processes may share a file, since a line is one write(2) at its end. Logging is
 * thread-safe once this has returned. May be called again to reopen the file. */
must_check tck_status_t log_open(const char *path, enum log_level max, const char *name, struct error *err);
/* The same for a process that must never wait for the file: a thread writes the lines, and some are dropped if the
 * file hangs. path: a regular file, which is created if it does not exist. */
must_check tck_status_t log_open_queued(const char *path, enum log_level max, const char *name, struct error *err);
/* Waits a second at most for lines that are queued. */
void log_close(void);

/* Lines up to that level also go to the function (NULL: no longer to any), one at a time, in the thread that logs
 * the line. That thread may hold locks, so the function must not log anything itself. Once this has returned, the
 * previous function is not running. */
typedef void log_line_fn(void *ctx, enum log_level level, const char *text);
void log_hand(log_line_fn *fn, void *ctx, enum log_level max);

/* In a forked child: another thread of the parent may have been writing a line. */
void log_after_fork(void);

void log_write(enum log_level level, const char *fmt, ...) printf_like(2, 3);

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)

/* For messages that may come again and again: whether to log this one. True the 1st, 2nd, 4th, 8th, ... time, and if
 * nothing was logged for ten seconds. Zeroing the struct starts over. */
struct log_limit {
    uint64_t count, said_ms;
};
bool log_limit_pass(struct log_limit *limit);

#endif
