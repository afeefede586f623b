/* SPDX-License-Identifier: Apache-2.0
 * A file that a process holds locked for as long as it lives, and that others may ask about without touching the lock.
 * The lock belongs to the open file: it stays over forks, and goes with its last descriptor. */
#ifndef TCK_BASE_LOCK_H
#define TCK_BASE_LOCK_H

#include "base/status.h"

#include <stdbool.h>

/* Makes the file if it is not there. TCK_ERR_EXIST if somebody else holds it. The descriptor is closed on exec. */
must_check tck_status_t lock_take(int dir_fd, const char *name, int *fd_out, struct error *err);
/* Whether somebody holds it. What cannot be asked is taken to be held. */
bool lock_is_held(int dir_fd, const char *name);

#endif
