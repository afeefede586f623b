/* SPDX-License-Identifier: Apache-2.0
 * The name of a published version's directory. */
#ifndef TCK_TIERS_NAMES_H
#define TCK_TIERS_NAMES_H

#include "base/version.h"

#define DIR_NAME_MAX 64 /* of the directories that we name: v<step>.t<term>, <term>-<step> */

void version_dir_name(struct version version, char out[DIR_NAME_MAX]);
/* False unless version_dir_name prints the same. */
bool version_dir_parse(const char *name, struct version *out);

#endif
