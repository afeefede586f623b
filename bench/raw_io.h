/* SPDX-License-Identifier: Apache-2.0
 * What the device gives to a loop that does nothing else: one file by io_uring, O_DIRECT, requests of 4 MiB, four in
 * flight; and to fio, if that is installed. */
#ifndef TCK_BENCH_RAW_IO_H
#define TCK_BENCH_RAW_IO_H

#include "bench.h"

struct raw_io {
    char path[600];
    void *data; /* aligned to 4096 */
    uint64_t bytes;
};

/* A new file, allocated, written and fdatasynced; removed afterwards, which does not count. ctx: struct raw_io. */
void raw_write(void *ctx, struct bench_go *go);
/* Leaves the file for raw_read. */
void raw_write_keep(const struct raw_io *io, struct bench_go *go);
void raw_read(void *ctx, struct bench_go *go);
/* The same write by fio, 1 MiB requests, 16 in flight; its own measure of the time. */
bool raw_fio_is_there(void);
void raw_fio(void *ctx, struct bench_go *go);

#endif
