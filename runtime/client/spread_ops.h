/* SPDX-License-Identifier: Apache-2.0
 * The transports by which shards get from rank to rank: the caller's allgather (spread_oob.c), and NCCL
 * (runtime/nccl, a module that is loaded only if it is configured). */
#ifndef TCK_CLIENT_SPREAD_OPS_H
#define TCK_CLIENT_SPREAD_OPS_H

#include "client/oob.h"
#include "client/spread.h"

/* First member of every open transport. */
struct spread_way {
    const struct spread_ops *ops;
};

struct spread_params {
    const struct oob *oob;
    const struct world *world;
    const struct spread *spread; /* all three must stay valid until close */
    uint32_t timeout_ms;         /* without any progress */
    uint32_t slow_bytes;         /* per ms: the slowest assumed rate of a rank that others wait for */
};

/* All ranks of the world call open together, with the same routes. Then each rank calls pass for each route, in
 * their order, and finish; after a failure it calls abort and none of the others. close comes last in any case.
 * Where the implementation can avoid it, no rank waits longer than the time-out for ranks that do not take part. */
struct spread_ops {
    const char *name;
    /* Collective, over the oob: on failure every rank gets an error, and nothing needs closing. */
    tck_status_t (*open)(const struct spread_params *params, struct spread_way **out, struct error *err);
    /* Carries out one route. image is read at the root, and is complete at a receiver once finish has returned; NULL
     * on a rank that does not take part. */
    tck_status_t (*pass)(struct spread_way *way, const struct spread_route *route, uint8_t *image, struct error *err);
    tck_status_t (*finish)(struct spread_way *way, struct error *err);
    /* Aborts what is under way; afterwards this rank waits for no other. */
    void (*abort)(struct spread_way *way);
    void (*close)(struct spread_way *way);
};

/* Slow, but needs nothing else: every rank receives every byte that is sent to any rank. Time-outs are those of the
 * caller's allgather. Since that needs all ranks, a rank that fails must go on calling it. */
extern const struct spread_ops spread_oob;

/* NCCL, from the module that is built where NCCL's header is found; TCK_ERR_UNSUPPORTED without the module. */
must_check tck_status_t spread_nccl(const struct spread_ops **out, struct error *err);

/* What libtierckpt_nccl.so exports, and under which name. */
#define SPREAD_MODULE_ABI    2
#define SPREAD_MODULE_SYMBOL "tck_spread_module"
struct spread_module {
    uint32_t abi; /* SPREAD_MODULE_ABI: module and library are of one build */
    const struct spread_ops *ops;
};

#endif
