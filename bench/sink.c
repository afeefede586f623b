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

#define HEAD_BYTES 8192
#define BACKLOG    64

static const char answer[] =
    "HTTP/1.1 200 OK\r\nETag: \"0123456789abcdef0123456789abcdef\"\r\nContent-Length: 0\r\n\r\n";

/* Reads up to the end of a request's head. Returns how many bytes of the body came with it; -1: the connection ended.
 */
static ssize_t read_head(int fd, char *head)
{
    size_t len = 0;
    for (;;) {
        ssize_t got = recv(fd, head + len, HEAD_BYTES - 1 - len, 0);
        if (got <= 0) {
            return -1;
        }
        len += (size_t)got;
        head[len] = '\0';
        const char *end = strstr(head, "\r\n\r\n");
        if (end != NULL) {
            return (ssize_t)len - (end + 4 - head);
        }
    }
}

/* MSG_TRUNC discards what has arrived without copying it. */
static bool discard(int fd, uint64_t bytes)
{
    while (bytes > 0) {
        size_t some = bytes < MIB ? bytes : MIB;
        ssize_t got = recv(fd, NULL, some, MSG_TRUNC);
        if (got <= 0) {
            return false;
        }
        bytes -= (uint64_t)got;
    }
    return true;
}

static void *serve(void *ctx)
{
    int fd = (int)(intptr_t)ctx;
    char *head = bench_alloc(HEAD_BYTES);
    bool goes_on = true;
    while (goes_on) {
        ssize_t early = read_head(fd, head);
        const char *length = early < 0 ? NULL : strcasestr(head, "\r\nContent-Length:");
        uint64_t bytes = length == NULL ? 0 : strtoull(strchr(length + 2, ':') + 1, NULL, 10);
        goes_on = length != NULL && discard(fd, bytes - (uint64_t)early) &&
                  send(fd, answer, sizeof(answer) - 1, MSG_NOSIGNAL) == (ssize_t)sizeof(answer) - 1;
    }
    free(head);
    close(fd);
    return NULL;
}

_Noreturn static void accept_all(int listener)
{
    for (;;) {
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0 || pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd) != 0) {
            _exit(EXIT_FAILURE);
        }
        pthread_detach(thread);
    }
}

struct sink sink_start(void)
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
        accept_all(listener);
    }
    close(listener);
    return sink;
}

void sink_end(const struct sink *sink)
{
    kill(sink->pid, SIGKILL);
    waitpid(sink->pid, NULL, 0);
}
