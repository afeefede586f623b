/* SPDX-License-Identifier: Apache-2.0
 * What exists, for a recovery: inventories of this and other agents, and what storage has published. */
#include "agent/recover_internal.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define STORED_MAX 64 /* published versions looked at */

/* ---- inventories --------------------------------------------------------------------------------------------- */

/* What the asking term itself has not committed may be freed at any moment: no recovery of it may count on that. */
static void add_holdings(const struct segment *segment, uint64_t term, struct inventory *inv)
{
    struct segment_info info = segment_info(segment);
    for (uint32_t k = 0; k < info.slot_count; k++) {
        const struct slot_header *h = segment_header(segment, k);
        if (h->state != SLOT_FREE && h->version.step > inv->newest_step) {
            inv->newest_step = h->version.step;
        }
        if (h->state != SLOT_VERIFIED || (h->version.term == term && !h->committed)) {
            continue;
        }
        inv->holdings[inv->count++] = (struct holding){.shard = info.shard,
                                                       .layout = h->layout,
                                                       .version = h->version,
                                                       .root = h->root,
                                                       .image_bytes = info.image_bytes,
                                                       .committed = h->committed};
        if (h->committed && version_cmp(h->version, inv->watermark) > 0) {
            inv->watermark = h->version;
        }
    }
}

static int holding_cmp(const void *a, const void *b)
{
    const struct holding *x = a;
    const struct holding *y = b;
    int c = hash128_cmp(x->shard, y->shard);
    return c ? c : version_cmp(x->version, y->version);
}

/* For a recovery of this term, from the headers; the newest commit also from the kept decision, which may know of one
 * that this node has nothing of. TCK_ERR_BUSY: not now, the segments are being changed. */
static tck_status_t own_inventory(struct agent *agent, uint64_t term, struct inventory *inv)
{
    if (join_allocating(agent)) {
        return TCK_ERR_BUSY;
    }
    *inv = (struct inventory){.node = *peers_self(agent->peers), .watermark = state_watermark(agent->state)};
    size_t count = memory_count(agent->memory);
    inv->holdings = calloc(count * CORE_SLOTS_MAX + 1, sizeof *inv->holdings);
    if (!inv->holdings) {
        return TCK_ERR_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        add_holdings(memory_at(agent->memory, i), term, inv);
    }
    qsort(inv->holdings, inv->count, sizeof *inv->holdings, holding_cmp);
    return TCK_OK;
}

tck_status_t recover_tell_inventory(struct agent *agent, const struct wire_ask *ask, struct writer *w)
{
    struct inventory inv;
    tck_status_t status = own_inventory(agent, ask->term + ask->dry, &inv);
    if (status != TCK_OK) {
        return status;
    }
    failpoint(recovery, answering);
    struct writer body = writer_new(0);
    inventory_encode(&inv, &body);
    struct wire_inventory m = {
        .term = ask->term, .asking = ask->asking, .inventory = body.data, .inventory_len = body.len};
    size_t known = 0;
    struct error ignored; /* the catalog is a hint */
    if (agent->catalog && catalog_nodes(agent->catalog, &m.known, &known, &ignored) != TCK_OK) {
        known = 0;
    }
    m.known_count = (uint32_t)known;
    wire_inventory_encode(&m, w);
    free(m.known);
    status = body.failed ? TCK_ERR_NOMEM : TCK_OK;
    writer_free(&body);
    inventory_free(&inv);
    return status;
}

void recover_ask_peer(struct recover *r, struct peer *peer)
{
    struct wire_ask m = {.term = r->f->world.term, .asking = r->asking, .dry = !r->machine};
    struct writer w = writer_new(0);
    wire_ask_encode(&m, &w);
    if (!w.failed && peer_send(peer, WIRE_INVENTORY_ASK, w.data, w.len) != TCK_OK) {
        log_debug("node %s could not be asked for its inventory", peer_node(peer)->name);
    }
    writer_free(&w);
}

static void want_and_ask(struct recover *r, const struct node_info *node)
{
    struct peer *peer;
    struct error err;
    if (peers_want(r->f->agent->peers, node, &peer, &err) != TCK_OK) {
        log_debug("node %s: %s", node->name, err.text);
    } else if (peer_is_up(peer)) {
        recover_ask_peer(r, peer);
    }
}

bool recover_is_stranger(const struct recover *r, const struct node_info *node)
{
    for (uint32_t n = 0; n < r->f->world.node_count; n++) {
        if (r->f->world.nodes[n].agent_id == node->agent_id) {
            return false;
        }
    }
    for (uint32_t i = 0; i < r->stranger_count; i++) {
        if (r->strangers[i].agent_id == node->agent_id) {
            return false;
        }
    }
    return true;
}

void recover_add_strangers(struct recover *r, const struct node_info *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!recover_is_stranger(r, &nodes[i])) {
            continue;
        }
        struct node_info *grown = realloc(r->strangers, (r->stranger_count + 1) * sizeof *grown);
        if (!grown) {
            return;
        }
        r->strangers = grown;
        r->strangers[r->stranger_count++] = nodes[i];
        want_and_ask(r, &nodes[i]);
    }
}

static void add_known(struct recover *r)
{
    struct node_info *known = NULL;
    size_t count = 0;
    struct error ignored;
    if (r->f->agent->catalog && catalog_nodes(r->f->agent->catalog, &known, &count, &ignored) == TCK_OK) {
        recover_add_strangers(r, known, count);
        free(known);
    }
}

bool recover_all_answered(const struct recover *r)
{
    for (uint32_t n = 0; n < r->f->world.node_count; n++) {
        if (!r->answered[n]) {
            return false;
        }
    }
    return true;
}

static void keep_inventory(struct recover *r, struct inventory *inv)
{
    struct inventory *grown = realloc(r->inventories, (r->inventory_count + 1) * sizeof *grown);
    if (!grown) {
        inventory_free(inv);
        return;
    }
    r->inventories = grown;
    r->inventories[r->inventory_count++] = *inv;
}

void recover_take_inventory(struct recover *r, uint32_t node, struct inventory *inv)
{
    if (r->machine) {
        recovery_inventory(r->machine, inv, clock_ms());
    } else {
        keep_inventory(r, inv);
    }
    if (node != NONE32) {
        r->answered[node] = true;
    }
    if (r->machine && recover_all_answered(r)) {
        recovery_asked_all(r->machine, clock_ms());
    }
}

void recover_ask_silent(struct recover *r)
{
    const struct formation *f = r->f;
    struct inventory inv;
    for (uint32_t n = 0; n < f->world.node_count; n++) {
        if (n != f->self && !r->answered[n]) {
            want_and_ask(r, &f->world.nodes[n]);
        }
    }
    bool self = !r->answered[f->self];
    if (self && own_inventory(f->agent, f->world.term + !r->machine, &inv) == TCK_OK) {
        recover_take_inventory(r, f->self, &inv);
    }
}

void recover_ask_all(struct recover *r)
{
    r->asking++;
    memset(r->answered, 0, r->f->world.node_count * sizeof *r->answered);
    recover_ask_silent(r);
    add_known(r);
}

/* ---- storage ------------------------------------------------------------------------------------------------- */

static tck_status_t add_stored(struct recover *r, const struct published *which)
{
    struct manifest m = {0};
    struct error err;
    if (persistent_manifest(r->f->agent->persistent, which, &m, &err) != TCK_OK) {
        log_warn("published version %llu.%llu is left out: %s", (unsigned long long)which->version.term,
                 (unsigned long long)which->version.step, err.text);
        return TCK_OK;
    }
    struct hash128 *shards = calloc(m.file_count ? m.file_count : 1, sizeof *shards);
    if (!shards) {
        manifest_free(&m);
        return TCK_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < m.file_count; i++) {
        shards[i] = m.files[i].shard;
    }
    r->stored[r->stored_count++] = (struct stored_version){
        .version = m.version, .layout = m.layout, .shard_count = m.file_count, .shards = shards};
    manifest_free(&m);
    return TCK_OK;
}

void recover_free_stored(struct recover *r)
{
    for (uint32_t i = 0; i < r->stored_count; i++) {
        void *shards;
        memcpy(&shards, &r->stored[i].shards, sizeof shards); /* ours; the planner sees it const */
        free(shards);
    }
    free(r->stored);
    r->stored = NULL;
    r->stored_count = 0;
}

/* The version that killed the job again and again is not tried for ever. */
static void find_poisoned(struct recover *r)
{
    struct agent *agent = r->f->agent;
    struct version restored;
    struct error err;
    r->give_up = VERSION_NONE;
    if (persistent_restore_tries(agent->persistent, r->f->world.term, &restored, &r->tries, &err) != TCK_OK) {
        log_warn("how often a version was restored is not known: %s", err.text);
    } else if (r->tries >= agent->config.max_restore_tries) {
        r->give_up = restored;
    }
}

/* In a pool thread. */
static void list_stored(void *ctx)
{
    struct recover *r = ctx;
    struct published *list = NULL;
    size_t count = 0;
    r->list_err.code = TCK_OK;
    failpoint(recovery, listing);
    find_poisoned(r);
    if (persistent_list(r->f->agent->persistent, &list, &count, &r->list_err) != TCK_OK) {
        return;
    }
    count = count < STORED_MAX ? count : STORED_MAX;
    r->stored = calloc(count ? count : 1, sizeof *r->stored);
    for (size_t i = 0; r->stored && i < count; i++) {
        if (add_stored(r, &list[i]) != TCK_OK) {
            break;
        }
    }
    free(list);
}

static void say_poisoned(const struct recover *r)
{
    if (!version_none(r->give_up) && r->step == TCK_NEWEST) {
        log_error("version %llu.%llu was restored %u times and nothing was committed after it: it is given up, the one "
                  "before is used",
                  (unsigned long long)r->give_up.term, (unsigned long long)r->give_up.step, r->tries);
    }
}

static void listed(void *ctx, bool canceled)
{
    struct recover *r = ctx;
    struct agent *agent = r->f->agent;
    r->listing = false;
    if (r->doomed || canceled) {
        recover_free_stored(r);
        recover_destroy(r);
    } else {
        if (r->list_err.code != TCK_OK) {
            log_error("storage cannot be listed, recovery goes on without it: %s", r->list_err.text);
        }
        r->listed = true;
        if (r->machine) {
            say_poisoned(r);
            recovery_stored(r->machine, r->stored, r->stored_count, r->give_up, clock_ms());
            recover_run(r);
        }
    }
    agent_op_end(agent);
}

void recover_list_storage(struct recover *r)
{
    recover_free_stored(r);
    r->listing = true;
    agent_op_begin(r->f->agent);
    if (pool_submit(r->f->agent->io, list_stored, listed, r) != TCK_OK) {
        (void)error_set(&r->list_err, TCK_ERR_NOMEM, "out of memory");
        listed(r, false);
    }
}
