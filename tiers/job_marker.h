/* SPDX-License-Identifier: Apache-2.0
 * Our marker in the job's folder, without which nothing there is touched. */
#ifndef TCK_TIERS_JOB_MARKER_H
#define TCK_TIERS_JOB_MARKER_H

#include "tiers/persistent_impl.h"

/* TCK_ERR_NOENT if there is none. */
must_check tck_status_t marker_check(const struct persistent *p, const struct folder *job, struct error *err);
must_check tck_status_t marker_write(const struct persistent *p, struct error *err);
/* TCK_ERR_DENIED if the job's folder is not ours. */
must_check tck_status_t marker_find_or_make(const struct persistent *p, struct error *err);
must_check tck_status_t marker_find(const struct persistent *p, struct error *err);
/* TCK_ERR_DENIED if it is not the folder in which a claim was seen earlier. */
must_check tck_status_t marker_check_claim(const struct persistent *p, const struct folder *job, struct error *err);

#endif
