/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a message, the first one choosing which: refused, or the one encoding of what was decoded. */
#include "base/message.h"
#include "fuzz.h"

#define TRY(name, FIELDS, is_valid) FUZZ_CODEC(msg_##name)
MESSAGES(TRY)
#define TRY_NAME(name, FIELDS, is_valid) try_msg_##name,

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const tries[])(const uint8_t *, size_t) = {MESSAGES(TRY_NAME)};
    if (size > 0) {
        tries[data[0] % (sizeof(tries) / sizeof(tries[0]))](data + 1, size - 1);
    }
    return 0;
}
