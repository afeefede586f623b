/* SPDX-License-Identifier: Apache-2.0
 * How short of memory a node is, from what the kernel reports. */
#ifndef TCK_CORE_MEMORY_LEVEL_H
#define TCK_CORE_MEMORY_LEVEL_H

#include <stdbool.h>
#include <stdint.h>

enum memory_level {
    MEMORY_ENOUGH,
    MEMORY_LOW,     /* less than the reserve is left */
    MEMORY_CRITICAL /* less than half of the reserve, or an allocation has failed: processes may be killed */
};
const char *memory_level_name(enum memory_level level);

/* What is given back is used again only when there has been enough memory for this long. */
#define MEMORY_CALM_MS 30000

/* The machine and this process's control groups, whichever of them has least left. */
struct memory_figures {
    uint64_t available_bytes; /* that can be had without swapping or killing */
    uint64_t total_bytes;     /* of the machine, or the limit of that control group */
    uint64_t stalls;          /* grows when processes have waited for memory (PSI, memory.high, memory.max) */
    uint64_t failures;        /* grows when a control group has found no memory (memory.events: oom) */
};

/* What is to be kept free: the configured bytes, or if that is 0, 2 % of the total and at least 64 MiB. */
uint64_t memory_reserve(const struct memory_figures *figures, uint64_t configured_bytes);

struct memory_watch_state {
    bool any; /* there was a sample */
    struct memory_figures before;
    enum memory_level now;   /* by the last sample: what is given back follows it */
    enum memory_level level; /* rises at once, falls when it has been lower for MEMORY_CALM_MS */
    uint64_t lower_since_ms;
};

/* Takes the next sample. Processes that wait for memory are no reason by themselves: page cache that is used up has the
 * same effect, and costs no process its life. */
void memory_level_take(struct memory_watch_state *state, const struct memory_figures *figures, uint64_t reserve_bytes,
                       uint64_t now_ms);
/* Whether a slot of so many bytes may be used again without causing the next shortage. */
bool memory_level_allows(const struct memory_watch_state *state, uint64_t reserve_bytes, uint64_t slot_bytes);

#endif
