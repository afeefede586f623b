/* SPDX-License-Identifier: Apache-2.0
 * The versions in the place beside save_dir, each with its standing. An archive that is a directory may hang at any
 * call, so it is looked at in a bounded call: what is in save_dir does not wait for it. */
#ifndef TCK_TIERS_SURVEY_SECOND_H
#define TCK_TIERS_SURVEY_SECOND_H

#include "tiers/persistent_impl.h"
#include "tiers/published_versions.h"

/* saved: the survey of save_dir; versions that are good there are left out, and those that it has forgotten. Sets *out,
 * for survey_free, to what is in dirs->second. An error: it cannot be listed, or hangs. *gone_out: a version was
 * deleted meanwhile, so that its successor may not be in the list. */
must_check tck_status_t survey_second(struct persistent *p, const struct version_dirs *dirs, const struct survey *saved,
                                      struct survey *out, bool *gone_out, struct error *err);

#endif
