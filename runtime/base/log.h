/* SPDX-License-Identifier: Apache-2.0
 * Log lines: "2026-01-31T12:00:00.123Z info node0 text". Levels are chosen by volume: error and warn per fault, info
 * per version, debug per message. Silent until log_open: the client library never writes to the trainer's terminal. */
#ifndef TCK_BASE_LOG_H
#define TCK_BASE_LOG_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Appends to the file at path ("-": standard error; NULL or "": stays silent). name appears in every line (a node, or
 * a rank on it). Several processes may have one file: a line is one write(2) at its end. Thread-safe after it returned.
 * May be called again to reopen. */
must_check tck_status_t log_open(const char *path, enum log_level max, const char *name, struct error *err);
/* The same for a process that must never wait for the file: a thread writes the lines, and of a file that hangs some
 * are dropped. path: a regular file, or one that is made. */
must_check tck_status_t log_open_queued(const char *path, enum log_level max, const char *name, struct error *err);
/* Waits a second at most for lines that are queued. */
void log_close(void);

/* Lines up to that level also go to the function (NULL: no longer to any), one at a time, from whichever thread writes
 * one, which may hold locks: it writes no line itself. Once this has returned no call of the function before is under
 * way. */
typedef void log_line_fn(void *ctx, enum log_level level, const char *text);
void log_hand(log_line_fn *fn, void *ctx, enum log_level max);

/* In a forked child: another thread of the parent may have been writing a line. */
void log_after_fork(void);

void log_write(enum log_level level, const char *fmt, ...) printf_like(2, 3);

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)

/* For what may come again and again: is it to be said this time? The 1st, 2nd, 4th, 8th ... time, and if nothing was
 * said for ten seconds. Zeros start it again. */
struct log_limit {
    uint64_t count, said_ms;
};
bool log_limit_pass(struct log_limit *limit);

#endif
