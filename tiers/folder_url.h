/* SPDX-License-Identifier: Apache-2.0
 * Folders in stores of objects that the configuration or a user names by URL. */
#ifndef TCK_TIERS_FOLDER_URL_H
#define TCK_TIERS_FOLDER_URL_H

#include "tiers/folder.h"

/* The folder `below` a URL that path_or_url accepts; "": that place itself. quiet_ms: of each call to it
 * (object_store.h), except those that read a part of a file; 0: not limited. Looks nothing up. */
must_check tck_status_t folder_of_url(const char *url, const char *below, uint32_t quiet_ms, struct folder *out,
                                      struct error *err);

#endif
