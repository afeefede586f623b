/* SPDX-License-Identifier: Apache-2.0
 * The trouble that this job has with storage: this node's own, and that of other nodes as the coordinator reports it.
 * All parts that use storage report failures and successes here. It is shown on the trainers' status pages, by the
 * command and in the coordinator's heartbeats. */
#ifndef TCK_AGENT_HEALTH_H
#define TCK_AGENT_HEALTH_H

#include "base/status.h"
#include "base/trouble.h"

struct health;

/* changed: called after each change. */
must_check tck_status_t health_new(void (*changed)(void *ctx), void *ctx, struct health **out, struct error *err);
void health_free(struct health *h);
/* The trouble that this node knows of; code TCK_OK: none. */
const struct trouble *health_storage(const struct health *h);
/* This node's own. */
const struct trouble *health_own(const struct health *h);
/* step: the one that did not reach storage; 0 if something else failed. */
void health_storage_failed(struct health *h, uint64_t step, const struct error *why);
/* health_storage_published: a version was published, which ends all earlier trouble. health_storage_works: another call
 * succeeded, which ends trouble that did not keep a step from being saved. */
void health_storage_published(struct health *h);
void health_storage_works(struct health *h);
/* A term has formed: forgets what the previous coordinator reported, since the new one reports its own trouble. */
void health_term_began(struct health *h);
/* Applies the trouble reported in the coordinator's heartbeats. */
void health_handle_beat(struct health *h, const struct trouble *trouble);

#endif
