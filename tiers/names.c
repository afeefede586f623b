/* SPDX-License-Identifier: Apache-2.0
 * v<step, 12 digits>.t<term>, both ways. */
#include "tiers/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void version_dir_name(struct version version, char out[DIR_NAME_MAX])
{
    snprintf(out, DIR_NAME_MAX, "v%012" PRIu64 ".t%" PRIu64, version.step, version.term);
}

bool version_dir_parse(const char *name, struct version *out)
{
    struct version version;
    char again[DIR_NAME_MAX];
    if (sscanf(name, "v%" SCNu64 ".t%" SCNu64, &version.step, &version.term) != 2 || version_none(version)) {
        return false;
    }
    version_dir_name(version, again);
    if (strcmp(name, again) != 0) {
        return false;
    }
    *out = version;
    return true;
}
