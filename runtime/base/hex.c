/* SPDX-License-Identifier: Apache-2.0
 * Hex digits. */
#include "base/hex.h"

void hex_write(uint64_t value, uint32_t digits, char *out)
{
    for (uint32_t i = digits; i-- > 0; value >>= 4) {
        out[i] = "0123456789abcdef"[value & 15];
    }
}

/* 16: it is not a hex digit. */
static uint32_t digit_of(char c)
{
    if (c >= '0' && c <= '9') {
        return (uint32_t)(c - '0');
    }
    return c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10 : 16;
}

bool hex_read(const char *text, uint32_t digits, uint64_t *out)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < digits; i++) {
        uint32_t digit = digit_of(text[i]);
        if (digit == 16) {
            return false;
        }
        value = value << 4 | digit;
    }
    *out = value;
    return true;
}
