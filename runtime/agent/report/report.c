/* SPDX-License-Identifier: Apache-2.0
 * Collects the report from all parts of the agent. */
#include "agent/report/report.h"

#include "agent/driver/slot_ops.h"
#include "agent/ipc/client.h"
#include "agent/membership/job_holders.h"
#include "agent/parts.h"
#include "agent/replication/peer_rpc.h"
#include "agent/state/hard_state.h"
#include "agent/storage/health.h"
#include "agent/storage/storage_ops.h"
#include "agent/trainers/trainer_control.h"
#include "base/clock.h"
#include "base/message.h"
#include "base/pool.h"
#include "tiers/memory.h"
#include "tiers/peer.h"
#include "tiers/segment.h"

#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- the memory tier ----------------------------------------------------------------------------------------- */

static void add_slot(struct report_memory *m, const struct slot_header *h)
{
    if (h->state < SLOT_STATES) {
        m->slots[h->state]++;
        m->slot_bytes[h->state] += h->image_bytes;
    }
    if (h->state == SLOT_VERIFIED && h->committed && version_cmp(h->version, m->held) > 0) {
        m->held = h->version;
    }
}

static void collect_memory(const struct agent *agent, struct report_memory *m)
{
    m->changing = slot_ops_memory(agent->slot_ops) != MEMORY_STEADY;
    if (m->changing) {
        return; /* a pool thread is changing the memory tier */
    }
    m->used_bytes = memory_used_bytes(agent->memory);
    m->cap_bytes = memory_cap_bytes(agent->memory);
    m->segments = memory_count(agent->memory);
    m->page_bytes = m->segments > 0 ? segment_info(memory_at(agent->memory, 0)).page_bytes : 0;
    for (size_t i = 0; i < m->segments; i++) {
        struct segment *segment = memory_at(agent->memory, i);
        for (uint32_t k = 0; k < segment_info(segment).slot_count; k++) {
            if (!segment_is_given_back(segment, k)) { /* it has no memory */
                add_slot(m, segment_header(segment, k));
            }
        }
    }
}

/* ---- the term ------------------------------------------------------------------------------------------------ */

/* The coordinator has a session with every node; others have sessions only with the nodes that they exchange copies
 * with. All of them end with the term, so that afterwards none shows that a node is lost. */
enum node_state report_node_state(const struct term_context *tc, uint32_t n)
{
    if (n == tc->self) {
        return NODE_SELF;
    }
    if (tc->peers[n] != NULL && peer_is_up(tc->peers[n])) {
        return peer_lacks_direct(tc->peers[n]) ? NODE_NO_COPIES : NODE_UP;
    }
    bool lost = !tc->closed && (tc->coordinator != NULL || tc->lost[n].acted);
    return lost ? NODE_LOST : NODE_NOT_CONNECTED;
}

static void collect_nodes(const struct term_context *tc, struct report_term *t)
{
    for (uint32_t n = 0; n < tc->world.node_count; n++) {
        enum node_state state = report_node_state(tc, n);
        if (state == NODE_LOST && t->nodes[NODE_LOST] < REPORT_LOST_MAX) {
            t->lost[t->nodes[NODE_LOST]] = tc->world.nodes[n].name;
        }
        t->nodes[state]++;
    }
}

/* A node that is down answers at none of its addresses, and is counted as such. */
static void collect_addresses(const struct term_context *tc, struct report_term *t)
{
    for (uint32_t n = 0; n < tc->world.node_count; n++) {
        struct peer_reach reach[ADDRESSES_MAX];
        t->relayed += tc->peers[n] != NULL && peer_relay(tc->peers[n]) != NULL;
        size_t count = report_node_state(tc, n) == NODE_UP ? peer_reach(tc->peers[n], reach) : 0;
        for (size_t i = 0; i < count; i++) {
            t->sessions[i] += reach[i].in_use;
            if (reach[i].failed && t->silent_count++ < REPORT_LOST_MAX) {
                t->silent[t->silent_count - 1] =
                    (struct report_silent){.node = tc->world.nodes[n].name, .address = reach[i].address};
            }
        }
    }
}

static void collect_term(const struct term_context *tc, struct report_term *t)
{
    if (tc == NULL) {
        return;
    }
    *t = (struct report_term){.joined = true,
                              .closed = tc->closed,
                              .coordinator = tc->coordinator != NULL,
                              .decision = *node_decision(tc->node),
                              .ranks = tc->world.world_size,
                              .shards = tc->world.shard_count,
                              .shards_short = tc->placement.domains_short,
                              .divergences = tc->divergences,
                              .passed_over = tc->readable_known ? tc->readable.passed_over : ""};
    for (uint32_t i = 0; i < tc->world.shard_count; i++) {
        t->version_bytes += tc->world.shards[i].image_bytes;
    }
    collect_nodes(tc, t);
    collect_addresses(tc, t);
}

/* ---- the rest ------------------------------------------------------------------------------------------------ */

static void collect_trainers(const struct client *clients, struct report_trainers *t)
{
    for (const struct client *c = clients; c != NULL; c = c->next) {
        if (!c->trainer) {
            continue;
        }
        uint64_t step = atomic_load_explicit(&c->shared->current_step, memory_order_relaxed);
        uint64_t ns = atomic_load_explicit(&c->shared->step_ns, memory_order_relaxed);
        t->count++;
        t->restoring += c->restoring;
        t->step = step > t->step ? step : t->step;
        t->step_ns = ns > t->step_ns ? ns : t->step_ns;
        stalls_add_board(&t->stalls, &c->shared->stalls);
    }
}

static uint64_t cpu_ns(void)
{
    struct rusage usage = {0};
    (void)getrusage(RUSAGE_SELF, &usage);
    return ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * 1000000000u +
           ((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * 1000u;
}

/* What each part says of itself. */
static void collect_parts(const struct agent *agent, struct report *r)
{
    r->tally = agent->tally;
    r->stale_messages = rpc_stale_messages(agent->rpc);
    r->awaits_trainers = holders_awaits_trainers(agent->holders);
    r->parked = fdstore_parked(agent->fdstore);
    r->scrub = scrub_counts(agent->scrub);
    r->storage_scrub = storage_scrub_counts(agent->storage_scrub);
    r->fetches = fetches_counts(agent->fetches);
    r->drains = drain_counts(agent->drain);
    r->clones = persistent_clones(agent->persistent, &r->clones_why);
    r->archive = archiver_figures(agent->archiver);
    r->recoveries = recoveries_counts(agent->recoveries);
    r->pacing = pacing_figures(agent->pacing);
    r->pressure = pressure_figures(agent->pressure);
    r->awaited = agent->awaited;
    r->storage.trouble = health_storage(agent->health);
    (void)storage_oldest(agent->storage_ops, &r->storage.calls, &r->storage.oldest_since_ms); /* else both are 0 */
    r->queues = (struct report_queues){.digest = pool_waiting(agent->pool),
                                       .storage = pool_waiting(agent->io),
                                       .claim = pool_waiting(agent->claiming)};
}

void report_collect(const struct agent *agent, struct report *out)
{
    const struct kept *kept = hard_state_get(agent->state);
    const struct settings *settings = trainers_settings(agent->trainers);
    *out = (struct report){.config = &agent->config,
                           .now_ms = clock_ms(),
                           .now_wall_ms = clock_wall_ms(),
                           .start_wall_ms = agent->start_wall_ms,
                           .pid = (uint64_t)getpid(),
                           .term = kept->term.adopted,
                           .cpu_ns = cpu_ns(),
                           .reserved_first = kept->reserve.first,
                           .reserved_last = kept->reserve.last,
                           .save_mem_steps = settings->mem_steps,
                           .save_storage_steps = settings->storage_steps};
    collect_memory(agent, &out->memory);
    collect_term(agent->term_context, &out->in_term);
    out->trainers.stalls = agent->tally.stalls;
    collect_trainers(agent->clients, &out->trainers);
    collect_parts(agent, out);
}
