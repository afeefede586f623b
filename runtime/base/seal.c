/* SPDX-License-Identifier: Apache-2.0
 * Seals of slots. */
#include "base/seal.h"
#include "base/digest.h"

#include <endian.h>

_Static_assert(sizeof(struct seal) == 64, "one cache line");

/* "Seal" or "Root" above the CRC: never 0. */
#define PLAIN     UINT64_C(0x6c616553)
#define WITH_ROOT UINT64_C(0x746f6f52)

static uint64_t check_of(struct version version, const struct hash128 *root)
{
    uint64_t fields[4] = {htole64(version.term), htole64(version.step)};

    if (root == NULL) {
        return PLAIN << 32 | crc32c(0, fields, 2 * sizeof(fields[0]));
    }
    fields[2] = htole64(root->hi);
    fields[3] = htole64(root->lo);
    return WITH_ROOT << 32 | crc32c(0, fields, sizeof(fields));
}

void seal_clear(struct seal *seal)
{
    atomic_store_explicit(&seal->check, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

void seal_set(struct seal *seal, struct version version, const struct hash128 *root)
{
    seal_clear(seal);
    atomic_store_explicit(&seal->term, version.term, memory_order_relaxed);
    atomic_store_explicit(&seal->step, version.step, memory_order_relaxed);
    atomic_store_explicit(&seal->root_hi, root == NULL ? 0 : root->hi, memory_order_relaxed);
    atomic_store_explicit(&seal->root_lo, root == NULL ? 0 : root->lo, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* after all that was copied */
    atomic_store_explicit(&seal->check, check_of(version, root), memory_order_release);
}

struct sealed seal_read(struct seal *seal)
{
    uint64_t check = atomic_load_explicit(&seal->check, memory_order_acquire);
    struct sealed sealed = {.version = {atomic_load_explicit(&seal->term, memory_order_relaxed),
                                        atomic_load_explicit(&seal->step, memory_order_relaxed)},
                            .has_root = check >> 32 == WITH_ROOT,
                            .root = {atomic_load_explicit(&seal->root_hi, memory_order_relaxed),
                                     atomic_load_explicit(&seal->root_lo, memory_order_relaxed)}};

    if (check == check_of(sealed.version, sealed.has_root ? &sealed.root : NULL)) {
        return sealed;
    }
    return (struct sealed){.version = VERSION_NONE};
}

static _Atomic uint64_t *pins_of(struct seal *seals)
{
    return (_Atomic uint64_t *)(void *)seals + SEALS_BYTES / sizeof(uint64_t) - 1;
}

void seals_set_pins(struct seal *seals, enum pin_state pins)
{
    atomic_store(pins_of(seals), htole64(pins));
}

enum pin_state seals_pins(struct seal *seals)
{
    uint64_t pins = le64toh(atomic_load(pins_of(seals)));
    return pins == PINS_NONE ? PINS_NONE : pins == PINS_UNKNOWN ? PINS_UNKNOWN : PINS_MADE;
}
