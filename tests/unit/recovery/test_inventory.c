/* SPDX-License-Identifier: Apache-2.0 */
#include "../base/codec.h"
#include "fixture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

/* Two shards, the second in two versions; freed by the test. */
static struct inventory some_inventory(void)
{
    struct world w = fixture_world(2, 1, 1);
    fixture_add_private_shards(&w, 4096);
    struct inventory inventory = fixture_inventory(&w, 1);
    strcpy(inventory.node.address, "10.0.0.1:40123");
    inventory.watermark = (struct version){3, 120};
    inventory.newest_step = 140;
    inventory.base = (struct version){2, 100};
    inventory.base_term = 3;
    strcpy(inventory.passed_over, "version 2.110 is damaged on storage");
    fixture_hold(&inventory, &w, 1, (struct version){3, 120});
    fixture_hold(&inventory, &w, 1, (struct version){3, 110});
    fixture_hold(&inventory, &w, 0, (struct version){3, 120});
    inventory.holdings[0].committed = false;
    world_free(&w);
    return inventory;
}

static tck_status_t decode(const void *data, size_t len)
{
    struct inventory out;
    tck_status_t status = inventory_decode(data, len, &out);
    if (status == TCK_OK) {
        inventory_free(&out);
    }
    return status;
}

Test(inventory, survives_a_round_trip_as_it_was_sent)
{
    struct inventory sent = some_inventory(), got;
    struct writer w = writer_new(0);
    inventory_encode(&sent, &w);
    cr_assert(eq(int, inventory_decode(w.data, w.len, &got), TCK_OK));
    cr_assert(eq(str, got.node.name, sent.node.name));
    cr_assert(eq(str, got.node.domain, sent.node.domain));
    cr_assert(eq(str, got.node.address, sent.node.address));
    cr_assert(eq(u64, got.node.agent_id, sent.node.agent_id));
    cr_assert(version_is(got.watermark, sent.watermark));
    cr_assert(eq(u64, got.newest_step, sent.newest_step));
    cr_assert(version_is(got.base, sent.base));
    cr_assert(eq(u64, got.base_term, sent.base_term));
    cr_assert(eq(str, got.passed_over, sent.passed_over));
    cr_assert(eq(u32, got.count, sent.count));
    for (uint32_t i = 0; i < got.count; i++) {
        cr_assert(hash128_is(got.holdings[i].shard, sent.holdings[i].shard));
        cr_assert(hash128_is(got.holdings[i].layout, sent.holdings[i].layout));
        cr_assert(hash128_is(got.holdings[i].root, sent.holdings[i].root));
        cr_assert(version_is(got.holdings[i].version, sent.holdings[i].version));
        cr_assert(eq(u64, got.holdings[i].image_bytes, sent.holdings[i].image_bytes));
        cr_assert(eq(int, got.holdings[i].committed, sent.holdings[i].committed));
    }
    inventory_free(&got);
    inventory_free(&sent);
    writer_free(&w);
}

Test(inventory, refuses_every_shortened_form)
{
    struct inventory sent = some_inventory();
    struct writer w = writer_new(0);
    inventory_encode(&sent, &w);
    for (size_t len = 0; len < w.len; len++) {
        cr_assert(eq(int, decode(w.data, len), TCK_ERR_PROTO));
    }
    write_u8(&w, 0);
    cr_assert(eq(int, decode(w.data, w.len), TCK_ERR_PROTO), "a byte too many");
    inventory_free(&sent);
    writer_free(&w);
}

Test(inventory, refuses_holdings_out_of_order)
{
    struct inventory sent = some_inventory();
    struct holding swap = sent.holdings[0];
    sent.holdings[0] = sent.holdings[1];
    sent.holdings[1] = swap;
    struct writer w = writer_new(0);
    inventory_encode(&sent, &w);
    cr_assert(eq(int, decode(w.data, w.len), TCK_ERR_PROTO));
    inventory_free(&sent);
    writer_free(&w);
}

Test(inventory, refuses_a_holding_without_a_version)
{
    struct inventory sent = some_inventory();
    sent.holdings[0].version = VERSION_NONE;
    struct writer w = writer_new(0);
    inventory_encode(&sent, &w);
    cr_assert(eq(int, decode(w.data, w.len), TCK_ERR_PROTO));
    inventory_free(&sent);
    writer_free(&w);
}

Test(inventory, may_be_empty)
{
    struct inventory sent = {.node = {.name = "node0"}};
    struct writer w = writer_new(0);
    inventory_encode(&sent, &w);
    cr_assert(eq(int, decode(w.data, w.len), TCK_OK));
    writer_free(&w);
}

/* The inventory travels in a message between agents: changing these bytes requires a new PEER_FORMAT. */
Test(inventory, keeps_its_bytes)
{
    static const struct hash128 a = {0x1122334455667788, 0x99aabbccddeeff00}, b = {0x2122334455667788, 3};
    struct holding holdings[] = {
        {.shard = a, .layout = b, .version = {3, 40}, .root = b, .image_bytes = 8192, .committed = true},
        {.shard = b, .layout = a, .version = {3, 41}, .root = a, .image_bytes = 4096}};
    struct inventory inventory = {.node = {.name = "a", .domain = "r", .address = "x:1", .agent_id = 6},
                                  .watermark = {3, 40},
                                  .newest_step = 50,
                                  .base = {2, 30},
                                  .base_term = 3,
                                  .passed_over = "one",
                                  .count = 2,
                                  .holdings = holdings};
    struct writer w = writer_new(0);
    inventory_encode(&inventory, &w);
    codec_bytes(&w, "020100610100720300783a310600000000000000030000000000000028000000000000003200000000000000"
                    "02000000000000001e00000000000000030000000000000003006f6e65"
                    "02000000887766554433221100ffeeddccbbaa99887766554433222103000000000000000300000000000000"
                    "2800000000000000887766554433222103000000000000000020000000000000018877665544332221030000"
                    "0000000000887766554433221100ffeeddccbbaa990300000000000000290000000000000088776655443322"
                    "1100ffeeddccbbaa99001000000000000000");
    writer_free(&w);
}
