/* SPDX-License-Identifier: Apache-2.0
 * Plans what a recovery would do now, for the command. */
#ifndef TCK_AGENT_RECOVER_DRY_H
#define TCK_AGENT_RECOVER_DRY_H

#include "base/json.h"
#include "base/status.h"

#include <stdint.h>

struct recoveries;
struct term_context;

/* Plans a recovery of this term (NULL: none is joined) without running it, for the command. fn is called once, with a
 * JSON object that it must free, or with an error. */
typedef void recover_plan_fn(void *ctx, json_t *plan, const struct error *err);
void recover_plan_dry(struct recoveries *rs, struct term_context *tc, uint64_t step, recover_plan_fn *fn, void *ctx);

#endif
