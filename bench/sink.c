/* SPDX-License-Identifier: Apache-2.0
 * See sink.h. */
#include "sink.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEAD_BYTES   8192
#define RECORD_BYTES (16 << 10) /* of TLS */
#define BACKLOG      64

static const char answer[] =
    "HTTP/1.1 200 OK\r\nETag: \"0123456789abcdef0123456789abcdef\"\r\nContent-Length: 0\r\n\r\n";

/* A connection. */
struct stream {
    int fd;
    const struct tls *with; /* NULL: without TLS */
    struct tls_stream *tls;
    char head[HEAD_BYTES];
};

static ssize_t take(struct stream *s, void *out, size_t len)
{
    return s->tls != NULL ? tls_read(s->tls, out, len) : recv(s->fd, out, len, 0);
}

/* Reads up to the end of a request's head. Returns how many bytes of the body came with it; -1: the connection ended.
 */
static ssize_t read_head(struct stream *s)
{
    size_t len = 0;
    for (;;) {
        ssize_t got = take(s, s->head + len, HEAD_BYTES - 1 - len);
        if (got <= 0) {
            return -1;
        }
        len += (size_t)got;
        s->head[len] = '\0';
        const char *end = strstr(s->head, "\r\n\r\n");
        if (end != NULL) {
            return (ssize_t)len - (end + 4 - s->head);
        }
    }
}

/* Without TLS, MSG_TRUNC discards what has arrived without copying it. With TLS it has to be decrypted. */
static bool discard(struct stream *s, uint64_t bytes)
{
    char some[RECORD_BYTES];
    while (bytes > 0) {
        ssize_t got = s->tls != NULL ? tls_read(s->tls, some, bytes < sizeof(some) ? bytes : sizeof(some))
                                     : recv(s->fd, NULL, bytes < MIB ? bytes : MIB, MSG_TRUNC);
        if (got <= 0) {
            return false;
        }
        bytes -= (uint64_t)got;
    }
    return true;
}

static bool give_answer(struct stream *s)
{
    size_t len = sizeof(answer) - 1;
    ssize_t sent = s->tls != NULL ? tls_write(s->tls, answer, len) : send(s->fd, answer, len, MSG_NOSIGNAL);
    return sent == (ssize_t)len;
}

static void *serve(void *ctx)
{
    struct stream *s = ctx;
    bool goes_on = s->with == NULL || (s->tls = tls_accept(s->with, s->fd)) != NULL;
    while (goes_on) {
        ssize_t early = read_head(s);
        const char *length = early < 0 ? NULL : strcasestr(s->head, "\r\nContent-Length:");
        uint64_t bytes = length == NULL ? 0 : strtoull(strchr(length + 2, ':') + 1, NULL, 10);
        goes_on = length != NULL && discard(s, bytes - (uint64_t)early) && give_answer(s);
    }
    if (s->tls != NULL) {
        tls_close(s->tls);
    }
    close(s->fd);
    free(s);
    return NULL;
}

_Noreturn static void accept_all(int listener, const struct tls *tls)
{
    for (;;) {
        pthread_t thread;
        struct stream *s = bench_alloc(sizeof(*s));
        *s = (struct stream){.fd = accept(listener, NULL, NULL), .with = tls};
        if (s->fd < 0 || pthread_create(&thread, NULL, serve, s) != 0) {
            _exit(EXIT_FAILURE);
        }
        pthread_detach(thread);
    }
}

struct sink sink_start(const struct tls *tls)
{
    struct sink sink = {.address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(sink.address);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&sink.address, len) != 0 || listen(listener, BACKLOG) != 0 ||
        getsockname(listener, (struct sockaddr *)&sink.address, &len) != 0) {
        bench_die("the sink: %s", strerror(errno));
    }
    sink.pid = fork();
    if (sink.pid < 0) {
        bench_die("start the sink: %s", strerror(errno));
    }
    if (sink.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN); /* OpenSSL writes without MSG_NOSIGNAL */
        accept_all(listener, tls);
    }
    close(listener);
    return sink;
}

void sink_end(const struct sink *sink)
{
    kill(sink->pid, SIGKILL);
    waitpid(sink->pid, NULL, 0);
}
