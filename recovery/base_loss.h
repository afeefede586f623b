/* SPDX-License-Identifier: Apache-2.0
 * Finds out whether the base of a recovery is lost: base_loss.c explains when, and which nodes are asked. */
#ifndef TCK_RECOVERY_BASE_LOSS_H
#define TCK_RECOVERY_BASE_LOSS_H

#include "recovery/recovery_state.h"

/* Begins a check that is due. */
void base_loss_tick(struct recovery *r);
/* Ends the check without a verdict. */
void base_loss_end(struct recovery *r);
/* Whether this fetch is the base-loss check's. */
bool base_loss_asked(const struct recovery *r, uint32_t node, uint32_t shard);
void base_loss_answered(struct recovery *r, tck_status_t outcome, uint64_t now_ms);

#endif
