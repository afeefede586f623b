/* SPDX-License-Identifier: Apache-2.0
 * Seals of slots. */
#include "base/seal.h"
#include "base/digest.h"

#include <endian.h>

_Static_assert(sizeof(struct seal) == 64, "one cache line");

/* "Seal" above the CRC: never 0. */
static uint64_t check_of(struct version version)
{
    const uint64_t fields[2] = {htole64(version.term), htole64(version.step)};
    return UINT64_C(0x6c616553) << 32 | crc32c(0, fields, sizeof(fields));
}

void seal_clear(struct seal *seal)
{
    atomic_store_explicit(&seal->check, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

void seal_set(struct seal *seal, struct version version)
{
    seal_clear(seal);
    atomic_store_explicit(&seal->term, version.term, memory_order_relaxed);
    atomic_store_explicit(&seal->step, version.step, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* after all that was copied */
    atomic_store_explicit(&seal->check, check_of(version), memory_order_release);
}

struct version seal_read(struct seal *seal)
{
    uint64_t check = atomic_load_explicit(&seal->check, memory_order_acquire);
    struct version version = {atomic_load_explicit(&seal->term, memory_order_relaxed),
                              atomic_load_explicit(&seal->step, memory_order_relaxed)};
    return check == check_of(version) ? version : VERSION_NONE;
}
