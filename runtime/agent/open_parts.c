/* SPDX-License-Identifier: Apache-2.0
 * Creates the parts of the agent in the order of their dependencies, and forwards their reports to higher-level parts.
 */
#include "agent/open_parts.h"

#include "agent/actions.h"
#include "agent/client_requests.h"
#include "agent/command/command_requests.h"
#include "agent/drain/archiver.h"
#include "agent/drain/drain.h"
#include "agent/driver/slot_ops.h"
#include "agent/ipc/presence.h"
#include "agent/lifecycle/fdstore.h"
#include "agent/lifecycle/idle_exit.h"
#include "agent/lifecycle/listener_watchdog.h"
#include "agent/membership/claim.h"
#include "agent/membership/connectivity.h"
#include "agent/membership/fence.h"
#include "agent/membership/job_holders.h"
#include "agent/membership/membership.h"
#include "agent/membership/reservation.h"
#include "agent/membership/save_dir_check.h"
#include "agent/membership/start_config.h"
#include "agent/metrics/metrics.h"
#include "agent/pace/pacing.h"
#include "agent/peer_messages.h"
#include "agent/pressure/pressure.h"
#include "agent/recovery/recover.h"
#include "agent/recovery/restore.h"
#include "agent/replication/fetch.h"
#include "agent/replication/peer_rpc.h"
#include "agent/report/report.h"
#include "agent/report/trace.h"
#include "agent/scrub/memory_scrub.h"
#include "agent/scrub/storage_scrub.h"
#include "agent/state/adopt.h"
#include "agent/state/hard_state.h"
#include "agent/storage/health.h"
#include "agent/storage/metadata_writer.h"
#include "agent/storage/storage_ops.h"
#include "agent/trainers/slot_writers.h"
#include "agent/trainers/trainer_control.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "tiers/memory.h"
#include "tiers/peer.h"
#include "tiers/persistent.h"
#include "tiers/sd_notify.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* All of them start with the agent. Each file of a drain takes one while it is opened or named, and so does each chunk
 * that is compared. Where io_uring is refused, up to URING_DEPTH requests to read and as many to write take one each,
 * so that other calls may wait. */
#define IO_THREADS 12

/* ---- reports to higher-level parts ------------------------------------------------------------------------------- */

void close_term(struct agent *agent)
{
    struct term_context *tc = agent->term_context;
    tc->closed = true;
    drain_decided(agent->drain);
    memset(tc->peers, 0, tc->world.node_count * sizeof(*tc->peers)); /* peers outside the next world are released */
    recover_end(agent->recoveries);
    fetch_reset(agent->fetches);
}

static void term_adopted(void *ctx, uint64_t term, bool newer)
{
    struct agent *agent = ctx;
    struct term_context *tc = agent->term_context;
    if (newer) {
        reservation_publish(agent->reservations);
    }
    if (tc != NULL && !tc->closed && tc->world.term < term) {
        log_info("term %" PRIu64 " is over", tc->world.term);
        close_term(agent);
    }
    fence_older(&agent->fence, term);
    client_requests_term_over(agent, term);
}

static void slots_idle(void *ctx)
{
    struct agent *agent = ctx;
    membership_ops_idle(agent->membership);
}

static void term_replaced(void *ctx, const struct term_context *next)
{
    struct agent *agent = ctx;
    const struct term_context *before = agent->term_context;
    tally_joined(&agent->tally, before != NULL ? &before->world : NULL, &next->world, clock_ms());
    recover_end(agent->recoveries);
}

static void shard_arrived(void *ctx, struct term_context *tc, const struct arrival *what)
{
    struct agent *agent = ctx;
    trace_arrived(agent->trace, tc, what);
    restore_arrived(&agent->restore, tc);
}

static void shard_repaired(void *ctx, bool ok)
{
    struct agent *agent = ctx;
    scrub_repaired(agent->scrub, ok);
}

static void health_changed(void *ctx)
{
    struct agent *agent = ctx;
    trainers_show_health_to_all(agent->trainers);
}

static void save_dir_checked(void *ctx)
{
    struct agent *agent = ctx;
    connectivity_tick(agent->connectivity);
}

static void decided(const struct term_context *tc)
{
    drain_decided(tc->needs.agent->drain);
    trainers_decided(tc);
    tally_decided(&tc->needs.agent->tally, node_decision(tc->node), clock_ms());
    trace_decided(tc->needs.agent->trace, tc);
}

static void note(const struct term_context *tc, const struct event *event, const struct action *action)
{
    trace_note(tc->needs.agent->trace, tc, event, action);
}

static const struct term_hooks term_hooks = {
    .message = peer_messages_handle, .carry_out = actions_carry_out, .note = note, .decided = decided};

/* ---- the parts, in the order of their dependencies --------------------------------------------------------------- */

/* Adopts a descriptor that an earlier process stored: part of the kept state or of the memory tier. */
static void adopt_stored(void *ctx, const char *name, int fd)
{
    struct agent *agent = ctx;
    struct error err;
    if (fdstore_holds(agent->fdstore, name)) {
        log_warn("stored file %s exists twice: the first is taken", name);
        close(fd);
        return;
    }
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
                                  .progress = &agent->touched,
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

static void lane_resumed(void *ctx, enum lane lane)
{
    const struct agent *agent = ctx;
    if (lane == LANE_COPIES) {
        peers_resume(agent->peers);
    } else {
        persistent_resume(agent->persistent);
    }
}

static bool hurries(const void *ctx)
{
    const struct agent *agent = ctx;
    return agent->leaving || idle_exit_is_asked(agent->idle_exit);
}

static tck_status_t open_pacing(struct agent *agent, struct error *err)
{
    const struct pacing_setup setup = {.config = &agent->config,
                                       .loop = agent->loop,
                                       .clients = &agent->clients,
                                       .term = &agent->term_context,
                                       .resume = lane_resumed,
                                       .hurries = hurries,
                                       .ctx = agent};
    return pacing_new(&setup, &agent->pacing, err);
}

static bool take_for_drain(void *ctx, uint64_t bytes)
{
    return pacing_take(ctx, LANE_DRAIN, bytes);
}

static void more_for_drain(void *ctx, uint64_t bytes)
{
    pacing_more(ctx, LANE_DRAIN, bytes);
}

static void less_for_drain(void *ctx, uint64_t bytes)
{
    pacing_less(ctx, LANE_DRAIN, bytes);
}

static tck_status_t open_storage(struct agent *agent, struct error *err)
{
    struct persistent_setup setup = {
        .loop = agent->loop,
        .pool = agent->io,
        .config = &agent->config,
        .pace = {.take = take_for_drain, .more = more_for_drain, .less = less_for_drain, .ctx = agent->pacing},
        .claimed = claimed_term(agent)};
    tck_status_t status = persistent_new(&setup, &agent->persistent, err);
    if (status != TCK_OK) {
        return status; /* its text contains the path */
    }
    if (agent->config.token_file[0] != '\0') {
        return secret_load(agent->config.token_file, &agent->secret, err);
    }
    status = persistent_secret(agent->persistent, &agent->secret, err);
    return status == TCK_OK ? TCK_OK : error_prefix(err, "%s/%s", agent->config.save_dir, agent->config.job);
}

static tck_status_t open_catalog(struct agent *agent, struct error *err)
{
    struct error why;
    bool rebuilt = false;
    (void)err; /* it is only a hint */
    failpoint(agent, stored);
    if (catalog_open(agent->config.catalog_dir, &agent->catalog, &rebuilt, &why) != TCK_OK) {
        log_warn("cannot open the catalog, continuing without it: %s", why.text);
        agent->catalog = NULL;
    } else if (rebuilt) {
        log_warn("the catalog could not be opened: it was moved aside and is rebuilt from the slot headers");
        control_feed_catalog(agent->catalog, agent->memory, agent->config.node);
    }
    failpoint(agent, listed);
    return TCK_OK;
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

/* Operations on storage. */
static tck_status_t open_storage_work(struct agent *agent, struct error *err)
{
    const struct storage_ops_setup ops = {
        .config = &agent->config, .io = agent->io, .persistent = agent->persistent, .health = agent->health};
    tck_status_t status = storage_ops_new(&ops, &agent->storage_ops, err);
    if (status != TCK_OK) {
        return status;
    }
    const struct metadata_setup metadata = {.config = &agent->config,
                                            .catalog = agent->catalog,
                                            .persistent = agent->persistent,
                                            .io = agent->io,
                                            .storage_ops = agent->storage_ops};
    return metadata_new(&metadata, &agent->metadata, err);
}

/* Messages from other agents, and what handling them requires: the term that this agent serves, and the users of its
 * memory. */
static tck_status_t open_messages(struct agent *agent, struct error *err)
{
    agent->adopt = (struct adopt_setup){.state = agent->state, .adopted = term_adopted, .ctx = agent};
    const struct rpc_setup rpc = {.state = agent->state, .adopt = &agent->adopt, .term = &agent->term_context};
    tck_status_t status = slot_ops_new(slots_idle, agent, &agent->slot_ops, err);
    if (status == TCK_OK) {
        status = rpc_new(&rpc, &agent->rpc, err);
    }
    agent->replicas = (struct replica_setup){.config = &agent->config,
                                             .state = agent->state,
                                             .memory = agent->memory,
                                             .term = &agent->term_context,
                                             .slot_ops = agent->slot_ops,
                                             .rpc = agent->rpc};
    return status == TCK_OK ? peer_messages_open(agent, err) : status;
}

/* The status pages of trainers, and the control of trainers. */
static tck_status_t open_trainers(struct agent *agent, struct error *err)
{
    const struct trainers_setup trainers = {.config = &agent->config,
                                            .state = agent->state,
                                            .clients = &agent->clients,
                                            .term = &agent->term_context,
                                            .health = agent->health,
                                            .slot_ops = agent->slot_ops,
                                            .announce = peer_messages_announce};
    tck_status_t status = trainers_new(&trainers, &agent->trainers, err);
    agent->writers = (struct writers_setup){.clients = &agent->clients,
                                            .term = &agent->term_context,
                                            .slot_ops = agent->slot_ops,
                                            .storage_ops = agent->storage_ops};
    agent->join = (struct join_setup){.term = &agent->term_context, .trainers = agent->trainers};
    if (status != TCK_OK) {
        return status;
    }
    const struct start_config_setup start = {
        .config = &agent->config, .clients = &agent->clients, .fdstore = agent->fdstore, .trainers = agent->trainers};
    status = start_config_new(&start, &agent->start_config, err);
    if (status == TCK_OK) { /* after it has noted what the agent was started with */
        trainers_recall_changes(agent->trainers);
    }
    return status;
}

static bool archives(const void *ctx)
{
    const struct agent *agent = ctx;
    return archiver_is_busy(agent->archiver);
}

static bool awaits_trainers(const void *ctx)
{
    const struct agent *agent = ctx;
    return holders_awaits_trainers(agent->holders);
}

/* The exit of the agent. */
static tck_status_t open_ends(struct agent *agent, struct error *err)
{
    const struct idle_exit_setup idle = {.config = &agent->config,
                                         .loop = agent->loop,
                                         .clients = &agent->clients,
                                         .term = &agent->term_context,
                                         .metadata = agent->metadata,
                                         .fdstore = agent->fdstore,
                                         .archives = archives,
                                         .ctx = agent};
    tck_status_t status = idle_exit_new(&idle, &agent->idle_exit, err);
    agent->listener_watchdog =
        (struct listener_watchdog){.peers = agent->peers, .fdstore = agent->fdstore, .idle_exit = agent->idle_exit};
    agent->stop = (struct stop_setup){.config = &agent->config,
                                      .clients = &agent->clients,
                                      .term = &agent->term_context,
                                      .idle_exit = agent->idle_exit,
                                      .awaits_trainers = awaits_trainers,
                                      .ctx = agent};
    return status;
}

/* Terms and their owners. */
static tck_status_t open_terms(struct agent *agent, struct error *err)
{
    const struct reservations_setup reservations = {.config = &agent->config,
                                                    .state = agent->state,
                                                    .persistent = agent->persistent,
                                                    .io = agent->io,
                                                    .storage_ops = agent->storage_ops,
                                                    .adopt = &agent->adopt};
    const struct holders_setup holders = {.config = &agent->config, .state = agent->state, .clients = &agent->clients};
    agent->fence = (struct fence_setup){.clients = &agent->clients,
                                        .persistent = agent->persistent,
                                        .io = agent->io,
                                        .storage_ops = agent->storage_ops};
    tck_status_t status = reservations_new(&reservations, &agent->reservations, err);
    return status == TCK_OK ? holders_new(&holders, &agent->holders, err) : status;
}

/* The sessions that a term needs, and the check that all its nodes share one save_dir. */
static tck_status_t open_connectivity(struct agent *agent, struct error *err)
{
    const struct save_dir_check_setup check = {.config = &agent->config,
                                               .persistent = agent->persistent,
                                               .io = agent->io,
                                               .storage_ops = agent->storage_ops,
                                               .health = agent->health,
                                               .settled = save_dir_checked,
                                               .ctx = agent};
    tck_status_t status = save_dir_check_new(&check, &agent->save_dir_check, err);
    if (status != TCK_OK) {
        return status;
    }
    const struct connectivity_setup setup = {.config = &agent->config,
                                             .peers = agent->peers,
                                             .clients = &agent->clients,
                                             .save_dir_check = agent->save_dir_check,
                                             .join = &agent->join};
    return connectivity_new(&setup, &agent->connectivity, err);
}

static tck_status_t open_claims(struct agent *agent, struct error *err)
{
    const struct claims_setup setup = {.config = &agent->config,
                                       .state = agent->state,
                                       .clients = &agent->clients,
                                       .peers = agent->peers,
                                       .persistent = agent->persistent,
                                       .claiming = agent->claiming,
                                       .storage_ops = agent->storage_ops,
                                       .health = agent->health,
                                       .metadata = agent->metadata,
                                       .catalog = agent->catalog,
                                       .connectivity = agent->connectivity,
                                       .holders = agent->holders,
                                       .reservations = agent->reservations,
                                       .adopt = &agent->adopt};
    return claims_new(&setup, &agent->claims, err);
}

/* Membership: how trainers join their term. */
static tck_status_t open_membership(struct agent *agent, struct error *err)
{
    agent->term_setup = (struct term_setup){.config = &agent->config,
                                            .state = agent->state,
                                            .memory = agent->memory,
                                            .clients = &agent->clients,
                                            .hooks = &term_hooks,
                                            .agent = agent};
    const struct membership_setup setup = {.config = &agent->config,
                                           .state = agent->state,
                                           .memory = agent->memory,
                                           .touched = &agent->touched,
                                           .pool = agent->pool,
                                           .peers = agent->peers,
                                           .secret = &agent->secret,
                                           .clients = &agent->clients,
                                           .term = &agent->term_context,
                                           .term_setup = &agent->term_setup,
                                           .leaving = &agent->leaving,
                                           .slot_ops = agent->slot_ops,
                                           .storage_ops = agent->storage_ops,
                                           .health = agent->health,
                                           .metadata = agent->metadata,
                                           .adopt = &agent->adopt,
                                           .join = &agent->join,
                                           .writers = &agent->writers,
                                           .connectivity = agent->connectivity,
                                           .holders = agent->holders,
                                           .trainers = agent->trainers,
                                           .start_config = agent->start_config,
                                           .idle_exit = agent->idle_exit,
                                           .replaced = term_replaced,
                                           .ctx = agent};
    return membership_new(&setup, &agent->membership, err);
}

static tck_status_t open_fetches(struct agent *agent, struct error *err)
{
    const struct fetches_setup setup = {
        .config = &agent->config,
        .term = &agent->term_context,
        .peers = agent->peers,
        .persistent = agent->persistent,
        .io = agent->io,
        .storage_ops = agent->storage_ops,
        .check = {.pool = agent->pool, .threads = agent->pool_threads, .slot_ops = agent->slot_ops},
        .leaving = &agent->leaving,
        .arrived = shard_arrived,
        .repaired = shard_repaired,
        .ctx = agent};
    tck_status_t status = fetches_new(&setup, &agent->fetches, err);
    agent->replicas.fetches = agent->fetches;
    return status;
}

static tck_status_t open_recovery(struct agent *agent, struct error *err)
{
    agent->restore = (struct restore_setup){.config = &agent->config,
                                            .state = agent->state,
                                            .clients = &agent->clients,
                                            .term = &agent->term_context,
                                            .connectivity = agent->connectivity,
                                            .fetches = agent->fetches};
    const struct recoveries_setup setup = {.config = &agent->config,
                                           .state = agent->state,
                                           .memory = agent->memory,
                                           .slot_ops = agent->slot_ops,
                                           .clients = &agent->clients,
                                           .peers = agent->peers,
                                           .catalog = agent->catalog,
                                           .persistent = agent->persistent,
                                           .io = agent->io,
                                           .storage_ops = agent->storage_ops,
                                           .health = agent->health,
                                           .reservations = agent->reservations,
                                           .fetches = agent->fetches,
                                           .restore = &agent->restore};
    return recoveries_new(&setup, &agent->recoveries, err);
}

static tck_status_t open_scrubs(struct agent *agent, struct error *err)
{
    const struct scrub_setup memory = {.config = &agent->config,
                                       .loop = agent->loop,
                                       .pool = agent->pool,
                                       .memory = agent->memory,
                                       .term = &agent->term_context,
                                       .slot_ops = agent->slot_ops,
                                       .fetches = agent->fetches,
                                       .leaving = &agent->leaving};
    const struct storage_scrub_setup storage = {.config = &agent->config,
                                                .loop = agent->loop,
                                                .io = agent->io,
                                                .persistent = agent->persistent,
                                                .storage_ops = agent->storage_ops,
                                                .health = agent->health,
                                                .term = &agent->term_context,
                                                .leaving = &agent->leaving};
    tck_status_t status = scrub_new(&memory, &agent->scrub, err);
    return status == TCK_OK ? storage_scrub_new(&storage, &agent->storage_scrub, err) : status;
}

static tck_status_t open_pressure(struct agent *agent, struct error *err)
{
    const struct pressure_setup setup = {.config = &agent->config,
                                         .loop = agent->loop,
                                         .pool = agent->pool,
                                         .threads = agent->pool_threads,
                                         .memory = agent->memory,
                                         .term = &agent->term_context,
                                         .slot_ops = agent->slot_ops,
                                         .fetches = agent->fetches,
                                         .leaving = &agent->leaving};
    return pressure_new(&setup, &agent->pressure, err);
}

static tck_status_t open_drain(struct agent *agent, struct error *err)
{
    const struct drain_setup setup = {.config = &agent->config,
                                      .persistent = agent->persistent,
                                      .storage_ops = agent->storage_ops,
                                      .health = agent->health,
                                      .adopt = &agent->adopt,
                                      .scrub = agent->scrub,
                                      .pacing = agent->pacing};
    return drain_new(&setup, &agent->drain, err);
}

static tck_status_t open_archiver(struct agent *agent, struct error *err)
{
    const struct archiver_setup setup = {.config = &agent->config,
                                         .loop = agent->loop,
                                         .persistent = agent->persistent,
                                         .term = &agent->term_context,
                                         .announce = peer_messages_announce};
    return archiver_new(&setup, &agent->archiver, err);
}

/* Rewrites the agent's other files in the directory, except the catalog, which the next agent recreates. */
static void place_made_again(void *ctx)
{
    struct agent *agent = ctx;
    const struct config *config = &agent->config;
    struct error err;
    start_config_write_again(agent->start_config);
    if (log_open(config->log_file_path, (enum log_level)config->log_level, config->node, &err) != TCK_OK) {
        log_warn("%s", err.text);
    }
}

static tck_status_t open_presence(struct agent *agent, struct error *err)
{
    const struct presence_setup setup = {
        .config = &agent->config, .server = &agent->ipc_server, .made_again = place_made_again, .ctx = agent};
    return presence_take(&setup, &agent->presence, err);
}

static tck_status_t open_fdstore(struct agent *agent, struct error *err)
{
    return fdstore_new(&agent->config, &agent->fdstore, err);
}

static tck_status_t open_health(struct agent *agent, struct error *err)
{
    return health_new(health_changed, agent, &agent->health, err);
}

static tck_status_t open_trace(struct agent *agent, struct error *err)
{
    return trace_new(agent->loop, &agent->config, &agent->trace, err);
}

static void collect_report(void *ctx, struct report *out)
{
    report_collect(ctx, out);
}

static tck_status_t open_metrics(struct agent *agent, struct error *err)
{
    const struct metrics_setup setup = {
        .config = &agent->config, .loop = agent->loop, .collect = collect_report, .ctx = agent};
    return metrics_new(&setup, &agent->metrics, err);
}

typedef tck_status_t open_fn(struct agent *agent, struct error *err);

tck_status_t open_parts(struct agent *agent, struct error *err)
{
    static open_fn *const opens[] = {
        open_presence, open_threads,      open_fdstore, open_memory,       open_pacing,   open_storage,
        open_catalog,  open_messages,     open_health,  open_storage_work, open_trainers, open_ends,
        open_terms,    open_connectivity, open_claims,  open_membership,   open_fetches,  open_recovery,
        open_scrubs,   open_pressure,     open_drain,   open_archiver,     open_metrics,  open_trace};
    tck_status_t status = TCK_OK;
    for (size_t i = 0; status == TCK_OK && i < sizeof(opens) / sizeof(*opens); i++) {
        status = opens[i](agent, err);
    }
    return status;
}
