/* SPDX-License-Identifier: Apache-2.0
 * Names that the configuration derives when they are not given: the job's, and the run's. Pure. */
#ifndef TCK_BASE_CONFIG_NAMES_H
#define TCK_BASE_CONFIG_NAMES_H

#include "base/field.h"

#define CONFIG_RUN              128 /* bytes of a run's id, its NUL included */
#define CONFIG_JOB_DIGEST_CHARS 8

/* The last component of the path, "-", and the first hexadecimal digits of a digest of the whole path. Different
 * spellings of one path ("/a/b", "/a//b/") give the same name; two directories with equal last components do not. */
void config_job_of(const char *save_dir, char out[CONFIG_NAME]);

/* What launchers leave in the environment; NULL: not set. */
struct run_environment {
    const char *torchelastic_run_id, *slurm_job_id, *slurm_step_id;
};

/* The launcher's run, or "". torchrun sets "none" if it was given no id. A Slurm job id without a step id does not
 * distinguish two programs of one allocation, so it is not used. */
void config_run_id_of(const struct run_environment *env, char out[CONFIG_RUN]);

#endif
