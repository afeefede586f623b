/* SPDX-License-Identifier: Apache-2.0
 * A file that a process keeps locked for as long as it lives, and whose lock others may test without taking it. The
 * lock belongs to the open file description: it survives forks, and ends when the last descriptor is closed. */
#ifndef TCK_BASE_LOCK_H
#define TCK_BASE_LOCK_H

#include "base/status.h"

#include <stdbool.h>

/* Creates the file if it does not exist. TCK_ERR_EXIST if another process holds the lock. The descriptor is closed
 * on exec. */
must_check tck_status_t lock_take(int dir_fd, const char *name, int *fd_out, struct error *err);
/* Whether a process holds the lock. If this cannot be determined, it counts as held. */
bool lock_is_held(int dir_fd, const char *name);

#endif
