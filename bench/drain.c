/* SPDX-License-Identifier: Apache-2.0
 * Our side of G13.drain (objects.py): drains 1 GiB to the save_dir that it is given, once for each line of its input,
 * and prints a line with the seconds and the processor seconds of it. What was published before is deleted in
 * between. */
#include "buffer.h"

#include "tiers/persistent.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATE_BYTES GIB
#define THREADS     2

struct drain {
    struct config config;
    struct loop *loop;
    struct pool *pool;
    struct persistent *tier;
    struct tier_item item;
    struct manifest manifest;
    struct manifest_file file;
    struct error outcome;
};

static void ended(void *ctx, const struct error *outcome)
{
    struct drain *d = ctx;
    d->outcome = *outcome;
    loop_stop(d->loop);
}

static void finish(struct drain *d, tck_status_t started, const char *what)
{
    bench_check(started, &d->outcome, what);
    loop_run(d->loop);
    bench_check(d->outcome.code, &d->outcome, what);
}

static void open_tier(struct drain *d, const char *save_dir, const char *audit_dir)
{
    struct error err = {0};
    char text[4 * CONFIG_PATH];
    snprintf(text, sizeof(text),
             "{\"job\":\"bench\",\"save_dir\":\"%s\",\"max_ckpt_num\":0,\"audit_file_path\":\"%s/audit.jsonl\"}",
             save_dir, audit_dir);
    bench_check(config_load(NULL, text, &d->config, &err), &err, "configuration");
    bench_check(loop_new(&d->loop, &err), &err, "loop");
    bench_check(pool_new(d->loop, THREADS, &d->pool, &err), &err, "pool");
    const struct persistent_setup setup = {.loop = d->loop, .pool = d->pool, .config = &d->config};
    bench_check(persistent_new(&setup, &d->tier, &err), &err, "persistent tier");
    bench_check(persistent_claim_term(d->tier, 1, &d->item.version.term, &err), &err, "term");
}

static void make_state(struct drain *d)
{
    d->item.shard = (struct hash128){1, 1};
    d->item.image_bytes = STATE_BYTES;
    d->item.image = buffer_private(STATE_BYTES);
    d->item.crcs = bench_alloc(chunk_count(STATE_BYTES) * sizeof(*d->item.crcs));
    d->item.root = digest_image(d->item.image, STATE_BYTES, d->item.crcs);
    d->file = (struct manifest_file){
        .shard = d->item.shard, .bytes = STATE_BYTES, .root = d->item.root, .crcs = d->item.crcs};
    manifest_file_name(d->file.shard, d->file.name);
    d->manifest = (struct manifest){.job = "bench", .world_size = 1, .wall_ms = 1, .file_count = 1, .files = &d->file};
}

static void put_and_publish(struct drain *d)
{
    d->item.version.step++;
    d->manifest.version = d->item.version;
    finish(d, persistent_put(d->tier, &d->item, ended, d, &d->outcome), "put");
    const struct publish_ask ask = {.manifest = &d->manifest, .term = d->manifest.version.term};
    finish(d, persistent_publish(d->tier, &ask, ended, d, &d->outcome), "publish");
}

int main(int argc, char **argv)
{
    static struct drain d;
    char line[16];
    if (argc != 3) {
        fprintf(stderr, "usage: %s SAVE_DIR AUDIT_DIR\n", argv[0]);
        return 2;
    }
    make_state(&d);
    open_tier(&d, argv[1], argv[2]);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        struct bench_go go;
        struct error err = {0};
        bench_start(&go);
        put_and_publish(&d);
        bench_stop(&go);
        bench_check(persistent_prune(d.tier, 1, VERSION_NONE, false, NULL, NULL, &err), &err, "prune");
        printf("%.6f %.6f\n", go.seconds, go.cpu);
        fflush(stdout);
    }
    persistent_free(d.tier);
    pool_free(d.pool);
    loop_free(d.loop);
    buffer_free(d.item.image, STATE_BYTES);
    free(d.item.crcs);
    return 0;
}
