/* SPDX-License-Identifier: Apache-2.0
 * Opens directories that no other user can replace: every component of the path is checked, from the root on. */
#ifndef TCK_BASE_SAFE_DIR_H
#define TCK_BASE_SAFE_DIR_H

#include "base/status.h"
#include <stdbool.h>

/* An O_PATH descriptor of the directory. Each component belongs to root or to this user, and no other user may write to
 * it unless it is sticky, as /tmp is. Symbolic links are followed where no other user can write, but
 * not at the end. With make, missing components are created, for this user alone. TCK_ERR_NOENT, or TCK_ERR_DENIED
 * naming the component, its owner and the remedy. */
must_check tck_status_t safe_dir_open(const char *path, bool make, int *fd_out, struct error *err);

#endif
