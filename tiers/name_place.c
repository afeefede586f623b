/* SPDX-License-Identifier: Apache-2.0
 * Which place an error is about. */
#include "tiers/persistent_impl.h"

#include <string.h>

tck_status_t name_place(struct error *err, const char *key, const char *place)
{
    bool named = strstr(err->text, place) != NULL;
    return named ? error_prefix(err, "%s", key) : error_prefix(err, "%s %s", key, place);
}
