/* SPDX-License-Identifier: Apache-2.0
 * Folders in stores of objects that the configuration or a user names by URL. */
#ifndef TCK_TIERS_FOLDER_URL_H
#define TCK_TIERS_FOLDER_URL_H

#include "tiers/folder.h"

/* The folder `below` a URL that path_or_url accepts; "": that place itself. Looks nothing up. */
must_check tck_status_t folder_of_url(const char *url, const char *below, struct folder *out, struct error *err);

#endif
