/* SPDX-License-Identifier: Apache-2.0
 * The names of things that travel: versions, shard ids, digests. */
#ifndef TCK_BASE_VERSION_H
#define TCK_BASE_VERSION_H

#include "base/buf.h"

/* All snapshots of one step. Ordered by (term, step): a term starts from a decided base, so a higher term is always the
 * later lineage. {0, 0} stands for "none": terms begin at 1. */
struct version {
    uint64_t term, step;
};

#define VERSION_NONE ((struct version){0, 0})
#define NONE32       UINT32_MAX /* "no such index" */

static inline int version_cmp(struct version a, struct version b)
{
    if (a.term != b.term) {
        return a.term < b.term ? -1 : 1;
    }
    return a.step < b.step ? -1 : a.step > b.step;
}

static inline bool version_is(struct version a, struct version b)
{
    return version_cmp(a, b) == 0;
}

static inline bool version_none(struct version v)
{
    return v.term == 0;
}

/* 128 bits: an XXH3-128 value. */
struct hash128 {
    uint64_t hi, lo;
};

static inline int hash128_cmp(struct hash128 a, struct hash128 b)
{
    if (a.hi != b.hi) {
        return a.hi < b.hi ? -1 : 1;
    }
    return a.lo < b.lo ? -1 : a.lo > b.lo;
}

static inline bool hash128_is(struct hash128 a, struct hash128 b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

#define PASSED_TEXT_BYTES 256 /* of the text about a newer version that was passed over */

/* The state of a directory that has a published version's name, from usable to unusable. */
enum standing {
    STANDING_GOOD,       /* a valid manifest, and its files are there with their sizes */
    STANDING_UNREADABLE, /* it cannot be read now, which may pass: nothing is known of it */
    STANDING_FOREIGN,    /* of a format that this build does not read */
    STANDING_DAMAGED,    /* its content proves that it is not whole */
};

/* Where a restored shard comes from, by rising cost. */
enum source_kind { SOURCE_LOCAL, SOURCE_TWIN, SOURCE_PEER, SOURCE_STORAGE, SOURCE_KINDS };
const char *source_kind_name(uint32_t source); /* local, twin, peer, storage */

#define HASH128_TEXT 33 /* 32 hex digits and a NUL */

void hash128_text(struct hash128 h, char out[HASH128_TEXT]);
/* False unless text is exactly 32 lower-case hex digits. */
bool hash128_parse(const char *text, struct hash128 *out);

void write_version(struct writer *w, struct version v);
struct version read_version(struct reader *r);
void write_hash128(struct writer *w, struct hash128 h);
struct hash128 read_hash128(struct reader *r);

#endif
