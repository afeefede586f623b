/* SPDX-License-Identifier: Apache-2.0
 * A server in a process of its own that takes HTTP requests with bodies, discards them, and answers as S3 does to a
 * part of an upload; with TLS or without. */
#ifndef TCK_BENCH_SINK_H
#define TCK_BENCH_SINK_H

#include "bench.h"

#include "tls.h"

#include <netinet/in.h>
#include <sys/types.h>

struct sink {
    pid_t pid;
    struct sockaddr_in address; /* on the loopback device */
};

/* tls: borrowed; NULL: without TLS. */
struct sink sink_start(const struct tls *tls);
void sink_end(const struct sink *sink);

#endif
