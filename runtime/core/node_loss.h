/* SPDX-License-Identifier: Apache-2.0
 * When a node that is down counts as lost, and what follows. Pure. */
#ifndef TCK_CORE_NODE_LOSS_H
#define TCK_CORE_NODE_LOSS_H

#include "base/config.h"

/* An agent that its supervisor restarts, or that exits with its job, does not make a lost node. */
#define NODE_BACK_MS 2000

struct node_absence {
    uint64_t since_ms; /* 0: it is there; may lie ahead, for one that has not sent anything yet */
    bool acted;        /* its loss has been handled already */
    uint64_t peer_timeout_ms;
    enum on_node_loss on_node_loss;
};

/* How long after its last session a node may come back, by any of its addresses, before it counts as lost. A node that
 * may stay silent for longer may also take longer to return. */
uint64_t node_loss_back_ms(uint64_t peer_timeout_ms);

enum node_loss { NODE_LOSS_NONE, NODE_LOSS_REPORT, NODE_LOSS_END_TRAINERS };

enum node_loss node_loss_judge(const struct node_absence *absence, uint64_t now_ms);

#endif
