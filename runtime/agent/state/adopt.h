/* SPDX-License-Identifier: Apache-2.0
 * Adopting a newer term: from then on this agent serves no older one. */
#ifndef TCK_AGENT_ADOPT_H
#define TCK_AGENT_ADOPT_H

#include "agent/state/context.h"

/* Persists the term if it is newer than all that were adopted before, and calls hooks->term_adopted. */
void adopt_term(struct agent *agent, uint64_t term);

#endif
