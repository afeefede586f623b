/* SPDX-License-Identifier: Apache-2.0
 * Carries out the actions of the protocol's machines. */
#ifndef TCK_AGENT_ACTIONS_H
#define TCK_AGENT_ACTIONS_H

#include "agent/driver/term.h"
#include "base/message.h"

void actions_carry_out(struct term_context *tc, const struct action *a);
/* Sends the coordinator the roots that a local rank's devices computed for shards that have twins.
 */
void actions_send_roots(struct term_context *tc, uint32_t rank, const struct msg_roots *m);

#endif
