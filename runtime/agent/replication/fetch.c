/* SPDX-License-Identifier: Apache-2.0
 * Fetches one shard of one version into a slot of this node when the coordinator's recovery requests it: from this
 * node's memory, another agent's, or storage. */
#include "agent/replication/fetch.h"

#include "agent/driver/protocol_driver.h"
#include "agent/driver/slot_ops.h"
#include "agent/driver/term_context.h"
#include "agent/replication/check.h"
#include "agent/replication/lending.h"
#include "agent/replication/peer_rpc.h"
#include "agent/replication/stored_files.h"
#include "agent/storage/storage_ops.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "tiers/peer.h"
#include "tiers/segment.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAILURES_LOGGED 16 /* failed fetches of one shard that are logged each; after that, one is logged every */
#define FAILURE_LOG_MS  10000
#define MEMORY_WAIT_MS  15000 /* for a slot that was given back; the coordinator asks a few times before it gives up */

/* A fetch in progress. While it waits for a slot, a session with the peer or a look at the manifest, it may be dropped
 * with its term; after that it counts as an operation. */
struct fetch {
    struct fetch *next;
    struct fetches *all;
    struct storage_op storage;
    bool on_storage;
    struct segment *segment; /* once the term is over, storage must not write into slot k of it */
    uint32_t k;
    struct term_context *tc;
    struct wire_fetch ask;
    uint32_t local_shard;
    uint32_t slot; /* NONE32 until the machine has granted one */
    bool here;     /* the version is in that slot already */
    bool lacking;  /* memory: it waits for a slot that was given back */
    bool waiting;  /* for a session with the peer */
    bool looking;  /* for the place of its file on storage */
    bool repairs;  /* this node repairs a missing copy, without a request from the coordinator */
    bool again;    /* this is the second read, after storage returned wrong bytes */
    uint64_t give_up_ms;
    struct peer *peer;
    struct tier_item item;
    struct published published; /* storage: the version, and the file in it */
    struct manifest_file file;  /* its crcs are owned */
    struct error first;         /* of the read from save_dir, if archive_dir is tried after it */
    struct tier_watch watch;
    struct lending lending; /* what has arrived, for other agents */
    bool reads_again;       /* storage, as soon as nothing that was read before is on its way to them */
    struct error outcome;
};

struct fetches {
    struct fetches_setup needs;
    struct fetch *under_way;
    struct stored_files *stored_files;
    struct fetch_counts counts;
};

static void fetch_free(struct fetch *x)
{
    lending_free(&x->lending);
    free(x->file.crcs);
    free(x);
}

static void fetch_unlink(struct fetch *x)
{
    struct fetch **at = &x->all->under_way;
    while (*at != NULL && *at != x) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = x->next;
    }
}

static void report_outcome(const struct fetches *fs, struct term_context *tc, const struct wire_fetch *ask,
                           const struct error *outcome)
{
    struct wire_fetched m = {.term = tc->world.term,
                             .shard = ask->shard,
                             .version = ask->version,
                             .outcome = outcome->code,
                             .number = ask->number};
    if (outcome->code != TCK_OK) {
        snprintf(m.reason, sizeof(m.reason), "node %s: %.400s", fs->needs.config->node, outcome->text);
    }
    struct writer w = writer_new(0);
    wire_fetched_encode(&m, &w);
    rpc_send_coordinator(tc, WIRE_FETCHED, &w);
    writer_free(&w);
}

static const char *const source_names[] = {[SOURCE_LOCAL] = "this node's memory",
                                           [SOURCE_TWIN] = "a twin",
                                           [SOURCE_PEER] = "a peer",
                                           [SOURCE_STORAGE] = "storage"};

/* Rate-limited: a copy that no node has any more is requested again at each tick until a save needs its slot. */
static bool should_log_failure(struct local_shard *local_shard)
{
    uint64_t now = clock_ms();
    if (++local_shard->failed_fetches > FAILURES_LOGGED && now - local_shard->failure_logged_ms < FAILURE_LOG_MS) {
        return false;
    }
    local_shard->failure_logged_ms = now;
    return true;
}

static void log_outcome(const struct fetch *x, const struct error *outcome)
{
    struct local_shard *local_shard = &x->tc->local_shards[x->local_shard];
    char id[HASH128_TEXT];
    hash128_text(x->tc->shards[x->local_shard].id, id);
    if (outcome->code == TCK_OK) {
        local_shard->failed_fetches = 0;
        log_info("shard %s of version %" PRIu64 ".%" PRIu64 " was fetched from %s%s%s", id, x->ask.version.term,
                 x->ask.version.step, source_names[x->ask.source], x->ask.from.name[0] ? " " : "", x->ask.from.name);
    } else if (should_log_failure(local_shard)) {
        log_warn("shard %s of version %" PRIu64 ".%" PRIu64 " could not be fetched from %s %s: %s", id,
                 x->ask.version.term, x->ask.version.step, source_names[x->ask.source], x->ask.from.name,
                 outcome->text);
    }
}

/* A request that is repeated finds here what came for the first one. */
static void note_source(const struct fetch *x)
{
    struct local_shard *local_shard = &x->tc->local_shards[x->local_shard];
    if (!x->here || !version_is(local_shard->restored, x->ask.version)) {
        local_shard->restored = x->ask.version;
        local_shard->restored_from = x->ask.source;
    }
}

static uint64_t image_bytes(const struct fetch *x)
{
    return segment_info(x->tc->local_shards[x->local_shard].segment).image_bytes;
}

static void note_arrival(const struct fetch *x)
{
    struct fetches *fs = x->all;
    const struct arrival what = {.shard = x->ask.shard,
                                 .version = x->ask.version,
                                 .source = x->ask.source,
                                 .from = x->ask.from.name,
                                 .bytes = image_bytes(x),
                                 .repairs = x->repairs};
    x->tc->fetches_arrived++;
    x->tc->fetched_bytes += what.bytes;
    fs->counts.shards[what.source]++;
    fs->counts.bytes[what.source] += what.bytes;
    if (!x->repairs) {
        note_source(x);
    }
    fs->needs.arrived(fs->needs.ctx, x->tc, &what);
}

static void fetch_end(struct fetch *x, const struct error *outcome)
{
    x->outcome = *outcome;
    log_outcome(x, outcome);
    x->tc->fetches_failed += outcome->code != TCK_OK;
    x->all->counts.failed += outcome->code != TCK_OK;
    if (outcome->code == TCK_OK) {
        note_arrival(x);
    }
    fetch_unlink(x); /* first: on the report, the recovery may request the same shard from another source */
    if (x->repairs) {
        x->all->needs.repaired(x->all->needs.ctx, outcome->code == TCK_OK);
    } else {
        report_outcome(x->all, x->tc, &x->ask, outcome);
    }
    fetch_free(x);
}

/* ---- passing on what has arrived ------------------------------------------------------------------------------- */

static void on_digests(void *ctx, struct hash128 root)
{
    struct fetch *x = ctx;
    lending_digests(&x->lending, x->item.crcs, root);
}

static void on_chunk(void *ctx, uint32_t i)
{
    struct fetch *x = ctx;
    lending_chunk(&x->lending, i, x->item.crcs[i]);
}

static void end_lending(const struct fetch *x, const char *why)
{
    lending_end(&x->lending, x->all->needs.config->node, why);
}

static bool may_be_lent(const struct fetch *x)
{
    return !x->repairs && !x->reads_again && !x->tc->closed && !(x->on_storage && storage_ignored(&x->storage));
}

/* Two that fetched from each other would both wait. */
bool fetch_lend(struct fetches *fs, const struct peer_offer *want, uint64_t to, struct tier_item *out)
{
    for (struct fetch *x = fs->under_way; x != NULL; x = x->next) {
        bool wanted = x->tc->world.term == want->term && x->ask.from.agent_id != to &&
                      version_is(x->ask.version, want->version) &&
                      hash128_is(x->tc->shards[x->local_shard].id, want->shard);
        if (wanted && may_be_lent(x)) {
            return lending_lend(&x->lending, out);
        }
    }
    return false;
}

/* ---- storage that hangs -------------------------------------------------------------------------------------- */

/* Storage may still write into the slot, so it is freed only when the read has ended. */
static void load_give_up(void *ctx, const struct error *why)
{
    struct fetch *x = ctx;
    fetch_unlink(x);
    end_lending(x, why->text);
    lending_free(&x->lending); /* the read may end after the other agents' gets, and after the peers are freed */
    log_outcome(x, why);
    x->tc->fetches_failed++;
    x->all->counts.failed++;
    if (x->repairs) {
        x->all->needs.repaired(x->all->needs.ctx, false);
    } else {
        report_outcome(x->all, x->tc, &x->ask, why);
    }
}

/* The same when another term takes over: the header names this process as the writer of the slot. */
static void load_left_behind(void *ctx)
{
    struct fetch *x = ctx;
    struct slot_header header = *segment_header(x->segment, x->k);
    header.state = SLOT_QUARANTINED;
    header.version = x->ask.version;
    header.writer = (struct slot_writer){.process = process_of(getpid())};
    segment_write_header(x->segment, x->k, &header);
}

/* Frees the slot after a late read. In a later term, it is the slot of the same segment, if that still exists. */
static void release(const struct fetches *fs, struct hash128 shard, uint32_t k, struct version version)
{
    struct term_context *tc = *fs->needs.term;
    uint32_t local_shard = tc != NULL && !tc->closed ? term_context_shard(tc, shard) : NONE32;
    if (local_shard == NONE32 || tc->local_shards[local_shard].gone || k >= tc->shards[local_shard].slot_count) {
        return;
    }
    struct event event = {
        .type = EVENT_WRITER_GONE, .slot = tc->local_shards[local_shard].first_slot + k, .version = version};
    if (node_slot(tc->node, event.slot)->state == SLOT_QUARANTINED) {
        driver_step_node(tc, &event);
    }
}

static void ended_late(struct fetch *x)
{
    fetch_unlink(x); /* it is no longer listed if it was given up within its term */
    if (!x->tc->closed) {
        struct event event = {.type = EVENT_VERIFIED, .slot = x->slot, .version = x->ask.version, .ok = false};
        driver_step_node(x->tc, &event);
    } else {
        release(x->all, segment_info(x->segment).shard, x->k, x->ask.version);
    }
    storage_end(&x->storage);
    fetch_free(x);
}

/* The transfer has ended: notifies the machine first, then the coordinator. */
static void fetched(void *ctx, const struct error *outcome)
{
    struct fetch *x = ctx;
    struct slot_ops *slot_ops = x->all->needs.check.slot_ops;
    end_lending(x, outcome->text);
    if (x->on_storage && storage_ignored(&x->storage)) {
        ended_late(x);
        return;
    }
    struct error result = *outcome;
    struct event event = {.type = EVENT_VERIFIED,
                          .slot = x->slot,
                          .version = x->ask.version,
                          .root = x->item.root,
                          .ok = outcome->code == TCK_OK};
    failpoint(fetch, arrived);
    driver_step_node(x->tc, &event);
    failpoint(fetch, verified);
    if (x->on_storage) {
        storage_end(&x->storage);
        fetch_end(x, &result);
    } else {
        fetch_end(x, &result);
        slot_op_end(slot_ops);
    }
}

/* ---- copies that are already here -------------------------------------------------------------------------------- */

static void checked(void *ctx, const struct error *outcome)
{
    struct fetch *x = ctx;
    struct error result = *outcome;
    failpoint(fetch, checked);
    struct event unpin = {.type = EVENT_UNPIN, .slot = x->slot};
    driver_step_node(x->tc, &unpin);
    if (result.code == TCK_ERR_CORRUPT) {
        struct event corrupt = {.type = EVENT_CORRUPT, .slot = x->slot};
        driver_step_node(x->tc, &corrupt);
    }
    fetch_end(x, &result);
}

/* The digests alone, since the ranks compare each byte with them while they copy it. */
static void check_digests(struct fetch *x, struct segment *segment, uint32_t k)
{
    struct error outcome = {0};
    outcome.code = segment_verify_root(segment, k, &outcome);
    checked(x, &outcome);
}

/* Before the ranks have got their answer, and only of a shard of which this node sends copies to others: older versions
 * are not given up before those copies have been checked as a whole. */
static bool is_checked_by_ranks(const struct fetch *x, const struct segment *segment, uint32_t k)
{
    const struct node_shard *shard = &x->tc->shards[x->local_shard];
    bool copied_here = shard->storing_rank != NONE32 && shard->holder_count > 0;
    return copied_here && !x->repairs && !x->tc->readable_known && !segment_is_unproven(segment, k);
}

static void check_local(struct fetch *x)
{
    uint32_t k;
    struct local_shard *d = term_context_slot(x->tc, x->slot, &k);
    struct event pin = {.type = EVENT_PIN, .slot = x->slot};
    driver_step_node(x->tc, &pin);
    x->ask.source = SOURCE_LOCAL;
    memset(&x->ask.from, 0, sizeof(x->ask.from));
    if (is_checked_by_ranks(x, d->segment, k)) {
        check_digests(x, d->segment, k);
    } else {
        check_slot(&x->all->needs.check, d->segment, k, checked, x);
    }
}

void fetches_proven(const struct term_context *tc, struct version version)
{
    for (uint32_t i = 0; i < tc->setup.shard_count; i++) {
        uint32_t k, slot = node_slot_of(tc->node, i, version);
        if (slot != NONE32 && !tc->local_shards[i].gone) {
            struct segment *segment = term_context_slot(tc, slot, &k)->segment;
            segment_set_unproven(segment, k, false);
        }
    }
}

/* ---- from other agents and storage --------------------------------------------------------------------------- */

static void fill_item(struct fetch *x)
{
    uint32_t k;
    struct local_shard *d = term_context_slot(x->tc, x->slot, &k);
    x->item = (struct tier_item){.version = x->ask.version,
                                 .shard = x->tc->shards[x->local_shard].id,
                                 .image_bytes = segment_info(d->segment).image_bytes,
                                 .image = segment_image(d->segment, k),
                                 .crcs = segment_crcs(d->segment, k),
                                 .progress = &x->storage.progress,
                                 .watch = &x->watch};
}

/* From here on other agents may get what arrives in its slot. */
static void begin_lending(struct fetch *x)
{
    fill_item(x);
    x->watch = (struct tier_watch){.digests = on_digests, .chunk = on_chunk, .ctx = x};
    lending_begin(&x->lending, x->all->needs.peers, &x->item);
}

static void pull(struct fetch *x)
{
    struct error err;
    x->waiting = false;
    fill_item(x);
    slot_op_begin(x->all->needs.check.slot_ops);
    if (peer_get(x->peer, x->tc->world.term, &x->item, fetched, x, &err) != TCK_OK) {
        fetched(x, &err);
    }
}

static void start_pull(struct fetch *x)
{
    struct error err;
    if (peers_want_copies(x->all->needs.peers, &x->ask.from, false, &x->peer, &err) != TCK_OK) {
        slot_op_begin(x->all->needs.check.slot_ops);
        fetched(x, &err);
        return;
    }
    if (peer_takes_copies(x->peer)) {
        pull(x);
    } else {
        x->waiting = true;
        x->give_up_ms = clock_ms() + x->all->needs.config->peer_timeout_ms;
    }
}

static void load(struct fetch *x);

/* What was read before may still be on its way to other agents. */
static void load_again(struct fetch *x)
{
    end_lending(x, "it is read from storage again");
    x->reads_again = x->lending.count > 0;
    if (x->reads_again) {
        storage_pause(&x->storage);
    } else {
        load(x);
    }
}

/* The copy in the archive has the same bytes. If it proves to be of no use, what was wrong with the first one counts;
 * but one that cannot be read now is not treated as missing. */
static bool load_from_archive(struct fetch *x, const struct error *why)
{
    const char *archive_dir = x->all->needs.config->archive_dir;
    if (archive_dir[0] == '\0' || x->published.from_second) {
        return false;
    }
    log_warn("%s: reading it from archive_dir %s", why->text, archive_dir);
    x->first = *why;
    x->published.from_second = true;
    load_again(x);
    return true;
}

/* The transfer may have caused the mismatch, and the file may be the only copy, so it is read once more. */
static void loaded(void *ctx, const struct error *outcome)
{
    struct fetch *x = ctx;
    struct error err = *outcome;
    bool ends = err.code == TCK_OK || storage_ignored(&x->storage) || *x->all->needs.leaving;
    if (!ends && err.code == TCK_ERR_CORRUPT && !x->again) {
        x->again = true;
        log_warn("%s: reading it again", err.text);
        load_again(x);
    } else if (ends || !load_from_archive(x, &err)) {
        fetched(x, status_proves_damage(err.code) && x->first.code != TCK_OK ? &x->first : &err);
    }
}

static void load(struct fetch *x)
{
    struct error err;
    fill_item(x);
    lending_forget(&x->lending);
    if (x->file.bytes == x->item.image_bytes) {
        lending_digests(&x->lending, x->file.crcs, x->file.root);
    }
    if (persistent_get(x->all->needs.persistent, &x->published, &x->file, &x->item, loaded, x, &err) != TCK_OK) {
        fetched(x, &err);
    }
}

void fetch_returned(struct fetches *fs, const struct tier_item *item)
{
    struct fetch *x = fs->under_way;
    while (x != NULL && !lending_returned(&x->lending, item->image)) {
        x = x->next;
    }
    if (x == NULL || x->lending.count > 0 || !x->reads_again) {
        return;
    }
    struct error err;
    x->reads_again = false;
    storage_resume(&x->storage);
    if (!storage_ignored(&x->storage) && !*fs->needs.leaving) {
        load(x);
        return;
    }
    (void)error_set(&err, TCK_ERR_CANCELED, "it is not needed any more");
    fetched(x, &err);
}

static void start_load(struct fetch *x, const struct found_file *found)
{
    x->published = found->which;
    x->file = found->file;
    x->on_storage = true;
    x->segment = term_context_slot(x->tc, x->slot, &x->k)->segment;
    x->storage = (struct storage_op){
        .what = "a restore from storage", .give_up = load_give_up, .left_behind = load_left_behind, .ctx = x};
    storage_begin(&x->storage, x->all->needs.storage_ops, x->tc);
    load(x);
}

/* Nothing was read into its slot yet. */
static void end_looking(struct fetch *x, const struct error *why)
{
    struct error err = *why;
    x->looking = false;
    slot_op_begin(x->all->needs.check.slot_ops);
    fetched(x, &err);
}

/* Reads the shard if it is known where it lies. False: it is not. */
static bool load_if_found(struct fetch *x)
{
    struct found_file found;
    if (!stored_files_take(x->all->stored_files, x->ask.version, x->tc->shards[x->local_shard].id, &found)) {
        return false;
    }
    if (found.outcome.code == TCK_OK) {
        x->looking = false;
        start_load(x, &found);
    } else {
        end_looking(x, &found.outcome);
    }
    return true;
}

/* One that nothing is known about waits for the next look. */
static void look_for(struct fetch *x)
{
    struct error err;
    if (!load_if_found(x) && stored_files_look(x->all->stored_files, x->tc, x->ask.version, &err) != TCK_OK) {
        end_looking(x, &err);
    }
}

static struct fetch *first_looking(const struct fetches *fs)
{
    struct fetch *x = fs->under_way;
    while (x != NULL && !x->looking) { /* NOLINT(clang-analyzer-unix.Malloc): a freed one is not listed */
        x = x->next;
    }
    return x;
}

/* Each of them may begin others when it ends. */
static void looked(void *ctx, const struct error *failed)
{
    struct fetches *fs = ctx;
    struct fetch *x = first_looking(fs);
    while (x != NULL && (failed->code != TCK_OK || load_if_found(x))) {
        if (failed->code != TCK_OK) {
            end_looking(x, failed);
        }
        x = first_looking(fs);
    }
    if (x != NULL) {
        look_for(x);
    }
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* Requests a slot to receive into; if there is none, x->outcome says why. */
static void request_slot(struct fetch *x)
{
    struct event event = {.type = EVENT_FETCH,
                          .shard = x->ask.shard,
                          .version = x->ask.version,
                          .floor = x->ask.floor,
                          .fallback = x->ask.fallback};
    struct node_answer answer = driver_ask_node(x->tc, &event);
    if (!answer.given) {
        (void)error_set(&x->outcome, TCK_ERR_BUSY, "no slot is available");
        return;
    }
    x->slot = answer.action.slot;
    x->here = answer.action.ok;
    if (x->slot == NONE32) {
        (void)error_set(&x->outcome, TCK_ERR_NOSPC, "%s", refusal_text(answer.action.refusal));
    }
    x->lacking = x->slot == NONE32 && answer.action.refusal == REFUSAL_MEMORY && !x->repairs;
}

/* Without a slot. A shortage of memory may pass: the slots are taken back for this fetch as soon as it has. */
static void wait_or_end(struct fetch *x)
{
    struct error err = x->outcome;
    uint64_t now = clock_ms();
    if (!x->lacking || (x->give_up_ms > 0 && now >= x->give_up_ms)) {
        fetch_end(x, &err);
    } else if (x->give_up_ms == 0) {
        x->give_up_ms = now + MEMORY_WAIT_MS;
    }
}

static void start_source(struct fetch *x)
{
    if (x->ask.source == SOURCE_STORAGE) {
        x->looking = true;
        look_for(x);
    } else if (x->ask.source == SOURCE_LOCAL) {
        struct error err;
        (void)error_set(&err, TCK_ERR_NOENT, "the copy is no longer here");
        slot_op_begin(x->all->needs.check.slot_ops);
        fetched(x, &err);
    } else {
        start_pull(x);
    }
}

static void fetch_start(struct fetch *x)
{
    request_slot(x);
    failpoint(fetch, slot_given);
    if (x->slot == NONE32) {
        wait_or_end(x);
    } else if (x->here) {
        check_local(x);
    } else {
        begin_lending(x);
        start_source(x);
    }
}

/* True if this fetch is in progress: a repeated request needs only one reply, and a repair that the coordinator now
 * requests must also be reported to it. */
static bool is_under_way(const struct fetches *fs, const struct term_context *tc, const struct wire_fetch *ask,
                         bool repairs)
{
    for (struct fetch *x = fs->under_way; x != NULL; x = x->next) {
        if (x->tc == tc && x->ask.shard == ask->shard && version_is(x->ask.version, ask->version)) {
            x->repairs = x->repairs && repairs;
            return true;
        }
    }
    return false;
}

static void fetch_begin(struct fetches *fs, struct term_context *tc, const struct wire_fetch *ask, bool repairs)
{
    uint32_t local_shard =
        ask->shard < tc->world.shard_count ? term_context_shard(tc, tc->world.shards[ask->shard].id) : NONE32;
    if (local_shard == NONE32) {
        struct error err;
        (void)error_set(&err, TCK_ERR_INTERNAL, "shard %u of the world has no slots here", ask->shard);
        log_error("fetch request refused: %s", err.text);
        report_outcome(fs, tc, ask, &err);
        return;
    }
    struct fetch *x = is_under_way(fs, tc, ask, repairs) ? NULL : calloc(1, sizeof(*x));
    if (x == NULL) {
        return; /* out of memory: the coordinator repeats its request */
    }
    *x = (struct fetch){.next = fs->under_way,
                        .all = fs,
                        .tc = tc,
                        .ask = *ask,
                        .local_shard = local_shard,
                        .slot = NONE32,
                        .repairs = repairs};
    fs->under_way = x;
    fetch_start(x);
}

void fetch_handle_ask(struct fetches *fs, struct term_context *tc, const struct wire_fetch *ask)
{
    fetch_begin(fs, tc, ask, false);
}

void fetch_repair(struct fetches *fs, struct term_context *tc, const struct wire_fetch *ask)
{
    fetch_begin(fs, tc, ask, true);
}

struct fetch_tally fetch_tally(const struct fetches *fs, const struct term_context *tc, struct version version)
{
    struct fetch_tally tally = {.arrived = tc->fetches_arrived, .failed = tc->fetches_failed};
    for (const struct fetch *x = fs->under_way; x != NULL; x = x->next) {
        tally.under_way |= x->tc == tc && version_is(x->ask.version, version);
    }
    return tally;
}

void fetch_bytes(const struct fetches *fs, const struct term_context *tc, uint64_t *done_out, uint64_t *total_out)
{
    *done_out = *total_out = tc->fetched_bytes;
    for (const struct fetch *x = fs->under_way; x != NULL; x = x->next) {
        uint64_t arrived = atomic_load_explicit(&x->storage.progress.bytes, memory_order_relaxed);
        uint64_t bytes = x->tc == tc ? image_bytes(x) : 0;
        *done_out += arrived < bytes ? arrived : bytes; /* more if it is read once more */
        *total_out += bytes;
    }
}

struct fetch_counts fetches_counts(const struct fetches *fs)
{
    return fs->counts;
}

bool fetches_none(const struct fetches *fs)
{
    return fs->under_way == NULL;
}

bool fetches_lack_memory(const struct fetches *fs)
{
    const struct fetch *x = fs->under_way;
    while (x != NULL && !x->lacking) {
        x = x->next;
    }
    return x != NULL;
}

void fetch_peer_changed(struct fetches *fs, struct peer *peer)
{
    for (struct fetch *x = fs->under_way, *next; x != NULL; x = next) {
        next = x->next;
        if (x->waiting && x->ask.from.agent_id == peer_node(peer)->agent_id && peer_takes_copies(peer)) {
            x->peer = peer; /* may differ from the requested object, which may have been released */
            pull(x);
        }
    }
}

void fetch_tick(struct fetches *fs)
{
    uint64_t now = clock_ms();
    for (struct fetch *x = fs->under_way, *next; x != NULL; x = next) {
        next = x->next;
        if (x->lacking) {
            fetch_start(x);
        } else if (x->waiting && now >= x->give_up_ms) {
            struct error err;
            (void)error_set(&err, TCK_ERR_UNREACHABLE, "its agent does not answer");
            x->waiting = false;
            slot_op_begin(fs->needs.check.slot_ops);
            fetched(x, &err);
        }
    }
}

void fetch_reset(struct fetches *fs)
{
    stored_files_reset(fs->stored_files);
    for (struct fetch *x = fs->under_way, *next; x != NULL; x = next) {
        next = x->next;
        end_lending(x, "its term is over");
        if (x->lacking || x->waiting || x->looking) {
            fetch_unlink(x);
            fetch_free(x);
        } else if (!x->here && !x->on_storage) {
            peers_end_get(fs->needs.peers, x->item.image);
        }
    }
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

tck_status_t fetches_new(const struct fetches_setup *setup, struct fetches **out, struct error *err)
{
    struct fetches *fs = calloc(1, sizeof(*fs));
    if (fs == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    fs->needs = *setup;
    struct stored_files_setup files = {.persistent = setup->persistent,
                                       .io = setup->io,
                                       .storage_ops = setup->storage_ops,
                                       .looked = looked,
                                       .ctx = fs};
    tck_status_t status = stored_files_new(&files, &fs->stored_files, err);
    if (status != TCK_OK) {
        free(fs);
        return status;
    }
    *out = fs;
    return TCK_OK;
}

void fetches_free(struct fetches *fs)
{
    if (fs != NULL) {
        stored_files_free(fs->stored_files);
        free(fs);
    }
}
