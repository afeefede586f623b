/* SPDX-License-Identifier: Apache-2.0
 * Accounts for the heap by owner: each agent owns what its code and libraries allocate, and the world (owner 0) owns
 * the rest: messages in flight, segments, storage. */
#ifndef TCK_SIM_HEAP_H
#define TCK_SIM_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct heap_use {
    uint64_t now, peak; /* bytes */
};

/* A process that was forked begins its own memory: pages that it shares with its parent are copied one by one. */
void heap_begin(void);
uint32_t heap_owner_new(void);
/* Charges all further allocations to this owner. Returns the previous owner. */
uint32_t heap_charge(uint32_t owner);
/* Transfers an allocation of the world to an agent. */
void heap_give(void *at, uint32_t owner);
struct heap_use heap_use(uint32_t owner);
/* From now on the blocks of each owner are listed, so that all of them can be dropped at once; nothing may refer to
 * them by then. */
void heap_keep_lists(void);
void heap_drop(uint32_t owner);
/* Resets the peaks of all owners. */
void heap_peaks_begin(void);

void *world_malloc(size_t bytes);
void *world_calloc(size_t count, size_t bytes);
void *world_realloc(void *old, size_t bytes);

#endif
