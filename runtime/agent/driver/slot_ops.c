/* SPDX-License-Identifier: Apache-2.0
 * Controls access to the memory tier: counts operations on slots, and records whether a registration is about to move
 * them. */
#include "agent/driver/slot_ops.h"

#include <stdint.h>
#include <stdlib.h>

struct slot_ops {
    uint32_t under_way; /* except those on storage */
    enum memory_use memory;
    void (*idle)(void *ctx);
    void *ctx;
};

tck_status_t slot_ops_new(void (*idle)(void *ctx), void *ctx, struct slot_ops **out, struct error *err)
{
    struct slot_ops *ops = calloc(1, sizeof(*ops));
    if (ops == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    ops->idle = idle;
    ops->ctx = ctx;
    *out = ops;
    return TCK_OK;
}

void slot_ops_free(struct slot_ops *ops)
{
    free(ops);
}

void slot_op_begin(struct slot_ops *ops)
{
    ops->under_way++;
}

void slot_op_end(struct slot_ops *ops)
{
    ops->under_way--;
    if (ops->under_way == 0) {
        ops->idle(ops->ctx);
    }
}

bool slot_ops_none(const struct slot_ops *ops)
{
    return ops->under_way == 0;
}

void slot_ops_set_memory(struct slot_ops *ops, enum memory_use use)
{
    ops->memory = use;
}

enum memory_use slot_ops_memory(const struct slot_ops *ops)
{
    return ops->memory;
}
