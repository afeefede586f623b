/* SPDX-License-Identifier: Apache-2.0
 * What doctor finds out about storage in a bucket. */
#ifndef TCK_CLI_DOCTOR_BUCKET_H
#define TCK_CLI_DOCTOR_BUCKET_H

#include "base/config.h"

/* Writes below the URL of save_dir or archive_dir, and removes it again. *decides_out: the server can decide between
 * two starts. Blocking. */
must_check tck_status_t doctor_write_bucket(const char *url, const struct config *config, bool *decides_out,
                                            struct error *err);
/* Lists the job's folder in load_dir, a URL. Blocking. */
must_check tck_status_t doctor_list_bucket(const struct config *config, struct error *err);

#endif
