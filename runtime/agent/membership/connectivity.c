/* SPDX-License-Identifier: Apache-2.0
 * The sessions that a term cannot do without: with its coordinator, and with those that copies go to and come from; for
 * the coordinator with all. JOIN and REGISTER of a trainer are answered once these are up, or with the names and
 * addresses of who could not be reached: at the start of a job, when it is being watched, and not when its state is
 * needed.
 */
#include "agent/membership/connectivity.h"

#include "agent/membership/join_reply.h"
#include "agent/membership/save_dir_check.h"
#include "agent/replication/peer_rpc.h"
#include "base/clock.h"
#include "core/join.h"
#include "recovery/sessions.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NODE_TEXT_BYTES 192 /* ", <name> at <address>" fits */

/* ---- who is missing ------------------------------------------------------------------------------------------ */

static bool is_up(const struct agent *agent, uint64_t agent_id)
{
    const struct peer *peer = peers_find(agent->peers, agent_id);
    return peer && peer_is_up(peer);
}

/* An agent that answers with a wrong secret: the network is not the cause. */
static const char *refusal(const struct agent *agent, uint64_t agent_id)
{
    const struct peer *peer = peers_find(agent->peers, agent_id);
    const char *why = peer ? peer_trouble(peer) : "";
    return strstr(why, "secret") ? why : "";
}

bool connectivity_missing(const struct agent *agent, const struct node_info *nodes, size_t count, struct error *err)
{
    char text[ERROR_TEXT_BYTES - 128] = "";
    const char *why = "";
    size_t used = 0;
    for (size_t i = 0; i < count && sizeof(text) - used > NODE_TEXT_BYTES; i++) {
        if (nodes[i].agent_id != peers_self(agent->peers)->agent_id && !is_up(agent, nodes[i].agent_id)) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s at %s", used ? ", " : "", nodes[i].name,
                                     nodes[i].address);
            why = why[0] ? why : refusal(agent, nodes[i].agent_id);
        }
    }
    if (used > 0 && why[0]) {
        (void)error_set(err, TCK_ERR_UNREACHABLE, "node %s has no session with node %.100s: %s (%s here: %.200s)",
                        agent->config.node, text, why, agent->config.token_file[0] ? "token_file" : "save_dir",
                        agent->config.token_file[0] ? agent->config.token_file : agent->config.save_dir);
    } else if (used > 0) {
        (void)error_set(err, TCK_ERR_UNREACHABLE,
                        "no session with node %s: is net_device or net_address right on all nodes?", text);
    }
    return used > 0;
}

/* ---- who is needed ------------------------------------------------------------------------------------------- */

static void need(struct connectivity *m, const struct node_info *node)
{
    for (size_t i = 0; i < m->count; i++) {
        if (m->nodes[i].agent_id == node->agent_id) {
            return;
        }
    }
    struct node_info *grown = realloc(m->nodes, (m->count + 1) * sizeof(*grown));
    if (!grown) {
        log_error("out of memory: not waiting for node %s", node->name);
        return;
    }
    m->nodes = grown;
    m->nodes[m->count++] = *node;
}

void connectivity_want_node(struct agent *agent, uint64_t term, const struct node_info *node)
{
    struct connectivity *m = &agent->connectivity;
    struct peer *peer;
    struct error err;
    if (m->term != term) {
        m->term = term;
        m->anew_term = 0;
        m->count = 0;
    }
    if (node->agent_id == peers_self(agent->peers)->agent_id) {
        return;
    }
    need(m, node);
    if (peers_want(agent->peers, node, &peer, &err) != TCK_OK) {
        log_warn("node %s: %s", node->name, err.text);
    }
}

void connectivity_want_world(struct agent *agent, const struct world *world)
{
    save_dir_check_begin(agent, world);
    bool leads = world->nodes[0].agent_id == peers_self(agent->peers)->agent_id;
    for (uint32_t n = 0; n < (leads ? world->node_count : 1); n++) {
        connectivity_want_node(agent, world->term, &world->nodes[n]);
    }
}

void connectivity_want_term(struct term_context *tc)
{
    bool *wanted = calloc(tc->world.node_count, sizeof(*wanted));
    if (!wanted) {
        log_error("out of memory: no sessions with other nodes");
        return;
    }
    sessions_wanted(&tc->setup, &tc->placement, tc->coordinator != NULL, wanted);
    for (uint32_t n = 0; n < tc->world.node_count; n++) {
        struct error err;
        if (n == tc->self || !wanted[n]) {
            continue;
        }
        connectivity_want_node(tc->agent, tc->world.term, &tc->world.nodes[n]);
        if (peers_want(tc->agent->peers, &tc->world.nodes[n], &tc->peers[n], &err) != TCK_OK) {
            tc->peers[n] = NULL;
        }
    }
    free(wanted);
}

void connectivity_free(struct agent *agent)
{
    free(agent->connectivity.nodes);
    agent->connectivity = (struct connectivity){0};
}

/* ---- an agent that is gone with its memory ----------------------------------------------------------------------- */

void connectivity_memory_lost(struct agent *agent, const struct world *world)
{
    struct peer *peer;
    struct error err;
    agent->connectivity.anew_term = world->term;
    for (uint32_t n = 0; n < world->node_count; n++) {
        if (strcmp(world->nodes[n].name, agent->config.node) == 0) {
            continue;
        }
        if (peers_want(agent->peers, &world->nodes[n], &peer, &err) != TCK_OK) {
            log_warn("node %s: %s", world->nodes[n].name, err.text);
        } else if (peer_is_up(peer)) {
            connectivity_notify(agent, peer);
        }
    }
}

void connectivity_notify(struct agent *agent, struct peer *peer)
{
    if (agent->connectivity.anew_term != 0) {
        rpc_send_gone(peer, agent->connectivity.anew_term);
    }
}

void connectivity_handle_gone(struct agent *agent, uint64_t term, const struct node_info *successor)
{
    struct connectivity *m = &agent->connectivity;
    m->gone_term = term;
    snprintf(m->gone, sizeof(m->gone), "%s", successor->name);
    connectivity_tick(agent);
}

/* ---- answers ------------------------------------------------------------------------------------------------- */

static bool waits(const struct client *c)
{
    return c->term != 0 && c->term == c->agent->connectivity.term && join_may_reply(c);
}

static void answer(struct client *client, enum join_verdict verdict, const struct error *why)
{
    if (verdict == JOIN_ANSWER) {
        join_reply(client, NULL);
    } else if (verdict == JOIN_REFUSE) {
        log_error("rank %u cannot join: %s", client->rank, why->text);
        join_reply(client, why);
    }
}

void connectivity_tick(struct agent *agent)
{
    struct error err;
    bool any = false;
    for (const struct client *c = agent->clients; c && !any; c = c->next) {
        any = waits(c);
    }
    bool missing = any && connectivity_missing(agent, agent->connectivity.nodes, agent->connectivity.count, &err);
    bool gone = missing && agent->connectivity.gone_term == agent->connectivity.term;
    if (gone) {
        (void)error_set(&err, TCK_ERR_DENIED,
                        "node %s has lost its agent and its memory since term %" PRIu64 " was formed: attach again",
                        agent->connectivity.gone, agent->connectivity.term);
    }
    bool unshared = any && save_dir_is_not_shared(agent, &err);
    struct join_standing standing = {.missing = missing,
                                     .gone = gone,
                                     .unshared = unshared,
                                     .checking = save_dir_check_is_open(agent),
                                     .limit_ms = agent->config.session_wait_ms};
    for (struct client *c = agent->clients; any && c; c = c->next) {
        if (waits(c)) {
            standing.returning = c->returning;
            standing.waited_ms = clock_ms() - c->meet_since_ms;
            answer(c, join_judge(&standing), &err);
        }
    }
}
