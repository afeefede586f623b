/* SPDX-License-Identifier: Apache-2.0
 * Agents of earlier terms that are not members now. */
#ifndef TCK_RECOVERY_OUTSIDERS_H
#define TCK_RECOVERY_OUTSIDERS_H

#include "recovery/recovery_state.h"

/* Remembers this agent and the newest term that it was a member of, unless it is a member of the world. */
void outsiders_add(struct recovery *r, const struct known_node *known);
/* Outsiders that have not answered may have what this plan lacks: a copy that makes a newer version complete, or, if
 * there is no version, anything. */
bool outsiders_may_know_better(const struct recovery *r, const struct plan *plan);

#endif
