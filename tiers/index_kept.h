/* SPDX-License-Identifier: Apache-2.0
 * The headers that a publish has read, kept for those that follow. */
#ifndef TCK_TIERS_INDEX_KEPT_H
#define TCK_TIERS_INDEX_KEPT_H

#include "base/digest.h"
#include <stdatomic.h>
#include <stdbool.h>

struct persistent;

/* The headers of the layout that was published last, for .index. Never changed, since several publishes may use it. */
struct index_kept {
    atomic_uint refs;
    struct hash128 of;     /* the ids and sizes of its shards */
    struct hash128 digest; /* of bytes */
    uint32_t files;        /* whose headers these are: all, or so many of the first ones */
    bool late;             /* reading them has taken too long, and the log says so */
    bool too_long;         /* for an index: none are kept, and the log says so */
    size_t len;
    uint8_t *bytes; /* owned */
};

/* What the tier keeps; NULL: nothing. The caller drops it. An archive has the layouts of save_dir, so both use what the
 * tier of save_dir keeps. */
struct index_kept *index_kept_take(struct persistent *p);
/* Keeps it in place of `before`, or of what another publish has put there meanwhile, unless that is more of the same
 * layout. The caller still drops it. */
void index_kept_put(struct persistent *p, struct index_kept *kept, const struct index_kept *before);
/* Whether these are headers of this layout, unchanged since they were read. */
bool index_kept_usable(const struct index_kept *kept, struct hash128 layout);
/* NULL: harmless. */
void index_kept_drop(struct index_kept *kept);

#endif
