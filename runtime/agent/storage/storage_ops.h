/* SPDX-License-Identifier: Apache-2.0
 * Work on storage, which may hang for any time. */
#ifndef TCK_AGENT_STORAGE_OPS_H
#define TCK_AGENT_STORAGE_OPS_H

#include "agent/state/context.h"

/* The caller has set what, ctx and, if needed, give_up and left_behind in op. */
void storage_begin(struct storage_op *op, struct agent *agent, struct term_context *tc);
/* The calls have ended. op->tc may be freed when this returns. */
void storage_end(struct storage_op *op);
/* True if it timed out, or its term is over: its results must change nothing. */
bool storage_ignored(const struct storage_op *op);
/* tc is about to be replaced; tc was replaced, and is freed now or when its last call has ended. */
void storage_leaving(struct term_context *tc);
void storage_leave(struct term_context *tc);
/* True if an operation that timed out (of this kind; NULL: any) has not ended: another one would hang, too. */
bool storage_hangs(const struct agent *agent, const char *what, struct error *err);
void storage_tick(struct agent *agent);

#endif
