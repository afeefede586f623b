/* SPDX-License-Identifier: Apache-2.0
 * The coordinator's side of a recovery: sends fetches to nodes and the outcome to trainers. recovery/recovery_machine.c
 * makes the decisions; recover.c carries them out. */
#ifndef TCK_AGENT_RECOVER_H
#define TCK_AGENT_RECOVER_H

#include "agent/state/context.h"

/* Coordinator: the node has its memory. When all nodes have, recovery begins. */
void recover_registered(struct term_context *tc, uint32_t node);
void recover_restore_ask(struct term_context *tc, uint64_t step);
void recover_inventory(struct term_context *tc, struct peer *from, const struct wire_inventory *m);
void recover_fetched(struct term_context *tc, uint32_t node, const struct wire_fetched *m);
void recover_node(struct term_context *tc, uint32_t node, bool up);
void recover_peer_up(struct agent *agent, struct peer *peer);
/* A save found no slot. If the restore failed and the trainers continue nevertheless, leftovers of older terms must be
 * freed. */
void recover_refused(struct term_context *tc, enum refusal refusal);
void recover_tick(struct term_context *tc);
void recover_free(struct agent *agent);

#endif
