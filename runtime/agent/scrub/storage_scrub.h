/* SPDX-License-Identifier: Apache-2.0
 * Scrubs published versions: each node re-reads the files that it has written itself, of one version after the other,
 * in small parts spread over a long time. */
#ifndef TCK_AGENT_STORAGE_SCRUB_H
#define TCK_AGENT_STORAGE_SCRUB_H

#include "agent/state/context.h"

must_check tck_status_t storage_scrub_new(struct agent *agent, struct error *err);
void storage_scrub_free(struct agent *agent);
/* Adds its counters. */
void storage_scrub_json(const struct agent *agent, json_t *json);

#endif
