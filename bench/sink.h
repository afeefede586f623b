/* SPDX-License-Identifier: Apache-2.0
 * A server in a process of its own that takes HTTP requests with bodies, discards them, and answers as S3 does to a
 * part of an upload. */
#ifndef TCK_BENCH_SINK_H
#define TCK_BENCH_SINK_H

#include "bench.h"

#include <netinet/in.h>
#include <sys/types.h>

struct sink {
    pid_t pid;
    struct sockaddr_in address; /* on the loopback device */
};

struct sink sink_start(void);
void sink_end(const struct sink *sink);

#endif
