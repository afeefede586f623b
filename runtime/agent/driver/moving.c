/* SPDX-License-Identifier: Apache-2.0
 * A list of the work, whose counters are compared with what was reported last. */
#include "agent/driver/moving.h"

#include "agent/driver/protocol_driver.h"

#include <stdatomic.h>
#include <stdio.h>

void moving_begin(struct term_context *tc, struct moving *m)
{
    m->next = tc->moving;
    m->at = &tc->moving;
    if (m->next != NULL) {
        m->next->at = &m->next;
    }
    tc->moving = m;
}

void moving_end(struct moving *m)
{
    if (m->at != NULL) {
        *m->at = m->next;
        if (m->next != NULL) {
            m->next->at = m->at;
        }
        m->at = NULL;
    }
}

void moving_lacks(const struct term_context *tc, struct version version, char text[STUCK_TEXT])
{
    struct lacking l = node_lacks(tc->node, version);
    char shard[HASH128_TEXT] = "";
    if (l.lack == LACKS_DIGESTS || l.lack == LACKS_COPY) {
        hash128_text(tc->shards[l.shard].id, shard);
    }
    switch (l.lack) {
    case LACKS_NOTHING:
        snprintf(text, STUCK_TEXT, "it is not known what it waited for");
        break;
    case LACKS_BEGIN:
        snprintf(text, STUCK_TEXT, "rank %u has not begun to save it", tc->ranks[l.rank]);
        break;
    case LACKS_SEAL:
        snprintf(text, STUCK_TEXT, "rank %u has begun to copy it into memory and has not finished", tc->ranks[l.rank]);
        break;
    case LACKS_DIGESTS:
        snprintf(text, STUCK_TEXT, "the digests of shard %s are not computed", shard);
        break;
    case LACKS_COPY:
        snprintf(text, STUCK_TEXT, "node %s has not acknowledged its copy of shard %s", tc->world.nodes[l.node].name,
                 shard);
        break;
    }
}

void moving_report(struct term_context *tc)
{
    for (struct moving *m = tc->moving, *next; m != NULL; m = next) {
        next = m->next;
        uint64_t bytes = atomic_load_explicit(&m->progress.bytes, memory_order_relaxed);
        uint64_t queued_ms = atomic_load_explicit(&m->progress.moved_ms, memory_order_relaxed);
        if (bytes == m->bytes && queued_ms == m->queued_ms) {
            continue;
        }
        struct event event = {.type = EVENT_MOVED,
                              .slot = m->slot,
                              .node = m->node,
                              .version = m->version,
                              .bytes = bytes,
                              .waits = queued_ms != m->queued_ms};
        m->bytes = bytes;
        m->queued_ms = queued_ms;
        driver_step_node(tc, &event);
    }
}
