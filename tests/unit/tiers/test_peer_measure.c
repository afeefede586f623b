/* SPDX-License-Identifier: Apache-2.0
 * Measuring how fast one agent sends to another one: it gives way to copies, touches none of them, and ends once. */
#include "peer_rig.h"
#include "tiers/peer_transfer.h"

#include <stdio.h>
#include <string.h>

#define MIB   ((uint64_t)1 << 20)
#define IMAGE (24 * MIB)

struct measured {
    size_t calls;
    struct rate rate;
    struct error err;
};

static struct agent a, b, c;
static struct peer *to_b, *to_a;
static struct measured measured;
static struct outcome outcome;
static size_t pushes, pushes_ok;

static void set_up(void)
{
    rig_open();
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 7);
    agents_meet(&a, &b, &to_b, &to_a);
}

static void tear_down(void)
{
    if (c.peers != NULL) {
        agent_close(&c);
    }
    agent_close(&a);
    agent_close(&b);
    rig_close();
}

TestSuite(peer_measure, .init = set_up, .fini = tear_down, .timeout = 200);

static void on_measured(void *ctx, const struct rate *rate, const struct error *err)
{
    struct measured *m = ctx;
    m->calls++;
    m->rate = *rate;
    m->err = *err;
    loop_stop(rig_loop);
}

static tck_status_t try_measure(struct peer *peer, struct error *err)
{
    return peer_measure(peer, on_measured, &measured, err);
}

static void begin(void)
{
    struct error err;
    cr_assert_eq(try_measure(to_b, &err), TCK_OK, "%s", err.text);
}

static void expect_a_rate(size_t calls)
{
    rig_run_until(&measured.calls, calls);
    cr_expect_eq(measured.calls, calls);
    cr_expect_eq(measured.err.code, TCK_OK, "%s", measured.err.text);
    cr_expect_gt(measured.rate.bytes, 0);
    cr_expect_gt(measured.rate.ns, 0);
}

static void put(void)
{
    struct tier_item item = slot_item(&a.slot);
    struct error err;
    cr_assert_eq(peer_put(to_b, 1, &item, outcome_done, &outcome, &err), TCK_OK, "%s", err.text);
}

/* Until both sides have forgotten the measurement. */
static void settle(void)
{
    while (a.peers->measuring != NULL || b.peers->measured != NULL) {
        rig_run_ms(1);
    }
    cr_expect_eq(to_b->transfer_count, 0);
    cr_expect_eq(to_a->transfer_count, 0);
}

Test(peer_measure, finds_a_rate_again_and_again)
{
    for (size_t i = 1; i <= 2; i++) {
        begin();
        expect_a_rate(i);
        cr_expect_leq(measured.rate.bytes, METER_BYTES + METER_CHUNK_MOST);
        settle();
    }
    cr_expect_eq(b.offers + b.stored + b.pulled + b.messages, 0, "the owner of slots learns nothing of it");
    cr_expect_eq(a.downs + b.downs, 0);
}

Test(peer_measure, names_the_way)
{
    struct link_route route;
    cr_assert(peer_route(to_b, &route));
    cr_expect_str_eq(route.transports, "tcp/lo");
    cr_expect_eq(strncmp(route.local, "127.0.0.1:", 10), 0, "%s", route.local);
    cr_expect_str_eq(route.remote, peers_self(b.peers)->address);
    cr_assert(peer_route(to_a, &route));
    cr_expect_str_eq(route.transports, "tcp/lo");
}

Test(peer_measure, is_refused_while_this_agent_copies)
{
    struct error err;
    slot_fill(&a.slot, IMAGE);
    slot_empty(&b.slot, IMAGE);
    put();
    cr_expect_eq(try_measure(to_b, &err), TCK_ERR_BUSY);
    cr_expect_not_null(strstr(err.text, "on this node copies are being"), "%s", err.text);
    rig_run_until(&outcome.calls, 1);
    begin();
    expect_a_rate(1);
}

Test(peer_measure, is_refused_while_the_other_agent_copies_with_a_third_one)
{
    struct peer *to_c, *b_of_c;
    agent_open(&c, 3, NULL, 7);
    to_c = agent_want(&b, &c);
    b_of_c = agent_want(&c, &b);
    rig_run_until(&c.ups, 1);
    while (!peer_is_up(to_c) || !peer_is_up(b_of_c)) {
        rig_run_ms(1);
    }
    slot_fill(&b.slot, IMAGE);
    slot_empty(&c.slot, IMAGE);
    struct tier_item item = slot_item(&b.slot);
    struct error err;
    cr_assert_eq(peer_put(to_c, 1, &item, outcome_done, &outcome, &err), TCK_OK, "%s", err.text);
    begin();
    rig_run_until(&measured.calls, 1);
    cr_expect_eq(measured.err.code, TCK_ERR_BUSY);
    cr_expect_not_null(strstr(measured.err.text, "on node node2 copies are being"), "%s", measured.err.text);
    rig_run_until(&outcome.calls, 1);
    cr_expect_eq(outcome.err.code, TCK_OK, "%s", outcome.err.text);
}

Test(peer_measure, one_at_a_time_and_not_in_both_directions)
{
    struct error err;
    begin();
    cr_expect_eq(try_measure(to_b, &err), TCK_ERR_BUSY);
    while (b.peers->measured == NULL) {
        rig_run_ms(1);
    }
    cr_expect_eq(try_measure(to_a, &err), TCK_ERR_BUSY);
    cr_expect_not_null(strstr(err.text, "another measurement"), "%s", err.text);
    expect_a_rate(1);
}

Test(peer_measure, two_that_meet_are_both_refused)
{
    struct error err;
    begin();
    cr_assert_eq(try_measure(to_a, &err), TCK_OK, "%s", err.text);
    rig_run_until(&measured.calls, 2);
    cr_expect_eq(measured.err.code, TCK_ERR_BUSY);
    settle();
    begin();
    expect_a_rate(3);
}

static void run_until_it_moves(uint64_t bytes)
{
    begin();
    while (b.peers->measured == NULL || a.peers->measuring == NULL) {
        rig_run_ms(1);
    }
    for (uint64_t ms = 0; ms < bytes; ms++) {
        rig_run_ms(1);
    }
}

Test(peer_measure, gives_way_to_a_copy_that_arrives_bit_exact)
{
    slot_fill(&a.slot, IMAGE);
    slot_empty(&b.slot, IMAGE);
    run_until_it_moves(3);
    put();
    rig_run_until(&measured.calls, 1);
    cr_expect(measured.err.code == TCK_ERR_BUSY ||
                  meter_suffices(&(struct rate_meter){.arrived = measured.rate.bytes, .last_ns = measured.rate.ns}),
              "%s", measured.err.text);
    rig_run_until(&outcome.calls, 1);
    cr_expect_eq(outcome.err.code, TCK_OK, "%s", outcome.err.text);
    cr_expect_eq(memcmp(a.slot.image, b.slot.image, IMAGE), 0);
    cr_expect_eq(b.stored, 1);
    settle();
    cr_expect_eq(a.downs + b.downs, 0);
}

Test(peer_measure, ends_once_when_the_other_agent_ends)
{
    run_until_it_moves(2);
    agent_close(&b);
    rig_run_until(&measured.calls, 1);
    cr_expect_eq(measured.err.code, TCK_ERR_UNREACHABLE, "%s", measured.err.text);
    while (a.peers->measuring != NULL) {
        rig_run_ms(1);
    }
    cr_expect_eq(measured.calls, 1);
    cr_expect_eq(to_b->transfer_count, 0);
    agent_open(&b, 2, NULL, 7);
}

Test(peer_measure, ends_once_when_this_agent_ends)
{
    run_until_it_moves(2);
    agent_close(&a);
    cr_expect_eq(measured.calls, 1);
    cr_expect_eq(measured.err.code, TCK_ERR_CANCELED, "%s", measured.err.text);
    while (b.peers->measured != NULL) {
        rig_run_ms(1);
    }
    agent_open(&a, 1, NULL, 7);
}

Test(peer_measure, a_peer_that_is_down_is_unreachable_and_its_address_is_named)
{
    struct error err;
    char address[ADDRESS_TEXT];
    snprintf(address, sizeof(address), "%s", peers_self(b.peers)->address);
    agent_close(&b);
    rig_run_until(&a.downs, 1);
    cr_expect_eq(try_measure(to_b, &err), TCK_ERR_UNREACHABLE);
    cr_expect_not_null(strstr(err.text, address), "%s", err.text);
    agent_open(&b, 2, NULL, 7);
}

/* ---- what no agent of this build sends ---- */

static void send_measure(struct peer *to, enum wire_kind kind, uint64_t to_token, uint64_t from_token, uint64_t bytes)
{
    struct wire_measure m = {.to_token = to_token, .from_token = from_token, .bytes = bytes};
    struct writer w = writer_new(0);
    wire_measure_encode(&m, &w);
    cr_assert_eq(session_send(to, kind, 0, w.data, w.len), TCK_OK);
    writer_free(&w);
}

Test(peer_measure, more_bytes_than_were_sent_end_the_session)
{
    begin();
    while (b.peers->measured == NULL) {
        rig_run_ms(1);
    }
    send_measure(to_a, WIRE_MEASURED, a.peers->last_token, b.peers->last_token, UINT64_MAX);
    rig_run_until(&a.downs, 1);
    cr_expect_eq(measured.calls, 1);
    cr_expect_neq(measured.err.code, TCK_OK);
}

Test(peer_measure, messages_of_a_measurement_that_is_unknown_are_ignored)
{
    send_measure(to_a, WIRE_MEASURED, 12345, 1, 1 << 20);
    transfer_send_end(to_a, WIRE_MEASURE_END, 12345, TCK_ERR_CANCELED, "it is over");
    begin();
    expect_a_rate(1);
    cr_expect_eq(a.downs + b.downs, 0);
}

static void on_pushed(void *ctx, bool ok)
{
    (void)ctx;
    pushes++;
    pushes_ok += ok;
    loop_stop(rig_loop);
}

static void push(uint64_t token, uint32_t index, size_t bytes)
{
    struct wire_chunk chunk = {.to_token = token, .index = index};
    uint8_t header[WIRE_CHUNK_BYTES];
    struct writer w = writer_over(header, sizeof(header));
    wire_chunk_encode(&chunk, &w);
    cr_assert_eq(link_push(to_b->up->bulk->conn, header, sizeof(header), a.slot.image, bytes, on_pushed, NULL), TCK_OK);
}

Test(peer_measure, chunks_that_do_not_belong_to_it_or_do_not_fit_are_refused)
{
    slot_fill(&a.slot, IMAGE);
    send_measure(to_b, WIRE_MEASURE, 0, 99, 0); /* and nothing follows of what the agent itself would send */
    while (b.peers->measured == NULL) {
        rig_run_ms(1);
    }
    push(b.peers->last_token + 1, 4096, 4096);
    push(b.peers->last_token, 4096, 8192);
    push(b.peers->last_token, 2 * METER_CHUNK_MOST, 2 * METER_CHUNK_MOST);
    rig_run_until(&pushes, 3);
    cr_expect_eq(pushes_ok, 0);
    push(b.peers->last_token, 4096, 4096);
    rig_run_until(&pushes, 4);
    cr_expect_eq(pushes_ok, 1);
    cr_expect_eq(a.downs + b.downs, 0);
}

Test(peer_measure, a_sender_that_is_silent_holds_the_buffer_for_a_few_seconds_only)
{
    struct error err;
    send_measure(to_b, WIRE_MEASURE, 0, 99, 0);
    while (b.peers->measured == NULL) {
        rig_run_ms(1);
    }
    cr_expect_eq(try_measure(to_a, &err), TCK_ERR_BUSY);
    while (b.peers->measured != NULL) {
        rig_run_ms(50);
    }
    cr_expect_eq(try_measure(to_a, &err), TCK_OK, "%s", err.text);
    expect_a_rate(1);
    cr_expect_eq(a.downs + b.downs, 0);
}
