/* SPDX-License-Identifier: Apache-2.0
 * Texts and encodings of versions, their sources, and 128-bit hashes. */
#include "base/version.h"

#include "base/hex.h"

void hash128_text(struct hash128 h, char out[HASH128_TEXT])
{
    hex_write(h.hi, 16, out);
    hex_write(h.lo, 16, out + 16);
    out[32] = '\0';
}

bool hash128_parse(const char *text, struct hash128 *out)
{
    struct hash128 h;
    if (!hex_read(text, 16, &h.hi) || !hex_read(text + 16, 16, &h.lo) || text[32] != '\0') {
        return false;
    }
    *out = h;
    return true;
}

const char *source_kind_name(uint32_t source)
{
    static const char *const names[SOURCE_KINDS] = {
        [SOURCE_LOCAL] = "local", [SOURCE_TWIN] = "twin", [SOURCE_PEER] = "peer", [SOURCE_STORAGE] = "storage"};
    return source < SOURCE_KINDS ? names[source] : "unknown";
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
