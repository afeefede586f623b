/* SPDX-License-Identifier: Apache-2.0
 * Publishes settings, decisions and health on the trainers' shared status pages and, if so configured, ends trainers
 * after the loss of a node, because the launcher would otherwise wait for a collective's time-out. */
#include "agent/trainers/trainer_control.h"

#include "agent/driver/missing_copies.h"
#include "agent/driver/protocol_driver.h"
#include "agent/ipc/ipc_server.h"
#include "agent/state/hard_state.h"
#include "agent/storage/health.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/message.h"
#include "core/node_loss.h"
#include "tiers/peer.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KILL_AFTER_MS 3000 /* from SIGTERM to SIGKILL */
#define AHEAD_STEPS   2    /* so that a change of settings is not too late for the fastest trainer */

struct trainers {
    struct trainers_setup needs;
    struct settings settings;            /* in force */
    struct overridden configured;        /* in the file with which this agent starts again */
    uint64_t mem_due_ms, storage_due_ms; /* coordinator: intervals in seconds */
};

/* ---- shared status pages ----------------------------------------------------------------------------------------- */

/* The lost node, in the encoding of the shared status. */
static uint64_t lost_node(const struct term_context *tc)
{
    bool any = tc != NULL && !tc->closed && tc->lost_count > 0;
    for (uint32_t n = 0; any && n < tc->world.node_count; n++) {
        if (tc->lost[n].acted) {
            return n + 1ull;
        }
    }
    return 0;
}

void trainers_show_settings(const struct trainers *ts)
{
    const struct settings *s = &ts->settings;
    for (struct client *c = *ts->needs.clients; c != NULL; c = c->next) {
        if (c->shared == NULL) {
            continue;
        }
        /* In this order, so that a trainer that sees the new intervals also sees the step from which they apply. */
        atomic_store_explicit(&c->shared->interval_from_step, s->from_step, memory_order_relaxed);
        atomic_store_explicit(&c->shared->mem_interval_steps, s->mem_steps, memory_order_release);
        atomic_store_explicit(&c->shared->storage_interval_steps, s->storage_steps, memory_order_release);
        atomic_store_explicit(&c->shared->mem_target_step, s->mem_target, memory_order_release);
        atomic_store_explicit(&c->shared->storage_target_step, s->storage_target, memory_order_release);
        atomic_store_explicit(&c->shared->lost_node, lost_node(*ts->needs.term), memory_order_release);
    }
}

void trainers_show_health(const struct trainers *ts, const struct client *client)
{
    const struct term_context *tc = *ts->needs.term;
    bool formed = tc != NULL && !tc->closed;
    trouble_show(&client->shared->storage_trouble, health_storage(ts->needs.health));
    atomic_store_explicit(&client->shared->shards_short, formed ? tc->placement.domains_short : 0,
                          memory_order_relaxed);
    atomic_store_explicit(&client->shared->copies_missing, copies_missing(ts->needs.slot_ops, tc),
                          memory_order_relaxed);
}

void trainers_show_health_to_all(const struct trainers *ts)
{
    for (const struct client *c = *ts->needs.clients; c != NULL; c = c->next) {
        if (c->shared != NULL) {
            trainers_show_health(ts, c);
        }
    }
}

/* Stored after the fields of single steps, so that a trainer that reads this also sees those. */
static void store_decided(const struct term_context *tc, struct shared_status *shared)
{
    const struct decision *d = node_decision(tc->node);
    uint64_t below = d->open_count > 0 && d->open[0] < d->horizon ? d->open[0] : d->horizon;
    atomic_store_explicit(&shared->decided_below, below, memory_order_release);
}

void trainers_show_decisions(const struct trainers *ts, struct client *client)
{
    const struct term_context *tc = *ts->needs.term;
    trainers_show_health(ts, client);
    if (tc == NULL || tc->closed || tc->world.term != client->term) {
        return;
    }
    const struct decision *d = node_decision(tc->node);
    if (d->watermark.term == client->term) {
        atomic_store_explicit(&client->shared->protected_step, d->watermark.step, memory_order_release);
        atomic_store_explicit(&client->shared->committed_step, d->watermark.step, memory_order_release);
    }
    if (d->published.term == client->term) {
        atomic_store_explicit(&client->shared->published_step, d->published.step, memory_order_release);
    }
    store_decided(tc, client->shared);
}

void trainers_decided(const struct term_context *tc)
{
    for (const struct client *c = *tc->needs.clients; c != NULL; c = c->next) {
        if (c->shared != NULL && c->term == tc->world.term) {
            store_decided(tc, c->shared);
        }
    }
}

/* The fastest local trainer's step, plus the steps that pass within two heartbeats. */
static uint64_t first_safe_step(const struct trainers *ts)
{
    uint64_t step = 0;
    uint64_t step_ns = UINT64_MAX;
    for (const struct client *c = *ts->needs.clients; c != NULL; c = c->next) {
        if (c->shared != NULL) {
            uint64_t at = atomic_load_explicit(&c->shared->current_step, memory_order_relaxed);
            uint64_t ns = atomic_load_explicit(&c->shared->step_ns, memory_order_relaxed);
            step = at > step ? at : step;
            step_ns = ns > 0 && ns < step_ns ? ns : step_ns;
        }
    }
    uint64_t in_two_beats = step_ns == UINT64_MAX ? 0 : 2000000ull * ts->needs.config->heartbeat_ms / step_ns;
    return step + AHEAD_STEPS + in_two_beats;
}

/* ---- settings (coordinator) ---------------------------------------------------------------------------------- */

/* Converts an interval in seconds to a step at which all ranks save, announced early enough that no rank has passed it.
 */
static void set_target(const struct interval *interval, uint64_t now, uint64_t *due_ms, uint64_t ahead,
                       uint64_t *target)
{
    if (interval->seconds <= 0) {
        *target = 0;
        return;
    }
    if (*due_ms == 0) {
        *due_ms = now + (uint64_t)(interval->seconds * 1000);
    } else if (now >= *due_ms) {
        *target = ahead;
        *due_ms = now + (uint64_t)(interval->seconds * 1000);
    }
}

void trainers_targets(struct trainers *ts, struct term_context *tc)
{
    const struct config *config = ts->needs.config;
    if (tc->coordinator == NULL || clients_trainers(*ts->needs.clients) == 0) {
        return;
    }
    uint64_t now = clock_ms();
    uint64_t ahead = first_safe_step(ts);
    struct settings before = ts->settings;
    set_target(&config->save_mem_interval, now, &ts->mem_due_ms, ahead, &ts->settings.mem_target);
    set_target(&config->save_storage_interval, now, &ts->storage_due_ms, ahead, &ts->settings.storage_target);
    if (memcmp(&before, &ts->settings, sizeof(before)) != 0) {
        trainers_show_settings(ts);
        ts->needs.announce(tc);
    }
}

/* Puts the configured numbers of steps in force, here and on the other nodes. */
static void set_steps(struct trainers *ts)
{
    const struct config *config = ts->needs.config;
    struct term_context *tc = *ts->needs.term;
    ts->settings.mem_steps = config->save_mem_interval.steps;
    ts->settings.storage_steps = config->save_storage_interval.steps;
    ts->settings.from_step = first_safe_step(ts);
    trainers_show_settings(ts);
    if (tc != NULL && !tc->closed) {
        ts->needs.announce(tc);
    }
}

tck_status_t trainers_setting(struct trainers *ts, const char *key, const char *value, struct error *err)
{
    tck_status_t status = config_change(ts->needs.config, key, value, err);
    if (status != TCK_OK) {
        return status;
    }
    trainers_note_change(ts, key, value);
    set_steps(ts);
    log_info("%s is now %s, from step %" PRIu64 " on", key, value, ts->settings.from_step);
    return TCK_OK;
}

/* "" for what is not known. */
static void read_configured(const struct config *config, struct overridden *out)
{
    json_t *json = config_json(config);
    *out = (struct overridden){0};
    for (size_t i = 0; json != NULL && i < CHANGES_COUNT; i++) {
        char *value = json_plain(json_get(json, changes_key(i)));
        snprintf(out->of[i], sizeof(out->of[i]), "%s", value != NULL ? value : "");
        free(value);
    }
    json_free(json);
}

void trainers_note_change(struct trainers *ts, const char *key, const char *value)
{
    struct kept kept = *hard_state_get(ts->needs.state);
    if (changes_note(&kept.changes, key, value, clock_wall_ms())) {
        kept.overridden = ts->configured;
        hard_state_put(ts->needs.state, &kept);
    } else {
        log_warn("%s: only this node knows of the change, because the value \"%s\" is too long", key, value);
    }
}

static void apply_change(const struct trainers *ts, const char *key, const char *value)
{
    struct error err;
    if (config_change(ts->needs.config, key, value, &err) == TCK_OK) {
        log_info("%s is %s, as it was changed while the job runs", key, value);
    } else {
        log_warn("%s, as it was changed while the job runs: %s", key, err.text);
    }
}

/* The other nodes get intervals from the coordinator's heartbeats, and need the configuration to become coordinators.
 */
void trainers_take_changes(struct trainers *ts, const struct changes *theirs)
{
    const struct term_context *tc = *ts->needs.term;
    struct kept kept = *hard_state_get(ts->needs.state);
    bool any = false;
    for (size_t i = 0; i < CHANGES_COUNT; i++) {
        if (changes_take(&kept.changes, theirs, i)) {
            apply_change(ts, changes_key(i), kept.changes.of[i].value);
            any = true;
        }
    }
    if (!any) {
        return;
    }
    kept.overridden = ts->configured;
    hard_state_put(ts->needs.state, &kept);
    if (tc != NULL && tc->coordinator != NULL) {
        set_steps(ts);
    }
}

void trainers_recall_changes(struct trainers *ts)
{
    struct kept kept = *hard_state_get(ts->needs.state);
    for (size_t i = 0; i < CHANGES_COUNT; i++) {
        const char *key = changes_key(i), *value = kept.changes.of[i].value;
        if (key_change_is_none(&kept.changes.of[i])) {
            continue;
        }
        if (changes_hold(&kept.overridden, &ts->configured, i)) {
            apply_change(ts, key, value);
        } else {
            log_info("%s is %s: the configuration has changed since it was set to %s while the job ran", key,
                     ts->configured.of[i], value);
            (void)changes_note(&kept.changes, key, ts->configured.of[i], clock_wall_ms());
        }
    }
    kept.overridden = ts->configured;
    hard_state_put(ts->needs.state, &kept);
    trainers_config_changed(ts);
}

void trainers_file_written(struct trainers *ts, const struct config *config)
{
    struct kept kept = *hard_state_get(ts->needs.state);
    read_configured(config, &ts->configured);
    kept.overridden = ts->configured;
    hard_state_put(ts->needs.state, &kept);
}

static void log_chosen(const char *key, const struct interval *interval, uint64_t from_step)
{
    if (interval->automatic) {
        log_info("%s is \"auto\": by what saves cost, it is %" PRIu64 " steps from step %" PRIu64 " on", key,
                 interval->steps, from_step);
    }
}

void trainers_choose(struct trainers *ts, uint64_t mem_steps, uint64_t storage_steps)
{
    struct interval *memory = &ts->needs.config->save_mem_interval, *storage = &ts->needs.config->save_storage_interval;
    if (memory->steps == mem_steps && storage->steps == storage_steps) {
        return;
    }
    memory->steps = mem_steps;
    storage->steps = storage_steps;
    set_steps(ts);
    log_chosen("save_mem_interval", memory, ts->settings.from_step);
    log_chosen("save_storage_interval", storage, ts->settings.from_step);
}

const struct settings *trainers_settings(const struct trainers *ts)
{
    return &ts->settings;
}

/* So that this node, if it becomes the coordinator, goes on with what the last one has chosen. */
static void keep_chosen(struct interval *interval, uint64_t steps)
{
    interval->steps = interval->automatic && steps != 0 ? steps : interval->steps;
}

void trainers_apply_settings(struct trainers *ts, const struct settings *settings, enum on_node_loss on_node_loss)
{
    ts->settings = *settings;
    ts->needs.config->on_node_loss = on_node_loss;
    keep_chosen(&ts->needs.config->save_mem_interval, settings->mem_steps);
    keep_chosen(&ts->needs.config->save_storage_interval, settings->storage_steps);
    trainers_show_settings(ts);
}

static struct settings configured(const struct config *config)
{
    return (struct settings){.mem_steps = config->save_mem_interval.steps,
                             .storage_steps = config->save_storage_interval.steps};
}

void trainers_config_changed(struct trainers *ts)
{
    ts->settings = configured(ts->needs.config);
    trainers_show_settings(ts);
}

/* ---- a node is lost ------------------------------------------------------------------------------------------ */

static bool is_trainer_of(const struct client *c, const struct term_context *tc)
{
    return c->trainer && !c->done && c->term == tc->world.term && c->pidfd >= 0;
}

static void send_signal(const struct client *c, int signal)
{
    if (syscall(SYS_pidfd_send_signal, c->pidfd, signal, NULL, 0) != 0) {
        log_debug("trainer %d could not be signalled", (int)c->process.pid);
    }
}

static void act_on_loss(struct term_context *tc, uint32_t node, enum node_loss loss)
{
    const char *why = tc->lost[node].why != NULL ? tc->lost[node].why : "out of memory";
    if (loss == NODE_LOSS_REPORT) {
        log_error("node %s of term %" PRIu64 " is lost (%s): nothing commits until it is back or the job is restarted "
                  "(on_node_loss is \"report\": the launcher must restart it)",
                  tc->world.nodes[node].name, tc->world.term, why);
        return;
    }
    for (struct client *c = *tc->needs.clients; c != NULL; c = c->next) {
        if (is_trainer_of(c, tc) && c->kill_ms == 0) {
            log_error("node %s is lost (%s): ending the trainer of rank %u (pid %d) so that the launcher can restart",
                      tc->world.nodes[node].name, why, c->rank, (int)c->process.pid);
            send_signal(c, SIGTERM);
            c->kill_ms = clock_ms() + KILL_AFTER_MS;
        }
    }
}

void trainers_node_down(struct term_context *tc, uint32_t node, const char *why)
{
    struct lost_node *lost = &tc->lost[node];
    if (lost->since_ms == 0) {
        *lost = (struct lost_node){.since_ms = clock_ms(), .why = strdup(why)};
        tc->lost_count++;
    }
}

void trainers_nodes_awaited(const struct trainers *ts, struct term_context *tc)
{
    for (uint32_t n = 0; n < tc->world.node_count; n++) {
        if (n != tc->self && tc->peers[n] != NULL && !peer_is_up(tc->peers[n])) {
            trainers_node_down(tc, n, "no connection since this agent restarted");
            tc->lost[n].since_ms = clock_ms() + ts->needs.config->peer_timeout_ms;
        }
    }
}

void trainers_node_up(const struct trainers *ts, struct term_context *tc, uint32_t node)
{
    bool acted = tc->lost[node].acted;
    tc->lost_count -= tc->lost[node].since_ms != 0;
    free(tc->lost[node].why);
    tc->lost[node] = (struct lost_node){0};
    if (acted) {
        log_info("node %s of term %" PRIu64 " is back: commits continue", tc->world.nodes[node].name, tc->world.term);
        trainers_show_settings(ts);
    }
}

static enum node_loss judge(const struct config *config, const struct term_context *tc, uint32_t node)
{
    struct node_absence absence = {.since_ms = tc->lost[node].since_ms,
                                   .acted = tc->lost[node].acted,
                                   .peer_timeout_ms = config->peer_timeout_ms,
                                   .on_node_loss = config->on_node_loss};
    return node_loss_judge(&absence, clock_ms());
}

static void act_on_losses(const struct trainers *ts, struct term_context *tc)
{
    for (uint32_t n = 0; tc->lost_count > 0 && n < tc->world.node_count; n++) {
        enum node_loss loss = judge(ts->needs.config, tc, n);
        if (loss != NODE_LOSS_NONE) {
            tc->lost[n].acted = true;
            /* Not earlier, because this aborts versions that wait for a copy there, and they should survive a restart
             * of that agent. */
            struct event event = {.type = EVENT_NODE_DOWN, .node = n};
            trainers_show_settings(ts); /* first, so that a trainer that sees the abort also sees the cause */
            driver_step_node(tc, &event);
            act_on_loss(tc, n, loss);
        }
    }
}

void trainers_tick(const struct trainers *ts)
{
    struct term_context *tc = *ts->needs.term;
    if (tc != NULL && !tc->closed) {
        act_on_losses(ts, tc);
    }
    for (struct client *c = *ts->needs.clients; c != NULL; c = c->next) {
        if (c->kill_ms > 0 && clock_ms() >= c->kill_ms) {
            log_error("trainer of rank %u (pid %d) did not end: killing it", c->rank, (int)c->process.pid);
            send_signal(c, SIGKILL);
            c->kill_ms = clock_ms() + KILL_AFTER_MS;
        }
    }
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

tck_status_t trainers_new(const struct trainers_setup *setup, struct trainers **out, struct error *err)
{
    struct trainers *ts = calloc(1, sizeof(*ts));
    if (ts == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    ts->needs = *setup;
    ts->settings = configured(setup->config);
    read_configured(setup->config, &ts->configured);
    *out = ts;
    return TCK_OK;
}

void trainers_free(struct trainers *ts)
{
    free(ts);
}
