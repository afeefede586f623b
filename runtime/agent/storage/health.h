/* SPDX-License-Identifier: Apache-2.0
 * What users have to know of this job's state: trouble with storage and copies that are missing, shown to trainers on
 * their shared status pages, to the command, and, from the coordinator, to all other agents. */
#ifndef TCK_AGENT_HEALTH_H
#define TCK_AGENT_HEALTH_H

#include "agent/state/context.h"

/* The trouble with storage that this node knows of; code TCK_OK: none. */
const struct trouble *health_storage(const struct agent *agent);
/* step: the one that did not reach storage; 0 if something else failed. */
void health_storage_failed(struct agent *agent, uint64_t step, const struct error *why);
/* A version was published, which ends all earlier trouble; something else succeeded, which ends trouble that kept no
 * step from storage. */
void health_storage_published(struct agent *agent);
void health_storage_works(struct agent *agent);
/* A term has formed: forgets what the previous coordinator reported, since the new one reports its own trouble. */
void health_term_began(struct agent *agent);
/* Takes in the trouble from the coordinator's beats. */
void health_handle_beat(struct agent *agent, const struct trouble *trouble);
/* Writes the health to the status page of one trainer, of all of them. */
void health_show(const struct client *client);
void health_show_all(struct agent *agent);
json_t *health_json(const struct agent *agent);

#endif
