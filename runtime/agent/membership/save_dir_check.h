/* SPDX-License-Identifier: Apache-2.0
 * Checks that save_dir is one directory for all nodes: each node must see the claim that one of them has made before
 * its trainers join. */
#ifndef TCK_AGENT_SAVE_DIR_CHECK_H
#define TCK_AGENT_SAVE_DIR_CHECK_H

#include "agent/state/context.h"

/* Starts to look for the claim of this world's term in save_dir. */
void save_dir_check_begin(struct agent *agent, const struct world *world);
void save_dir_check_tick(struct agent *agent);          /* looks again if the claim was not found */
bool save_dir_check_is_open(const struct agent *agent); /* no result yet, and worth waiting for */
/* True, and an error that names both nodes and the path, if this node does not see the claim of the newest term. */
bool save_dir_is_not_shared(const struct agent *agent, struct error *err);

#endif
