/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a message between agents, the first one choosing which: refused, or the one encoding of what was
 * decoded. */
#include "agent/state/wire.h"
#include "fuzz.h"

#define TRY(name, FIELDS, is_valid) FUZZ_CODEC(wire_##name)
WIRE_MESSAGES(TRY)
#define TRY_NAME(name, FIELDS, is_valid) try_wire_##name,

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const tries[])(const uint8_t *, size_t) = {WIRE_MESSAGES(TRY_NAME)};
    if (size > 0) {
        tries[data[0] % (sizeof(tries) / sizeof(tries[0]))](data + 1, size - 1);
    }
    return 0;
}
