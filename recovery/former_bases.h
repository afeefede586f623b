/* SPDX-License-Identifier: Apache-2.0
 * What agents remember of the versions that were chosen before to be restored, and of what those took the place of.
 * Pure. */
#ifndef TCK_RECOVERY_FORMER_BASES_H
#define TCK_RECOVERY_FORMER_BASES_H

#include "recovery/plan.h"

/* Trainers may have restored this version, so users are told if it is passed over, even if its commit is not known. */
bool was_restored_before(const struct plan_input *input, struct version version);
/* Which newer version this one took the place of when it was chosen before, and why; "": none. The term that chose it
 * may have ended before its trainers were told. */
const char *told_before(const struct plan_input *input, struct version version);

#endif
