/* SPDX-License-Identifier: Apache-2.0
 * A job without a configured name is named after the path of save_dir (config_job_of). If that directory is moved or
 * mounted somewhere else, or is given by another path, as through a symbolic link, the name changes, and versions saved
 * under the former name would not be found. Blocking. */
#ifndef TCK_TIERS_MOVED_JOB_H
#define TCK_TIERS_MOVED_JOB_H

#include "base/config.h"

/* For a job whose name was derived: TCK_ERR_EXIST, with the remedy in the text, if save_dir has published versions or
 * notes of commits of another job whose name was derived, too, or is the default of builds before 0.2. TCK_OK if there
 * is none, if the job's name was given, or if this user may not list save_dir. */
must_check tck_status_t moved_job_check(const struct config *config, struct error *err);

#endif
