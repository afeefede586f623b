/* SPDX-License-Identifier: Apache-2.0
 * The life cycle of the agent: creation, periodic work, destruction. */
#include "agent/agent.h"

#include "agent/client_requests.h"
#include "agent/drain/archiver.h"
#include "agent/drain/drain.h"
#include "agent/driver/moving.h"
#include "agent/driver/protocol_driver.h"
#include "agent/driver/slot_ops.h"
#include "agent/driver/term_context.h"
#include "agent/ipc/ipc_server.h"
#include "agent/ipc/presence.h"
#include "agent/lifecycle/fdstore.h"
#include "agent/lifecycle/idle_exit.h"
#include "agent/lifecycle/listener_watchdog.h"
#include "agent/membership/claim.h"
#include "agent/membership/connectivity.h"
#include "agent/membership/job_holders.h"
#include "agent/membership/membership.h"
#include "agent/membership/reservation.h"
#include "agent/membership/save_dir_check.h"
#include "agent/membership/start_config.h"
#include "agent/metrics/metrics.h"
#include "agent/open_parts.h"
#include "agent/pace/pacing.h"
#include "agent/pressure/pressure.h"
#include "agent/recovery/recover.h"
#include "agent/recovery/restore.h"
#include "agent/replication/fetch.h"
#include "agent/replication/peer_rpc.h"
#include "agent/report/auto_interval.h"
#include "agent/report/report.h"
#include "agent/report/trace.h"
#include "agent/scrub/memory_scrub.h"
#include "agent/scrub/storage_scrub.h"
#include "agent/state/hard_state.h"
#include "agent/storage/health.h"
#include "agent/storage/metadata_writer.h"
#include "agent/storage/storage_ops.h"
#include "agent/trainers/slot_writers.h"
#include "agent/trainers/trainer_control.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/message.h"
#include "base/processors.h"
#include "core/digest_threads.h"
#include "tiers/memory.h"
#include "tiers/persistent.h"
#include "tiers/segment.h"

#include <stdatomic.h>
#include <stdlib.h>

#define TICK_MS      50
#define SLOW_TICK_MS 1000

/* ---- time ---------------------------------------------------------------------------------------------------- */

static bool waits_for(const struct client *c, enum await await)
{
    return c->trainer && (await == AWAIT_MEMORY ? c->register_seq != 0 : c->restoring);
}

static struct wait look_at(const struct agent *agent, enum await await)
{
    const struct term_context *tc = agent->term_context;
    struct wait wait = {0};
    for (const struct client *c = agent->clients; c != NULL; c = c->next) {
        if (waits_for(c, await) && (wait.since_ms == 0 || c->waits_since_ms < wait.since_ms)) {
            wait.since_ms = c->waits_since_ms;
        }
    }
    if (wait.since_ms != 0 && await == AWAIT_MEMORY) {
        membership_allocated(agent->membership, &wait.done_bytes, &wait.total_bytes);
    } else if (wait.since_ms != 0 && tc != NULL && !tc->closed) {
        fetch_bytes(agent->fetches, tc, &wait.done_bytes, &wait.total_bytes);
    }
    return wait;
}

static void look_at_waits(struct agent *agent)
{
    for (int await = 0; await < AWAITS; await++) {
        struct wait wait = look_at(agent, (enum await)await);
        wait_note(&agent->awaited.of[await], &wait, clock_ms());
        for (struct client *c = wait.since_ms != 0 ? agent->clients : NULL; c != NULL; c = c->next) {
            if (waits_for(c, (enum await)await)) {
                wait_show(&agent->awaited.of[await], c->shared);
            }
        }
    }
}

static void on_tick(void *ctx)
{
    struct agent *agent = ctx;
    struct term_context *tc = agent->term_context;
    for (struct client *c = agent->clients; c != NULL; c = c->next) {
        if (c->shared != NULL) {
            atomic_fetch_add_explicit(&c->shared->agent_beat, 1, memory_order_relaxed);
        }
    }
    if (tc != NULL && !tc->closed) {
        moving_report(tc);
        driver_tick(tc);
        writers_check(&agent->writers);
        rpc_registered_tick(tc);
        recover_tick(agent->recoveries, tc);
    }
    look_at_waits(agent);
    save_dir_check_tick(agent->save_dir_check);
    connectivity_tick(agent->connectivity);
    claim_tick(agent->claims);
    fetch_tick(agent->fetches);
    fdstore_tick(agent->fdstore);
}

/* Frees the segments of older layouts once none of their slots is needed. */
static void remove_leftovers(struct agent *agent)
{
    const struct term_context *tc = agent->term_context;
    bool unused = slot_ops_none(agent->slot_ops) && storage_is_idle(agent->storage_ops) &&
                  slot_ops_memory(agent->slot_ops) == MEMORY_STEADY;
    for (size_t i = memory_count(agent->memory); tc != NULL && !tc->closed && unused && i-- > 0;) {
        uint32_t local_shard = term_context_shard(tc, segment_info(memory_at(agent->memory, i)).shard);
        if (local_shard == NONE32 || tc->shards[local_shard].world_shard != NONE32 ||
            tc->shards[local_shard].slot_count == 0) {
            continue;
        }
        bool empty = true;
        for (uint32_t k = 0; k < tc->shards[local_shard].slot_count; k++) {
            enum slot_state state = node_slot(tc->node, tc->local_shards[local_shard].first_slot + k)->state;
            empty = empty && (state == SLOT_FREE || state == SLOT_QUARANTINED); /* a slot in quarantine is never read */
        }
        if (empty && !tc->local_shards[local_shard].gone) {
            tc->local_shards[local_shard].gone =
                true; /* its slots stay in the node machine, free and unused, until the next term */
            memory_remove(agent->memory, tc->local_shards[local_shard].segment);
        }
    }
}

static void tick_with_report(struct agent *agent)
{
    const struct config *config = &agent->config;
    const struct term_context *tc = agent->term_context;
    bool leads = tc != NULL && !tc->closed && tc->coordinator != NULL;
    bool chooses = leads && (config->save_mem_interval.automatic || config->save_storage_interval.automatic) &&
                   clock_ms() >= agent->auto_interval_ms;
    struct report report;
    if (agent->trace == NULL && !chooses) {
        return;
    }
    report_collect(agent, &report);
    if (agent->trace != NULL) {
        trace_figures(agent->trace, &report);
    }
    if (chooses) {
        auto_interval_set(agent->trainers, &report);
        agent->auto_interval_ms = clock_ms() + AUTO_INTERVAL_MS;
    }
}

static void on_slow_tick(void *ctx)
{
    struct agent *agent = ctx;
    struct term_context *tc = agent->term_context;
    trainers_tick(agent->trainers);
    if (tc != NULL && !tc->closed) {
        term_context_report_seals(tc);
        restore_tick(&agent->restore, tc);
        trainers_targets(agent->trainers, tc);
        metadata_repeat_restored(agent->metadata, tc);
        metadata_note_commit(agent->metadata, tc); /* the previous agent process may have committed it */
        metadata_note_world(agent->metadata, &tc->world, client_of_rank(agent->clients, tc->world.term, 0));
        reservation_tick(agent->reservations, tc);
        remove_leftovers(agent);
    }
    storage_tick(agent->storage_ops);
    archiver_tick(agent->archiver);
    scrub_tick(agent->scrub);
    trainers_show_health_to_all(agent->trainers); /* the number of missing copies may have changed */
    idle_exit_tick(agent->idle_exit);
    listener_watchdog_tick(&agent->listener_watchdog);
    presence_tick(agent->presence);
    metrics_tick(agent->metrics);
    tick_with_report(agent);
}

static tck_status_t start_ticks(struct agent *agent, struct error *err)
{
    if (loop_timer_add(agent->loop, on_tick, agent, &agent->tick) != TCK_OK ||
        loop_timer_add(agent->loop, on_slow_tick, agent, &agent->slow_tick) != TCK_OK) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    loop_timer_set(agent->tick, TICK_MS, true);
    loop_timer_set(agent->slow_tick, SLOW_TICK_MS, true);
    return TCK_OK;
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

static tck_status_t open_socket(struct agent *agent, struct error *err)
{
    const struct ipc_server_setup setup = {.config = &agent->config,
                                           .loop = agent->loop,
                                           .clients = &agent->clients,
                                           .frame = client_requests_handle,
                                           .gone = client_requests_client_gone,
                                           .ctx = agent};
    return ipc_server_listen(&setup, &agent->ipc_server, err);
}

static tck_status_t start(struct agent *agent, struct error *err)
{
    tck_status_t status = open_parts(agent, err);
    if (status == TCK_OK) {
        status = start_ticks(agent, err);
    }
    if (status == TCK_OK) {
        reservation_load(agent->reservations);
        membership_resume(agent->membership);
        status = open_socket(agent, err);
    }
    if (status == TCK_OK) {
        status = presence_begin(agent->presence, err);
    }
    failpoint(agent, listens);
    return status == TCK_OK ? fdstore_ready(agent->fdstore, err) : status;
}

tck_status_t agent_new(const struct config *config, struct agent **out, struct error *err)
{
    struct agent *agent = calloc(1, sizeof(*agent));
    if (agent == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    agent->config = *config;
    uint32_t processors = processors_usable("");
    agent->pool_threads = digest_threads(processors);
    agent->start_wall_ms = clock_wall_ms();
    tck_status_t status = start(agent, err);
    if (status != TCK_OK) {
        agent_free(agent);
        return status;
    }
    log_info("%u threads compute digests and copy, as this agent may use %u processors", agent->pool_threads,
             processors);
    metrics_tick(agent->metrics); /* from now on the file is this agent's, however soon it ends */
    *out = agent;
    return TCK_OK;
}

void agent_free(struct agent *agent)
{
    if (agent == NULL) {
        return;
    }
    ipc_server_close(agent->ipc_server);
    if (agent->tick != NULL) {
        loop_timer_remove(agent->tick);
    }
    if (agent->slow_tick != NULL) {
        loop_timer_remove(agent->slow_tick);
    }
    agent->leaving = true;
    metrics_free(agent->metrics);
    membership_abandon(agent->membership);
    if (agent->term_context != NULL) {
        close_term(agent);
    }
    /* Freeing these ends what is under way: the last events of transfers, digests and drains need the term context. */
    peers_free(agent->peers);
    persistent_cancel(agent->persistent); /* else the pools wait for calls that may take long */
    pool_free(agent->pool);
    pool_free(agent->io);
    pool_free(agent->claiming);
    archiver_free(agent->archiver);
    persistent_free(agent->persistent);
    scrub_free(agent->scrub);
    pressure_free(agent->pressure);
    storage_scrub_free(agent->storage_scrub);
    drain_free(agent->drain);
    recoveries_free(agent->recoveries);
    fetches_free(agent->fetches);
    metadata_free(agent->metadata);
    claims_free(agent->claims);
    holders_free(agent->holders);
    start_config_free(agent->start_config);
    idle_exit_free(agent->idle_exit);
    membership_free(agent->membership);
    reservations_free(agent->reservations);
    connectivity_free(agent->connectivity);
    save_dir_check_free(agent->save_dir_check);
    term_context_free(agent->term_context);
    catalog_close(agent->catalog);
    trainers_free(agent->trainers);
    storage_ops_free(agent->storage_ops);
    health_free(agent->health);
    rpc_free(agent->rpc);
    slot_ops_free(agent->slot_ops);
    memory_free(agent->memory);
    hard_state_free(agent->state);
    fdstore_free(agent->fdstore);
    trace_free(agent->trace);
    pacing_free(agent->pacing);
    secret_wipe(&agent->secret);
    loop_free(agent->loop);
    presence_free(agent->presence);
    free(agent);
}
