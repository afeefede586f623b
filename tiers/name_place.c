/* SPDX-License-Identifier: Apache-2.0
 * Which place an error is about. */
#include "tiers/persistent_impl.h"

#include "base/path.h"

#include <string.h>

tck_status_t name_place(struct error *err, const char *key, const char *place)
{
    bool named = path_is_url(place) && strstr(err->text, place) != NULL; /* only errors of a store name it themselves */
    return named ? error_prefix(err, "%s", key) : error_prefix(err, "%s %s", key, place);
}
