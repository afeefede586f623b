/* SPDX-License-Identifier: Apache-2.0
 * The parts of the node machine, to which node_step.c hands the events: node_save.c (versions this node saves),
 * node_hold.c (copies it holds or fetches), node_resume.c (what it finds at its start), node_decide.c (what a decision
 * changes, retries). */
#ifndef TCK_CORE_NODE_PARTS_H
#define TCK_CORE_NODE_PARTS_H

#include "core/node_state.h"

/* node_save.c */
void save_begin(struct node *n, const struct event *e, struct actions *out);
void save_seal(struct node *n, const struct event *e, struct actions *out);
void save_abandon(struct node *n, const struct event *e, struct actions *out);
void save_rank_lost(struct node *n, const struct event *e, struct actions *out);
void save_verified(struct node *n, const struct event *e, struct actions *out);
void save_replica(struct node *n, const struct event *e, struct actions *out);
void save_moved(struct node *n, const struct event *e);
void save_node_down(struct node *n, uint32_t node, struct actions *out);
/* This node will not (any more) report v as protected; it repeats that to the coordinator until v is decided. */
void save_refuse(struct node *n, struct version v, enum refusal refusal, struct actions *out);
void save_tick(struct node *n, struct actions *out);
/* The version's entry, a new one if it has none; NULL if the table is full. */
struct save *save_open(struct node *n, struct version v);
/* Drops the entries that the decision has decided, and tells the trainers. */
void save_settle(struct node *n, struct actions *out);

/* node_resume.c */
/* Takes over the slots found at the start, and takes up those of its versions that this node saves. */
void resume(struct node *n, const struct slot *found);

/* node_hold.c */
void receive_offer(struct node *n, const struct event *e, struct actions *out);
void receive_done(struct node *n, const struct event *e, struct actions *out);
void receive_fetch(struct node *n, const struct event *e, struct actions *out);
void receive_corrupt(struct node *n, const struct event *e, struct actions *out);

/* node_decide.c */
void decide_learn(struct node *n, const struct decision *d, struct actions *out);
void decide_drained_here(struct node *n, const struct event *e, struct actions *out);
void decide_tick(struct node *n, struct actions *out);

#endif
