/* SPDX-License-Identifier: Apache-2.0
 * UCX's errors and warnings in the agent's own log. UCX's own log file is not safe: it opens the file again
 * whenever that has its size, and aborts the process if there is no descriptor left, which is just when it says most.
 */
#ifndef TCK_TIERS_LINK_LOG_H
#define TCK_TIERS_LINK_LOG_H

/* From now on errors and warnings of UCX are logged, each kind ever more seldom. What is asked for with UCX_LOG_LEVEL
 * beyond that, and the words before an abort, go where UCX has them go. Call it before UCX starts a thread; again it
 * does nothing. */
void link_log_begin(void);

#endif
