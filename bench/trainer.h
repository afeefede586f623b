/* SPDX-License-Identifier: Apache-2.0
 * A trainer of one rank for the benchmarks: its tensors, an agent of its own, and the public API. */
#ifndef TCK_BENCH_TRAINER_H
#define TCK_BENCH_TRAINER_H

#include "bench.h"
#include "tierckpt.h"

struct trainer {
    tck_client_t *client;
    uint32_t count;
    size_t tensor_bytes;
    uint8_t *state;   /* all tensors, one after the other, but in no order */
    uint8_t **tensor; /* where each lies in it */
    bool on_device;   /* the state is the caller's, on CUDA device 0 */
    bool eager;       /* the tensors may change right after the save call */
    uint64_t step;
    uint32_t node;        /* number in the node's name: another one is another machine, with an agent of its own */
    double reported;      /* stall of the newest snapshot as tck_stats tells it, seconds */
    double register_time; /* of adding and registering the tensors, seconds */
    double register_cpu;  /* the same in processor time of this process */
    uint32_t page_bytes;
};

/* Makes the tensors. */
void trainer_make(struct trainer *t, uint32_t count, size_t tensor_bytes);
/* The same in the caller's memory on CUDA device 0. */
void trainer_make_on_device(struct trainer *t, uint32_t count, size_t tensor_bytes, void *state);
void trainer_free(struct trainer *t);
static inline size_t trainer_bytes(const struct trainer *t)
{
    return t->count * t->tensor_bytes;
}

/* Attaches (the client starts the agent if there is none for this name) and registers. */
void trainer_attach(struct trainer *t, const struct bench *bench, const char *job);
/* End of the job: its agent leaves. Otherwise it stays a while, with the memory. */
void trainer_detach(struct trainer *t, bool job_done);

/* Times one snapshot until its fence has returned, then lets it become committed. */
void trainer_snapshot(struct trainer *t, struct bench_go *go);
/* Times the snapshot call alone: the copy goes on in the background. */
void trainer_post(struct trainer *t, struct bench_go *go);
void trainer_check(const struct trainer *t, tck_status_t status, const char *what);

#endif
