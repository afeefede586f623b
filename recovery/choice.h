/* SPDX-License-Identifier: Apache-2.0
 * Chooses the version that a plan restores, and says why it passes over the others. Pure; plan_build calls it. */
#ifndef TCK_RECOVERY_CHOICE_H
#define TCK_RECOVERY_CHOICE_H

#include "recovery/replica_index.h"

/* Sets the plan's members about versions, except the texts. Leaves coverage filled for the chosen version. */
void choose_version(const struct replica_index *copies, struct coverage *coverage, struct plan *plan);
/* Fills in the texts. */
void choice_explain(const struct plan_input *input, struct plan *plan);

#endif
