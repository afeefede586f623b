/* SPDX-License-Identifier: Apache-2.0
 * UCX's errors and warnings in the agent's own log. UCX's own log file is not safe: on each rotation UCX opens the file
 * again, and aborts the process if no descriptor is left, which is just when it logs most. */
#ifndef TCK_TIERS_LINK_LOG_H
#define TCK_TIERS_LINK_LOG_H

/* From now on, UCX's errors and warnings go to the agent's log, each kind less and less often. Messages below that
 * level (UCX_LOG_LEVEL) and the text of an abort go where UCX sends them. Call it before UCX starts a thread; a second
 * call does nothing. */
void link_log_begin(void);

#endif
