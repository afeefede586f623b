/* SPDX-License-Identifier: Apache-2.0
 * Carries out what the machines ask for. */
#ifndef TCK_AGENT_ACTIONS_H
#define TCK_AGENT_ACTIONS_H

#include "agent/state/context.h"

void actions_carry_out(struct term_context *tc, const struct action *a);
/* What a local rank's devices say of the slots that it is filling: of those with twins it goes on to the coordinator.
 */
void actions_send_roots(struct term_context *tc, uint32_t rank, const struct msg_roots *m);

#endif
