/* SPDX-License-Identifier: Apache-2.0
 * One thread saturates about one memory channel. During a save the training needs processors, too. */
#include "client/rank_processors.h"

#define PROCESSORS_PER_SAVE_THREAD 4
#define SAVE_THREADS_MAX           4
#define RESTORE_THREADS_MAX        8

static uint32_t clamp(uint32_t count, uint32_t most)
{
    return count < 1 ? 1 : count > most ? most : count;
}

/* All that the rank is bound to, or its part of the node's, and no more than its part of the quota: the ranks of a node
 * are usually in one container, and a process whose group has used up its quota is stopped. */
static uint32_t usable(const struct rank_processors *rank)
{
    bool bound = rank->bound > 0 && rank->bound < rank->online;
    uint32_t own = bound ? rank->bound : rank->online / rank->ranks;
    uint32_t allowed = rank->quota / rank->ranks;

    return own < allowed ? own : allowed;
}

struct copy_threads copy_threads_for(const struct rank_processors *rank)
{
    uint32_t processors = usable(rank);

    return (struct copy_threads){.save = clamp(processors / PROCESSORS_PER_SAVE_THREAD, SAVE_THREADS_MAX),
                                 .restore = clamp(processors, RESTORE_THREADS_MAX)};
}
