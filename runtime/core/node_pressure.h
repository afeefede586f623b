/* SPDX-License-Identifier: Apache-2.0
 * What a node gives back when its memory is short, and in which order. A slot that is given back becomes free, loses
 * its pages and is not used until the shortage is over. A slot that a node does not use, since it only holds the shard,
 * is given back even with enough memory and while a recovery is under way, and is none of those that are missing. It is
 * used, and taken back for that, while another one of the shard is in quarantine or still written by a read from
 * storage that is no longer wanted. Nothing is given back that is being written, read or drained, and nothing that is
 * used while a recovery is under way.
 *
 * No node asks another one, so nodes that are short of memory at the same time must not each rely on the other's copy.
 * Therefore the source of a shard, and the node that drains it, keep their copies of the newest committed version until
 * storage has that version. All other nodes may rely on them. */
#ifndef TCK_CORE_NODE_PRESSURE_H
#define TCK_CORE_NODE_PRESSURE_H

#include "core/memory_level.h"
#include "core/node.h"

/* In this order; each step only when there is nothing left of the steps before it. */
enum give_back {
    GIVE_BACK_NOTHING,
    GIVE_BACK_UNUSED,      /* slots that a node which only holds a shard does not use, however much memory there is */
    GIVE_BACK_SPARE,       /* slots beyond the two with which saving goes on */
    GIVE_BACK_STORED_COPY, /* copies for other nodes of a version that storage has, too */
    GIVE_BACK_LAST_FREE_SLOT, /* saving to memory is suspended */
    GIVE_BACK_OTHERS_COPY,    /* copies for other nodes: the version does not survive the loss of its source any more */
    GIVE_BACK_OWN_COPY        /* the source's copies of a version that storage has: memory no longer has it */
};
const char *give_back_text(enum give_back step);

/* The step that gives this slot back; GIVE_BACK_NOTHING: it must not be given back now. */
enum give_back node_give_back_step(const struct node *node, uint32_t slot);
/* How much may be given back now. */
struct give_back_limits {
    enum memory_level level;
    bool alone;        /* some node is out of reach, and may be lost: no copy is given up because that node has one */
    const bool *fixed; /* for each shard of the setup: its pages cannot be given back */
};
/* The slot to be given back next, NONE32 if none. */
uint32_t node_give_back_next(const struct node *node, const struct give_back_limits *limits);
/* The slot that was given back and is to be used again first: of the shard that has fewest; NONE32 if none. Those that
 * this node does not use stay without pages. */
uint32_t node_take_back_next(const struct node *node);
/* Whether slots of this shard (index into setup.shards) were given back that this node uses. */
bool node_has_given_back(const struct node *node, uint32_t shard);
/* Whether so many slots of this shard were given back that fewer are left than saving needs. */
bool node_lacks_slots(const struct node *node, uint32_t shard);
/* Whether a shard of this node has given so many slots back that the next version will find none. */
bool node_saving_suspended(const struct node *node);

#endif
