/* SPDX-License-Identifier: Apache-2.0
 * Which sessions a term with leaders wants and ends, what joins wait for, and for whom this agent relays. */
#include "agent/membership/connectivity.h"

#include "agent/driver/term.h"
#include "agent/ipc/client.h"
#include "agent/membership/join_reply.h"
#include "agent/membership/save_dir_check.h"
#include "agent/replication/peer_rpc.h"
#include "base/config.h"
#include "tiers/peer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* {1, 2, 3} are led by 1, {4, 5, 6} by 4. */
enum { NODES = 7, TERM = 5, MARGIN = 4, KNOWN = NODES + MARGIN };

/* What the peer tier would keep. */
struct peer {
    struct node_info node;
    bool known, wanted, up, relayed, copies;
    uint64_t via;
};

static struct peer peers[KNOWN]; /* by agent_id - 1 */
static struct node_info self;
static struct config config;
static struct client *trainers;
static struct connectivity *connectivity;
static struct node_info nodes[NODES];
static struct term_context tc;
static struct peer *by_node[NODES];
static struct node_shard shards[2];
static struct shard_placement placed[2];
static size_t answered, refused;
static char refusal_said[ERROR_TEXT_BYTES];

/* ---- what connectivity.c needs of the rest of the agent ---------------------------------------------------------- */

struct peer *peers_find(const struct peers *set, uint64_t agent_id)
{
    (void)set;
    struct peer *peer = agent_id > 0 && agent_id <= KNOWN ? &peers[agent_id - 1] : NULL;
    return peer != NULL && peer->known ? peer : NULL;
}

const struct node_info *peers_self(const struct peers *set)
{
    (void)set;
    return &self;
}

static struct peer *want(const struct node_info *node)
{
    struct peer *peer = &peers[node->agent_id - 1];
    peer->node = *node;
    peer->known = peer->wanted = true;
    return peer;
}

tck_status_t peers_want(struct peers *set, const struct node_info *node, struct peer **out, struct error *err)
{
    (void)set, (void)err;
    *out = want(node);
    return TCK_OK;
}

tck_status_t peers_want_via(struct peers *set, const struct node_info *node, uint64_t via, struct peer **out,
                            struct error *err)
{
    (void)set, (void)err;
    *out = want(node);
    (*out)->via = via;
    return TCK_OK;
}

tck_status_t peers_want_copies(struct peers *set, const struct node_info *node, bool both, struct peer **out,
                               struct error *err)
{
    (void)set, (void)err;
    cr_assert(both);
    *out = want(node);
    (*out)->copies = true;
    return TCK_OK;
}

void peer_unwant_copies(struct peer *peer)
{
    peer->copies = false;
}

void peers_unwant(struct peers *set, struct peer *peer)
{
    (void)set;
    *peer = (struct peer){.node = peer->node};
}

bool peer_is_wanted(const struct peer *peer)
{
    return peer->wanted;
}

bool peer_is_up(const struct peer *peer)
{
    return peer->up;
}

bool peer_takes_copies(const struct peer *peer)
{
    return peer->up && !peer->relayed;
}

const char *peer_trouble(const struct peer *peer)
{
    (void)peer;
    return "";
}

void rpc_send_gone(struct peer *peer, uint64_t term)
{
    (void)peer, (void)term;
}

void save_dir_check_begin(struct save_dir_check *check, const struct world *world)
{
    (void)check, (void)world;
}

bool save_dir_check_is_pending(const struct save_dir_check *check, uint64_t term)
{
    (void)check, (void)term;
    return false;
}

bool save_dir_is_not_shared(const struct save_dir_check *check, uint64_t term, struct error *err)
{
    (void)check, (void)term, (void)err;
    return false;
}

bool join_may_reply(const struct join_setup *join, const struct client *client)
{
    (void)join, (void)client;
    return true;
}

void join_reply(const struct join_setup *join, struct client *client, const struct error *err)
{
    (void)join, (void)client;
    answered += err == NULL;
    refused += err != NULL;
    if (err != NULL) {
        memcpy(refusal_said, err->text, sizeof(refusal_said));
    }
}

/* ---- worlds ------------------------------------------------------------------------------------------------------ */

static void set_up(void)
{
    const struct connectivity_setup setup = {.config = &config, .clients = &trainers};
    struct error err;
    config.tree_from_nodes = 3;
    for (uint32_t n = 0; n < NODES; n++) {
        nodes[n] = (struct node_info){.agent_id = n + 1};
        snprintf(nodes[n].name, sizeof(nodes[n].name), "%c", 'a' + (int)n);
        snprintf(nodes[n].address, sizeof(nodes[n].address), "10.0.0.%u:1", n + 1);
    }
    cr_assert_eq(connectivity_new(&setup, &connectivity, &err), TCK_OK);
}

static void tear_down(void)
{
    connectivity_free(connectivity);
}

TestSuite(connectivity, .init = set_up, .fini = tear_down);

/* This agent's node, and the nodes that it sends its shard to and holds one for (NONE32: none). */
static void form(uint64_t term, uint32_t node, uint32_t holder, uint32_t source)
{
    memset(by_node, 0, sizeof(by_node));
    self = nodes[node];
    shards[0] = (struct node_shard){.world_shard = 0, .holder_count = holder != NONE32, .holders = {holder}};
    shards[1] = (struct node_shard){.world_shard = source != NONE32 ? 1 : NONE32, .held = source != NONE32};
    placed[1].source = source;
    tc = (struct term_context){
        .world = {.term = term, .node_count = NODES, .nodes = nodes},
        .placement = {.shard_count = 2, .shards = placed},
        .self = node,
        .peers = by_node,
        .coordinator = node == 0 ? (struct coordinator *)&tc : NULL, /* any */
        .setup = {.self = node, .node_count = NODES, .shard_count = 2, .shards = shards},
    };
    connectivity_want_term(connectivity, &tc);
}

/* The nodes, one letter each, whose sessions are wanted, and of which kind: R through another node, C for copies. */
static const char *wanted(void)
{
    static char text[4 * NODES];
    size_t len = 0;
    for (uint32_t n = 0; n < NODES; n++) {
        if (peers[n].wanted) {
            len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s%s", nodes[n].name,
                                    peers[n].via != 0 ? "R" : "", peers[n].copies ? "C" : "");
        }
    }
    text[len] = '\0';
    return text;
}

/* All that are wanted are connected by the route that they are wanted by. */
static void connect_all(void)
{
    for (uint32_t n = 0; n < NODES; n++) {
        peers[n].up = peers[n].wanted;
        peers[n].relayed = peers[n].via != 0 && !peers[n].copies;
    }
}

/* ---- what is wanted ---------------------------------------------------------------------------------------------- */

Test(connectivity, a_coordinator_is_connected_with_leaders_and_those_it_exchanges_copies_with)
{
    form(TERM, 0, 3, 5);
    cr_expect_str_eq(wanted(), "bcRdRCefRCgR");
}

Test(connectivity, a_leader_is_connected_with_its_group)
{
    form(TERM, 1, 5, 6);
    cr_expect_str_eq(wanted(), "acdfCgC");
}

Test(connectivity, a_member_is_connected_with_its_leader)
{
    form(TERM, 2, 5, 6);
    cr_expect_str_eq(wanted(), "aRbfCgC");
}

/* Copies go elsewhere, and the coordinator is another one's. */
Test(connectivity, sessions_that_a_new_term_does_not_need_are_ended)
{
    form(TERM, 2, 0, 6);
    cr_expect_str_eq(wanted(), "aRCbgC");
    connect_all();
    form(TERM + 1, 2, 3, 4);
    cr_expect_str_eq(wanted(), "aRbdCeC");
    cr_expect_null(by_node[6]);
}

Test(connectivity, a_former_coordinators_sessions_are_ended)
{
    form(TERM, 0, 3, NONE32);
    connect_all();
    struct node_info first = nodes[0];
    nodes[0] = nodes[6];
    nodes[6] = first;
    form(TERM + 1, 6, 5, NONE32);
    cr_expect_eq(peers[6].via, nodes[4].agent_id, "the coordinator is reached through its leader");
    size_t count = 0;
    for (uint32_t n = 0; n < NODES; n++) {
        count += peers[n].wanted;
    }
    cr_expect_eq(count, 3, "the coordinator, the leader, and the holder of its copies");
}

/* The other agent wants it. */
Test(connectivity, a_session_that_only_the_other_agent_wants_is_left_to_it)
{
    peers[3] = (struct peer){.node = nodes[3], .known = true, .up = true};
    form(TERM, 2, NONE32, NONE32);
    cr_expect(peers[3].up);
}

Test(connectivity, without_leaders_what_an_earlier_term_wanted_stays)
{
    config.tree_from_nodes = 0;
    form(TERM, 2, 3, NONE32);
    connect_all();
    form(TERM + 1, 2, 5, NONE32);
    cr_expect_str_eq(wanted(), "adCfC");
}

Test(connectivity, in_a_world_that_is_too_small_for_leaders_what_an_earlier_term_wanted_stays)
{
    config.tree_from_nodes = NODES + 1;
    form(TERM, 2, 3, NONE32);
    connect_all();
    form(TERM + 1, 2, 5, NONE32);
    cr_expect_str_eq(wanted(), "adCfC");
}

Test(connectivity, a_leader_sends_to_members_that_were_connected_before_the_term_was_formed)
{
    peers[2] = (struct peer){.node = nodes[2], .known = true, .up = true};
    form(TERM, 1, NONE32, NONE32);
    cr_expect_eq(by_node[2], &peers[2]);
    cr_expect_null(by_node[3], "a node that is not up yet must not count as awaited");
}

/* ---- what joins wait for ------------------------------------------------------------------------------------------
 */

Test(connectivity, a_join_waits_until_sessions_for_copies_are_direct)
{
    struct client client = {.term = TERM};
    form(TERM, 0, 3, NONE32);
    connect_all();
    peers[3].relayed = true;
    trainers = &client;
    connectivity_tick(connectivity);
    cr_expect_eq(answered, 0);
    cr_expect_eq(refused, 1);
    cr_expect(strstr(refusal_said, "copies need a direct session with node d at 10.0.0.4:1, ") != NULL, "%s",
              refusal_said);
    peers[3].relayed = false;
    connectivity_tick(connectivity);
    cr_expect_eq(answered, 1, "%s", refusal_said);
}

Test(connectivity, a_relayed_session_is_enough_for_messages)
{
    struct client client = {.term = TERM};
    form(TERM, 2, NONE32, NONE32);
    connect_all();
    trainers = &client;
    connectivity_tick(connectivity);
    cr_expect_eq(answered, 1, "%s", refusal_said);
}

/* ---- whose end is a loss, and what is relayed ---------------------------------------------------------------------
 */

Test(connectivity, a_session_that_only_serves_to_relay_is_no_loss)
{
    form(TERM, 1, 5, NONE32);
    cr_expect(connectivity_is_needed(connectivity, nodes[0].agent_id));
    cr_expect(connectivity_is_needed(connectivity, nodes[5].agent_id));
    cr_expect_not(connectivity_is_needed(connectivity, nodes[2].agent_id));
}

Test(connectivity, a_leader_relays_between_the_coordinator_and_its_group_and_no_others)
{
    form(TERM, 1, 5, NONE32);
    for (uint64_t a = 0; a <= KNOWN; a++) {
        for (uint64_t b = 0; b <= KNOWN; b++) {
            bool of_group = (a == 1 && (b == 3 || b == 4)) || (b == 1 && (a == 3 || a == 4));
            cr_expect_eq(connectivity_relays(connectivity, a, b), of_group, "from agent %d to %d", (int)a, (int)b);
        }
    }
}

Test(connectivity, others_relay_nothing)
{
    cr_expect_not(connectivity_relays(connectivity, 1, 3), "before the first term");
    form(TERM, 2, 5, NONE32);
    cr_expect_not(connectivity_relays(connectivity, 1, 3));
    form(TERM + 1, 0, 5, NONE32);
    cr_expect_not(connectivity_relays(connectivity, 1, 3));
    form(TERM + 2, 1, 5, NONE32);
    cr_expect(connectivity_relays(connectivity, 1, 3));
    config.tree_from_nodes = 0;
    form(TERM + 3, 1, 5, NONE32);
    cr_expect_not(connectivity_relays(connectivity, 1, 3));
}
