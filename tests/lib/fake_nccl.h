/* SPDX-License-Identifier: Apache-2.0
 * A stand-in for the calls of NCCL and of the CUDA runtime that runtime/nccl makes: ranks are threads, a device's
 * memory is the host's, a stream is a thread, and sends wait for their receives. It shows order, errors and time-outs,
 * and nothing about devices or speed. */
#ifndef TCK_TESTS_FAKE_NCCL_H
#define TCK_TESTS_FAKE_NCCL_H

#include <stdatomic.h>
#include <stdbool.h>

#define FAKE_NCCL_API __attribute__((visibility("default")))

/* What goes wrong. Set before communicators are made. */
struct fake_nccl {
    atomic_bool one_gpu;               /* several ranks on one device: refused as NCCL does */
    atomic_int poor;                   /* this rank's device has no memory left, -1: none; see fake_nccl_enter */
    atomic_int silent;                 /* this rank's sends never come, -1: none */
    atomic_int absent;                 /* this one never joins its communicator, -1: none */
    atomic_int damages;                /* this one receives a wrong byte, -1: none */
    atomic_int fails;                  /* this one's communicator has an error at its first piece, -1: none */
    atomic_int slow_ms;                /* so long a group takes on a device */
    atomic_int comms, pieces, streams; /* that are there now: nothing may be left */
    atomic_int ids;                    /* that were made: each has a thread that waits for its ranks */
    atomic_int aborted;
};

FAKE_NCCL_API struct fake_nccl *fake_nccl(void);
/* Which rank the calling thread is: the CUDA runtime's calls do not say. */
FAKE_NCCL_API void fake_nccl_enter(unsigned rank);

#endif
