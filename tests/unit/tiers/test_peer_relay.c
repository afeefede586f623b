/* SPDX-License-Identifier: Apache-2.0
 * Sessions that a third agent relays: what they carry, and what follows when that agent is lost. */
#include "peer_rig.h"

#include "base/clock.h"
#include "tiers/peer_internal.h"

#include <stdlib.h>
#include <string.h>

enum { NEAR = 1, LEADER, FAR };

static struct agent near, leader, far;

static void tear_down(void)
{
    agent_close(&near);
    agent_close(&far);
    agent_close(&leader);
    rig_close();
}

TestSuite(peer_relay, .init = rig_open, .fini = tear_down, .timeout = 60);

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
    rig_run_until(&near.ups, 2);
    rig_run_until(&far.ups, 2);
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
    cr_assert_eq(peers_want_copies(near.peers, peers_self(far.peers), &to_far, &err), TCK_OK);
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
    cr_assert_eq(peers_want_copies(far.peers, peers_self(near.peers), &to_near, &err), TCK_OK);
    to_far->relay_back_ms = 0;
    rig_run_ms(RIG_TIMEOUT_MS);
    cr_expect(peer_takes_copies(to_far), "the other one wants copies");
    to_near->copies = false;
    to_far->relay_back_ms = 0;
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

Test(peer_relay, nothing_is_passed_on_in_the_name_of_another_agent)
{
    struct peer *to_far, *to_near;
    meet(&to_far, &to_near);
    struct wire_relay forged = {.to = NEAR, .from = 99, .session = 5, .data = (const uint8_t *)"x", .len = 1};
    struct writer w = writer_new(0);
    wire_relay_encode(&forged, &w);
    cr_assert_eq(session_send(peers_find(far.peers, LEADER), WIRE_RELAY, 0, w.data, w.len), TCK_OK);
    rig_run_until(&leader.downs, 1);
    cr_expect_null(peers_find(near.peers, 99));
    writer_free(&w);
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
    cr_expect_eq(near.ups, 1);
    cr_expect_eq(far.ups, 0);
}
