/* SPDX-License-Identifier: Apache-2.0
 * Collects what exists in memory for a recovery: the inventories of this and other agents. */
#include "agent/recovery/recover_ask.h"

#include "agent/driver/slot_ops.h"
#include "agent/recovery/kept_inventory.h"
#include "agent/recovery/recover_internal.h"
#include "base/failpoint.h"
#include "recovery/catalog.h"
#include "tiers/memory.h"
#include "tiers/peer.h"
#include "tiers/segment.h"

#include <stdlib.h>
#include <string.h>

/* ---- inventories --------------------------------------------------------------------------------------------- */

/* Versions that the asking term itself has not committed may be freed at any time, so they are left out. */
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

/* TCK_ERR_BUSY: the segments are being changed. */
static tck_status_t own_inventory(const struct recoveries *rs, uint64_t term, struct inventory *inv)
{
    if (slot_ops_memory(rs->needs.slot_ops) == MEMORY_CHANGING) {
        return TCK_ERR_BUSY;
    }
    *inv = kept_inventory(rs->needs.state, peers_self(rs->needs.peers));
    size_t count = memory_count(rs->needs.memory);
    inv->holdings = calloc(count * CORE_SLOTS_MAX + 1, sizeof(*inv->holdings));
    if (inv->holdings == NULL) {
        return TCK_ERR_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        add_holdings(memory_at(rs->needs.memory, i), term, inv);
    }
    qsort(inv->holdings, inv->count, sizeof(*inv->holdings), holding_cmp);
    return TCK_OK;
}

/* Those that the asking coordinator does not know from its world: the others would be most of what N nodes tell it. */
static size_t keep_unknown(const struct world *world, struct known_node *known, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (world == NULL || world_find_agent(world, known[i].node.agent_id) < 0) {
            known[kept++] = known[i];
        }
    }
    return kept;
}

tck_status_t recover_make_inventory(const struct recoveries *rs, const struct world *world, const struct wire_ask *ask,
                                    struct writer *w)
{
    struct inventory inv;
    tck_status_t status = own_inventory(rs, ask->term + ask->dry, &inv);
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
    if (rs->needs.catalog != NULL && catalog_nodes(rs->needs.catalog, &m.known, &known, &ignored) != TCK_OK) {
        known = 0;
    }
    m.known_count = (uint32_t)keep_unknown(world, m.known, known);
    wire_inventory_encode(&m, w);
    free(m.known);
    status = body.failed ? TCK_ERR_NOMEM : TCK_OK;
    writer_free(&body);
    inventory_free(&inv);
    return status;
}

void recover_ask_peer(struct recover *r, struct peer *peer)
{
    struct wire_ask m = {.term = r->tc->world.term, .asking = r->asking, .dry = r->machine == NULL};
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
    if (peers_want(r->all->needs.peers, node, &peer, &err) != TCK_OK) {
        log_debug("node %s: %s", node->name, err.text);
    } else if (peer_is_up(peer)) {
        recover_ask_peer(r, peer);
    }
}

bool recover_is_outsider(const struct recover *r, const struct node_info *node)
{
    return id_map_find(&r->outsiders, node->agent_id) == ID_MAP_NONE &&
           world_find_agent(&r->tc->world, node->agent_id) < 0;
}

void recover_add_outsiders(struct recover *r, const struct known_node *known, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct node_info *node = &known[i].node;
        if (r->machine != NULL) {
            recover_step(r, (struct recovery_event){.type = RECOVERY_EVENT_KNOWN, .known = &known[i]});
        }
        if (!recover_is_outsider(r, node)) {
            continue;
        }
        if (!id_map_put(&r->outsiders, node->agent_id, r->outsiders.count)) {
            return;
        }
        want_and_ask(r, node);
    }
}

static void add_known(struct recover *r)
{
    struct known_node *known = NULL;
    size_t count = 0;
    struct error ignored;
    if (r->all->needs.catalog != NULL && catalog_nodes(r->all->needs.catalog, &known, &count, &ignored) == TCK_OK) {
        recover_add_outsiders(r, known, count);
        free(known);
    }
}

bool recover_all_answered(const struct recover *r)
{
    return r->answered_count == r->tc->world.node_count;
}

static void keep_inventory(struct recover *r, struct inventory *inv)
{
    struct inventory *grown = realloc(r->inventories, (r->inventory_count + 1) * sizeof(*grown));
    if (grown == NULL) {
        inventory_free(inv);
        return;
    }
    r->inventories = grown;
    r->inventories[r->inventory_count++] = *inv;
}

void recover_take_inventory(struct recover *r, uint32_t node, struct inventory *inv)
{
    if (r->machine != NULL) {
        recover_step(r, (struct recovery_event){.type = RECOVERY_EVENT_INVENTORY, .inventory = inv});
    } else {
        keep_inventory(r, inv);
    }
    if (node != NONE32) {
        r->answered_count += !r->answered[node];
        r->answered[node] = true;
    }
    if (r->machine != NULL && recover_all_answered(r)) {
        recover_step(r, (struct recovery_event){.type = RECOVERY_EVENT_ASKED_ALL});
    }
}

void recover_ask_silent(struct recover *r)
{
    const struct term_context *tc = r->tc;
    struct inventory inv;
    for (uint32_t n = 0; n < tc->world.node_count; n++) {
        if (n != tc->self && !r->answered[n]) {
            want_and_ask(r, &tc->world.nodes[n]);
        }
    }
    bool self = !r->answered[tc->self];
    if (self && own_inventory(r->all, tc->world.term + (r->machine == NULL), &inv) == TCK_OK) {
        recover_take_inventory(r, tc->self, &inv);
    }
}

void recover_ask_all(struct recover *r)
{
    r->asking = ++r->all->number;
    memset(r->answered, 0, r->tc->world.node_count * sizeof(*r->answered));
    r->answered_count = 0;
    recover_ask_silent(r);
    add_known(r);
}
