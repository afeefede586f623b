/* SPDX-License-Identifier: Apache-2.0
 * Controls access to the memory tier. Operations in progress read or write slots. A registration may move slots, so it
 * waits until no operation is in progress; while it waits, no operation starts that can be postponed. */
#ifndef TCK_AGENT_SLOT_OPS_H
#define TCK_AGENT_SLOT_OPS_H

#include "base/status.h"

#include <stdbool.h>

struct slot_ops;

enum memory_use {
    MEMORY_STEADY,
    MEMORY_WANTED,  /* by a registration, which waits until no operation is under way */
    MEMORY_CHANGING /* a pool thread is changing the segments: no other thread may read them */
};

/* idle: the last operation under way has ended. */
must_check tck_status_t slot_ops_new(void (*idle)(void *ctx), void *ctx, struct slot_ops **out, struct error *err);
void slot_ops_free(struct slot_ops *ops);
void slot_op_begin(struct slot_ops *ops);
void slot_op_end(struct slot_ops *ops);
bool slot_ops_none(const struct slot_ops *ops);
/* Only membership sets this, for its registrations; other parts only read it. */
void slot_ops_set_memory(struct slot_ops *ops, enum memory_use use);
enum memory_use slot_ops_memory(const struct slot_ops *ops);

#endif
