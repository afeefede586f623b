/* SPDX-License-Identifier: Apache-2.0
 * Inventories: order, encoding, decoding. */
#include "recovery/inventory.h"

#include <stdlib.h>

#define INVENTORY_FORMAT 1
#define HOLDING_BYTES    (3 * 16 + 16 + 8 + 1) /* three hashes, version, bytes, flag */

void inventory_free(struct inventory *inventory)
{
    free(inventory->holdings);
    *inventory = (struct inventory){0};
}

static int holding_cmp(const void *a, const void *b)
{
    const struct holding *x = a, *y = b;
    int order = hash128_cmp(x->shard, y->shard);
    return order != 0 ? order : version_cmp(x->version, y->version);
}

void inventory_sort(struct inventory *inventory)
{
    if (inventory->count > 0) {
        qsort(inventory->holdings, inventory->count, sizeof(*inventory->holdings), holding_cmp);
    }
}

static void write_holding(struct writer *w, const struct holding *h)
{
    write_hash128(w, h->shard);
    write_hash128(w, h->layout);
    write_version(w, h->version);
    write_hash128(w, h->root);
    write_u64(w, h->image_bytes);
    write_u8(w, h->committed);
}

static struct holding read_holding(struct reader *r)
{
    struct holding h = {0};
    h.shard = read_hash128(r);
    h.layout = read_hash128(r);
    h.version = read_version(r);
    h.root = read_hash128(r);
    h.image_bytes = read_u64(r);
    uint8_t committed = read_u8(r);
    h.committed = committed == 1;
    r->failed = r->failed || committed > 1 || version_none(h.version);
    return h;
}

void inventory_encode(const struct inventory *inventory, struct writer *w)
{
    write_u8(w, INVENTORY_FORMAT);
    write_node_info(w, &inventory->node);
    write_version(w, inventory->watermark);
    write_u64(w, inventory->newest_step);
    write_u32(w, inventory->count);
    for (uint32_t i = 0; i < inventory->count; i++) {
        write_holding(w, &inventory->holdings[i]);
    }
}

/* The count is checked against the bytes that are there before anything is allocated for it. */
static tck_status_t read_holdings(struct reader *r, struct inventory *inventory)
{
    uint32_t count = read_u32(r);
    if (r->failed || reader_left(r) != (size_t)count * HOLDING_BYTES) {
        return TCK_ERR_PROTO;
    }
    inventory->holdings = calloc((size_t)count + 1, sizeof(*inventory->holdings));
    if (inventory->holdings == NULL) {
        return TCK_ERR_NOMEM;
    }
    inventory->count = count;
    for (uint32_t i = 0; i < count; i++) {
        inventory->holdings[i] = read_holding(r);
        if (i > 0 && holding_cmp(&inventory->holdings[i - 1], &inventory->holdings[i]) > 0) {
            return TCK_ERR_PROTO;
        }
    }
    return reader_done(r) ? TCK_OK : TCK_ERR_PROTO;
}

tck_status_t inventory_decode(const void *data, size_t len, struct inventory *out, struct error *err)
{
    struct reader r = reader_of(data, len);
    struct inventory inventory = {0};
    uint8_t format = read_u8(&r);
    if (r.failed || format != INVENTORY_FORMAT) {
        return error_set(err, TCK_ERR_PROTO, "inventory of %zu bytes: format %u, known is %u", len, format,
                         INVENTORY_FORMAT);
    }
    inventory.node = read_node_info(&r);
    inventory.watermark = read_version(&r);
    inventory.newest_step = read_u64(&r);
    tck_status_t status = read_holdings(&r, &inventory);
    if (status != TCK_OK) {
        error_set(err, status, "inventory of node \"%s\", %zu bytes: malformed", inventory.node.name, len);
        inventory_free(&inventory);
        return status;
    }
    *out = inventory;
    return TCK_OK;
}
