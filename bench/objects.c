/* SPDX-License-Identifier: Apache-2.0
 * G13: parts sent to a store of objects by our client, beside plain sockets that write the same bytes to the same sink,
 * with as many connections at once. G13.tls: the same with TLS on both sides, by OpenSSL on the plain one. The sink is
 * a process of its own; all traffic goes over loopback. */
#include "buffer.h"
#include "sink.h"

#include "base/digest.h"
#include "tiers/object/s3_store.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STATE_BYTES GIB
#define PART_BYTES  (16 * MIB)
#define PARTS       ((uint32_t)(STATE_BYTES / PART_BYTES))
#define CONNECTIONS 8 /* those of a drain (tiers/object_put.c) */

struct objects {
    struct tls *tls; /* NULL: without */
    struct sink sink;
    struct object_store *store;
    struct object_upload upload;
    uint8_t *data;
    uint32_t crcs[PARTS];
    int sockets[CONNECTIONS];
    struct tls_stream *streams[CONNECTIONS]; /* on these, with TLS */
    atomic_uint next;                        /* part */
};

struct sender {
    struct objects *o;
    uint32_t number;
};

/* ---- our client ------------------------------------------------------------------------------------------------ */

static void *send_parts(void *ctx)
{
    struct objects *o = ((struct sender *)ctx)->o;
    for (uint32_t i = atomic_fetch_add(&o->next, 1); i < PARTS; i = atomic_fetch_add(&o->next, 1)) {
        struct error err = {0};
        struct object_part part;
        const struct object_bytes bytes = {
            .data = o->data + i * PART_BYTES, .bytes = PART_BYTES, .crc32c = &o->crcs[i]};
        bench_check(o->store->ops->upload_part(o->store, NULL, &o->upload, i + 1, &bytes, &part, &err), &err, "part");
    }
    return NULL;
}

/* ---- plain sockets --------------------------------------------------------------------------------------------- */

static void write_all(const struct sender *sender, const void *data, size_t bytes)
{
    int fd = sender->o->sockets[sender->number];
    struct tls_stream *stream = sender->o->streams[sender->number];
    if (stream != NULL) {
        if (tls_write(stream, data, bytes) < 0) {
            bench_die("write to the sink over TLS: %s", strerror(errno));
        }
        return;
    }
    for (const char *at = data; bytes > 0;) {
        ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
        if (sent <= 0) {
            bench_die("write to the sink: %s", strerror(errno));
        }
        at += sent;
        bytes -= (size_t)sent;
    }
}

static void read_answer(const struct sender *sender)
{
    char answer[512];
    struct tls_stream *stream = sender->o->streams[sender->number];
    if ((stream != NULL ? tls_read(stream, answer, sizeof(answer))
                        : recv(sender->o->sockets[sender->number], answer, sizeof(answer), 0)) <= 0) {
        bench_die("the sink gave no answer: %s", strerror(errno));
    }
}

static void *write_parts(void *ctx)
{
    const struct sender *sender = ctx;
    struct objects *o = sender->o;
    char head[256];
    int len = snprintf(head, sizeof(head), "PUT /bench/raw HTTP/1.1\r\nHost: sink\r\nContent-Length: %llu\r\n\r\n",
                       (unsigned long long)PART_BYTES);
    for (uint32_t i = atomic_fetch_add(&o->next, 1); i < PARTS; i = atomic_fetch_add(&o->next, 1)) {
        write_all(sender, head, (size_t)len);
        write_all(sender, o->data + i * PART_BYTES, PART_BYTES);
        read_answer(sender);
    }
    return NULL;
}

/* ---- set-up ---------------------------------------------------------------------------------------------------- */

static void connect_all(struct objects *o)
{
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        o->sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(o->sockets[i], (struct sockaddr *)&o->sink.address, sizeof(o->sink.address)) != 0) {
            bench_die("connect to the sink: %s", strerror(errno));
        }
        o->streams[i] = o->tls != NULL ? tls_connect(o->tls, o->sockets[i]) : NULL;
    }
}

static void open_store(struct objects *o)
{
    struct error err = {0};
    char endpoint[64];
    snprintf(endpoint, sizeof(endpoint), "http%s://127.0.0.1:%u", o->tls != NULL ? "s" : "",
             ntohs(o->sink.address.sin_port));
    setenv("AWS_ENDPOINT_URL_S3", endpoint, 1);
    setenv("AWS_ACCESS_KEY_ID", "bench", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "bench", 1);
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    setenv("no_proxy", "*", 1);
    tck_status_t status = s3_store_new("s3://bench", &o->store, &err);
    if (status == TCK_ERR_UNSUPPORTED) {
        bench_skip("%s", err.text);
    }
    bench_check(status, &err, "store");
    o->upload = (struct object_upload){.key = "shard", .id = strdup("upload")};
}

/* The client trusts the certificate that was just made, and no other. */
static struct tls *new_tls(const struct bench *bench)
{
    char file[sizeof(bench->dir) + 32];
    snprintf(file, sizeof(file), "%s/certificate.pem", bench->dir);
    struct tls *tls = tls_new(file);
    setenv("AWS_CA_BUNDLE", file, 1);
    return tls;
}

static struct objects *objects_open(const struct bench *bench, bool with_tls)
{
    struct objects *o = bench_alloc(sizeof(*o));
    o->tls = with_tls ? new_tls(bench) : NULL;
    o->sink = sink_start(o->tls);
    open_store(o);
    connect_all(o);
    o->data = buffer_private(STATE_BYTES);
    for (uint32_t i = 0; i < PARTS; i++) {
        o->crcs[i] = crc32c(0, o->data + i * PART_BYTES, PART_BYTES);
    }
    return o;
}

static void objects_close(struct objects *o)
{
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        if (o->streams[i] != NULL) {
            tls_close(o->streams[i]);
        }
        close(o->sockets[i]);
    }
    o->store->ops->free(o->store);
    sink_end(&o->sink);
    if (o->tls != NULL) {
        tls_free(o->tls);
    }
    free(o->upload.id);
    buffer_free(o->data, STATE_BYTES);
    free(o);
}

/* ---- what is measured ------------------------------------------------------------------------------------------ */

static void send_by(struct objects *o, void *(*work)(void *), struct bench_go *go)
{
    pthread_t threads[CONNECTIONS];
    struct sender senders[CONNECTIONS];
    atomic_store(&o->next, 0);
    bench_start(go);
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        senders[i] = (struct sender){.o = o, .number = i};
        if (pthread_create(&threads[i], NULL, work, &senders[i]) != 0) {
            bench_die("no thread");
        }
    }
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        pthread_join(threads[i], NULL);
    }
    bench_stop(go);
}

static void by_client(void *ctx, struct bench_go *go)
{
    send_by(ctx, send_parts, go);
}

static void by_sockets(void *ctx, struct bench_go *go)
{
    send_by(ctx, write_parts, go);
}

/* id: without ".cpu". */
static void print_rows(const struct bench *bench, const char *id, const char *what, const struct bench_way *ways)
{
    double gb = (double)STATE_BYTES / GB;
    const struct bench_way *client = &ways[0], *sockets = &ways[1];
    struct spread cpu = bench_cpu(client, bench->rounds);
    char cpu_id[32];
    bench_print(&(struct bench_row){.id = id,
                                    .what = what,
                                    .unit = "ratio of GB/s",
                                    .value = bench_ratio(sockets, client, bench->rounds),
                                    .better = BENCH_MORE,
                                    .goal = 0.9,
                                    .rounds = bench->rounds,
                                    .reference = sockets->name,
                                    .reference_value = gb / bench_seconds(sockets, bench->rounds).median,
                                    .reference_unit = "GB/s"});
    snprintf(cpu_id, sizeof(cpu_id), "%s.cpu", id);
    bench_print(&(struct bench_row){.id = cpu_id,
                                    .what = "processor time of sending them",
                                    .unit = "CPU s/GB",
                                    .value = {cpu.median / gb, cpu.spread},
                                    .goal = NAN,
                                    .rounds = bench->rounds,
                                    .reference = sockets->name,
                                    .reference_value = bench_cpu(sockets, bench->rounds).median / gb,
                                    .reference_unit = "CPU s/GB"});
}

static void bench_parts(const struct bench *bench)
{
    static struct bench_way ways[2];
    struct objects *o = objects_open(bench, false);
    ways[0] = (struct bench_way){.name = "parts by our client", .run = by_client, .ctx = o};
    ways[1] = (struct bench_way){.name = "8 plain sockets", .run = by_sockets, .ctx = o};
    bench_rounds(bench->rounds, ways, 2);
    print_rows(bench, "G13", "1 GiB in parts of 16 MiB, 8 at once, by HTTP / by plain sockets", ways);
    objects_close(o);
}

static void bench_parts_over_tls(const struct bench *bench)
{
    static struct bench_way ways[2];
    struct objects *o = objects_open(bench, true);
    ways[0] = (struct bench_way){.name = "parts by our client over TLS", .run = by_client, .ctx = o};
    ways[1] = (struct bench_way){.name = "8 sockets with OpenSSL", .run = by_sockets, .ctx = o};
    bench_rounds(bench->rounds, ways, 2);
    print_rows(bench, "G13.tls", "1 GiB in parts of 16 MiB, 8 at once, by HTTPS / by OpenSSL on sockets", ways);
    objects_close(o);
}

int main(int argc, char **argv)
{
    static const struct bench_entry entries[] = {{"G13", bench_parts}, {"G13.tls", bench_parts_over_tls}};
    return bench_main(argc, argv, entries, sizeof(entries) / sizeof(*entries));
}
