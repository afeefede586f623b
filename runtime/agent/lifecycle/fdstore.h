/* SPDX-License-Identifier: Apache-2.0
 * The agent's side of fd store: files go to whoever NOTIFY_SOCKET names (systemd or our supervisor). If that was our
 * supervisor and it is gone, another one is started that adopts this process, and everything is stored again. */
#ifndef TCK_AGENT_FDSTORE_H
#define TCK_AGENT_FDSTORE_H

#include "agent/state/context.h"

must_check tck_status_t fdstore_new(struct agent *agent, struct fdstore **out, struct error *err);
void fdstore_free(struct fdstore *fdstore);
/* May wait for a busy supervisor; fdstore_put_now, for the event loop, does not. What could not be told is told later.
 */
tck_status_t fdstore_put(void *ctx, const char *name, int fd, struct error *err);
tck_status_t fdstore_put_now(void *ctx, const char *name, int fd, struct error *err);
void fdstore_remove(void *ctx, const char *name);
must_check tck_status_t fdstore_ready(struct fdstore *fdstore, struct error *err);
/* Notices a dead supervisor, starts another and stores everything with it. */
void fdstore_tick(struct fdstore *fdstore);
/* How many files are to outlive the agent, and how many of them nobody keeps. */
json_t *fdstore_json(struct fdstore *fdstore);
/* Somebody keeps all that a successor needs, and would start one. */
bool fdstore_has_all(struct fdstore *fdstore);
void fdstore_stopping(struct fdstore *fdstore);

#endif
