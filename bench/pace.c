/* SPDX-License-Identifier: Apache-2.0
 * One of two ranks that train over a shaped link, for pace.py: a step is a pause, in which a device would compute, and
 * an all-reduce with the other rank over TCP. Windows of steps with saves and without them alternate at random, the
 * same way on both ranks. Prints one JSON line per step. */
#include "bench.h"
#include "tierckpt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT          47123
#define PIECE         (256 * 1024)
#define TENSORS       16
#define CHANGE_EVERY  4096
#define SOCKET_BYTES  (64 << 20)
#define CONNECT_TRIES 500
#define WARM_WINDOWS  1 /* with saves, until the interval between versions is known */

struct setting {
    uint64_t rank, mib, compute_ms, reduce_kb, pairs, every, saves, seed;
};

struct rank {
    struct setting set;
    int socket; /* to the other rank */
    tck_client_t *client;
    uint8_t *state, *piece;
    uint64_t step;
    uint64_t saved, stored; /* newest steps that were saved, and to storage */
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- the other rank ---------------------------------------------------------------------------------------------- */

/* The kernel holds a whole all-reduce, so that it goes on while the rank waits for a processor, as one does that a
 * device and its network adapter carry out. */
static int open_socket(void)
{
    int one = 1, bytes = SOCKET_BYTES, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0) {
        bench_die("socket: %s", strerror(errno));
    }
    return fd;
}

static int listen_once(struct sockaddr_in *at)
{
    int one = 1, fd = open_socket(), other;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)at, sizeof(*at)) != 0 || listen(fd, 1) != 0 ||
        (other = accept(fd, NULL, NULL)) < 0) {
        bench_die("listen: %s", strerror(errno));
    }
    close(fd);
    return other;
}

static int connect_to(const struct sockaddr_in *at)
{
    for (int i = 0; i < CONNECT_TRIES; i++) {
        int fd = open_socket();
        if (connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0) {
            return fd;
        }
        close(fd);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    bench_die("connect: %s", strerror(errno));
}

/* The rank is woken when all of it has come. */
static void await_all(int fd, size_t bytes)
{
    int least = (int)bytes;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof(least)) != 0) {
        bench_die("SO_RCVLOWAT: %s", strerror(errno));
    }
}

/* Sends and receives so many bytes at the same time. With `in` and `out` NULL the bytes do not matter. */
static void exchange(struct rank *r, const uint8_t *out, uint8_t *in, size_t bytes)
{
    size_t sent = 0, got = 0;
    await_all(r->socket, bytes);
    while (sent < bytes || got < bytes) {
        struct pollfd p = {.fd = r->socket,
                           .events = (short)((sent < bytes ? POLLOUT : 0) | (got < bytes ? POLLIN : 0))};
        if (poll(&p, 1, -1) < 0) {
            bench_die("poll: %s", strerror(errno));
        }
        if ((p.revents & POLLOUT) != 0) {
            size_t len = bytes - sent < PIECE ? bytes - sent : PIECE;
            ssize_t n = send(r->socket, out != NULL ? out + sent : r->piece, len, MSG_DONTWAIT | MSG_NOSIGNAL);
            sent += n > 0 ? (size_t)n : 0;
        }
        if ((p.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
            size_t len = bytes - got < PIECE ? bytes - got : PIECE;
            ssize_t n = recv(r->socket, in != NULL ? in + got : r->piece, len, MSG_DONTWAIT);
            if (n == 0) {
                bench_die("the other rank has ended");
            }
            got += n > 0 ? (size_t)n : 0;
            await_all(r->socket, got < bytes ? bytes - got : 1);
        }
    }
}

static int allgather(void *ctx, const void *in, void *out, size_t len)
{
    struct rank *r = ctx;
    memcpy((uint8_t *)out + r->set.rank * len, in, len);
    exchange(r, in, (uint8_t *)out + (1 - r->set.rank) * len, len);
    return 0;
}

/* ---- the training ------------------------------------------------------------------------------------------------ */

static void check(const struct rank *r, tck_status_t status, const char *what)
{
    if (status != TCK_OK) {
        bench_die("%s: %s", what, tck_errmsg(r->client));
    }
}

static void attach(struct rank *r, const char *json)
{
    const tck_attach_params_t params = {.struct_size = sizeof(params),
                                        .config_json = json,
                                        .rank = (int)r->set.rank,
                                        .world_size = 2,
                                        .oob = {.allgather = allgather, .ctx = r}};
    uint64_t bytes = r->set.mib * MIB / TENSORS;
    check(r, tck_attach(&params, &r->client), "attach");
    for (uint64_t i = 0; i < TENSORS; i++) {
        char key[64];
        snprintf(key, sizeof(key), "rank%" PRIu64 ".layer%" PRIu64, r->set.rank, i);
        const tck_record_t record = {.struct_size = sizeof(record),
                                     .key = key,
                                     .dtype = TCK_U8,
                                     .ndim = 1,
                                     .global_shape = {bytes},
                                     .local_shape = {bytes},
                                     .addr = r->state + i * bytes,
                                     .memory = TCK_HOST};
        check(r, tck_add_record(r->client, &record, NULL), "add a tensor");
    }
    check(r, tck_register(r->client), "register");
}

/* Changes each chunk, as an optimizer does: chunks that are as before are not sent to the other rank. */
static void change(struct rank *r)
{
    for (uint64_t at = 0; at < r->set.mib * MIB; at += CHANGE_EVERY) {
        memcpy(r->state + at, &r->step, sizeof(r->step));
    }
}

/* One step, and its line. window: "with", "without" or "warm"; save: none, 1 to memory, 2 also to storage. */
static void step(struct rank *r, uint64_t pair, const char *window, int save)
{
    tck_stats_t before = {.struct_size = sizeof(before)}, after = before;
    int started = 0;
    check(r, tck_stats(r->client, &before), "statistics");
    bool copying = before.committed_step < r->saved || before.published_step < r->stored;
    uint64_t begin = now_ns();
    r->step++;
    /* The intervals are off, so this only tells the agent that a step has ended. */
    check(r, tck_save_if_needed(r->client, r->step, &started), "step");
    if (save != 0) {
        tck_status_t status = tck_snapshot(r->client, r->step, save == 2 ? TCK_SAVE_STORAGE : TCK_SAVE_MEMORY);
        if (status != TCK_OK) {
            fprintf(stderr, "step %" PRIu64 " was not saved: %s\n", r->step, tck_errmsg(r->client));
        } else {
            r->saved = r->step;
            r->stored = save == 2 ? r->step : r->stored;
        }
    }
    nanosleep(&(struct timespec){.tv_nsec = (long)r->set.compute_ms * 1000000}, NULL);
    check(r, tck_fence(r->client), "fence");
    exchange(r, NULL, NULL, r->set.reduce_kb * 1000);
    uint64_t took_ns = now_ns() - begin;
    check(r, tck_stats(r->client, &after), "statistics");
    printf("{\"pair\":%" PRIu64 ",\"window\":\"%s\",\"ms\":%.3f,\"stall_ms\":%.3f,\"copying\":%s}\n", pair, window,
           (double)took_ns / 1e6, (double)(after.stall_ns_total - before.stall_ns_total) / 1e6,
           copying || save != 0 ? "true" : "false");
}

static void window(struct rank *r, uint64_t pair, const char *name)
{
    bool saves = strcmp(name, "without") != 0;
    for (uint64_t i = 0; i < r->set.saves * r->set.every; i++) {
        bool due = saves && i % r->set.every == 0;
        bool last = i / r->set.every == r->set.saves - 1;
        step(r, pair, name, !due ? 0 : last ? 2 : 1);
        change(r);
    }
}

static void train(struct rank *r)
{
    uint64_t random = r->set.seed * 0x9e3779b97f4a7c15u + 1;
    for (uint64_t i = 0; i < WARM_WINDOWS; i++) {
        window(r, 0, "warm");
    }
    for (uint64_t pair = 1; pair <= r->set.pairs; pair++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        bool first = (random >> 32 & 1) != 0;
        window(r, pair, first ? "with" : "without");
        window(r, pair, first ? "without" : "with");
    }
}

int main(int argc, char **argv)
{
    struct rank r = {0};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    if (argc != 4 ||
        sscanf(argv[1], "%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64,
               &r.set.rank, &r.set.mib, &r.set.compute_ms, &r.set.reduce_kb, &r.set.pairs, &r.set.every, &r.set.saves,
               &r.set.seed) != 8 ||
        inet_pton(AF_INET, argv[2], &at.sin_addr) != 1) {
        fprintf(stderr, "usage: bench_pace RANK,MIB,COMPUTE_MS,REDUCE_KB,PAIRS,EVERY,SAVES,SEED ADDRESS_OF_0 JSON\n");
        return 2;
    }
    r.state = bench_alloc(r.set.mib * MIB);
    r.piece = bench_alloc(PIECE);
    memset(r.state, (int)r.set.rank + 1, r.set.mib * MIB);
    r.socket = r.set.rank == 0 ? listen_once(&at) : connect_to(&at);
    attach(&r, argv[3]);
    train(&r);
    tck_detach(r.client, 1);
    close(r.socket);
    return 0;
}
