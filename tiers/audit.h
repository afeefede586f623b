/* SPDX-License-Identifier: Apache-2.0
 * The audit file: one JSON line before each operation on storage (its intent) and one after (its result). Lines of
 * publishes, deletes and repairs are synced, so that they survive a crash of the machine right after the operation. Any
 * thread. */
#ifndef TCK_TIERS_AUDIT_H
#define TCK_TIERS_AUDIT_H

#include "base/status.h"

enum audit_op { AUDIT_WRITE, AUDIT_PUBLISH, AUDIT_DELETE, AUDIT_REPAIR };

struct audit;

/* Appends to fd, which it takes over in any case. node appears in each line. fd -1: the file cannot be opened yet; see
 * audit_open_later. */
must_check tck_status_t audit_new(int fd, const char *node, struct audit **out, struct error *err);
/* Opens the file; called by any thread before each line until it succeeds. */
typedef tck_status_t audit_open_fn(const void *ctx, int *fd_out, struct error *err);
void audit_open_later(struct audit *audit, audit_open_fn *open, const void *ctx);
void audit_free(struct audit *audit);
/* Writes to fd from now on, and takes it over in any case. */
must_check tck_status_t audit_move(struct audit *audit, int fd, struct error *err);

/* If this fails, the operation must not be carried out. */
must_check tck_status_t audit_intent(struct audit *audit, enum audit_op op, const char *what, struct error *err);
/* outcome->code TCK_OK: the operation succeeded. A failure to write the line is only logged. */
void audit_result(struct audit *audit, enum audit_op op, const char *what, const struct error *outcome);

#endif
