/* SPDX-License-Identifier: Apache-2.0
 * Several agents on one store of objects at once: terms are claimed and noted by threads while another one puts,
 * publishes, lists and reads versions. Only one may get each term, and what is read is what was put. */
#include "memory_store.h"
#include "tiers/persistent.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLAIMERS 4
#define CLAIMS   25
#define VERSIONS 6
#define BYTES    ((5u * CHUNK_BYTES) + 4096u)

static struct object_store *store;
static struct config config;
static struct loop *loop;
static struct pool *pool;
static struct error outcome;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static struct persistent *open_tier(bool with_loop)
{
    struct persistent *tier = NULL;
    struct error err = {0};
    const struct persistent_setup setup = {.loop = with_loop ? loop : NULL,
                                           .pool = with_loop ? pool : NULL,
                                           .config = &config,
                                           .save_store = memory_store_client(store)};
    if (persistent_new(&setup, &tier, &err) != TCK_OK) {
        die("open", err.text);
    }
    return tier;
}

static void *claim(void *ctx)
{
    uint64_t *terms = ctx;
    struct error err = {0};
    struct persistent *tier = open_tier(false);
    for (int i = 0; i < CLAIMS; i++) {
        struct term_holders holders = {0};
        if (persistent_claim_term(tier, 100, &terms[i], &err) != TCK_OK ||
            persistent_note_commit(tier, terms[i], &err) != TCK_OK ||
            persistent_term_holders(tier, &holders, &err) != TCK_OK) {
            die("claim", err.text);
        }
        term_holders_free(&holders);
    }
    persistent_free(tier);
    return NULL;
}

static void ended(void *ctx, const struct error *result)
{
    *(struct error *)ctx = *result;
    loop_stop(loop);
}

static void wait_for(tck_status_t begun, const char *what)
{
    if (begun == TCK_OK) {
        loop_run(loop);
    }
    if (outcome.code != TCK_OK) {
        die(what, outcome.text);
    }
}

static struct tier_item make_item(struct version version)
{
    struct tier_item item = {.version = version, .shard = {9, 1}, .image_bytes = BYTES, .image = malloc(BYTES)};
    item.crcs = calloc(chunk_count(BYTES), sizeof(*item.crcs));
    memset(item.image, (int)version.step, BYTES);
    item.root = digest_image(item.image, BYTES, item.crcs);
    return item;
}

static void drain(struct persistent *tier, struct version version)
{
    struct tier_item item = make_item(version);
    struct manifest_file file = {.shard = item.shard, .bytes = BYTES, .root = item.root, .crcs = item.crcs};
    struct manifest manifest = {.version = version, .world_size = 1, .file_count = 1, .files = &file};
    const struct publish_ask ask = {.manifest = &manifest, .term = UINT64_MAX};
    snprintf(manifest.job, sizeof(manifest.job), "%s", config.job);
    manifest_file_name(file.shard, file.name);
    outcome = (struct error){0};
    wait_for(persistent_put(tier, &item, ended, &outcome, &outcome), "put");
    wait_for(persistent_publish(tier, &ask, ended, &outcome, &outcome), "publish");
    free(item.image);
    free(item.crcs);
}

static void load(struct persistent *tier, struct version version)
{
    struct tier_item want = make_item(version), got = make_item(version);
    struct found_file found = {.shard = want.shard};
    memset(got.image, 0, BYTES);
    persistent_find(tier, version, &found, 1);
    outcome = found.outcome;
    if (outcome.code != TCK_OK) {
        die("find", outcome.text);
    }
    wait_for(persistent_get(tier, &found.which, &found.file, &got, ended, &outcome, &outcome), "get");
    if (memcmp(want.image, got.image, BYTES) != 0) {
        die("get", "other bytes");
    }
    free(found.file.crcs);
    free(want.image), free(want.crcs), free(got.image), free(got.crcs);
}

static void check_terms(uint64_t terms[CLAIMERS][CLAIMS])
{
    static bool taken[100 + CLAIMERS * CLAIMS];
    for (int i = 0; i < CLAIMERS * CLAIMS; i++) {
        uint64_t term = terms[i / CLAIMS][i % CLAIMS];
        if (term < 100 || term >= sizeof(taken) || taken[term]) {
            die("terms", "one was given twice, or none");
        }
        taken[term] = true;
    }
}

int main(void)
{
    static uint64_t terms[CLAIMERS][CLAIMS];
    pthread_t threads[CLAIMERS];
    struct error err = {0};
    store = memory_store_new();
    config = (struct config){.job = "job", .node = "n0", .max_ckpt_num = 2, .save_dir = "s3://memory"};
    snprintf(config.audit_file_path, sizeof(config.audit_file_path), "/tmp/stress_objects.%d", (int)getpid());
    if (loop_new(&loop, &err) != TCK_OK || pool_new(loop, 2, &pool, &err) != TCK_OK) {
        die("loop and pool", err.text);
    }
    struct persistent *tier = open_tier(true);
    for (int i = 0; i < CLAIMERS; i++) {
        pthread_create(&threads[i], NULL, claim, terms[i]);
    }
    for (uint64_t step = 1; step <= VERSIONS; step++) {
        drain(tier, (struct version){1, step});
        load(tier, (struct version){1, step});
    }
    for (int i = 0; i < CLAIMERS; i++) {
        pthread_join(threads[i], NULL);
    }
    check_terms(terms);
    persistent_free(tier);
    pool_free(pool);
    loop_free(loop);
    store->ops->free(store);
    unlink(config.audit_file_path);
    return 0;
}
