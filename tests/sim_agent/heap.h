/* SPDX-License-Identifier: Apache-2.0
 * Who has how much of the heap: each agent has what its own code and libraries allocate, and the world (0) has the
 * rest: messages on their way, segments, storage. */
#ifndef TCK_SIM_AGENT_HEAP_H
#define TCK_SIM_AGENT_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct heap_use {
    uint64_t now, peak; /* bytes */
};

uint32_t heap_owner_new(void);
/* What is allocated from now on is this owner's. Returns who was charged before. */
uint32_t heap_charge(uint32_t owner);
/* What the world has allocated for an agent. */
void heap_give(void *at, uint32_t owner);
struct heap_use heap_use(uint32_t owner);
/* From now on each owner's memory is in chunks of its own, so that all of it can be dropped at once: nobody may have
 * anything of it any more. */
void heap_divide(void);
void heap_drop(uint32_t owner);
/* The peaks of all count from now on. */
void heap_peaks_begin(void);

void *world_malloc(size_t bytes);
void *world_calloc(size_t count, size_t bytes);
void *world_realloc(void *old, size_t bytes);

#endif
