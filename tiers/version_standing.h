/* SPDX-License-Identifier: Apache-2.0
 * What an error says of a published version: that it is damaged, or only that it could not be read. An error that may
 * pass never counts as proof that there is no version. */
#ifndef TCK_TIERS_STANDING_H
#define TCK_TIERS_STANDING_H

#include "base/status.h"
#include "base/version.h"

/* Of an attempt to open the version's directory `name` in parent_fd, to read its manifest and to look at its files. */
enum standing standing_of(tck_status_t outcome, int parent_fd, const char *name);

#endif
