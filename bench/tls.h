/* SPDX-License-Identifier: Apache-2.0
 * TLS on connected sockets through OpenSSL, with a certificate for 127.0.0.1 that is made at the start and that nobody
 * else trusts. Everything here ends the benchmark if it fails, except what a connection's end causes. */
#ifndef TCK_BENCH_TLS_H
#define TCK_BENCH_TLS_H

#include <stddef.h>
#include <sys/types.h>

struct tls; /* the certificate, and what clients and servers need of it */

/* Writes the certificate to the file, for clients that are given a file of those to trust. */
struct tls *tls_new(const char *certificate_file);
void tls_free(struct tls *tls);

struct tls_stream;

/* The stream does not own the socket. NULL from the first: the client has gone away. */
struct tls_stream *tls_accept(const struct tls *tls, int fd);
/* Checks the certificate and its address. */
struct tls_stream *tls_connect(const struct tls *tls, int fd);
void tls_close(struct tls_stream *stream);
/* At most len bytes; 0 or less: the connection ended. */
ssize_t tls_read(struct tls_stream *stream, void *out, size_t len);
/* All bytes, or -1. */
ssize_t tls_write(struct tls_stream *stream, const void *data, size_t len);

#endif
