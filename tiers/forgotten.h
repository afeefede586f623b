/* SPDX-License-Identifier: Apache-2.0
 * <save_dir>/<job>/forgotten: what terms up to this one have saved does not count any more, because a user said so. It
 * stays where it is. */
#ifndef TCK_TIERS_FORGOTTEN_H
#define TCK_TIERS_FORGOTTEN_H

#include "base/status.h"
#include <stdint.h>

#define FORGOTTEN_NAME   "forgotten"
#define FORGOTTEN_FORMAT 1

/* *term_out is 0 if there is no such file. One that is damaged or cannot be read is an error: whether its versions
 * count is not known then. */
must_check tck_status_t forgotten_read(int job_fd, uint64_t *term_out, struct error *err);
must_check tck_status_t forgotten_write(int job_fd, uint64_t term, uint64_t wall_ms, struct error *err);

#endif
