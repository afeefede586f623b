/* SPDX-License-Identifier: Apache-2.0
 * Answers the requests of the tierckpt command, as JSON: {"op": ..., ...} -> an object with "ok", or "error". */
#include "agent/command/command_requests.h"

#include "agent/command/segment_contents.h"
#include "agent/driver/slot_ops.h"
#include "agent/ipc/ipc_server.h"
#include "agent/metrics/metrics.h"
#include "agent/parts.h"
#include "agent/recovery/recover_dry.h"
#include "agent/replication/peer_rpc.h"
#include "agent/report/derived.h"
#include "agent/scrub/memory_scrub.h"
#include "base/json.h"
#include "base/message.h"
#include "recovery/catalog.h"
#include "tiers/memory.h"
#include "tiers/peer.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void reply(struct client *client, json_t *json)
{
    char *text = json != NULL ? json_print(json, false) : NULL;
    struct writer w = writer_new(0);
    const char *out = text != NULL ? text : "{\"ok\":false,\"error\":\"out of memory\"}";
    write_bytes(&w, out, strlen(out));
    client_send(client, MSG_CONTROL_REPLY, &w);
    writer_free(&w);
    free(text);
    json_free(json);
}

static void reply_error(struct client *client, const struct error *err)
{
    json_t *json = json_object();
    json_add_bool(json, "ok", false);
    json_add_str(json, "status", status_text(err->code));
    json_add_str(json, "error", err->text);
    reply(client, json);
}

static json_t *success_json(void)
{
    json_t *json = json_object();
    json_add_bool(json, "ok", true);
    return json;
}

static json_t *version_json(struct version v)
{
    if (version_none(v)) {
        return json_object();
    }
    json_t *json = json_object();
    json_add_u64(json, "term", v.term);
    json_add_u64(json, "step", v.step);
    return json;
}

/* ---- status -------------------------------------------------------------------------------------------------- */

/* All of them, and what this node knows of each. */
static json_t *addresses_json(const struct peer *peer)
{
    json_t *list = json_array();
    struct peer_reach reach[ADDRESSES_MAX];
    size_t count = peer_reach(peer, reach);
    for (size_t i = 0; i < count; i++) {
        json_t *address = json_object();
        json_add_str(address, "address", reach[i].address);
        json_add_bool(address, "in_use", reach[i].in_use);
        json_add_bool(address, "answers", !reach[i].failed);
        json_add(list, NULL, address);
    }
    return list;
}

static json_t *nodes_json(const struct peers *peers, const struct term_context *tc)
{
    json_t *nodes = json_array();
    for (uint32_t n = 0; n < tc->world.node_count; n++) {
        const struct peer *peer = n == tc->self ? NULL : peers_find(peers, tc->world.nodes[n].agent_id);
        json_t *node = json_object();
        json_add_str(node, "name", tc->world.nodes[n].name);
        json_add_str(node, "domain", tc->world.nodes[n].domain);
        json_add_str(node, "address", peer != NULL ? peer_address(peer) : tc->world.nodes[n].address);
        if (peer != NULL) {
            json_add(node, "addresses", addresses_json(peer));
        }
        if (peer != NULL && peer_relay(peer) != NULL) {
            json_add_str(node, "through", peer_relay(peer)->name);
        }
        json_add_bool(node, "coordinator", n == 0);
        json_add_str(node, "state", node_state_name(report_node_state(tc, n)));
        json_add(nodes, NULL, node);
    }
    return nodes;
}

static json_t *trainers_json(const struct agent *agent)
{
    json_t *trainers = json_array();
    for (const struct client *c = agent->clients; c != NULL; c = c->next) {
        if (!c->trainer) {
            continue;
        }
        json_t *t = json_object();
        json_add_u64(t, "rank", c->rank);
        json_add_u64(t, "pid", (uint64_t)c->process.pid);
        json_add_u64(t, "term", c->term);
        json_add_u64(t, "step", atomic_load_explicit(&c->shared->current_step, memory_order_relaxed));
        json_add(trainers, NULL, t);
    }
    return trainers;
}

static void add_term(json_t *json, const struct report_term *t, const struct agent *agent)
{
    const struct decision *d = &t->decision;
    json_add(json, "committed", version_json(d->watermark));
    json_add(json, "published", version_json(d->published));
    json_add(json, "draining", version_json(d->drain));
    json_add_u64(json, "undecided", d->open_count);
    json_add_u64(json, "not_before", d->not_before);
    json_add_bool(json, "recovered", d->based);
    json_add_bool(json, "base_lost", d->base_lost && !d->based);
    json_add_bool(json, "closed", t->closed);
    json_add_u64(json, "ranks", t->ranks);
    json_add_u64(json, "shards", t->shards);
    json_add_u64(json, "version_bytes", t->version_bytes);
    json_add_u64(json, "shards_short_of_domains", t->shards_short);
    json_add_u64(json, "twin_divergences", t->divergences);
    json_add_str(json, "passed_over", t->passed_over);
    json_add(json, "nodes", nodes_json(agent->peers, agent->term_context));
}

/* Copies of the newest committed version that are missing here because memory was short, and where the others are. */
static json_t *given_up_json(const struct pressure *pressure)
{
    json_t *list = json_array();
    struct given_up lost;
    uint32_t at = 0;
    while (pressure_given_up(pressure, &at, &lost)) {
        json_t *copy = json_object();
        json_add_u64(copy, "rank", lost.rank);
        json_add(copy, "version", version_json(lost.version));
        json_add_bool(copy, "in_storage", lost.stored);
        if (lost.node != NULL) {
            json_add_str(copy, "in_memory_of", lost.node);
        }
        json_add(list, NULL, copy);
    }
    return list;
}

static json_t *pressure_json(const struct pressure_figures *f, const struct pressure *pressure)
{
    json_t *json = json_object();
    json_add_bool(json, "watched", f->watched);
    json_add_str(json, "level", memory_level_name(f->level));
    json_add_u64(json, "since_ms", f->since_ms);
    json_add_u64(json, "available_bytes", f->available_bytes);
    json_add_u64(json, "reserve_bytes", f->reserve_bytes);
    json_add_str(json, "of", f->of);
    json_add_u64(json, "slots_given_back", f->slots_given_back);
    json_add_u64(json, "bytes_given_back", f->bytes_given_back);
    json_add_bool(json, "saving_suspended", f->saving_suspended);
    json_add(json, "given_up", given_up_json(pressure));
    return json;
}

static json_t *memory_json(const struct report_memory *m)
{
    json_t *json = json_object();
    json_add_bool(json, "allocating", m->changing);
    if (m->changing) {
        return json;
    }
    json_add_u64(json, "used_bytes", m->used_bytes);
    json_add_u64(json, "cap_bytes", m->cap_bytes);
    json_add_u64(json, "segments", m->segments);
    if (m->page_bytes > 0) {
        json_add_u64(json, "page_bytes", m->page_bytes);
    }
    return json;
}

/* Terms reserved for starts during an outage of storage. */
static json_t *reserved_json(const struct report *r)
{
    json_t *json = json_object();
    if (r->reserved_first != 0) {
        json_add_u64(json, "first", r->reserved_first);
        json_add_u64(json, "last", r->reserved_last);
    }
    return json;
}

static json_t *scrub_json(const struct report *r)
{
    json_t *json = json_object();
    json_add_u64(json, "slots_checked", r->scrub.slots_checked);
    json_add_u64(json, "slots_bad", r->scrub.slots_bad);
    json_add_u64(json, "headers_repaired", r->scrub.headers_repaired);
    json_add_u64(json, "copies_repaired", r->scrub.copies_repaired);
    json_add_u64(json, "copies_missing", r->scrub.copies_missing);
    json_add_u64(json, "files_checked", r->storage_scrub.files_checked);
    json_add_u64(json, "files_bad", r->storage_scrub.files_bad);
    json_add_u64(json, "files_repaired", r->storage_scrub.files_repaired);
    return json;
}

static json_t *storage_json(const struct trouble *trouble)
{
    json_t *json = json_object();
    json_add_bool(json, "good", trouble->code == TCK_OK);
    if (trouble->code != TCK_OK) {
        json_add_str(json, "error", trouble->text);
        json_add_str(json, "status", status_text((tck_status_t)trouble->code));
        json_add_u64(json, "since_ms", trouble->since_ms);
        json_add_u64(json, "steps", trouble->steps);
        json_add_u64(json, "first_step", trouble->first_step);
        json_add_u64(json, "newest_step", trouble->newest_step);
    }
    return json;
}

/* Whether files share blocks with those of the version before. */
static json_t *clones_json(const struct report *r)
{
    static const char *const states[] = {
        [CLONES_OFF] = "off", [CLONES_UNKNOWN] = "unknown", [CLONES_WORK] = "work", [CLONES_REFUSED] = "refused"};
    json_t *json = json_object();
    json_add_str(json, "state", states[r->clones]);
    json_add_str(json, "why", r->clones_why);
    return json;
}

static json_t *archive_json(const struct archiver_figures *archive)
{
    json_t *json = storage_json(&archive->trouble);
    json_add_bool(json, "known", archive->known);
    json_add(json, "archived", version_json(archive->archived));
    json_add(json, "copying", version_json(archive->copying));
    json_add_u64(json, "files", archive->files);
    json_add_u64(json, "bytes", archive->bytes);
    return json;
}

static json_t *parked_json(const struct parked *parked)
{
    json_t *json = json_object();
    json_add_u64(json, "files", parked->files);
    json_add_u64(json, "not_parked", parked->not_parked);
    json_add_str(json, "supervisor", parked->with);
    return json;
}

static json_t *metrics_json(const struct metrics *metrics)
{
    json_t *json = json_object();
    json_add_str(json, "at", metrics_at(metrics));
    json_add_str(json, "trouble", metrics_trouble(metrics));
    return json;
}

/* Those under way. */
static json_t *operations_json(const struct report *r)
{
    json_t *list = json_array();
    struct operation of[OPERATIONS];
    report_operations(r, of);
    for (size_t i = 0; i < OPERATIONS; i++) {
        if (of[i].age_ms == 0) {
            continue;
        }
        json_t *json = json_object();
        json_add_str(json, "operation", of[i].name);
        json_add_u64(json, "age_ms", of[i].age_ms);
        if (of[i].wait != NULL) {
            json_add_u64(json, "done_bytes", of[i].wait->done_bytes);
            json_add_u64(json, "total_bytes", of[i].wait->total_bytes);
            json_add_u64(json, "still_ms", r->now_ms - of[i].wait->moved_ms);
        }
        json_add(list, NULL, json);
    }
    return list;
}

/* Bytes since the agent's start, for rates. */
static json_t *transfer_json(const struct report *r)
{
    json_t *json = json_object();
    json_add_u64(json, "digested_bytes", r->tally.digested_bytes);
    json_add_u64(json, "copied_bytes", r->tally.copied_bytes + r->tally.pulled_bytes);
    json_add_u64(json, "unchanged_bytes", r->tally.unchanged_out_bytes);
    json_add_u64(json, "received_bytes", r->tally.received_bytes);
    json_add_u64(json, "stored_bytes", r->drains.bytes);
    json_add_u64(json, "shared_bytes", r->drains.shared_bytes);
    return json;
}

static const char *wait_text(enum pacing_wait wait)
{
    static const char *const texts[] = {[PACING_GOES] = "",
                                        [PACING_RATE] = "its turn",
                                        [PACING_QUIET] = "the end of steps that are measured without it",
                                        [PACING_NETWORK] = "a pause of the network"};
    return texts[wait];
}

static json_t *pacing_json(const struct pacing_figures *f)
{
    json_t *json = json_object();
    json_add_f64(json, "target_inflation", f->target);
    json_add_f64(json, "spread", f->spread);
    json_add_f64(json, "copies_bytes_per_second", f->rate[LANE_COPIES]);
    json_add_f64(json, "drain_bytes_per_second", f->rate[LANE_DRAIN]);
    json_add_u64(json, "copies_left_bytes", f->left[LANE_COPIES]);
    json_add_u64(json, "drain_left_bytes", f->left[LANE_DRAIN]);
    json_add_str(json, "copies_wait_for", wait_text(f->wait[LANE_COPIES]));
    json_add_str(json, "drain_waits_for", wait_text(f->wait[LANE_DRAIN]));
    json_add_bool(json, "reads_network_counters", f->gated);
    json_add_u64(json, "pairs", f->inflation.pairs);
    if (f->inflation.pairs > 0) {
        json_add_f64(json, "inflation", f->inflation.mean);
        json_add_f64(json, "inflation_low", f->inflation.low);
        json_add_f64(json, "inflation_high", f->inflation.high);
    }
    return json;
}

/* The measurements that `tierckpt tune` uses. */
static json_t *training_json(const struct report *r)
{
    json_t *json = json_object();
    json_add_u64(json, "step_ns", r->trainers.step_ns);
    json_add_u64(json, "saves", report_saves(r));
    json_add_u64(json, "stall_ns", r->trainers.stalls.total_ns);
    json_add_u64(json, "commit_ms", r->tally.commit_ms);
    json_add_u64(json, "restarts", r->tally.restarts);
    json_add_u64(json, "node_losses", r->tally.node_losses);
    json_add_u64(json, "several_losses", r->tally.several_losses);
    json_add_u64(json, "node_ms", tally_node_ms(&r->tally, report_nodes(r), r->now_ms));
    json_add_u64(json, "save_mem_steps", r->save_mem_steps);
    json_add_u64(json, "save_storage_steps", r->save_storage_steps);
    return json;
}

static void do_status(struct agent *agent, struct client *client, const json_t *request)
{
    (void)request;
    struct report r;
    report_collect(agent, &r);
    json_t *json = success_json();
    json_add_str(json, "job", r.config->job);
    json_add_str(json, "node", r.config->node);
    json_add_u64(json, "pid", r.pid);
    json_add_u64(json, "term", r.term);
    json_add(json, "reserved", reserved_json(&r));
    json_add(json, "memory", memory_json(&r.memory));
    json_add(json, "memory_pressure", pressure_json(&r.pressure, agent->pressure));
    json_add(json, "held", version_json(r.memory.held));
    json_add(json, "trainers", trainers_json(agent));
    json_add_bool(json, "awaits_trainers", r.awaits_trainers);
    json_add_u64(json, "stale_messages", r.stale_messages);
    json_add(json, "scrub", scrub_json(&r));
    json_add(json, "storage", storage_json(r.storage.trouble));
    json_add(json, "clones", clones_json(&r));
    if (r.archive.used) {
        json_add(json, "archive", archive_json(&r.archive));
    }
    json_add(json, "quarantined", writers_json(&agent->writers));
    json_add(json, "parked", parked_json(&r.parked));
    json_add(json, "metrics", metrics_json(agent->metrics));
    json_add(json, "operations", operations_json(&r));
    json_add(json, "training", training_json(&r));
    json_add(json, "transfer", transfer_json(&r));
    json_add(json, "pacing", pacing_json(&r.pacing));
    json_add_u64(json, "drain_ms", r.tally.drain_ms);
    if (r.in_term.joined) {
        add_term(json, &r.in_term, agent);
    }
    reply(client, json);
}

/* ---- versions ------------------------------------------------------------------------------------------------ */

static json_t *slot_json(const struct slot_header *h)
{
    char root[HASH128_TEXT];
    hash128_text(h->root, root);
    json_t *json = json_object();
    json_add(json, "version", version_json(h->version));
    json_add_str(json, "state", slot_state_name(h->state));
    json_add_bool(json, "committed", h->committed);
    json_add_str(json, "root", root);
    return json;
}

/* Lists what this node's memory holds, from the slot headers. */
static void do_ls(struct agent *agent, struct client *client, const json_t *request)
{
    (void)request;
    json_t *json = success_json();
    json_t *segments = json_array();
    for (size_t i = 0; slot_ops_memory(agent->slot_ops) == MEMORY_STEADY && i < memory_count(agent->memory); i++) {
        struct segment *segment = memory_at(agent->memory, i);
        struct segment_info info = segment_info(segment);
        char id[HASH128_TEXT];
        hash128_text(info.shard, id);
        json_t *s = json_object();
        json_add_str(s, "shard", id);
        json_add_u64(s, "bytes", info.image_bytes);
        json_t *slots = json_array();
        for (uint32_t k = 0; k < info.slot_count; k++) {
            json_add(slots, NULL, slot_json(segment_header(segment, k)));
        }
        json_add(s, "slots", slots);
        contents_add_json(segment, s);
        json_add(segments, NULL, s);
    }
    json_add(json, "segments", segments);
    reply(client, json);
}

struct verify_request {
    struct agent *agent;
    uint64_t client; /* id: the client may be gone when the result is there */
};

static void on_verified(void *ctx, uint64_t checked, json_t *bad)
{
    struct verify_request *r = ctx;
    struct client *client = bad != NULL ? client_by_id(r->agent->clients, r->client) : NULL;
    if (client != NULL) {
        json_t *json = json_object();
        json_add_bool(json, "ok", json_len(bad) == 0);
        json_add_u64(json, "slots_checked", checked);
        json_add(json, "bad", bad);
        reply(client, json);
    } else {
        json_free(bad);
    }
    free(r);
}

/* Recomputes the digests of all verified slots; damaged copies are dropped. */
static void do_verify(struct agent *agent, struct client *client, const json_t *request)
{
    (void)request;
    struct error err;
    struct verify_request *r = calloc(1, sizeof(*r));
    if (r != NULL) {
        *r = (struct verify_request){.agent = agent, .client = client->id};
        if (scrub_now(agent->scrub, on_verified, r, &err) == TCK_OK) {
            return;
        }
        free(r);
    }
    (void)error_set(&err, TCK_ERR_NOMEM, "out of memory");
    reply_error(client, &err);
}

static json_t *row_json(const struct catalog_version *row)
{
    json_t *json = json_object();
    json_add(json, "version", version_json(row->version));
    json_add_str(json, "state", catalog_state_name(row->state));
    json_add_u64(json, "wall_ms", row->wall_ms);
    json_add_u64(json, "shards", row->shard_count);
    json_add_u64(json, "bytes", row->bytes);
    return json;
}

static void do_catalog(struct agent *agent, struct client *client, const json_t *request)
{
    (void)request;
    struct catalog_version *rows = NULL;
    size_t count = 0;
    struct error err;
    (void)error_set(&err, TCK_ERR_NOENT, "node %s has no catalog", agent->config.node);
    if (agent->catalog == NULL || catalog_versions(agent->catalog, &rows, &count, &err) != TCK_OK) {
        reply_error(client, &err);
        return;
    }
    json_t *json = success_json();
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_add(list, NULL, row_json(&rows[i]));
    }
    json_add(json, "versions", list);
    free(rows);
    reply(client, json);
}

static json_t *shard_row_json(const struct catalog_shard *row)
{
    char id[HASH128_TEXT];
    char root[HASH128_TEXT];
    hash128_text(row->shard, id);
    hash128_text(row->root, root);
    json_t *json = json_object();
    json_add_str(json, "shard", id);
    json_add_str(json, "root", root);
    json_add_u64(json, "bytes", row->bytes);
    json_t *holders = json_array();
    for (uint32_t i = 0; i < row->holder_count; i++) {
        json_add_str(holders, NULL, row->holders[i]);
    }
    json_add(json, "holders", holders);
    return json;
}

static void do_show(struct agent *agent, struct client *client, const json_t *request)
{
    struct version v = {0};
    struct error err;
    struct catalog_shard *rows = NULL;
    size_t count = 0;
    if (!json_u64(json_get(request, "term"), &v.term) || !json_u64(json_get(request, "step"), &v.step)) {
        (void)error_set(&err, TCK_ERR_INVAL, "show needs term and step");
        reply_error(client, &err);
        return;
    }
    (void)error_set(&err, TCK_ERR_NOENT, "node %s has no catalog", agent->config.node);
    if (agent->catalog == NULL || catalog_shards(agent->catalog, v, &rows, &count, &err) != TCK_OK) {
        reply_error(client, &err);
        return;
    }
    json_t *json = success_json();
    json_add(json, "version", version_json(v));
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_add(list, NULL, shard_row_json(&rows[i]));
    }
    json_add(json, "shards", list);
    free(rows);
    reply(client, json);
}

void control_feed_catalog(struct catalog *catalog, const struct memory *memory, const char *node)
{
    for (size_t i = 0; i < memory_count(memory); i++) {
        struct segment *segment = memory_at(memory, i);
        for (uint32_t k = 0; k < segment_info(segment).slot_count; k++) {
            const struct slot_header *h = segment_header(segment, k);
            struct catalog_version row = {.version = h->version, .state = CATALOG_COMMITTED, .shard_count = 1};
            struct catalog_shard shard = {.version = h->version, .shard = h->shard, .root = h->root, .holder_count = 1};
            struct error err;
            row.bytes = shard.bytes = h->image_bytes;
            snprintf(shard.holders[0], sizeof(shard.holders[0]), "%s", node);
            if (h->state == SLOT_VERIFIED && h->committed &&
                catalog_put(catalog, &row, &shard, 1, false, &err) != TCK_OK) {
                log_warn("catalog: %s", err.text);
            }
        }
    }
}

/* ---- plan ---------------------------------------------------------------------------------------------------- */

struct plan_request {
    struct agent *agent;
    uint64_t client;
};

static void on_planned(void *ctx, json_t *plan, const struct error *err)
{
    struct plan_request *request = ctx;
    struct client *client = client_by_id(request->agent->clients, request->client);
    free(request);
    if (client == NULL) {
        json_free(plan);
    } else if (plan == NULL) {
        reply_error(client, err);
    } else {
        json_t *json = success_json();
        json_add(json, "plan", plan);
        reply(client, json);
    }
}

static void do_plan(struct agent *agent, struct client *client, const json_t *request)
{
    uint64_t step = TCK_NEWEST;
    (void)json_u64(json_get(request, "step"), &step);
    struct plan_request *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        struct error err;
        (void)error_set(&err, TCK_ERR_NOMEM, "out of memory");
        reply_error(client, &err);
        return;
    }
    *r = (struct plan_request){.agent = agent, .client = client->id};
    recover_plan_dry(agent->recoveries, agent->term_context, step, on_planned, r);
}

/* ---- requests to the coordinator --------------------------------------------------------------------------------- */

/* The term context if its coordinator can be reached, otherwise NULL after an error reply. */
static struct term_context *reachable_term(const struct agent *agent, struct client *client)
{
    struct term_context *tc = agent->term_context;
    struct error err;
    if (tc == NULL || tc->closed) {
        (void)error_set(&err, TCK_ERR_NOENT, "node %s has joined no term", agent->config.node);
    } else if (tc->coordinator == NULL && (tc->peers[0] == NULL || !peer_is_up(tc->peers[0]))) {
        (void)error_set(&err, TCK_ERR_UNREACHABLE, "the coordinator, node %s, cannot be reached",
                        tc->world.nodes[0].name);
    } else {
        return tc;
    }
    reply_error(client, &err);
    return NULL;
}

static void do_drain(struct agent *agent, struct client *client, const json_t *request)
{
    (void)request;
    struct term_context *tc = reachable_term(agent, client);
    if (tc == NULL) {
        return;
    }
    struct error err;
    if (version_none(node_decision(tc->node)->watermark)) {
        (void)error_set(&err, TCK_ERR_NOENT, "no version is committed yet");
        reply_error(client, &err);
        return;
    }
    rpc_ask_drain(tc);
    json_t *json = success_json();
    json_add(json, "draining", version_json(node_decision(tc->node)->watermark));
    reply(client, json);
}

static void do_set(struct agent *agent, struct client *client, const json_t *request)
{
    struct term_context *tc = reachable_term(agent, client);
    if (tc == NULL) {
        return;
    }
    const char *key = json_str(json_get(request, "key"));
    const char *value = json_str(json_get(request, "value"));
    struct config trial = agent->config;
    struct error err;
    (void)error_set(&err, TCK_ERR_INVAL, "set needs key and value");
    if (key == NULL || value == NULL || config_change(&trial, key, value, &err) != TCK_OK) {
        reply_error(client, &err);
        return;
    }
    if (strlen(value) >= CHANGE_VALUE_BYTES) {
        (void)error_set(&err, TCK_ERR_INVAL, "%s: a value of at most %d characters can be sent to the other nodes", key,
                        CHANGE_VALUE_BYTES - 1);
        reply_error(client, &err);
        return;
    }
    struct wire_change m = {.term = tc->world.term};
    snprintf(m.key, sizeof(m.key), "%s", key);
    snprintf(m.value, sizeof(m.value), "%s", value);
    struct writer w = writer_new(0);
    wire_change_encode(&m, &w);
    rpc_send_coordinator(tc, WIRE_CHANGE, &w);
    writer_free(&w);
    reply(client, success_json());
}

static void do_stop(struct agent *agent, struct client *client, const json_t *request)
{
    struct report r;
    report_collect(agent, &r);
    struct version held = r.memory.held;
    struct error err, discards;
    bool force = false;
    (void)json_bool(json_get(request, "force"), &force);
    tck_status_t trainers = stop_check_trainers(&agent->stop, &err);
    tck_status_t memory = stop_check_memory(&agent->stop, held, &discards);
    if (!force && (trainers != TCK_OK || memory != TCK_OK)) {
        reply_error(client, trainers != TCK_OK ? &err : &discards);
        return;
    }
    stop_request(&agent->stop, force);
    json_t *json = success_json();
    json_add_u64(json, "nodes",
                 agent->term_context != NULL && !agent->term_context->closed ? agent->term_context->world.node_count
                                                                             : 1);
    json_add(json, "held", version_json(held));
    json_add(json, "discarded", version_json(memory == TCK_OK ? VERSION_NONE : held));
    json_add_str(json, "despite", trainers == TCK_OK ? "" : err.text);
    reply(client, json);
}

/* ---- measure ------------------------------------------------------------------------------------------------- */

struct measure_request {
    struct agent *agent;
    uint64_t client; /* ids: both may be gone when the result is there */
    uint64_t agent_id;
};

static void add_route(json_t *json, const struct peer *peer)
{
    struct link_route route;
    if (peer != NULL && peer_route(peer, &route)) {
        json_add_str(json, "transports", route.transports);
        json_add_str(json, "from", route.local);
        json_add_str(json, "to", route.remote);
    }
}

static void on_measured(void *ctx, const struct rate *rate, const struct error *outcome)
{
    struct measure_request *request = ctx;
    const struct agent *agent = request->agent;
    struct client *client = client_by_id(agent->clients, request->client);
    const struct peer *peer = peers_find(agent->peers, request->agent_id);
    free(request);
    if (client == NULL) {
        return;
    }
    if (outcome->code != TCK_OK) {
        reply_error(client, outcome);
        return;
    }
    json_t *json = success_json();
    json_add_u64(json, "bytes", rate->bytes);
    json_add_u64(json, "ns", rate->ns);
    add_route(json, peer);
    reply(client, json);
}

/* The agent of this node of the term. TCK_ERR_NOENT: this agent has no need of a session with it. */
static tck_status_t peer_named(const struct agent *agent, const char *name, struct peer **out, struct error *err)
{
    const struct term_context *tc = agent->term_context;
    for (uint32_t n = 0; name != NULL && tc != NULL && n < tc->world.node_count; n++) {
        if (n != tc->self && strcmp(tc->world.nodes[n].name, name) == 0) {
            *out = peers_find(agent->peers, tc->world.nodes[n].agent_id);
            return *out != NULL ? TCK_OK
                                : error_set(err, TCK_ERR_NOENT, "node %s has no session with node %s and needs none",
                                            agent->config.node, name);
        }
    }
    return error_set(err, TCK_ERR_INVAL, "node %s is in no term with another node %s", agent->config.node,
                     name != NULL ? name : "(none named)");
}

static void do_measure(struct agent *agent, struct client *client, const json_t *request)
{
    struct peer *peer = NULL;
    struct measure_request *r = calloc(1, sizeof(*r));
    struct error err;
    tck_status_t status = r == NULL ? error_set(&err, TCK_ERR_NOMEM, "out of memory")
                                    : peer_named(agent, json_str(json_get(request, "node")), &peer, &err);
    if (status == TCK_OK) {
        *r = (struct measure_request){.agent = agent, .client = client->id, .agent_id = peer_node(peer)->agent_id};
        status = peer_measure(peer, on_measured, r, &err);
    }
    if (status != TCK_OK) {
        free(r);
        reply_error(client, &err);
    }
}

static void do_config(struct agent *agent, struct client *client, const json_t *request)
{
    (void)request;
    json_t *json = success_json();
    json_add(json, "config", config_json(&agent->config));
    reply(client, json);
}

static const struct {
    const char *op;
    void (*fn)(struct agent *agent, struct client *client, const json_t *request);
} operations[] = {
    {"status", do_status}, {"ls", do_ls},     {"verify", do_verify},   {"catalog", do_catalog},
    {"show", do_show},     {"plan", do_plan}, {"drain", do_drain},     {"set", do_set},
    {"config", do_config}, {"stop", do_stop}, {"measure", do_measure},
};

void control_request(struct agent *agent, struct client *client, const uint8_t *payload, size_t len)
{
    json_t *request = NULL;
    struct error err;
    if (json_parse((const char *)payload, len, &request, &err) != TCK_OK) {
        reply_error(client, &err);
        return;
    }
    const char *op = json_str(json_get(request, "op"));
    for (size_t i = 0; op != NULL && i < sizeof(operations) / sizeof(*operations); i++) {
        if (strcmp(op, operations[i].op) == 0) {
            operations[i].fn(agent, client, request);
            json_free(request);
            return;
        }
    }
    (void)error_set(&err, TCK_ERR_UNSUPPORTED, "unknown request %s", op != NULL ? op : "without op");
    reply_error(client, &err);
    json_free(request);
}
