/* SPDX-License-Identifier: Apache-2.0
 * The commits that the terms of a directory have noted. Blocking. */
#ifndef TCK_TIERS_COMMIT_NOTES_H
#define TCK_TIERS_COMMIT_NOTES_H

#include "tiers/persistent.h"

/* Adds the notes of the terms below `term` to *notes. Ignores terms up to *forgotten, which is raised to what this
 * directory says. */
must_check tck_status_t commit_notes_read(const struct folder *job, uint64_t term, uint64_t *forgotten,
                                          struct commit_notes *notes, struct error *err);

#endif
