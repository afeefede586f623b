/* SPDX-License-Identifier: Apache-2.0
 * The coordinator's side of a recovery: sends fetches to nodes and the outcome to trainers. recovery/recovery_machine.c
 * makes the decisions; recover.c carries them out. */
#ifndef TCK_AGENT_RECOVER_H
#define TCK_AGENT_RECOVER_H

#include "agent/recovery/recover_setup.h"
#include "agent/state/wire.h"
#include "core/protocol.h"

struct peer;
struct recoveries;
struct term_context;

must_check tck_status_t recoveries_new(const struct recoveries_setup *setup, struct recoveries **out,
                                       struct error *err);
void recoveries_free(struct recoveries *rs);

/* Coordinator: the node has allocated its memory. The recovery begins when all nodes have. */
void recover_registered(struct recoveries *rs, struct term_context *tc, uint32_t node);
void recover_restore_ask(struct recoveries *rs, struct term_context *tc, uint32_t node, uint64_t step);
void recover_inventory(struct recoveries *rs, struct peer *from, const struct wire_inventory *m);
void recover_fetched(struct recoveries *rs, uint32_t node, const struct wire_fetched *m);
void recover_node(struct recoveries *rs, uint32_t node, bool up);
void recover_peer_up(struct recoveries *rs, struct peer *peer);
/* A save found no slot. If the restore failed and the trainers continue nevertheless, leftovers of older terms must be
 * freed. */
void recover_refused(struct recoveries *rs, struct term_context *tc, enum refusal refusal);
void recover_tick(struct recoveries *rs, struct term_context *tc);
struct recovery_counts recoveries_counts(const struct recoveries *rs);
/* Ends the recovery in progress and a plan being made, because their term is over. */
void recover_end(struct recoveries *rs);

#endif
