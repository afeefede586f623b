/* SPDX-License-Identifier: Apache-2.0
 * CUDA device 0, by the calls of the module that lies beside libtierckpt.so. What cannot be done ends the benchmark. */
#ifndef TCK_BENCH_GPU_DEVICE_H
#define TCK_BENCH_GPU_DEVICE_H

#include "bench.h"
#include "cuda/calls.h"

struct device {
    const struct cuda_calls *calls;
    void *stream;
};

/* This thread works on it from then on. Skips the benchmark where there is no device. */
struct device device_open(void);
void device_check(const struct device *device, int rc, const char *what);

/* Until the process ends. */
void *device_alloc(const struct device *device, size_t bytes);
void *device_pinned(const struct device *device, size_t bytes); /* host memory, touched */
/* Waits until it is done. */
void device_copy(const struct device *device, void *to, const void *from, size_t bytes);
/* The same bytes each time, without a period. */
void device_fill(const struct device *device, void *to, size_t bytes);

/* A plain copy of one piece. */
struct device_copy_job {
    const struct device *device;
    void *to;
    const void *from;
    size_t bytes;
};
void device_copy_run(void *ctx, struct bench_go *go);

#endif
