/* SPDX-License-Identifier: Apache-2.0
 * Texts and encodings of versions and 128-bit hashes. */
#include "base/version.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hash128_text(struct hash128 h, char out[HASH128_TEXT])
{
    snprintf(out, HASH128_TEXT, "%016" PRIx64 "%016" PRIx64, h.hi, h.lo);
}

static uint64_t parse_half(const char *text)
{
    char half[17];

    memcpy(half, text, 16);
    half[16] = '\0';
    return strtoull(half, NULL, 16);
}

bool hash128_parse(const char *text, struct hash128 *out)
{
    if (strlen(text) != HASH128_TEXT - 1 || strspn(text, "0123456789abcdef") != HASH128_TEXT - 1) {
        return false;
    }
    *out = (struct hash128){.hi = parse_half(text), .lo = parse_half(text + 16)};
    return true;
}

void write_version(struct writer *w, struct version v)
{
    write_u64(w, v.term);
    write_u64(w, v.step);
}

struct version read_version(struct reader *r)
{
    struct version v = {.term = read_u64(r)};

    v.step = read_u64(r);
    return v;
}

void write_hash128(struct writer *w, struct hash128 h)
{
    write_u64(w, h.hi);
    write_u64(w, h.lo);
}

struct hash128 read_hash128(struct reader *r)
{
    struct hash128 h = {.hi = read_u64(r)};

    h.lo = read_u64(r);
    return h;
}
