/* SPDX-License-Identifier: Apache-2.0
 * When a node that is down counts as lost. */
#include "core/node_loss.h"

uint64_t node_loss_back_ms(uint64_t peer_timeout_ms)
{
    return peer_timeout_ms > NODE_BACK_MS ? peer_timeout_ms : NODE_BACK_MS;
}

enum node_loss node_loss_judge(const struct node_absence *absence, uint64_t now_ms)
{
    if (absence->since_ms == 0 || absence->acted ||
        now_ms < absence->since_ms + node_loss_back_ms(absence->peer_timeout_ms)) {
        return NODE_LOSS_NONE;
    }
    return absence->on_node_loss == ON_NODE_LOSS_END_TRAINERS ? NODE_LOSS_END_TRAINERS : NODE_LOSS_REPORT;
}
