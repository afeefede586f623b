/* SPDX-License-Identifier: Apache-2.0
 * How many threads of an agent compute digests, compare and copy. */
#include "core/digest_threads.h"

#define PROCESSORS_PER_THREAD 4
#define SMALL_THREADS         4
#define THREADS_MAX           16

uint32_t digest_threads(uint32_t processors)
{
    uint32_t small = processors < SMALL_THREADS ? processors : SMALL_THREADS;
    uint32_t share = processors / PROCESSORS_PER_THREAD;
    uint32_t threads = share > small ? share : small;
    return threads < 1 ? 1 : threads > THREADS_MAX ? THREADS_MAX : threads;
}
