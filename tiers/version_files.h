/* SPDX-License-Identifier: Apache-2.0
 * Whether a version's directory has the files that its manifest names. */
#ifndef TCK_TIERS_VERSION_FILES_H
#define TCK_TIERS_VERSION_FILES_H

#include "tiers/manifest.h"

/* TCK_ERR_CORRUPT, with the file's name, if one has another size. */
must_check tck_status_t version_check_files(int dir_fd, const struct manifest *manifest, struct error *err);

#endif
