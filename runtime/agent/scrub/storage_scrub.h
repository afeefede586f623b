/* SPDX-License-Identifier: Apache-2.0
 * Looking after what is published: each node reads the files again that it writes itself, of one version after the
 * other, in small parts spread over a long time. A damaged file is made anew if the same version still lies in memory.
 * Else the damage is told; the version stays where it is, and a recovery passes over what it cannot use of it. */
#ifndef TCK_AGENT_STORAGE_SCRUB_H
#define TCK_AGENT_STORAGE_SCRUB_H

#include "agent/state/context.h"

must_check tck_status_t storage_scrub_new(struct agent *agent, struct error *err);
void storage_scrub_free(struct agent *agent);
/* Adds its numbers. */
void storage_scrub_json(const struct agent *agent, json_t *json);

#endif
