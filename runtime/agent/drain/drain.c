/* SPDX-License-Identifier: Apache-2.0
 * Drains: each node writes its part of a committed version into the stage. The coordinator collects the nodes' reports,
 * writes the manifest and publishes. Until then the decision keeps the slots pinned. */
#include "agent/drain/drain.h"

#include "agent/drain/drain_share.h"
#include "agent/driver/protocol_driver.h"
#include "agent/driver/term_context.h"
#include "agent/pace/pacing.h"
#include "agent/replication/peer_rpc.h"
#include "agent/scrub/memory_scrub.h"
#include "agent/state/adopt.h"
#include "agent/storage/health.h"
#include "agent/storage/storage_ops.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "tiers/persistent.h"
#include "tiers/segment.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct drain {
    struct drain_setup needs;
    struct gathering *gathering; /* manifest of the drain under way, on the coordinator */
    struct drain_op *writing;    /* this node's part that was begun last; NULL: it has ended, or was given up */
    struct drain_counts counts;
};

/* ---- this node's part ---------------------------------------------------------------------------------------- */

/* Files that are written at once. While one is opened, synced or named, or is still being read back, storage writes the
 * next ones; their bytes go one file after another where a few requests keep it busy (tiers/io_depth.h). */
#define FILES_MAX 8

/* A file under way. */
struct drain_file {
    struct drain_op *op; /* NULL: the place is free */
    uint32_t local_shard;
    uint64_t shared_bytes; /* known when it is done */
    struct tier_item item;
};

struct drain_op {
    struct storage_op storage;
    struct drain *drain;
    struct term_context *tc;
    struct version version;
    uint64_t attempt;
    uint32_t next; /* of its places, to begin next */
    uint32_t open; /* files under way */
    bool stopped;  /* one has failed, or the drain is over: no further file is begun */
    struct drain_file files[FILES_MAX];
    struct progress progress[FILES_MAX]; /* of each of them */
    uint32_t count;
    struct drain_place places[]; /* what this node writes, in its order */
};

static void drain_end(struct drain_op *op, bool ok)
{
    struct term_context *tc = op->tc;
    struct drain *drain = op->drain;
    drain->writing = drain->writing == op ? NULL : drain->writing;
    struct event event = {.type = EVENT_DRAINED_HERE, .version = op->version, .attempt = op->attempt, .ok = ok};
    if (!storage_ignored(&op->storage)) {
        driver_step_node(tc, &event);
    }
    storage_end(&op->storage);
    pacing_end(drain->needs.pacing, LANE_DRAIN, 0); /* there is only one, so nothing is left after it */
    free(op);
}

/* Storage hangs: the slots are released, and files that are still being written get no name. A drain that has failed
 * before was counted and reported then. */
static void drain_give_up(void *ctx, const struct error *why)
{
    struct drain_op *op = ctx;
    struct event event = {.type = EVENT_DRAINED_HERE, .version = op->version, .attempt = op->attempt, .ok = false};
    persistent_give_up(op->drain->needs.persistent);
    if (!op->stopped) {
        op->drain->counts.failed++;
        health_storage_failed(op->drain->needs.health, op->version.step, why);
    }
    driver_step_node(op->tc, &event);
}

/* The copy no longer matches its digests and is dropped. */
static void on_bad_copy(struct drain_op *op, uint32_t local_shard, const struct error *outcome)
{
    uint32_t slot = node_slot_of(op->tc->node, local_shard, op->version);
    if (slot != NONE32) {
        uint32_t k;
        struct local_shard *d = term_context_slot(op->tc, slot, &k);
        scrub_drop_copy(op->drain->needs.scrub, d->segment, k, outcome->text);
    }
}

/* True if its result is no longer needed: its term is over, it was given up, or the coordinator has given up this
 * attempt, in which case the slot may already be free. */
static bool is_over(const struct drain_op *op)
{
    return storage_ignored(&op->storage) || !node_drain_wanted(op->tc->node, op->version, op->attempt);
}

/* Names the first rank that saves the shard, because users do not know the ids of shards. */
static struct error with_rank(const struct drain_op *op, uint32_t local_shard, const struct error *outcome)
{
    struct error named = *outcome;
    const struct world *world = &op->tc->world;
    uint32_t shard = op->tc->shards[local_shard].world_shard;
    if (shard < world->shard_count) {
        error_prefix(&named, "rank %" PRIu32, world->shard_ranks[world->shards[shard].first_rank]);
    }
    return named;
}

void drain_decided(struct drain *drain)
{
    if (drain->writing != NULL && is_over(drain->writing)) {
        drain->writing = NULL;
        persistent_give_up(drain->needs.persistent);
    }
}

/* The first failure of a file ends the drain: the other files are given up, and their errors are not reported. */
static void file_failed(struct drain_op *op, uint32_t local_shard, const struct error *outcome)
{
    if (outcome->code == TCK_ERR_CORRUPT) {
        on_bad_copy(op, local_shard, outcome);
    }
    if (op->stopped) {
        return;
    }
    struct error named = with_rank(op, local_shard, outcome);
    op->stopped = true;
    log_error("drain of version %" PRIu64 ".%" PRIu64 " failed: %s", op->version.term, op->version.step, named.text);
    health_storage_failed(op->drain->needs.health, op->version.step, &named);
    op->drain->counts.failed++;
    if (op->open > 0) {
        persistent_give_up(op->drain->needs.persistent);
    }
}

static void drain_on(struct drain_op *op);

static void file_done(void *ctx, const struct error *outcome)
{
    struct drain_file *file = ctx;
    struct drain_op *op = file->op;
    op->open--;
    file->op = NULL;
    if (is_over(op)) {
        op->stopped = true;
    } else if (outcome->code != TCK_OK) {
        file_failed(op, file->local_shard, outcome);
    } else {
        failpoint(drain, file_done);
        op->tc->local_shards[file->local_shard].drained = file->item.root;
        op->tc->local_shards[file->local_shard].drained_version = op->version;
        op->drain->counts.bytes += file->item.image_bytes - file->shared_bytes;
        op->drain->counts.shared_bytes += file->shared_bytes;
    }
    drain_on(op);
}

static tck_status_t file_begin(struct drain_op *op, struct drain_file *file, uint32_t local_shard, struct error *err)
{
    struct term_context *tc = op->tc;
    uint32_t slot = node_slot_of(tc->node, local_shard, op->version);
    if (slot == NONE32) {
        return error_set(err, TCK_ERR_NOENT, "this node has lost its copy");
    }
    uint32_t k;
    struct local_shard *d = term_context_slot(tc, slot, &k);
    struct progress *progress = &op->progress[file - op->files];
    *progress = (struct progress){0};
    *file = (struct drain_file){.local_shard = local_shard,
                                .item = {.version = op->version,
                                         .shard = tc->shards[local_shard].id,
                                         .image_bytes = segment_info(d->segment).image_bytes,
                                         .image = segment_image(d->segment, k),
                                         .crcs = segment_crcs(d->segment, k),
                                         .root = node_slot(tc->node, slot)->root,
                                         .progress = progress,
                                         .shared = &file->shared_bytes}};
    file->op = op;
    tck_status_t status = persistent_put(op->drain->needs.persistent, &file->item, file_done, file, err);
    file->op = status == TCK_OK ? op : NULL;
    return status;
}

static struct drain_file *free_file(struct drain_op *op)
{
    struct drain_file *file = op->files;
    while (file->op != NULL) {
        file++;
    }
    return file;
}

/* Begins files, or ends the drain when none is under way any more. */
static void drain_on(struct drain_op *op)
{
    while (!op->stopped && op->open < FILES_MAX && op->next < op->count) {
        struct error err;
        uint32_t local_shard = op->places[op->next++].shard;
        if (file_begin(op, free_file(op), local_shard, &err) == TCK_OK) {
            op->open++;
        } else {
            file_failed(op, local_shard, &err);
        }
    }
    if (op->open == 0) {
        op->drain->counts.written += !op->stopped;
        drain_end(op, !op->stopped);
    }
}

static uint64_t bytes_of(const struct drain_op *op)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < op->count; i++) {
        bytes += segment_info(op->tc->local_shards[op->places[i].shard].segment).image_bytes;
    }
    return bytes;
}

void drain_begin(struct drain *drain, struct term_context *tc, const struct action *a)
{
    struct version version = a->version;
    struct error err;
    bool hangs = storage_hangs(drain->needs.storage_ops, NULL, &err);
    struct drain_op *op = hangs ? NULL : calloc(1, sizeof(*op) + tc->setup.shard_count * sizeof(op->places[0]));
    if (hangs) {
        health_storage_failed(drain->needs.health, version.step, &err);
    }
    if (op == NULL) {
        struct event event = {.type = EVENT_DRAINED_HERE, .version = version, .attempt = a->attempt, .ok = false};
        driver_step_node(tc, &event);
        return;
    }
    log_info("draining version %" PRIu64 ".%" PRIu64, version.term, version.step);
    *op = (struct drain_op){.drain = drain, .tc = tc, .version = version, .attempt = a->attempt};
    op->count = drain_share(tc, version, op->places);
    op->storage = (struct storage_op){
        .what = "a drain", .give_up = drain_give_up, .ctx = op, .parts = op->progress, .part_count = FILES_MAX};
    storage_begin(&op->storage, drain->needs.storage_ops, tc);
    drain->writing = op;
    pacing_begin(drain->needs.pacing, LANE_DRAIN, version, bytes_of(op));
    failpoint(drain, begun);
    drain_on(op);
}

/* Fills in the manifest's entry of a shard. False if the copy that was written is no longer here: the digests of
 * another one, or of one that is still arriving, need not be those of the file. */
static bool describe_file(const struct term_context *tc, uint32_t local_shard, struct version version,
                          struct manifest_file *out)
{
    uint32_t slot = node_slot_of(tc->node, local_shard, version);
    const struct slot *s = slot != NONE32 ? node_slot(tc->node, slot) : NULL;
    if (s == NULL || s->state != SLOT_VERIFIED || !hash128_is(s->root, tc->local_shards[local_shard].drained)) {
        return false;
    }
    uint32_t k;
    struct local_shard *d = term_context_slot(tc, slot, &k);
    *out = (struct manifest_file){.shard = tc->shards[local_shard].id,
                                  .bytes = segment_info(d->segment).image_bytes,
                                  .root = s->root,
                                  .crcs = segment_crcs(d->segment, k)};
    return true;
}

/* Repeated until the coordinator has decided; a coordinator's agent that has restarted needs all of it again. */
void drain_notify(const struct drain *drain, struct term_context *tc, const struct action *a)
{
    struct version version = a->version;
    struct manifest_file *files = calloc(tc->setup.shard_count ? tc->setup.shard_count : 1, sizeof(*files));
    struct wire_drained m = {.term = tc->world.term,
                             .version = version,
                             .attempt = a->attempt,
                             .ok = a->ok && files != NULL,
                             .files = files};
    for (uint32_t i = 0; m.ok && i < tc->setup.shard_count; i++) {
        if (tc->shards[i].drains_here) {
            m.ok = describe_file(tc, i, version, &files[m.count]);
            m.count += m.ok;
        }
    }
    if (!m.ok) {
        m.count = 0;
        memcpy(m.why, health_own(drain->needs.health)->text, sizeof(m.why));
    }
    struct writer w = writer_new(0);
    wire_drained_encode(&m, &w);
    failpoint(drain, telling);
    rpc_send_coordinator(tc, WIRE_DRAINED, &w);
    failpoint(drain, told);
    writer_free(&w);
    free(files);
}

/* ---- the coordinator's part ---------------------------------------------------------------------------------- */

/* The manifest being assembled: one per agent, of the version that is draining. */
struct gathering {
    struct storage_op storage; /* while it is being published */
    struct drain *drain;
    struct term_context *tc;
    struct manifest manifest; /* with a place for each shard, empty until it is reported */
    uint32_t gathered;        /* number of shards that have been reported */
    uint64_t attempt;
    bool publishing;
    atomic_bool given_up; /* its publish */
    uint64_t newer_term;  /* that the publish found to be claimed; 0: none */
};

static void gathering_free(struct gathering *g)
{
    manifest_free(&g->manifest);
    free(g);
}

/* A manifest that is being published is freed when that has ended; meanwhile another one may be assembled. */
static void discard(struct drain *drain)
{
    if (drain->gathering != NULL && !drain->gathering->publishing) {
        gathering_free(drain->gathering);
    }
    drain->gathering = NULL;
}

/* The manifest that is being assembled for this version; it replaces that of another version. NULL if out of memory. */
static struct gathering *gathering_of(struct drain *drain, struct term_context *tc, struct version version)
{
    struct gathering *g = drain->gathering;
    if (g != NULL && g->tc == tc && version_is(g->manifest.version, version)) {
        return g;
    }
    if (g != NULL && g->publishing && g->tc == tc) {
        return NULL;
    }
    discard(drain);
    g = calloc(1, sizeof(*g));
    if (g != NULL) {
        g->drain = drain;
        g->tc = tc;
        g->manifest.version = version;
    }
    drain->gathering = g;
    return g;
}

/* Moves files of m into the manifest that it does not have yet. Each has its place, that of its shard in the world:
 * both are sorted by shard. */
static void gather(const struct term_context *tc, struct gathering *g, struct wire_drained *m)
{
    const struct world *world = &tc->world;
    struct manifest *to = &g->manifest;
    if (to->files == NULL) {
        to->files = calloc(world->shard_count ? world->shard_count : 1, sizeof(*to->files));
        to->file_count = to->files != NULL ? world->shard_count : 0; /* if NULL, the node repeats its report */
    }
    for (uint32_t i = 0; i < m->count && to->files != NULL; i++) {
        int64_t shard = world_find_shard(world, m->files[i].shard);
        if (shard >= 0 && world->shards[shard].image_bytes == m->files[i].bytes && to->files[shard].name[0] == '\0') {
            to->files[shard] = m->files[i];
            manifest_file_name(m->files[i].shard, to->files[shard].name);
            m->files[i].crcs = NULL;
            g->gathered++;
        }
    }
}

void drain_handle_drained(struct drain *drain, struct term_context *tc, uint32_t node, const void *data, size_t len)
{
    struct wire_drained m;
    if (wire_drained_decode(data, len, &m) != TCK_OK) {
        log_warn("malformed DRAINED from node %s", tc->world.nodes[node].name);
        return;
    }
    const struct decision *now = coordinator_decision(tc->coordinator);
    bool asked = version_is(m.version, now->drain) && m.attempt == now->drain_attempt; /* not a late report */
    struct gathering *g = m.ok && asked ? gathering_of(drain, tc, m.version) : NULL;
    if (asked && !m.ok && node != tc->self) {
        struct error why;
        (void)error_set(&why, TCK_ERR_IO, "node %s: %.*s", tc->world.nodes[node].name, TROUBLE_TEXT,
                        m.why[0] ? m.why : "it has lost its copy");
        health_storage_failed(drain->needs.health, m.version.step, &why);
    }
    if (g != NULL && !g->publishing) {
        gather(tc, g, &m);
        failpoint(drain, gathered);
    }
    struct event event = {.type = EVENT_DRAINED, .node = node, .version = m.version, .attempt = m.attempt, .ok = m.ok};
    driver_step_coordinator(tc, &event);
    wire_drained_free(&m);
}

/* Storage is not at fault if a newer term has begun: that one publishes. */
static void report_not_published(const struct gathering *g, const struct error *why)
{
    struct version version = g->manifest.version;
    if (g->newer_term > 0) {
        log_info("version %" PRIu64 ".%" PRIu64 " is not published: %s", version.term, version.step, why->text);
        return;
    }
    log_error("version %" PRIu64 ".%" PRIu64 " could not be published: %s", version.term, version.step, why->text);
    health_storage_failed(g->drain->needs.health, version.step, why);
}

static void published(void *ctx, const struct error *outcome)
{
    struct gathering *g = ctx;
    struct term_context *tc = g->tc;
    struct drain *drain = g->drain;
    struct event event = {
        .type = EVENT_PUBLISHED, .version = g->manifest.version, .attempt = g->attempt, .ok = outcome->code == TCK_OK};
    bool ignored = storage_ignored(&g->storage);
    uint64_t newer_term = g->newer_term;
    if (!event.ok && !ignored) {
        report_not_published(g, outcome);
    }
    failpoint(publish, hearing);
    if (drain->gathering == g) {
        drain->gathering = NULL;
    }
    storage_end(&g->storage);
    gathering_free(g);
    if (!ignored) {
        driver_step_coordinator(tc, &event);
    }
    if (newer_term > 0) {
        adopt_term(drain->needs.adopt, newer_term); /* a message of that term may never reach this agent */
    }
}

static void publish_give_up(void *ctx, const struct error *why)
{
    struct gathering *g = ctx;
    struct event event = {.type = EVENT_PUBLISHED, .version = g->manifest.version, .attempt = g->attempt, .ok = false};
    atomic_store(&g->given_up, true);
    report_not_published(g, why);
    discard(g->drain);
    driver_step_coordinator(g->tc, &event);
}

static tck_status_t publish(struct gathering *g, struct error *err)
{
    struct term_context *tc = g->tc;
    struct manifest *m = &g->manifest;
    strcpy(m->job, g->drain->needs.config->job);
    m->world_size = tc->world.world_size;
    m->layout = tc->world.layout;
    m->wall_ms = clock_wall_ms();
    if (g->gathered != tc->world.shard_count) {
        return error_set(err, TCK_ERR_INTERNAL, "%u of %u shards were reported as drained", g->gathered,
                         tc->world.shard_count);
    }
    const struct publish_ask ask = {.manifest = m,
                                    .term = tc->world.term,
                                    .progress = &g->storage.progress,
                                    .given_up = &g->given_up,
                                    .newer_term = &g->newer_term};
    return persistent_publish(g->drain->needs.persistent, &ask, published, g, err);
}

void drain_publish(struct drain *drain, struct term_context *tc, const struct action *a)
{
    struct gathering *g = gathering_of(drain, tc, a->version);
    struct error err;
    if (g == NULL) {
        struct event event = {.type = EVENT_PUBLISHED, .version = a->version, .attempt = a->attempt, .ok = false};
        driver_step_coordinator(tc, &event);
        return;
    }
    g->attempt = a->attempt;
    g->publishing = true;
    g->storage = (struct storage_op){.what = "a publish", .give_up = publish_give_up, .ctx = g};
    storage_begin(&g->storage, drain->needs.storage_ops, tc);
    if (publish(g, &err) != TCK_OK) {
        published(g, &err);
    }
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

tck_status_t drain_new(const struct drain_setup *setup, struct drain **out, struct error *err)
{
    struct drain *drain = calloc(1, sizeof(*drain));
    if (drain == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    drain->needs = *setup;
    *out = drain;
    return TCK_OK;
}

struct drain_counts drain_counts(const struct drain *drain)
{
    return drain->counts;
}

void drain_free(struct drain *drain)
{
    if (drain != NULL) {
        discard(drain);
        free(drain);
    }
}
