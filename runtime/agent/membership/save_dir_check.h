/* SPDX-License-Identifier: Apache-2.0
 * Whether save_dir is one directory for all nodes: the claim of a term, which one of them has made there, must be seen
 * by each of the others before its trainers join. Storage that does not answer in time keeps no trainer from joining.
 */
#ifndef TCK_AGENT_SAVE_DIR_CHECK_H
#define TCK_AGENT_SAVE_DIR_CHECK_H

#include "agent/state/context.h"

/* Looks for the claim of this world's term in save_dir, once. */
void save_dir_check_begin(struct agent *agent, const struct world *world);
void save_dir_check_tick(struct agent *agent);          /* looks again if it was not found */
bool save_dir_check_is_open(const struct agent *agent); /* not answered yet, and worth waiting for */
/* True, and an error that names both nodes and the path, if this node does not see the claim of the newest term. */
bool save_dir_is_not_shared(const struct agent *agent, struct error *err);

#endif
