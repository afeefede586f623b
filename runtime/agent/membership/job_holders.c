/* SPDX-License-Identifier: Apache-2.0
 * Finds the trainers of this node that hold the job at the time of the request. It asks the kernel, because the event
 * loop may not have noticed the end of a process yet. */
#include "agent/membership/job_holders.h"

#include "agent/ipc/client.h"
#include "agent/state/hard_state.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/holder.h"
#include "tiers/peer.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANCESTORS_MAX 64
#define STAT_BYTES    512
#define RETURN_MS     3000 /* trainers try to reconnect to a new agent several times a second */

/* Trainers that are expected to reconnect to this restarted agent, and hold the job until then. */
struct awaited {
    uint64_t term; /* 0: none */
    uint64_t until_ms;
    uint32_t first_rank, count, world_size;
};

struct holders {
    struct holders_setup needs;
    struct awaited awaited;
};

/* A zombie counts as dead: its pidfd is readable. A process of another PID namespace counts as alive while it is
 * connected.
 */
bool holders_alive(const struct client *c)
{
    struct pollfd fd = {.fd = c->pidfd, .events = POLLIN};
    return c->pidfd < 0 || poll(&fd, 1, 0) == 0;
}

/* True if the same process has sent another HELLO and has not joined a term yet. */
static bool is_rejoining(const struct client *clients, const struct client *held)
{
    for (const struct client *c = clients; c != NULL; c = c->next) {
        if (c != held && c->trainer && c->process.pid == held->process.pid && c->process.pid > 0 && c->term == 0) {
            return true;
        }
    }
    return false;
}

/* 0: unknown. The process name may contain any bytes, so the text is parsed after its last parenthesis. */
static pid_t parent_of(pid_t pid)
{
    char path[64], text[STAT_BYTES];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    size_t len = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;
    int parent = 0;
    if (file != NULL) {
        fclose(file);
    }
    text[len] = '\0';
    const char *end = strrchr(text, ')');
    return end != NULL && sscanf(end, ") %*c %d", &parent) == 1 ? (pid_t)parent : 0;
}

static bool is_ancestor(pid_t ancestor, pid_t pid)
{
    for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
        pid = parent_of(pid);
        if (pid == ancestor) {
            return true;
        }
    }
    return false;
}

static bool holds(const struct client *clients, const struct client *c, const struct wire_holder_ask *ask,
                  const struct client *asker)
{
    struct holder_trainer t = {
        .term = c->term > c->claimed ? c->term : c->claimed,
        .alive = holders_alive(c),
        .done = c->done,
        .arrives = is_rejoining(clients, c),
        .same_run = ask->run_id[0] != '\0' && strcmp(ask->run_id, c->run_id) == 0,
    };
    t.ancestor = t.same_run && asker != NULL && is_ancestor(c->process.pid, asker->process.pid);
    return holder_counts(&t, ask->term);
}

bool holders_awaits_trainers(const struct holders *h)
{
    const struct awaited *a = &h->awaited;
    uint32_t back = 0;
    for (const struct client *c = *h->needs.clients; c != NULL; c = c->next) {
        back += c->trainer && c->term == a->term;
    }
    return a->term != 0 && a->term == hard_state_get(h->needs.state)->term.adopted && clock_ms() < a->until_ms &&
           back < a->count;
}

static bool awaits_trainers(const struct holders *h, const struct wire_holder_ask *ask)
{
    return h->awaited.term >= ask->term && holders_awaits_trainers(h);
}

/* If there are several such trainers, returns the one with the lowest rank. */
struct wire_holder holders_find(const struct holders *h, const struct wire_holder_ask *ask, uint64_t to,
                                const struct client *asker)
{
    const struct kept *kept = hard_state_get(h->needs.state);
    struct wire_holder found = {.term = ask->term,
                                .asking = ask->asking,
                                .adopted = kept->term.adopted,
                                .offer = reserve_offer(&kept->reserve, to, ask->at_least)};
    for (const struct client *c = *h->needs.clients; c != NULL; c = c->next) {
        if (!c->trainer || c == asker || (found.held && c->rank >= found.rank) ||
            !holds(*h->needs.clients, c, ask, asker)) {
            continue;
        }
        found.held = true;
        found.rank = c->rank;
        found.world_size = c->world_size;
        found.pid = (uint32_t)c->process.pid;
    }
    if (!found.held && awaits_trainers(h, ask)) {
        found.held = true;
        found.rank = h->awaited.first_rank;
        found.world_size = h->awaited.world_size;
    }
    return found;
}

void holders_answer(const struct holders *h, struct peer *peer, const void *data, size_t len)
{
    struct wire_holder_ask ask;
    if (wire_holder_ask_decode(data, len, &ask) != TCK_OK) {
        log_warn("malformed HOLDER_ASK from node %s", peer_node(peer)->name);
        return;
    }
    struct wire_holder answer = holders_find(h, &ask, peer_node(peer)->agent_id, NULL);
    struct writer w = writer_new(0);
    wire_holder_encode(&answer, &w);
    if (!w.failed && peer_send(peer, WIRE_HOLDER, w.data, w.len) != TCK_OK) {
        log_debug("the reply to node %s about who holds the job could not be sent: it will ask again",
                  peer_node(peer)->name);
    }
    writer_free(&w);
}

void holders_await(struct holders *h, const struct world *world)
{
    struct awaited *a = &h->awaited;
    *a = (struct awaited){.term = world->term, .until_ms = clock_ms() + RETURN_MS, .world_size = world->world_size};
    for (uint32_t r = world->world_size; r-- > 0;) {
        if (strcmp(world->nodes[world->node_of_rank[r]].name, h->needs.config->node) == 0) {
            a->first_rank = r;
            a->count++;
        }
    }
}

tck_status_t holders_new(const struct holders_setup *setup, struct holders **out, struct error *err)
{
    struct holders *h = calloc(1, sizeof(*h));
    if (h == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    h->needs = *setup;
    *out = h;
    return TCK_OK;
}

void holders_free(struct holders *h)
{
    free(h);
}
