/* SPDX-License-Identifier: Apache-2.0
 * Which version a plan takes, and what is said of those it does not take. Pure. */
#ifndef TCK_RECOVERY_CHOICE_H
#define TCK_RECOVERY_CHOICE_H

#include "recovery/replica_index.h"

/* Sets what the plan says of versions, but for the texts. Leaves coverage filled for the chosen version. */
void choose_version(const struct replica_index *copies, struct coverage *coverage, struct plan *plan);
/* The texts. */
void choice_explain(const struct plan_input *input, struct plan *plan);

#endif
