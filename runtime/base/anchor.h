/* SPDX-License-Identifier: Apache-2.0
 * A name that nobody can delete, for a process that others find by files: those of a runtime directory may be removed
 * by a cleaner of temporary files, and a second process would then start beside the first one. The name is an abstract
 * unix socket, made of user, role, and the directory's path. It is known in one network namespace, and differs between
 * mount and process namespaces, where the same path is another directory or the same process has another number. So it
 * adds to the locked file, and never takes its place. */
#ifndef TCK_BASE_ANCHOR_H
#define TCK_BASE_ANCHOR_H

#include "base/status.h"

#include <stdbool.h>
#include <sys/types.h>

#define ANCHOR_AGENT      "agent"
#define ANCHOR_SUPERVISOR "supervisor"

/* dir_fd: of the directory; only its path matters, so it is the same after the directory was deleted and made again.
 * TCK_ERR_EXIST if another process of this user has the name; any other error only means that there is no protection by
 * it here. The name is free once all descriptors are closed, so it ends with the process. */
must_check tck_status_t anchor_take(int dir_fd, const char *role, int *fd_out, struct error *err);
/* From now on it can be found. It is accepted from as from any other socket (ipc_accept). */
must_check tck_status_t anchor_show(int fd, struct error *err);
/* A connection to the process that has the name; TCK_ERR_UNREACHABLE if there is none, TCK_ERR_DENIED if it is another
 * user's. */
must_check tck_status_t anchor_connect(int dir_fd, const char *role, int *fd_out, pid_t *pid_out, struct error *err);
bool anchor_is_held(int dir_fd, const char *role);

#endif
