/* SPDX-License-Identifier: Apache-2.0
 * Sessions that a third agent relays: what they carry, what follows when that agent is lost, and what is refused. */
#include "peer_rig.h"

#include "base/clock.h"
#include "base/log.h"
#include "tiers/peer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEAR = 1, LEADER, FAR };

static struct agent near, leader, far;
static size_t complaints; /* of all agents, about what they received */
static char complaint[256];

static void take_line(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    if ((level == LOG_WARN && strstr(text, "malformed") != NULL) || strstr(text, " refused") != NULL) {
        complaints++;
        snprintf(complaint, sizeof(complaint), "%s", text);
    }
}

static void set_up(void)
{
    rig_open();
    log_hand(take_line, NULL, LOG_INFO);
}

static void tear_down(void)
{
    agent_close(&near);
    agent_close(&far);
    agent_close(&leader);
    rig_close();
    log_hand(NULL, NULL, LOG_INFO);
}

TestSuite(peer_relay, .init = set_up, .fini = tear_down, .timeout = 200);

static struct peer *want_via(struct agent *agent, const struct agent *other, uint64_t via)
{
    struct peer *peer;
    struct error err;
    cr_assert_eq(peers_want_via(agent->peers, peers_self(other->peers), via, &peer, &err), TCK_OK, "%s", err.text);
    return peer;
}

static void open_three(void)
{
    agent_open(&near, NEAR, NULL, 7);
    agent_open(&leader, LEADER, NULL, 7);
    agent_open(&far, FAR, NULL, 7);
}

/* The two of them have sessions with the leader, and one with each other through it. */
static void meet(struct peer **to_far, struct peer **to_near)
{
    open_three();
    agent_want(&near, &leader);
    agent_want(&leader, &far);
    *to_far = want_via(&near, &far, LEADER);
    *to_near = want_via(&far, &near, LEADER);
    (*to_far)->relay_until_ms = (*to_near)->relay_until_ms = UINT64_MAX; /* however busy the machine is */
    rig_run_until(&near.ups, 2);
    rig_run_until(&far.ups, 2);
    (*to_far)->relay_until_ms = (*to_near)->relay_until_ms = 0;
}

static size_t connections(const struct agent *agent)
{
    size_t count = 0;
    for (size_t i = 0; i < peers_count(agent->peers); i++) {
        const struct session *session = peers_at(agent->peers, i)->up;
        count += session != NULL && session->control->conn != NULL;
    }
    return count;
}

Test(peer_relay, connects_two_agents_without_a_connection_of_their_own)
{
    struct peer *to_far, *to_near;
    meet(&to_far, &to_near);
    cr_expect(peer_is_up(to_far) && peer_is_up(to_near));
    cr_expect_str_eq(peer_node(to_far)->name, "node3");
    cr_expect_eq(connections(&near), 1);
    cr_expect_eq(connections(&far), 1);
    cr_expect_eq(leader.messages, 0);
}

Test(peer_relay, carries_messages_of_every_size_in_order_and_heartbeats)
{
    static const size_t sizes[] = {0, 1, 65000, 65472, 65473, 300000, 5 << 20};
    struct peer *to_far, *to_near;
    uint8_t *data = malloc(5 << 20);
    meet(&to_far, &to_near);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        memset(data, (int)i + 1, sizes[i]);
        cr_assert_eq(peer_send(to_near, (uint16_t)i, data, sizes[i]), TCK_OK);
        rig_run_until(&near.messages, i + 1);
        cr_expect_eq(near.last_type, i);
        cr_assert_eq(near.last_len, sizes[i]);
        cr_expect_eq(memcmp(near.last, data, sizes[i]), 0);
    }
    rig_run_ms(2 * RIG_TIMEOUT_MS);
    cr_expect_eq(near.downs + far.downs, 0);
    free(data);
}

Test(peer_relay, takes_no_copies_until_a_direct_session_replaces_it)
{
    struct peer *to_far, *to_near;
    struct outcome outcome = {0};
    struct error err;
    meet(&to_far, &to_near);
    slot_fill(&near.slot, 4096);
    slot_empty(&far.slot, 4096);
    struct tier_item item = slot_item(&near.slot);
    cr_expect_not(peer_takes_copies(to_far));
    cr_expect_eq(peer_put(to_far, 1, &item, outcome_done, &outcome, &err), TCK_ERR_UNREACHABLE);
    cr_assert_eq(peers_want_copies(near.peers, peers_self(far.peers), true, &to_far, &err), TCK_OK);
    rig_run_until(&near.ups, 3);
    rig_run_until(&far.ups, 3);
    cr_assert(peer_takes_copies(to_far));
    cr_assert_eq(peer_put(to_far, 1, &item, outcome_done, &outcome, &err), TCK_OK, "%s", err.text);
    rig_run_until(&outcome.calls, 1);
    cr_expect_eq(outcome.err.code, TCK_OK, "%s", outcome.err.text);
}

Test(peer_relay, is_replaced_by_a_direct_session_when_the_leader_is_lost)
{
    struct peer *to_far, *to_near;
    meet(&to_far, &to_near);
    agent_close(&leader);
    rig_run_until(&near.ups, 3);
    rig_run_until(&far.ups, 3);
    cr_expect(peer_takes_copies(to_far) && peer_takes_copies(to_near));
}

Test(peer_relay, is_relayed_again_when_the_leader_is_back_and_no_copies_are_exchanged)
{
    struct peer *to_far, *to_near;
    struct error err;
    meet(&to_far, &to_near);
    agent_close(&leader);
    rig_run_until(&near.ups, 3);
    rig_run_until(&far.ups, 3);
    agent_open(&leader, LEADER, NULL, 7);
    agent_want(&near, &leader);
    agent_want(&leader, &far);
    rig_run_until(&near.ups, 4);
    rig_run_until(&far.ups, 4);
    cr_expect(peer_takes_copies(to_far));
    cr_assert_eq(peers_want_copies(far.peers, peers_self(near.peers), true, &to_near, &err), TCK_OK);
    to_far->relay_back_ms = 0;
    rig_run_ms(RIG_TIMEOUT_MS);
    cr_expect(peer_takes_copies(to_far), "the other one wants copies");
    peer_unwant_copies(to_near);
    for (int i = 0; i < 20 && near.ups < 5; i++) { /* on a busy machine, an attempt may be too slow */
        to_far->relay_back_ms = 0;
        rig_run_ms(RIG_TIMEOUT_MS);
    }
    rig_run_until(&near.ups, 5);
    rig_run_until(&far.ups, 5);
    cr_expect_not(peer_takes_copies(to_far));
    cr_expect_not(peer_takes_copies(to_near));
}

Test(peer_relay, is_direct_if_the_leader_never_comes)
{
    agent_open(&near, NEAR, NULL, 7);
    agent_open(&far, FAR, NULL, 7);
    uint64_t began_ms = clock_ms();
    struct peer *to_far = want_via(&near, &far, LEADER);
    want_via(&far, &near, LEADER);
    rig_run_until(&near.ups, 1);
    cr_expect(peer_takes_copies(to_far));
    cr_expect_geq(clock_ms() - began_ms, RIG_TIMEOUT_MS);
}

Test(peer_relay, is_direct_if_the_leader_has_no_session_with_the_other_one)
{
    open_three();
    agent_want(&near, &leader);
    struct peer *to_far = want_via(&near, &far, LEADER);
    rig_run_until(&far.ups, 1);
    cr_expect(peer_takes_copies(to_far));
}

/* Long before its silence would show it. */
Test(peer_relay, ends_when_the_leader_loses_the_other_one)
{
    struct peer *to_far, *to_near;
    meet(&to_far, &to_near);
    uint64_t began_ms = clock_ms();
    to_near->up->control->cut = true; /* it dies, and does not take its leave */
    agent_close(&far);
    rig_run_until(&near.downs, 1);
    cr_expect_leq(clock_ms() - began_ms, RIG_TIMEOUT_MS / 2);
    cr_expect(peer_is_up(peers_find(near.peers, LEADER)));
}

/* Most likely it is restarted, and has a session with the leader again soon. */
Test(peer_relay, waits_for_the_leader_when_that_has_lost_the_other_one)
{
    struct peer *to_far, *to_near;
    meet(&to_far, &to_near);
    to_near->up->control->cut = true; /* it dies, and does not take its leave */
    agent_close(&far);
    rig_run_until(&near.downs, 1);
    uint64_t rest_ms = to_far->relay_until_ms - clock_ms();
    cr_assert(rest_ms > 0 && rest_ms <= RIG_TIMEOUT_MS / 2, "%d ms", (int)rest_ms);
    to_far->relay_until_ms += 10 * RIG_TIMEOUT_MS;
    rig_run_ms(2 * RIG_TIMEOUT_MS);
    cr_expect_str_eq(peer_trouble(to_far), "", "it was tried directly");
    agent_open(&far, FAR, NULL, 7);
    agent_want(&leader, &far);
    want_via(&far, &near, LEADER)->relay_until_ms += 10 * RIG_TIMEOUT_MS;
    rig_run_until(&near.ups, 3);
    cr_expect_not(peer_takes_copies(to_far));
}

Test(peer_relay, does_not_wait_for_a_leader_that_is_lost)
{
    struct peer *to_far, *to_near;
    meet(&to_far, &to_near);
    to_far->relay_until_ms = 0; /* long ago */
    agent_close(&leader);
    rig_run_until(&near.downs, 2);
    cr_expect_eq(to_far->relay_until_ms, 0);
}

/* Else all that have lost one leader would return to it at once. */
Test(peer_relay, returns_after_a_time_of_its_own)
{
    struct peer *to_far, *to_near;
    uint64_t least_ms = UINT64_MAX, most_ms = 0;
    meet(&to_far, &to_near);
    for (int i = 0; i < 20; i++) {
        session_plan_move_back(to_far);
        uint64_t wait_ms = to_far->relay_back_ms - clock_ms();
        least_ms = wait_ms < least_ms ? wait_ms : least_ms;
        most_ms = wait_ms > most_ms ? wait_ms : most_ms;
    }
    cr_expect_geq(least_ms, 19 * RIG_TIMEOUT_MS);
    cr_expect_leq(most_ms, 40 * RIG_TIMEOUT_MS);
    cr_expect_geq(most_ms - least_ms, RIG_TIMEOUT_MS);
}

/* What happens to the leader says nothing of it. */
Test(peer_relay, the_other_agent_is_reached_at_no_address_and_has_failed_at_none)
{
    struct peer_reach reach[ADDRESSES_MAX];
    open_three();
    agent_want(&near, &leader);
    agent_want(&leader, &far);
    struct peer *to_far = want_via(&near, &far, 0);
    want_via(&far, &near, 0);
    rig_run_until(&far.ups, 2);
    rig_run_until(&near.ups, 2);
    cr_assert_eq(peer_reach(to_far, reach), 1);
    cr_expect(reach[0].in_use);
    addresses_failed(&to_far->addresses, 0, clock_ms());
    want_via(&far, &near, LEADER);
    want_via(&near, &far, LEADER);
    to_far->relay_back_ms = 0;
    rig_run_until(&near.ups, 3);
    cr_assert_not(peer_takes_copies(to_far));
    cr_assert_eq(peer_reach(to_far, reach), 1);
    cr_expect_not(reach[0].in_use);
    cr_expect_not(reach[0].failed);
    cr_expect_str_eq(peer_relay(to_far)->name, "node2");
    agent_close(&leader);
    rig_run_until(&near.downs, 3);
    cr_assert_eq(peer_reach(to_far, reach), 1);
    cr_expect_not(reach[0].failed);
}

/* The other one, which would connect first, does not know of it. */
Test(peer_relay, an_agent_that_alone_wants_copies_connects_at_once)
{
    struct peer *to_far, *to_near;
    struct error err;
    meet(&to_far, &to_near);
    cr_assert_eq(peers_want_copies(far.peers, peers_self(near.peers), true, &to_near, &err), TCK_OK);
    cr_expect_gt(to_near->connect_at_ms, clock_ms());
    cr_assert_eq(peers_want_copies(far.peers, peers_self(near.peers), false, &to_near, &err), TCK_OK);
    cr_expect_leq(to_near->connect_at_ms, clock_ms());
    cr_expect(peer_lacks_direct(to_near));
    cr_expect_eq(peer_measure(to_near, NULL, NULL, &err), TCK_ERR_UNREACHABLE, "it is not one that needs no copies");
    rig_run_until(&far.ups, 3);
    cr_expect(peer_takes_copies(to_near) && !peer_lacks_direct(to_near));
}

/* ---- what is refused ---- */

static void send_relay(struct peer *through, const struct wire_relay *m)
{
    struct writer w = writer_new(0);
    wire_relay_encode(m, &w);
    cr_assert_eq(session_send(through, WIRE_RELAY, 0, w.data, w.len), TCK_OK);
    writer_free(&w);
}

static void expect_one_complaint(const char *text)
{
    cr_expect_eq(complaints, 1, "%zu, the last one: %s", complaints, complaint);
    cr_expect(strstr(complaint, text) != NULL, "%s", complaint);
}

Test(peer_relay, nothing_is_passed_on_in_the_name_of_another_agent)
{
    struct peer *to_far, *to_near;
    meet(&to_far, &to_near);
    send_relay(peers_find(far.peers, LEADER),
               &(struct wire_relay){.to = NEAR, .from = 99, .session = 5, .data = (const uint8_t *)"x", .len = 1});
    rig_run_until(&leader.downs, 1);
    expect_one_complaint("node3: malformed message");
    cr_expect_null(peers_find(near.peers, 99));
}

Test(peer_relay, a_message_that_is_cut_off_ends_the_session_that_it_came_over)
{
    struct peer *to_far, *to_near;
    struct wire_relay whole = {.to = NEAR, .from = FAR, .session = 5};
    struct writer w = writer_new(0);
    meet(&to_far, &to_near);
    wire_relay_encode(&whole, &w);
    for (size_t len = 1; len < w.len; len++) {
        struct peer *to_leader = peers_find(far.peers, LEADER);
        uint64_t id = to_leader->up->id;
        complaints = 0;
        cr_assert_eq(session_send(to_leader, WIRE_RELAY, 0, w.data, len), TCK_OK);
        do {
            rig_run_ms(RIG_HEARTBEAT_MS);
            to_leader = peers_find(far.peers, LEADER);
        } while (to_leader == NULL || to_leader->up == NULL || to_leader->up->id == id);
        expect_one_complaint("node3: malformed message");
    }
    writer_free(&w);
}

/* The length of the whole, in the frame that carries it. */
Test(peer_relay, a_part_that_is_longer_than_the_whole_ends_the_session_that_it_came_over)
{
    struct peer *to_far, *to_near;
    struct wire_part part = {.kind = WIRE_RELAY, .total = 30, .data = (const uint8_t[40]){0}, .len = 40};
    struct writer w = writer_new(0);
    meet(&to_far, &to_near);
    wire_part_encode(&part, &w);
    cr_assert_eq(link_send(peers_find(far.peers, LEADER)->up->control->conn, w.data, w.len), TCK_OK);
    rig_run_until(&leader.downs, 1);
    expect_one_complaint("node3: malformed message");
    writer_free(&w);
}

Test(peer_relay, a_relayed_session_relays_nothing)
{
    struct peer *to_far, *to_near;
    meet(&to_far, &to_near);
    send_relay(to_near, &(struct wire_relay){.to = LEADER, .from = FAR, .session = 5});
    rig_run_until(&near.downs, 1);
    expect_one_complaint("node3: malformed message");
    cr_expect(peer_is_up(peers_find(near.peers, LEADER)));
    cr_expect_eq(leader.downs, 0);
}

Test(peer_relay, what_is_passed_on_must_be_a_part)
{
    struct peer *to_far, *to_near;
    meet(&to_far, &to_near);
    send_relay(
        peers_find(far.peers, LEADER),
        &(struct wire_relay){
            .to = NEAR, .from = FAR, .session = to_near->up->control->tunnel, .data = (const uint8_t *)"x", .len = 1});
    rig_run_until(&near.downs, 1);
    expect_one_complaint("node3: malformed message");
}

Test(peer_relay, a_message_of_no_session_is_answered_and_has_no_effect)
{
    struct peer *to_far, *to_near;
    meet(&to_far, &to_near);
    send_relay(peers_find(far.peers, LEADER),
               &(struct wire_relay){.to = NEAR, .from = FAR, .session = 5, .data = (const uint8_t *)"x", .len = 1});
    rig_run_ms(RIG_TIMEOUT_MS);
    cr_expect_eq(near.downs + far.downs + leader.downs, 0);
    cr_expect_eq(complaints, 0, "%s", complaint);
    cr_expect_null(near.peers->strangers);
}

/* It is not of the world, or not of this agent's group. */
Test(peer_relay, nothing_is_passed_on_for_agents_that_the_leader_does_not_relay_for)
{
    struct peer *to_far, *to_near;
    open_three();
    leader.relays_nothing = true;
    agent_want(&near, &leader);
    agent_want(&leader, &far);
    rig_run_until(&near.ups, 1);
    rig_run_until(&far.ups, 1);
    for (int i = 0; i < 3; i++) {
        send_relay(peers_find(near.peers, LEADER),
                   &(struct wire_relay){.to = FAR, .from = NEAR, .session = 5, .data = (const uint8_t *)"x", .len = 1});
    }
    rig_run_ms(RIG_TIMEOUT_MS);
    expect_one_complaint("node node1 asks for a message to be passed on to agent 0000000000000003");
    to_far = want_via(&near, &far, LEADER);
    to_near = want_via(&far, &near, LEADER);
    rig_run_until(&near.ups, 2);
    cr_expect(peer_takes_copies(to_far), "the two of them connect directly");
    (void)to_near;
}

struct stranger {
    struct link *link;
    struct link_conn *conn;
    size_t downs;
};

static void stranger_down(void *ctx, struct link_conn *conn, const char *why)
{
    struct stranger *stranger = ctx;
    (void)conn, (void)why;
    stranger->downs++;
    loop_stop(rig_loop);
}

static void stranger_message(void *ctx, struct link_conn *conn, const void *data, size_t len)
{
    (void)ctx, (void)conn, (void)data, (void)len;
}

Test(peer_relay, nothing_is_passed_on_over_a_connection_that_has_not_authenticated)
{
    struct peer *to_far, *to_near;
    struct stranger stranger = {0};
    struct link_setup setup = {.loop = rig_loop,
                               .device = "lo",
                               .address = "127.0.0.1",
                               .ctx = &stranger,
                               .message = stranger_message,
                               .down = stranger_down};
    struct wire_relay relay = {.to = FAR, .from = NEAR, .session = 5};
    struct writer body = writer_new(0), frame = writer_new(0);
    struct error err;
    meet(&to_far, &to_near);
    wire_relay_encode(&relay, &body);
    wire_part_encode(
        &(struct wire_part){.kind = WIRE_RELAY, .total = (uint32_t)body.len, .data = body.data, .len = body.len},
        &frame);
    cr_assert_eq(link_new(&setup, &stranger.link, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(link_connect(stranger.link, peers_self(leader.peers)->address, 0, NULL, &stranger.conn, &err), TCK_OK);
    cr_assert_eq(link_send(stranger.conn, frame.data, frame.len), TCK_OK);
    rig_run_until(&stranger.downs, 1);
    expect_one_complaint("a connection is refused: a connection did not begin with HELLO");
    cr_expect_eq(near.downs + far.downs + leader.downs, 0);
    link_free(stranger.link);
    writer_free(&body);
    writer_free(&frame);
}

Test(peer_relay, an_agent_with_another_secret_is_not_reached_through_the_leader_either)
{
    agent_open(&near, NEAR, NULL, 7);
    agent_open(&leader, LEADER, NULL, 7);
    agent_open(&far, FAR, NULL, 8);
    agent_want(&near, &leader);
    agent_want(&leader, &far);
    want_via(&near, &far, LEADER);
    want_via(&far, &near, LEADER);
    rig_run_ms(2 * RIG_TIMEOUT_MS);
    cr_expect_not(peer_is_up(peers_find(near.peers, FAR)));
    cr_expect_eq(far.ups, 0);
}
