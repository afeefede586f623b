/* SPDX-License-Identifier: Apache-2.0
 * The directory of a published version, found by its path, or by job and step. */
#ifndef TCK_READER_FIND_H
#define TCK_READER_FIND_H

#include "tiers/folder.h"
#include "tiers/manifest.h"

struct found {
    struct folder dir;        /* owned, as are the rest */
    char *path;               /* never NULL */
    struct manifest manifest; /* checked, and all its files are there with their sizes, unless files_unseen */
    struct error passed_over; /* the newest version that was passed over: why, if its code is not TCK_OK */
};

/* Storage that hangs is given up with TCK_ERR_TIMEDOUT after the configured storage_timeout_ms, which is limit_ms. */
must_check tck_status_t find_by_path(const char *path, uint32_t limit_ms, struct found *out, struct error *err);
/* wanted.step TCK_NEWEST: the newest; wanted.term 0: the newest of this step. */
must_check tck_status_t find_version(const struct config *config, struct version wanted, struct found *out,
                                     struct error *err);
/* The same for one that is known to be good, without looking at its files: of two places that have it, the first is
 * found, even if a file is missing there. */
must_check tck_status_t find_files_unseen(const struct config *config, struct version wanted, struct found *out,
                                          struct error *err);
void found_free(struct found *found);

#endif
