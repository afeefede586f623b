/* SPDX-License-Identifier: Apache-2.0
 * See index_kept.h. */
#include "tiers/index_kept.h"

#include "base/log.h"
#include "tiers/persistent_impl.h"
#include <stdlib.h>

void index_kept_drop(struct index_kept *kept)
{
    if (kept != NULL && atomic_fetch_sub(&kept->refs, 1) == 1) {
        free(kept->bytes);
        free(kept);
    }
}

struct index_kept *index_kept_take(struct persistent *p)
{
    pthread_mutex_lock(&p->puts_lock);
    struct index_kept *kept = p->index;
    if (kept != NULL) {
        atomic_fetch_add(&kept->refs, 1);
    }
    pthread_mutex_unlock(&p->puts_lock);
    return kept;
}

void index_kept_put(struct persistent *p, struct index_kept *kept, const struct index_kept *before)
{
    struct index_kept *old = NULL;
    pthread_mutex_lock(&p->puts_lock);
    if (p->index == NULL || p->index == before || !hash128_is(p->index->of, kept->of) ||
        p->index->files <= kept->files) {
        old = p->index;
        p->index = kept;
        atomic_fetch_add(&kept->refs, 1);
    }
    pthread_mutex_unlock(&p->puts_lock);
    index_kept_drop(old);
}

bool index_kept_usable(const struct index_kept *kept, struct hash128 layout)
{
    if (kept == NULL || !hash128_is(kept->of, layout)) {
        return false;
    }
    if (!hash128_is(kept->digest, hash128_of(kept->bytes, kept->len))) {
        log_warn("the headers that were kept for " VERSION_INDEX_NAME
                 " have changed in memory, so they are read again");
        return false;
    }
    return true;
}
