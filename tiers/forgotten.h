/* SPDX-License-Identifier: Apache-2.0
 * <save_dir>/<job>/forgotten: versions of terms up to this one no longer count, on a user's request. Their files stay.
 */
#ifndef TCK_TIERS_FORGOTTEN_H
#define TCK_TIERS_FORGOTTEN_H

#include "tiers/folder.h"
#include <stdint.h>

#define FORGOTTEN_NAME   "forgotten"
#define FORGOTTEN_FORMAT 1

/* *term_out is 0 if there is no such file. A file that is damaged or cannot be read is an error: it is unknown then
 * which versions count. */
must_check tck_status_t forgotten_read(const struct folder *job, uint64_t *term_out, struct error *err);
must_check tck_status_t forgotten_write(const struct folder *job, uint64_t term, uint64_t wall_ms, struct error *err);

#endif
