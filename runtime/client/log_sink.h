/* SPDX-License-Identifier: Apache-2.0
 * The library's log lines for the program that uses it: kept until taken, or passed to a callback. */
#ifndef TCK_CLIENT_LOG_SINK_H
#define TCK_CLIENT_LOG_SINK_H

#include "base/config.h"

/* Begins to keep lines, unless the program has set a function. */
void log_sink_begin(void);
/* Lines also go to the log of the node, after those of its agent, up to log_level, with the rank and the process. A
 * file that cannot be opened is only a warning, since logging must not fail a training. */
void log_sink_open(const struct config *config, uint32_t rank);
void log_sink_close(void);
/* In a forked child: it has none of the lines. */
void log_sink_after_fork(void);

#endif
