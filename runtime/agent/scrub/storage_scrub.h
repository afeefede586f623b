/* SPDX-License-Identifier: Apache-2.0
 * Scrubs published versions: each node re-reads the files that it has written itself, of one version after the other,
 * in small parts spread over a long time. It has a timer of its own: agent.c only starts and ends it, and the command
 * reads its counters. */
#ifndef TCK_AGENT_STORAGE_SCRUB_H
#define TCK_AGENT_STORAGE_SCRUB_H

#include "agent/state/context.h"

must_check tck_status_t storage_scrub_new(struct agent *agent, struct storage_scrub **out, struct error *err);
void storage_scrub_free(struct storage_scrub *look);
/* Adds its counters. */
void storage_scrub_json(const struct storage_scrub *look, json_t *json);

#endif
