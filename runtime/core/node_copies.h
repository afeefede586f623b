/* SPDX-License-Identifier: Apache-2.0
 * When a node sends which version to a holder. A holder has room for one version beside the newest committed one
 * (HELD_SLOTS), so it gets the versions of a shard one after the other, the oldest first, and the next one when the one
 * before is decided. If some nodes sent the older and others the newer version first, neither could be completed.
 *
 * That committed version is the base of the next one: chunks that are the same in both need not be sent. Every holder
 * has acknowledged it with this node's root, or has been given a copy of it by a recovery. A holder that has it no
 * longer, or with another root, is sent everything (replica_receive.c). */
#ifndef TCK_CORE_NODE_COPIES_H
#define TCK_CORE_NODE_COPIES_H

#include "core/node_state.h"

/* The slot's version is verified: its copies are due. */
void copies_due(struct node *n, uint32_t slot);
/* Sends those copies of the slot that are due and for which no older version has to be decided first. */
void copies_send(struct node *n, uint32_t slot, struct actions *out);
/* The slot's version is over: stops sending it, so that its holders need not take the rest before they have room for
 * the next version. */
void copies_cancel(struct node *n, uint32_t slot, struct actions *out);
/* Sends to this holder (its index in the shard) what has waited for the end of the copy in this slot. */
void copies_send_next(struct node *n, uint32_t slot, uint32_t holder, struct actions *out);
/* Sends what has waited for a decision: a version is over, so any holder may have a free slot now. */
void copies_send_decided(struct node *n, struct actions *out);

#endif
