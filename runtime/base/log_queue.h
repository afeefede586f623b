/* SPDX-License-Identifier: Apache-2.0
 * Lines on their way to a file: a thread writes them, so that a file that hangs does not block the callers. */
#ifndef TCK_BASE_LOG_QUEUE_H
#define TCK_BASE_LOG_QUEUE_H

#include "base/status.h"

#include <stddef.h>

struct log_queue;

/* Writes a line that says how many lines were dropped into text, of LOG_QUEUE_NOTE bytes. */
typedef void log_queue_note_fn(uint64_t dropped, char *text);
#define LOG_QUEUE_NOTE 192

/* Takes fd over, also on error. */
must_check tck_status_t log_queue_new(int fd, log_queue_note_fn *note, struct log_queue **out, struct error *err);
/* Waits at most for other calls of this function. A line that finds no room is dropped; the file then gets a note. */
void log_queue_put(struct log_queue *queue, const char *line, size_t len);
/* Waits until the queued lines are written, for a second at most. A file that hangs for longer keeps thread and queue
 * until it answers. */
void log_queue_end(struct log_queue *queue);
/* In a forked child, which does not have the thread: closes the file, and leaves the rest until the process ends. */
void log_queue_after_fork(struct log_queue *queue);

#endif
