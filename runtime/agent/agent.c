/* SPDX-License-Identifier: Apache-2.0
 * Puts the agent together, in the order in which its parts need each other, and takes it apart. */
#include "agent/agent.h"

#include "agent/actions.h"
#include "agent/client_requests.h"
#include "agent/command/command_requests.h"
#include "agent/drain/drain.h"
#include "agent/driver/protocol_driver.h"
#include "agent/driver/term_context.h"
#include "agent/ipc/ipc_server.h"
#include "agent/lifecycle/fdstore.h"
#include "agent/lifecycle/idle_exit.h"
#include "agent/lifecycle/listener_watchdog.h"
#include "agent/membership/claim.h"
#include "agent/membership/connectivity.h"
#include "agent/membership/fence.h"
#include "agent/membership/membership.h"
#include "agent/membership/reservation.h"
#include "agent/membership/save_dir_check.h"
#include "agent/peer_messages.h"
#include "agent/recovery/recover.h"
#include "agent/recovery/restore.h"
#include "agent/replication/fetch.h"
#include "agent/replication/peer_rpc.h"
#include "agent/scrub/memory_scrub.h"
#include "agent/scrub/storage_scrub.h"
#include "agent/state/adopt.h"
#include "agent/storage/health.h"
#include "agent/storage/metadata_writer.h"
#include "agent/storage/storage_ops.h"
#include "agent/trainers/slot_writers.h"
#include "agent/trainers/trainer_control.h"
#include "base/clock.h"
#include "tiers/sd_notify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_MS          50
#define SLOW_TICK_MS     1000
#define POOL_THREADS_MAX 4
#define IO_THREADS       4

/* ---- hooks ----------------------------------------------------------------------------------- */

/* Operations under way still end in the closed term, but it no longer sends or starts anything. */
static void close_term(struct agent *agent)
{
    struct term_context *tc = agent->term_context;
    tc->closed = true;
    memset(tc->peers, 0, tc->world.node_count * sizeof(*tc->peers)); /* peers outside the next world are released */
    recover_free(agent);
    fetch_reset(agent);
}

static void term_adopted(struct agent *agent, uint64_t term, bool newer)
{
    struct term_context *tc = agent->term_context;
    if (newer) {
        reservation_publish(agent->reservations);
    }
    if (tc != NULL && !tc->closed && tc->world.term < term) {
        log_info("term %" PRIu64 " is over", tc->world.term);
        close_term(agent);
    }
    fence_older(agent, term);
    client_requests_term_over(agent, term);
}

static const struct agent_hooks hooks = {
    .client_frame = client_requests_handle,
    .client_gone = client_requests_client_gone,
    .message = peer_messages_handle,
    .beat = peer_messages_handle_beat,
    .carry_out = actions_carry_out,
    .decided = trainers_decided,
    .slots_idle = membership_ops_idle,
    .term_adopted = term_adopted,
    .term_replaced = recover_free,
    .shard_arrived = restore_arrived,
    .shard_repaired = scrub_repaired,
};

/* ---- time ---------------------------------------------------------------------------------------------------- */

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
        driver_tick(tc);
        writers_look(agent);
        rpc_registered_tick(tc);
        recover_tick(tc);
    }
    save_dir_check_tick(agent->save_dir_check);
    connectivity_tick(agent->connectivity);
    claim_tick(agent->claims);
    fetch_tick(agent);
    fdstore_tick(agent->fdstore);
}

/* Frees the segments of older layouts once none of their slots is needed. */
static void remove_leftovers(struct agent *agent)
{
    const struct term_context *tc = agent->term_context;
    for (size_t i = memory_count(agent->memory); tc != NULL && !tc->closed && agent->ops == 0 &&
                                                 storage_is_idle(agent->storage_ops) && agent->registration == NULL &&
                                                 i-- > 0;) {
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

static void on_slow_tick(void *ctx)
{
    struct agent *agent = ctx;
    struct term_context *tc = agent->term_context;
    trainers_tick(agent);
    if (tc != NULL && !tc->closed) {
        term_context_take_seals(tc);
        restore_tick(tc);
        trainers_targets(tc);
        metadata_note_commit(tc); /* this agent's predecessor may have committed it */
        metadata_note_world(agent->metadata, &tc->world, client_of_rank(agent->clients, tc->world.term, 0));
        reservation_tick(tc);
        remove_leftovers(agent);
    }
    storage_tick(agent->storage_ops);
    scrub_tick(agent->scrub);
    trainers_show_health_to_all(agent); /* the number of missing copies may have changed */
    idle_exit_tick(agent);
    listener_watchdog_tick(agent);
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

/* ---- parts --------------------------------------------------------------------------------------------------- */

static uint32_t pool_threads(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > POOL_THREADS_MAX ? POOL_THREADS_MAX : (uint32_t)cores;
}

/* Adopts a descriptor that an earlier process stored: part of the kept state or of the memory tier. */
static void adopt_stored(void *ctx, const char *name, int fd)
{
    struct agent *agent = ctx;
    struct error err;
    if (fdstore_put(agent->fdstore, name, fd, &err) != TCK_OK) {
        log_warn("%s: %s", name, err.text);
    }
    if (!hard_state_adopt(agent->state, name, fd)) {
        memory_adopt(agent->memory, name, fd);
    }
}

static tck_status_t open_memory(struct agent *agent, struct error *err)
{
    struct memory_setup memory = {.job = agent->config.job,
                                  .cap_bytes = agent->config.memory_cap_bytes,
                                  .hugetlb_mount = agent->config.hugetlb_mount,
                                  .threads = agent->pool_threads,
                                  .store_fd = fdstore_put,
                                  .drop_fd = fdstore_remove,
                                  .ctx = agent->fdstore};
    struct hard_state_setup state = {.store_fd = fdstore_put_now, .drop_fd = fdstore_remove, .ctx = agent->fdstore};
    tck_status_t status = hard_state_new(&state, &agent->state, err);
    if (status == TCK_OK) {
        status = memory_new(&memory, &agent->memory, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    sd_notify_take_back(adopt_stored, agent);
    memory_adopted(agent->memory);
    failpoint(agent, found);
    return hard_state_ready(agent->state, err);
}

/* The term that must have a claim in save_dir; 0 if there is none, or save_dir has changed. */
static uint64_t claimed_term(const struct agent *agent)
{
    const struct kept *kept = hard_state_get(agent->state);
    return kept->save_dir == hard_state_save_dir(&agent->config) ? kept->term.joined : 0;
}

static tck_status_t open_storage(struct agent *agent, struct error *err)
{
    struct persistent_setup setup = {
        .loop = agent->loop, .pool = agent->io, .config = &agent->config, .claimed = claimed_term(agent)};
    tck_status_t status = persistent_new(&setup, &agent->persistent, err);
    if (status != TCK_OK) {
        return status; /* its text names the path */
    }
    if (agent->config.token_file[0] != '\0') {
        return secret_load(agent->config.token_file, &agent->secret, err);
    }
    status = secret_load_or_make(persistent_dir_fd(agent->persistent), "secret", &agent->secret, err);
    return status == TCK_OK ? TCK_OK : error_prefix(err, "%s/%s", agent->config.save_dir, agent->config.job);
}

static void open_catalog(struct agent *agent)
{
    struct error err;
    bool rebuilt = false;
    if (catalog_open(agent->config.catalog_dir, &agent->catalog, &rebuilt, &err) != TCK_OK) {
        log_warn("cannot open the catalog, continuing without it: %s", err.text);
        agent->catalog = NULL;
    } else if (rebuilt) {
        log_warn("the catalog could not be opened: it was moved aside and is rebuilt from the slot headers");
        control_feed_catalog(agent);
    }
}

static void health_changed(void *ctx)
{
    trainers_show_health_to_all(ctx);
}

static void adopt(void *ctx, uint64_t term)
{
    adopt_term(ctx, term);
}

static void first_settings(struct agent *agent)
{
    agent->settings = (struct settings){.mem_steps = agent->config.save_mem_interval.steps,
                                        .storage_steps = agent->config.save_storage_interval.steps};
}

static tck_status_t open_threads(struct agent *agent, struct error *err)
{
    tck_status_t status = loop_new(&agent->loop, err);
    if (status == TCK_OK) {
        status = pool_new(agent->loop, (int)agent->pool_threads, &agent->pool, err);
    }
    if (status == TCK_OK) {
        status = pool_new(agent->loop, IO_THREADS, &agent->io, err);
    }
    if (status == TCK_OK) {
        status = pool_new(agent->loop, 1, &agent->claiming, err);
    }
    return status;
}

static void save_dir_checked(void *ctx)
{
    struct agent *agent = ctx;
    connectivity_tick(agent->connectivity);
}

/* How trainers come to their term. */
static tck_status_t open_membership(struct agent *agent, struct error *err)
{
    const struct reservations_setup reservations = {.config = &agent->config,
                                                    .state = agent->state,
                                                    .persistent = agent->persistent,
                                                    .io = agent->io,
                                                    .storage_ops = agent->storage_ops,
                                                    .adopt = adopt,
                                                    .ctx = agent};
    tck_status_t status = reservations_new(&reservations, &agent->reservations, err);
    if (status == TCK_OK) {
        const struct save_dir_check_setup setup = {.config = &agent->config,
                                                   .persistent = agent->persistent,
                                                   .io = agent->io,
                                                   .storage_ops = agent->storage_ops,
                                                   .health = agent->health,
                                                   .settled = save_dir_checked,
                                                   .ctx = agent};
        status = save_dir_check_new(&setup, &agent->save_dir_check, err);
    }
    if (status == TCK_OK) {
        const struct connectivity_setup setup = {.config = &agent->config,
                                                 .peers = agent->peers,
                                                 .clients = &agent->clients,
                                                 .save_dir_check = agent->save_dir_check};
        status = connectivity_new(&setup, &agent->connectivity, err);
    }
    return status == TCK_OK ? claims_new(agent, &agent->claims, err) : status;
}

/* What is done on storage. */
static tck_status_t open_storage_work(struct agent *agent, struct error *err)
{
    tck_status_t status = health_new(health_changed, agent, &agent->health, err);
    if (status == TCK_OK) {
        const struct storage_ops_setup setup = {
            .config = &agent->config, .io = agent->io, .persistent = agent->persistent, .health = agent->health};
        status = storage_ops_new(&setup, &agent->storage_ops, err);
    }
    if (status == TCK_OK) {
        const struct metadata_setup setup = {.config = &agent->config,
                                             .catalog = agent->catalog,
                                             .persistent = agent->persistent,
                                             .io = agent->io,
                                             .storage_ops = agent->storage_ops};
        status = metadata_new(&setup, &agent->metadata, err);
    }
    return status;
}

static tck_status_t open_parts(struct agent *agent, struct error *err)
{
    tck_status_t status = ipc_server_lock(&agent->config, &agent->lock_fd, err);
    if (status == TCK_OK) {
        status = open_threads(agent, err);
    }
    if (status == TCK_OK) {
        status = fdstore_new(agent, &agent->fdstore, err);
    }
    if (status == TCK_OK) {
        status = open_memory(agent, err);
    }
    if (status == TCK_OK) {
        status = open_storage(agent, err);
    }
    if (status == TCK_OK) {
        failpoint(agent, stored);
        open_catalog(agent);
        failpoint(agent, listed);
        first_settings(agent);
        status = peer_messages_open(agent, err);
    }
    if (status == TCK_OK) {
        status = open_storage_work(agent, err);
    }
    if (status == TCK_OK) {
        status = open_membership(agent, err);
    }
    if (status == TCK_OK) {
        status = scrub_new(agent, &agent->scrub, err);
    }
    if (status == TCK_OK) {
        status = storage_scrub_new(agent, &agent->storage_scrub, err);
    }
    if (status == TCK_OK) {
        status = start_ticks(agent, err);
    }
    if (status == TCK_OK) {
        reservation_load(agent->reservations);
        membership_resume(agent);
        status = ipc_server_listen(agent, &agent->ipc_server, err);
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
    agent->config = agent->given = *config;
    agent->hooks = &hooks;
    agent->pool_threads = pool_threads();
    agent->lock_fd = -1;
    tck_status_t status = open_parts(agent, err);
    if (status != TCK_OK) {
        agent_free(agent);
        return status;
    }
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
    membership_abandon(agent);
    if (agent->term_context != NULL) {
        close_term(agent);
    }
    /* Freeing these ends what is under way: the last events of transfers, digests and drains need the term context. */
    peers_free(agent->peers);
    pool_free(agent->pool);
    pool_free(agent->io);
    pool_free(agent->claiming);
    persistent_free(agent->persistent);
    scrub_free(agent->scrub);
    storage_scrub_free(agent->storage_scrub);
    drain_reset(agent);
    metadata_free(agent->metadata);
    claims_free(agent->claims);
    reservations_free(agent->reservations);
    connectivity_free(agent->connectivity);
    save_dir_check_free(agent->save_dir_check);
    term_context_free(agent->term_context);
    catalog_close(agent->catalog);
    storage_ops_free(agent->storage_ops);
    health_free(agent->health);
    memory_free(agent->memory);
    hard_state_free(agent->state);
    fdstore_free(agent->fdstore);
    secret_wipe(&agent->secret);
    loop_free(agent->loop);
    if (agent->lock_fd >= 0) {
        close(agent->lock_fd);
    }
    free(agent->given_text);
    free(agent);
}
