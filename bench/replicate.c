/* SPDX-License-Identifier: Apache-2.0
 * G9: a copy of a shard at a peer, verified and acknowledged, beside a plain TCP stream of the same bytes; and copies
 * of which the peer has the version before. Sender and receivers are processes of their own; all traffic goes over
 * loopback.
 */
#include "buffer.h"

#include "base/same_chunks.h"
#include "tiers/peer.h"
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATE_BYTES (512 * MIB)
#define DEVICE      "lo"
#define ENVIRONMENT "TCK_BENCH_UCX_IS_SET"
#define BASE_SEED   3 /* of what both sides have as the version before */
#define CHANGED     (STATE_BYTES / 20)

/* A process of ours that receives, and where its sender finds it. */
struct receiver {
    pid_t pid;
    int pipe; /* what it tells */
};

static struct receiver receiver_start(const struct bench *bench, void (*body)(const struct bench *bench, int tell))
{
    struct receiver receiver;
    int ends[2];
    if (pipe(ends) != 0 || (receiver.pid = fork()) < 0) {
        bench_die("start a receiver: %s", strerror(errno));
    }
    if (receiver.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        body(bench, ends[1]);
        _exit(EXIT_SUCCESS);
    }
    close(ends[1]);
    receiver.pipe = ends[0];
    return receiver;
}

static void receiver_end(const struct receiver *receiver)
{
    kill(receiver->pid, SIGKILL);
    waitpid(receiver->pid, NULL, 0);
    close(receiver->pipe);
}

static void tell(int fd, const void *data, size_t len)
{
    if (write(fd, data, len) != (ssize_t)len) {
        bench_die("tell the sender: %s", strerror(errno));
    }
}

static void hear(const struct receiver *receiver, void *data, size_t len)
{
    if (read(receiver->pipe, data, len) != (ssize_t)len) {
        bench_die("the receiver did not begin");
    }
}

/* ---- agents ---------------------------------------------------------------------------------------------------- */

struct side {
    struct loop *loop;
    struct pool *pool;
    struct peers *peers;
    struct peer *other;
    struct tier_item item;
    uint8_t *base; /* the version before; NULL: none */
    struct error outcome;
};

static size_t on_beat(void *ctx, struct peer *to, uint8_t *out, size_t cap)
{
    (void)ctx;
    (void)to;
    (void)out;
    (void)cap;
    return 0;
}

static void on_beat_got(void *ctx, struct peer *from, const uint8_t *data, size_t len)
{
    (void)ctx;
    (void)from;
    (void)data;
    (void)len;
}

static void on_up(void *ctx, struct peer *peer)
{
    const struct side *side = ctx;
    (void)peer;
    loop_stop(side->loop);
}

static void on_down(void *ctx, struct peer *peer, const char *why)
{
    (void)ctx;
    (void)peer;
    bench_die("the session ended: %s", why);
}

static void on_message(void *ctx, struct peer *peer, uint16_t type, const void *data, size_t len)
{
    (void)type;
    on_beat_got(ctx, peer, data, len);
}

static tck_status_t on_offered(void *ctx, struct peer *from, const struct peer_offer *offer, struct tier_item *item,
                               struct error *err)
{
    const struct side *side = ctx;
    (void)from;
    if (offer->image_bytes != STATE_BYTES) {
        return error_set(err, TCK_ERR_NOSPC, "no slot of this size");
    }
    *item = side->item;
    item->base_image = version_none(offer->base) ? NULL : side->base;
    return TCK_OK;
}

static tck_status_t on_stored(void *ctx, struct peer *from, const struct peer_offer *offer, const struct error *outcome)
{
    (void)ctx;
    (void)from;
    (void)offer;
    return outcome->code;
}

static bool on_base_bad(void *ctx, struct peer *from, const struct tier_item *item, uint32_t chunk)
{
    (void)ctx;
    (void)from;
    (void)item;
    bench_die("chunk %u of the base is damaged", chunk);
    return true;
}

static tck_status_t on_pulled(void *ctx, struct peer *from, const struct peer_offer *want, struct tier_item *item,
                              struct error *err)
{
    (void)ctx;
    (void)from;
    (void)want;
    (void)item;
    return error_set(err, TCK_ERR_NOENT, "nothing to pull here");
}

static void on_pull_done(void *ctx, struct peer *from, const struct tier_item *item)
{
    (void)ctx;
    (void)from;
    (void)item;
}

static void side_open(struct side *side, const struct bench *bench, uint64_t id)
{
    struct error err = {0};
    bench_check(loop_new(&side->loop, &err), &err, "loop");
    bench_check(pool_new(side->loop, 2, &side->pool, &err), &err, "pool");
    struct peers_setup setup = {.loop = side->loop,
                                .pool = side->pool,
                                .job = "bench",
                                .self = {.agent_id = id},
                                .device = DEVICE,
                                .address = "127.0.0.1",
                                .heartbeat_ms = 500,
                                .timeout_ms = 20000,
                                .transfer_timeout_ms = 20000,
                                .ctx = side,
                                .beat = on_beat,
                                .beat_got = on_beat_got,
                                .up = on_up,
                                .down = on_down,
                                .message = on_message,
                                .offered = on_offered,
                                .stored = on_stored,
                                .base_bad = on_base_bad,
                                .pulled = on_pulled,
                                .pull_done = on_pull_done};
    snprintf(setup.self.name, sizeof(setup.self.name), "node%" PRIu64, id);
    snprintf(setup.self.domain, sizeof(setup.self.domain), "rack%" PRIu64, id);
    memset(setup.secret.bytes, 7, sizeof(setup.secret.bytes));
    bench_check(peers_new(&setup, &side->peers, &err), &err, "link");
    side->item = (struct tier_item){.version = {1, 0}, .shard = {1, 1}, .image_bytes = STATE_BYTES};
    side->item.image = buffer_shared(bench, STATE_BYTES);
    side->item.crcs = bench_alloc(chunk_count(STATE_BYTES) * sizeof(*side->item.crcs));
}

/* Holds copies until it is killed. */
static void be_holder(const struct bench *bench, int to_sender)
{
    struct side side = {0};
    side_open(&side, bench, 2);
    side.base = buffer_shared(bench, STATE_BYTES);
    buffer_fill(side.base, STATE_BYTES, BASE_SEED);
    tell(to_sender, peers_self(side.peers), sizeof(struct node_info));
    for (;;) {
        loop_run(side.loop);
    }
}

static void ended(void *ctx, const struct error *outcome)
{
    struct side *side = ctx;
    side->outcome = *outcome;
    loop_stop(side->loop);
}

static void replicate(void *ctx, struct bench_go *go)
{
    struct side *side = ctx;
    side->item.version.step++;
    bench_start(go);
    bench_check(peer_put(side->other, 1, &side->item, ended, side, &side->outcome), &side->outcome, "put");
    loop_run(side->loop);
    bench_stop(go);
    bench_check(side->outcome.code, &side->outcome, "put");
}

static void side_connect(struct side *side, const struct receiver *holder)
{
    struct error err = {0};
    struct node_info node;
    hear(holder, &node, sizeof(node));
    bench_check(peers_want(side->peers, &node, &side->other, &err), &err, "peer");
    while (!peer_is_up(side->other)) {
        loop_run(side->loop);
    }
    buffer_fill(side->item.image, STATE_BYTES, BASE_SEED);
    side->item.root = digest_image(side->item.image, STATE_BYTES, side->item.crcs);
}

/* ---- copies on a base ------------------------------------------------------------------------------------------ */

/* A version of which part has changed since the one before, which the holder has, too. */
struct changed {
    struct side *side;
    struct tier_item item; /* the version, */
    struct tier_base base; /* and the one before */
    struct digested before;
    uint8_t same[STATE_BYTES / CHUNK_BYTES / 8];
};

/* What is the same is found as the agent finds it: nothing is compared if no CRC is equal. */
static void replicate_changed(void *ctx, struct bench_go *go)
{
    struct changed *c = ctx;
    const struct digested now = {c->item.image, c->item.crcs};
    struct side *side = c->side;
    c->item.version.step = ++side->item.version.step;
    bench_start(go);
    memset(c->same, 0, sizeof(c->same));
    bool any = same_chunks_possible(&now, &c->before, STATE_BYTES) &&
               same_chunks(&now, &c->before, STATE_BYTES, 0, chunk_count(STATE_BYTES), c->same) > 0;
    c->item.base = any ? &c->base : NULL;
    bench_check(peer_put(side->other, 1, &c->item, ended, side, &side->outcome), &side->outcome, "put");
    loop_run(side->loop);
    bench_stop(go);
    bench_check(side->outcome.code, &side->outcome, "put");
}

/* The first bytes have changed, or (stride) one byte in each so many. */
static void changed_make(struct changed *c, const struct bench *bench, struct side *side, uint64_t bytes,
                         uint64_t stride)
{
    *c = (struct changed){.side = side, .item = side->item, .before = {side->item.image, side->item.crcs}};
    c->item.image = buffer_shared(bench, STATE_BYTES);
    c->item.crcs = bench_alloc(chunk_count(STATE_BYTES) * sizeof(*c->item.crcs));
    memcpy(c->item.image, side->item.image, STATE_BYTES);
    for (uint64_t i = 0; i < bytes; i += stride) {
        c->item.image[i] ^= 1;
    }
    c->item.root = digest_image(c->item.image, STATE_BYTES, c->item.crcs);
    c->base = (struct tier_base){.version = {1, 0}, .root = side->item.root, .same = c->same};
}

static void print_times(const struct bench *bench, const char *id, const char *what, double goal,
                        const struct bench_way ways[2])
{
    bench_print(&(struct bench_row){.id = id,
                                    .what = what,
                                    .unit = "ratio of seconds",
                                    .value = bench_ratio(&ways[1], &ways[0], bench->rounds),
                                    .better = BENCH_LESS,
                                    .goal = goal,
                                    .rounds = bench->rounds,
                                    .reference = ways[0].name,
                                    .reference_value = bench_seconds(&ways[0], bench->rounds).median,
                                    .reference_unit = "s"});
}

/* `side` has sent its state, which the holder takes for the version before. */
static void bench_changed(const struct bench *bench, struct side *side)
{
    static struct bench_way ways[3];
    static struct changed part, all;
    changed_make(&part, bench, side, CHANGED, 1);
    changed_make(&all, bench, side, STATE_BYTES, CHUNK_BYTES);
    ways[0] = (struct bench_way){.name = "replica without a base", .run = replicate, .ctx = side};
    ways[1] = (struct bench_way){.name = "all chunks changed", .run = replicate_changed, .ctx = &all};
    ways[2] = (struct bench_way){.name = "5 % changed", .run = replicate_changed, .ctx = &part};
    bench_rounds(bench->rounds, ways, 3);
    bench_print(
        &(struct bench_row){.id = "G9.changed",
                            .what = "bytes sent per byte changed, of a replica of 512 MiB of which 5 % has changed",
                            .unit = "ratio",
                            .value = {.median = (double)(STATE_BYTES - part.base.not_sent) / (double)CHANGED},
                            .better = BENCH_LESS,
                            .goal = 1.1,
                            .rounds = bench->rounds,
                            .reference = "sent of a version whose every chunk has changed",
                            .reference_value = (double)(STATE_BYTES - all.base.not_sent) / (double)MIB,
                            .reference_unit = "MiB"});
    print_times(bench, "G9.all_changed", "replica whose every chunk has changed / the same without a base", 1.02, ways);
    ways[1] = ways[2];
    print_times(bench, "G9.changed.time", "replica of which 5 % has changed / of all bytes", NAN, ways);
}

/* ---- the plain stream ------------------------------------------------------------------------------------------ */

struct stream {
    int fd;
    const uint8_t *data;
};

static int listen_at_loopback(struct sockaddr_in *at)
{
    socklen_t len = sizeof(*at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (fd < 0 || bind(fd, (const struct sockaddr *)at, len) != 0 || listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)at, &len) != 0) {
        bench_die("listen: %s", strerror(errno));
    }
    return fd;
}

/* Receives states until it is killed, and reports each. */
static void be_stream_receiver(const struct bench *bench, int to_sender)
{
    struct sockaddr_in at;
    int listener = listen_at_loopback(&at);
    uint8_t *data = buffer_shared(bench, STATE_BYTES);
    tell(to_sender, &at, sizeof(at));
    int fd = accept(listener, NULL, NULL);
    for (;;) {
        for (size_t got = 0; got < STATE_BYTES;) {
            ssize_t n = recv(fd, data + got, STATE_BYTES - got, 0);
            if (n <= 0) {
                return;
            }
            got += (size_t)n;
        }
        tell(fd, "", 1);
    }
}

static void stream(void *ctx, struct bench_go *go)
{
    const struct stream *s = ctx;
    char reply;
    bench_start(go);
    for (size_t sent = 0; sent < STATE_BYTES;) {
        ssize_t n = send(s->fd, s->data + sent, STATE_BYTES - sent, MSG_NOSIGNAL);
        if (n <= 0) {
            bench_die("send: %s", strerror(errno));
        }
        sent += (size_t)n;
    }
    if (recv(s->fd, &reply, 1, 0) != 1) {
        bench_die("the stream's receiver went away");
    }
    bench_stop(go);
}

static void stream_connect(struct stream *s, const struct receiver *receiver, const uint8_t *data)
{
    struct sockaddr_in at;
    hear(receiver, &at, sizeof(at));
    s->data = data;
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->fd < 0 || connect(s->fd, (const struct sockaddr *)&at, sizeof(at)) != 0) {
        bench_die("connect: %s", strerror(errno));
    }
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

static void bench_replicate(const struct bench *bench)
{
    static struct bench_way ways[2];
    struct side side = {0};
    struct stream plain;
    struct receiver holder = receiver_start(bench, be_holder);
    struct receiver sink = receiver_start(bench, be_stream_receiver);
    side_open(&side, bench, 1);
    side_connect(&side, &holder);
    stream_connect(&plain, &sink, side.item.image);
    ways[0] = (struct bench_way){.name = "replica", .run = replicate, .ctx = &side};
    ways[1] = (struct bench_way){.name = "one TCP stream over loopback", .run = stream, .ctx = &plain};
    bench_rounds(bench->rounds, ways, 2);
    bench_print(
        &(struct bench_row){.id = "G9",
                            .what = "replica of 512 MiB at a peer, verified there / plain TCP stream",
                            .unit = "ratio of GB/s",
                            .value = bench_ratio(&ways[1], &ways[0], bench->rounds),
                            .better = BENCH_MORE,
                            .goal = 0.9,
                            .rounds = bench->rounds,
                            .reference = ways[1].name,
                            .reference_value = (double)STATE_BYTES / GB / bench_seconds(&ways[1], bench->rounds).median,
                            .reference_unit = "GB/s"});
    receiver_end(&sink);
    bench_changed(bench, &side);
    receiver_end(&holder);
    _exit(EXIT_SUCCESS); /* the session's other end is gone: nothing to close in an orderly way */
}

int main(int argc, char **argv)
{
    static const struct bench_entry entries[] = {{"G9", bench_replicate}};
    if (getenv(ENVIRONMENT) == NULL) { /* UCX has read its own when it was loaded: begin again with the right one */
        link_environment(DEVICE);
        link_environment_family(false);
        setenv(ENVIRONMENT, "1", 1);
        execv("/proc/self/exe", argv);
    }
    return bench_main(argc, argv, entries, 1);
}
