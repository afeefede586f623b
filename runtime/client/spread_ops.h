/* SPDX-License-Identifier: Apache-2.0
 * The ways on which shards travel from rank to rank: the caller's allgather (spread_oob.c), NCCL (runtime/nccl, a
 * module that is loaded when it is asked for). */
#ifndef TCK_CLIENT_SPREAD_OPS_H
#define TCK_CLIENT_SPREAD_OPS_H

#include "client/oob.h"
#include "client/spread.h"

/* First member of every way that is open. */
struct spread_way {
    const struct spread_ops *ops;
};

struct spread_params {
    const struct oob *oob;
    const struct world *world;
    const struct spread *spread; /* all three stay valid until close */
    uint32_t timeout_ms;         /* without any progress */
    uint32_t slow_bytes;         /* per ms: the slowest rate assumed of a rank that others wait for */
};

/* open is called by all ranks of the world, in step, with the same routes. After it each rank calls pass for each
 * route, in their order, and then finish; or, once one of them has failed, none of them any more, and abort. close
 * comes last in any case. Where the implementation can avoid it, no rank waits longer than the time-out for
 * ranks that do not take part. */
struct spread_ops {
    const char *name;
    /* Collective through the oob: on failure every rank has an error, and nothing needs closing. */
    tck_status_t (*open)(const struct spread_params *params, struct spread_way **out, struct error *err);
    /* One route: image is read at its root, and filled at a receiver by the time that finish has returned; NULL at a
     * rank that is no part of it. */
    tck_status_t (*pass)(struct spread_way *way, const struct spread_route *route, uint8_t *image, struct error *err);
    tck_status_t (*finish)(struct spread_way *way, struct error *err);
    /* Aborts what is under way; afterwards this rank waits for no other. */
    void (*abort)(struct spread_way *way);
    void (*close)(struct spread_way *way);
};

/* Slow, but it needs nothing else: every rank receives every byte that is sent to any rank. Its time-outs are those of
 * the caller's allgather, and as that needs all ranks, a rank that fails in it must go on calling. */
extern const struct spread_ops spread_oob;

/* NCCL, of the module that is built where its header is; TCK_ERR_UNSUPPORTED if there is none. */
must_check tck_status_t spread_nccl(const struct spread_ops **out, struct error *err);

/* What libtierckpt_nccl.so exports, and under which name. */
#define SPREAD_MODULE_ABI    2
#define SPREAD_MODULE_SYMBOL "tck_spread_module"
struct spread_module {
    uint32_t abi; /* SPREAD_MODULE_ABI: module and library are of one build */
    const struct spread_ops *ops;
};

#endif
