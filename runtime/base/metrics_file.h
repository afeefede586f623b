/* SPDX-License-Identifier: Apache-2.0
 * Metrics as a file for node_exporter's textfile collector. */
#ifndef TCK_BASE_METRICS_FILE_H
#define TCK_BASE_METRICS_FILE_H

#include "base/status.h"

#include <stddef.h>

/* TCK_ERR_CONFIG: node_exporter would not read a file of this name. */
must_check tck_status_t metrics_file_check_name(const char *path, struct error *err);
/* Replaces the file at once, so that no reader sees a part of it. Everyone may read it. Blocking. */
must_check tck_status_t metrics_file_write(const char *path, const char *text, size_t len, struct error *err);
/* Removes the file of an agent that ends: an old file is that of one that has died. */
must_check tck_status_t metrics_file_remove(const char *path, struct error *err);

#endif
