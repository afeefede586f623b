/* SPDX-License-Identifier: Apache-2.0
 * What all stores of objects share. */
#include "tiers/object/object_store.h"

#include <stdlib.h>

void object_listing_free(struct object_listing *listing)
{
    for (size_t i = 0; i < listing->count; i++) {
        free(listing->objects[i].key);
    }
    free(listing->objects);
    *listing = (struct object_listing){0};
}
