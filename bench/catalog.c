/* SPDX-License-Identifier: Apache-2.0
 * G12: one durable transition of the catalog beside a durable append to a plain file. */
#include "bench.h"

#include "recovery/catalog.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SHARDS       9 /* with the version itself: a batch of ten rows */
#define APPEND_BYTES 256
#define GO_COMMITS   20 /* one commit alone is shorter than what disturbs it */

struct commits {
    struct catalog *catalog;
    struct catalog_version version;
    struct catalog_shard shards[SHARDS];
    int fd;
};

static void commit(void *ctx, struct bench_go *go)
{
    struct commits *c = ctx;
    struct error err = {0};
    bench_start(go);
    for (int i = 0; i < GO_COMMITS; i++) {
        c->version.version.step++;
        for (uint32_t k = 0; k < SHARDS; k++) {
            c->shards[k].version = c->version.version;
        }
        bench_check(catalog_put(c->catalog, &c->version, c->shards, SHARDS, true, &err), &err, "catalog");
    }
    bench_stop(go);
}

static void append(void *ctx, struct bench_go *go)
{
    const struct commits *c = ctx;
    char row[APPEND_BYTES] = {1};
    bench_start(go);
    for (int i = 0; i < GO_COMMITS; i++) {
        if (write(c->fd, row, sizeof(row)) != (ssize_t)sizeof(row) || fdatasync(c->fd) != 0) {
            bench_die("append: %s", strerror(errno));
        }
    }
    bench_stop(go);
}

static void fill_rows(struct commits *c)
{
    c->version =
        (struct catalog_version){.version = {1, 0}, .state = CATALOG_COMMITTED, .shard_count = SHARDS, .bytes = GIB};
    for (uint32_t k = 0; k < SHARDS; k++) {
        c->shards[k] = (struct catalog_shard){
            .shard = {k + 1, k + 1}, .root = {k, k}, .bytes = GIB, .holder_count = 2, .holders = {"node-1", "node-2"}};
    }
}

static void bench_commit(const struct bench *bench)
{
    static struct bench_way ways[2];
    static struct commits c;
    struct error err = {0};
    char path[600];
    bool rebuilt;
    uint32_t rounds = bench->rounds * 3;
    rounds = rounds < BENCH_ROUNDS_MAX ? rounds : BENCH_ROUNDS_MAX;
    fill_rows(&c);
    snprintf(path, sizeof(path), "%s/catalog", bench->dir);
    bench_check(catalog_open(path, &c.catalog, &rebuilt, &err), &err, "catalog");
    snprintf(path, sizeof(path), "%s/append", bench->dir);
    c.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ways[0] = (struct bench_way){.name = "commit", .run = commit, .ctx = &c};
    ways[1] = (struct bench_way){.name = "append of 256 bytes and fdatasync", .run = append, .ctx = &c};
    bench_rounds(rounds, ways, 2);
    bench_print(&(struct bench_row){.id = "G12",
                                    .what = "catalog commit of 10 rows, durable / plain append, durable",
                                    .unit = "ratio of time",
                                    .value = bench_ratio(&ways[0], &ways[1], rounds),
                                    .goal = 1.3,
                                    .rounds = rounds,
                                    .reference = ways[1].name,
                                    .reference_value = bench_seconds(&ways[1], rounds).median / GO_COMMITS * 1e6,
                                    .reference_unit = "us"});
    catalog_close(c.catalog);
    close(c.fd);
}

int main(int argc, char **argv)
{
    static const struct bench_entry entries[] = {{"G12", bench_commit}};
    return bench_main(argc, argv, entries, 1);
}
