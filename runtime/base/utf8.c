/* SPDX-License-Identifier: Apache-2.0
 * The check of UTF-8. */
#include "base/utf8.h"

#include <stdint.h>

/* Bytes of the character that this byte begins; 0 if none does. */
static size_t sequence_len(uint8_t lead)
{
    if (lead < 0x80) {
        return 1;
    }
    if (lead < 0xc2 || lead > 0xf4) {
        return 0;
    }
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* Of a sequence of 2 to 4 bytes that are all there. */
static bool sequence_valid(const uint8_t *s, size_t len)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t code = s[0] & (0x7fu >> len);

    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return false;
        }
        code = code << 6 | (s[i] & 0x3f);
    }
    return code >= smallest[len] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
}

bool utf8_valid(const char *text, size_t len)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t at = 0;

    while (at < len) {
        size_t n = sequence_len(s[at]);

        if (n == 0 || n > len - at || (n > 1 && !sequence_valid(s + at, n))) {
            return false;
        }
        at += n;
    }
    return true;
}
