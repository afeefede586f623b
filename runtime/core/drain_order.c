/* SPDX-License-Identifier: Apache-2.0
 * In which order a node writes its part of a version to storage. */
#include "core/drain_order.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    const struct drain_place *p = a, *q = b;
    if (p->elsewhere != q->elsewhere) {
        return p->elsewhere < q->elsewhere ? -1 : 1;
    }
    return (p->shard > q->shard) - (p->shard < q->shard);
}

void drain_order(struct drain_place *places, uint32_t count)
{
    if (count > 1) {
        qsort(places, count, sizeof(*places), compare);
    }
}
