/* SPDX-License-Identifier: Apache-2.0
 * The sessions that a term needs: with its coordinator, and with the nodes that copies are sent to and received from;
 * the coordinator needs sessions with all nodes, which in a large world are relayed by the leaders of groups of nodes
 * (core/tree.h). JOIN and REGISTER of a trainer are answered when these are up, or with
 * the names and addresses of the nodes that could not be reached. A wrong network setting is therefore reported at the
 * start of a job, when a user is watching, and not when a recovery needs the copies.
 */
#include "agent/membership/connectivity.h"

#include "agent/driver/term.h"
#include "agent/ipc/client.h"
#include "agent/membership/join_reply.h"
#include "agent/membership/save_dir_check.h"
#include "agent/replication/peer_rpc.h"
#include "base/clock.h"
#include "base/id_map.h"
#include "core/join.h"
#include "core/tree.h"
#include "recovery/sessions.h"
#include "tiers/peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODE_TEXT_BYTES 192 /* ", <name> at <address>" fits */

struct connectivity {
    struct connectivity_setup needs;
    uint64_t term; /* the newest one joined */
    size_t count, cap;
    struct node_info *nodes;
    struct id_map place_of;  /* by agent_id, in nodes */
    struct id_map copies;    /* those of them with which copies are exchanged */
    struct id_map led;       /* the agents that this one relays to and from the coordinator's; empty if it leads none */
    uint64_t coordinator;    /* agent_id */
    bool leaders;            /* a world since this agent's start has had leaders: sessions may be relayed */
    uint64_t restarted_term; /* term since whose formation this agent has restarted without its state, so it notifies
                                that term's nodes; 0: none */
    uint64_t gone_term;      /* the same for the agent of node `gone`, as its successor reports; 0: none */
    char gone[CONFIG_NAME];
};

/* ---- missing sessions -------------------------------------------------------------------------------------------- */

typedef bool good_fn(const struct connectivity *cn, uint64_t agent_id);

static bool is_up(const struct connectivity *cn, uint64_t agent_id)
{
    const struct peer *peer = peers_find(cn->needs.peers, agent_id);
    return peer != NULL && peer_is_up(peer);
}

static bool takes_copies(const struct connectivity *cn, uint64_t agent_id)
{
    const struct peer *peer = peers_find(cn->needs.peers, agent_id);
    return id_map_find(&cn->copies, agent_id) == ID_MAP_NONE || (peer != NULL && peer_takes_copies(peer));
}

/* Not empty if the agent refuses the secret, in which case the network is not the cause. */
static const char *refusal(const struct peers *peers, uint64_t agent_id)
{
    const struct peer *peer = peers_find(peers, agent_id);
    const char *why = peer != NULL ? peer_trouble(peer) : "";
    return strstr(why, "secret") != NULL ? why : "";
}

#define NODES_TEXT_BYTES (ERROR_TEXT_BYTES - 128)

/* The nodes whose sessions are not good, as text; why: "", or why the first of them refuses this agent. Returns the
 * text's length. */
static size_t name_nodes(const struct connectivity *cn, const struct node_info *nodes, size_t count, good_fn *is_good,
                         char text[NODES_TEXT_BYTES], const char **why)
{
    const struct peers *peers = cn->needs.peers;
    size_t used = 0;
    *why = "";
    for (size_t i = 0; i < count && NODES_TEXT_BYTES - used > NODE_TEXT_BYTES; i++) {
        if (nodes[i].agent_id != peers_self(peers)->agent_id && !is_good(cn, nodes[i].agent_id)) {
            used += (size_t)snprintf(text + used, NODES_TEXT_BYTES - used, "%s%s at %s", used ? ", " : "",
                                     nodes[i].name, nodes[i].address);
            *why = (*why)[0] ? *why : refusal(peers, nodes[i].agent_id);
        }
    }
    return used;
}

bool connectivity_missing(const struct connectivity *cn, const struct node_info *nodes, size_t count, struct error *err)
{
    const struct config *config = cn->needs.config;
    char text[NODES_TEXT_BYTES];
    const char *why;
    size_t used = name_nodes(cn, nodes, count, is_up, text, &why);
    if (used > 0 && why[0]) {
        (void)error_set(err, TCK_ERR_UNREACHABLE, "node %s has no session with node %.100s: %s (%s here: %.200s)",
                        config->node, text, why, config->token_file[0] ? "token_file" : "save_dir",
                        config->token_file[0] ? config->token_file : config->save_dir);
    } else if (used > 0) {
        (void)error_set(err, TCK_ERR_UNREACHABLE,
                        "no session with node %s: check net_device and net_address on all nodes", text);
    }
    return used > 0;
}

/* The same of the sessions that the newest joined term needs, including that those for copies are direct. */
static bool lacks_sessions(const struct connectivity *cn, struct error *err)
{
    char text[NODES_TEXT_BYTES];
    const char *why;
    if (connectivity_missing(cn, cn->nodes, cn->count, err)) {
        return true;
    }
    if (!cn->leaders || name_nodes(cn, cn->nodes, cn->count, takes_copies, text, &why) == 0) {
        return false;
    }
    (void)error_set(err, TCK_ERR_UNREACHABLE,
                    "copies need a direct session with node %s, which is reached only through another node: check "
                    "net_device and net_address on all nodes",
                    text);
    return true;
}

/* ---- required sessions ------------------------------------------------------------------------------------------- */

static bool has_room(struct connectivity *cn)
{
    if (cn->count < cn->cap) {
        return true;
    }
    size_t cap = cn->cap == 0 ? 4 : 2 * cn->cap;
    struct node_info *grown = reallocarray(cn->nodes, cap, sizeof(*grown));
    if (grown == NULL) {
        return false;
    }
    cn->nodes = grown;
    cn->cap = cap;
    return true;
}

static void need(struct connectivity *cn, const struct node_info *node)
{
    if (id_map_find(&cn->place_of, node->agent_id) != ID_MAP_NONE) {
        return;
    }
    if (!has_room(cn) || !id_map_put(&cn->place_of, node->agent_id, (uint32_t)cn->count)) {
        log_error("out of memory: joins will not wait for node %s", node->name);
        return;
    }
    cn->nodes[cn->count++] = *node;
}

static void begin_term(struct connectivity *cn, uint64_t term)
{
    if (cn->term != term) {
        cn->term = term;
        cn->restarted_term = 0;
        cn->count = 0;
        id_map_free(&cn->place_of);
        id_map_free(&cn->copies);
        id_map_free(&cn->led);
    }
}

/* via: the agent that relays messages, 0: none. NULL: it is this agent, or there is no memory. */
static struct peer *want_node(struct connectivity *cn, uint64_t term, const struct node_info *node, uint64_t via)
{
    struct peer *peer;
    struct error err;
    begin_term(cn, term);
    if (node->agent_id == peers_self(cn->needs.peers)->agent_id) {
        return NULL;
    }
    need(cn, node);
    if (peers_want_via(cn->needs.peers, node, via, &peer, &err) != TCK_OK) {
        log_warn("node %s: %s", node->name, err.text);
        return NULL;
    }
    return peer;
}

/* Between these two, of which one is the coordinator's. */
static uint64_t relay_between(const struct connectivity *cn, const struct world *world, uint32_t a, uint32_t b)
{
    uint32_t leader =
        a == 0 || b == 0 ? tree_leader(world->node_count, a == 0 ? b : a, cn->needs.config->tree_from_nodes) : NONE32;
    return leader == NONE32 ? 0 : world->nodes[leader].agent_id;
}

/* No join waits for these sessions: without them, the coordinator is reached directly. */
static void want_relay(struct connectivity *cn, const struct node_info *node)
{
    struct peer *peer;
    struct error err;
    if (node->agent_id != peers_self(cn->needs.peers)->agent_id &&
        peers_want_via(cn->needs.peers, node, 0, &peer, &err) != TCK_OK) {
        log_warn("node %s: %s", node->name, err.text);
    }
}

/* This node's leader, or the nodes that it leads. */
static void want_group(struct connectivity *cn, const struct world *world, uint32_t self)
{
    uint32_t from = cn->needs.config->tree_from_nodes, leader = tree_leader(world->node_count, self, from);
    uint32_t led = tree_led(world->node_count, self, from);
    cn->leaders |= tree_has_leaders(world->node_count, from);
    if (leader != NONE32) {
        want_relay(cn, &world->nodes[leader]);
    }
    cn->coordinator = world->nodes[0].agent_id;
    for (uint32_t n = self + 1; n < self + led; n++) {
        if (!id_map_put(&cn->led, world->nodes[n].agent_id, n)) {
            log_error("out of memory: messages of node %s are not passed on", world->nodes[n].name);
        }
        want_relay(cn, &world->nodes[n]);
    }
}

void connectivity_want_world(struct connectivity *cn, const struct world *world)
{
    save_dir_check_begin(cn->needs.save_dir_check, world);
    bool leads = world->nodes[0].agent_id == peers_self(cn->needs.peers)->agent_id;
    int64_t found = world_find_agent(world, peers_self(cn->needs.peers)->agent_id);
    uint32_t self = found >= 0 ? (uint32_t)found : 0;
    for (uint32_t n = 0; n < (leads ? world->node_count : 1); n++) {
        want_node(cn, world->term, &world->nodes[n], relay_between(cn, world, self, n));
    }
    want_group(cn, world, self);
}

static void want_copies(struct connectivity *cn, struct term_context *tc, uint32_t n)
{
    struct error err;
    uint64_t agent_id = tc->world.nodes[n].agent_id;
    if (peers_want_copies(cn->needs.peers, &tc->world.nodes[n], true, &tc->peers[n], &err) != TCK_OK) {
        tc->peers[n] = NULL;
    } else if (cn->leaders && !id_map_put(&cn->copies, agent_id, n)) {
        log_error("out of memory: joins will not wait until node %s takes copies", tc->world.nodes[n].name);
    }
}

static bool is_of_group(const struct connectivity *cn, const struct term_context *tc, uint32_t n)
{
    uint32_t from = cn->needs.config->tree_from_nodes, led = tree_led(tc->world.node_count, tc->self, from);
    return tree_leader(tc->world.node_count, tc->self, from) == n || (n > tc->self && n < tc->self + led);
}

/* A session that this term needs for no messages or copies of this node: it only serves to relay, or an earlier term
 * has left it. What was wanted for copies then is not any more. */
static void keep_or_end(struct connectivity *cn, struct term_context *tc, uint32_t n, enum session_use use)
{
    struct peer *peer = peers_find(cn->needs.peers, tc->world.nodes[n].agent_id);
    if (peer == NULL || use == SESSION_COPIES) {
        return;
    }
    peer_unwant_copies(peer);
    if (use == SESSION_NONE && is_of_group(cn, tc, n)) {
        tc->peers[n] = peer_is_up(peer) ? peer : NULL;
    } else if (use == SESSION_NONE && peer_is_wanted(peer)) {
        log_info("the session with node %s ends: term %" PRIu64 " does not need it", tc->world.nodes[n].name,
                 tc->world.term);
        peers_unwant(cn->needs.peers, peer);
    }
}

void connectivity_want_term(struct connectivity *cn, struct term_context *tc)
{
    enum session_use *wanted = calloc(tc->world.node_count, sizeof(*wanted));
    if (wanted == NULL) {
        log_error("out of memory: cannot open sessions with other nodes");
        return;
    }
    sessions_wanted(&tc->setup, &tc->placement, tc->coordinator != NULL, wanted);
    begin_term(cn, tc->world.term);
    want_group(cn, &tc->world, tc->self); /* first, so that others are relayed as soon as they are wanted */
    for (uint32_t n = 0; n < tc->world.node_count; n++) {
        if (n == tc->self) {
            continue;
        }
        if (cn->leaders) {
            keep_or_end(cn, tc, n, wanted[n]);
        }
        if (wanted[n] != SESSION_NONE) {
            tc->peers[n] =
                want_node(cn, tc->world.term, &tc->world.nodes[n], relay_between(cn, &tc->world, tc->self, n));
        }
        if (wanted[n] == SESSION_COPIES) {
            want_copies(cn, tc, n);
        }
    }
    free(wanted);
}

bool connectivity_is_needed(const struct connectivity *cn, uint64_t agent_id)
{
    return !cn->leaders || id_map_find(&cn->place_of, agent_id) != ID_MAP_NONE;
}

bool connectivity_relays(const struct connectivity *cn, uint64_t a, uint64_t b)
{
    uint64_t member = a == cn->coordinator ? b : a;
    return (a == cn->coordinator || b == cn->coordinator) && id_map_find(&cn->led, member) != ID_MAP_NONE;
}

const struct node_info *connectivity_nodes(const struct connectivity *cn, uint64_t *term_out, size_t *count_out)
{
    *term_out = cn->term;
    *count_out = cn->count;
    return cn->nodes;
}

/* ---- an agent that was lost with its memory ---------------------------------------------------------------------- */

void connectivity_memory_lost(struct connectivity *cn, const struct world *world)
{
    struct peer *peer;
    struct error err;
    cn->restarted_term = world->term;
    for (uint32_t n = 0; n < world->node_count; n++) {
        if (strcmp(world->nodes[n].name, cn->needs.config->node) == 0) {
            continue;
        }
        if (peers_want(cn->needs.peers, &world->nodes[n], &peer, &err) != TCK_OK) {
            log_warn("node %s: %s", world->nodes[n].name, err.text);
        } else if (peer_is_up(peer)) {
            connectivity_notify(cn, peer);
        }
    }
}

void connectivity_notify(struct connectivity *cn, struct peer *peer)
{
    if (cn->restarted_term != 0) {
        rpc_send_gone(peer, cn->restarted_term);
    }
}

void connectivity_handle_gone(struct connectivity *cn, uint64_t term, const struct node_info *successor)
{
    cn->gone_term = term;
    snprintf(cn->gone, sizeof(cn->gone), "%s", successor->name);
    connectivity_tick(cn);
}

/* ---- answers ------------------------------------------------------------------------------------------------- */

static bool waits(const struct connectivity *cn, const struct client *c)
{
    return c->term != 0 && c->term == cn->term && join_may_reply(cn->needs.join, c);
}

static void answer(const struct join_setup *join, struct client *client, enum join_verdict verdict,
                   const struct error *why)
{
    if (verdict == JOIN_ANSWER) {
        join_reply(join, client, NULL);
    } else if (verdict == JOIN_REFUSE) {
        log_error("rank %u cannot join: %s", client->rank, why->text);
        join_reply(join, client, why);
    }
}

void connectivity_tick(struct connectivity *cn)
{
    struct error err;
    bool any = false;
    for (const struct client *c = *cn->needs.clients; c != NULL && !any; c = c->next) {
        any = waits(cn, c);
    }
    bool missing = any && lacks_sessions(cn, &err);
    bool gone = missing && cn->gone_term == cn->term;
    if (gone) {
        (void)error_set(&err, TCK_ERR_DENIED,
                        "node %s has lost its agent and its memory since term %" PRIu64 " was formed: attach again",
                        cn->gone, cn->term);
    }
    bool unshared = any && save_dir_is_not_shared(cn->needs.save_dir_check, cn->term, &err);
    struct join_standing standing = {.missing = missing,
                                     .gone = gone,
                                     .unshared = unshared,
                                     .checking = save_dir_check_is_pending(cn->needs.save_dir_check, cn->term),
                                     .limit_ms = cn->needs.config->session_wait_ms};
    for (struct client *c = *cn->needs.clients; any && c != NULL; c = c->next) {
        if (waits(cn, c)) {
            standing.returning = c->returning;
            standing.waited_ms = clock_ms() - c->sessions_since_ms;
            answer(cn->needs.join, c, join_judge(&standing), &err);
        }
    }
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

tck_status_t connectivity_new(const struct connectivity_setup *setup, struct connectivity **out, struct error *err)
{
    struct connectivity *cn = calloc(1, sizeof(*cn));
    if (cn == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    cn->needs = *setup;
    *out = cn;
    return TCK_OK;
}

void connectivity_free(struct connectivity *cn)
{
    if (cn != NULL) {
        free(cn->nodes);
        id_map_free(&cn->place_of);
        id_map_free(&cn->copies);
        id_map_free(&cn->led);
        free(cn);
    }
}
