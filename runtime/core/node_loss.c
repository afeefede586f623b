/* SPDX-License-Identifier: Apache-2.0
 * When a node that is down counts as lost. */
#include "core/node_loss.h"

/* A node that may stay silent for longer may also take longer to return. */
static uint64_t back_ms(const struct node_absence *absence)
{
    return absence->peer_timeout_ms > NODE_BACK_MS ? absence->peer_timeout_ms : NODE_BACK_MS;
}

enum node_loss node_loss_judge(const struct node_absence *absence, uint64_t now_ms)
{
    if (absence->since_ms == 0 || absence->acted || now_ms < absence->since_ms + back_ms(absence)) {
        return NODE_LOSS_NONE;
    }
    return absence->on_node_loss == ON_NODE_LOSS_END_TRAINERS ? NODE_LOSS_END_TRAINERS : NODE_LOSS_REPORT;
}
