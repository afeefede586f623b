/* SPDX-License-Identifier: Apache-2.0
 * The connection to this node's agent, which is started if none answers. */
#ifndef TCK_CLIENT_SPAWN_H
#define TCK_CLIENT_SPAWN_H

#include "base/config.h"

#define AGENT_SOCKET "agent.sock"

/* The directory of this job's agent on this node. */
must_check tck_status_t agent_dir(const struct config *config, char out[CONFIG_PATH], struct error *err);

/* Connects to a running agent; TCK_ERR_NOENT or TCK_ERR_UNREACHABLE if there is none. */
must_check tck_status_t agent_connect(const struct config *config, int *fd_out, struct error *err);

/* The same, but starts supervisor and agent if none answers. Of several ranks that do so at once, one starts them. */
must_check tck_status_t agent_connect_or_start(const struct config *config, int *fd_out, struct error *err);

/* True if neither this node's agent nor its supervisor runs. */
bool agent_is_nowhere(const struct config *config);

#endif
