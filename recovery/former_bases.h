/* SPDX-License-Identifier: Apache-2.0
 * Bases of earlier terms: the versions that were restored, and the newer ones that were passed over for them. Agents
 * remember both in their inventories. Pure. */
#ifndef TCK_RECOVERY_FORMER_BASES_H
#define TCK_RECOVERY_FORMER_BASES_H

#include "recovery/plan.h"

/* Whether an earlier term chose this version as its base. Trainers may have restored it, so passing it over is reported
 * to the user, even if no commit of it is known. */
bool was_restored_before(const struct plan_input *input, struct version version);
/* The newer version that was passed over when this one was chosen in an earlier term, and why; "" if none was. That
 * term may have ended before it could report this to its trainers. */
const char *passed_over_before(const struct plan_input *input, struct version version);

#endif
