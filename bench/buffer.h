/* SPDX-License-Identifier: Apache-2.0
 * Memory for the references, and the plain ways to copy it: the limits that copies are compared with. */
#ifndef TCK_BENCH_BUFFER_H
#define TCK_BENCH_BUFFER_H

#include "bench.h"

/* Shared memory, touched, with 2 MiB pages if bench->huge allows; as good as a slot can be. */
void *buffer_shared(const struct bench *bench, size_t bytes);
/* Private memory as a program has it: touched, filled with noise. */
void *buffer_private(size_t bytes);
void buffer_free(void *data, size_t bytes);
void buffer_fill(void *data, size_t bytes, uint64_t seed);

/* Plain copies of one piece: libc's memcpy, `rep movsb`, non-temporal stores where there are any. */
struct copy_job {
    void *to;
    const void *from;
    size_t bytes;
};
#define COPY_WAYS_MAX 3
/* Fills ways with what this processor can do and returns their number. job must stay. */
uint32_t copy_ways(struct copy_job *job, struct bench_way ways[COPY_WAYS_MAX]);

#endif
