/* SPDX-License-Identifier: Apache-2.0
 * What the library has to say to the program that uses it: kept until it is taken, or handed to a function. */
#ifndef TCK_CLIENT_LINES_H
#define TCK_CLIENT_LINES_H

/* From now on lines are kept, unless the program has set a function. */
void log_sink_begin(void);
/* In a forked child. */
void log_sink_after_fork(void);

#endif
