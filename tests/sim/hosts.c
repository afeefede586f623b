/* SPDX-License-Identifier: Apache-2.0
 * Machines: the life cycle of their agents, and the descriptors that a supervisor keeps for the next agent
 * (tiers/sd_notify.h). */
#include "sim.h"

#include "base/json.h"
#include "heap.h"
#include "tiers/sd_notify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DAY_MS         UINT64_C(86400000)
#define START_AGAIN_US (500 * MS) /* an agent that could not start */

/* ---- kept descriptors -------------------------------------------------------------------------------------------- */

static struct parked **parked_at(struct host *host, const char *name)
{
    struct parked **at = &host->parked;
    while (*at != NULL && strcmp((*at)->name, name) != 0) {
        at = &(*at)->next;
    }
    return at;
}

static void unpark(struct parked **at)
{
    struct parked *parked = *at;
    *at = parked->next;
    object_unref(parked->file);
    free(parked);
}

tck_status_t sd_notify_store(const char *notify_socket, int wait_ms, const char *name, int fd, struct error *err)
{
    (void)notify_socket;
    (void)wait_ms;
    (void)err;
    struct parked **at = parked_at(sim.current, name);
    if (*at != NULL) {
        unpark(at);
    }
    struct parked *parked = calloc(1, sizeof(*parked));
    snprintf(parked->name, sizeof(parked->name), "%s", name);
    parked->file = object_of(fd);
    object_ref(parked->file);
    parked->next = sim.current->parked;
    sim.current->parked = parked;
    judge_memory_changed(sim.current, NULL);
    return TCK_OK;
}

tck_status_t sd_notify_remove(const char *notify_socket, int wait_ms, const char *name, struct error *err)
{
    (void)notify_socket;
    (void)wait_ms;
    (void)err;
    struct parked **at = parked_at(sim.current, name);
    if (*at != NULL) {
        unpark(at);
    }
    judge_memory_changed(sim.current, NULL);
    return TCK_OK;
}

static void forget_all(struct host *host)
{
    while (host->parked != NULL) {
        unpark(&host->parked);
    }
}

tck_status_t sd_notify_send(const char *notify_socket, int wait_ms, const char *state, struct error *err)
{
    (void)notify_socket;
    (void)wait_ms;
    (void)err;
    if (strncmp(state, "STOPPING=1", 10) == 0) {
        forget_all(sim.current);
    }
    return TCK_OK;
}

/* Passes on the list as it is at this time, because the agent stores each file again while it handles it. */
void sd_notify_take_back(void (*found)(void *ctx, const char *name, int fd), void *ctx)
{
    struct parked *all = sim.current->parked;
    sim.current->parked = NULL;
    while (all != NULL) {
        struct parked *parked = all;
        all = parked->next;
        found(ctx, parked->name, object_fd(parked->file));
        object_unref(parked->file);
        free(parked);
    }
}

/* ---- an agent's life --------------------------------------------------------------------------------------------- */

/* The agent's code no longer runs; everything that it owned ends with its process. */
static void end_life(struct host *host)
{
    host->life++;
    host->dies_in = 0;
    host->stopped_until_us = 0;
    host->agent = NULL;
    host->loop = NULL;
    host->listener = NULL;
    process_end(host->pid);
    if (host->link != NULL) {
        link_lost(host->link);
        host->link = NULL;
    }
    for (struct object *socket = host->sockets; socket != NULL; socket = socket->next_socket) {
        socket->source = NULL;
        ipc_hang_up(socket);
    }
    host->sockets = NULL;
    if (sim.measure) {
        heap_drop(host->heap_owner);
    }
    host->heap_owner = heap_owner_new();
}

static void restart(void *ctx)
{
    struct host *host = ctx;
    if (host->agent == NULL && !host->gone) {
        host_start(host);
    }
}

uint64_t processor_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void host_does_something(void)
{
    struct host *host = sim.current;
    if (host != NULL && host->agent != NULL && host->dies_in > 0 && --host->dies_in == 0) {
        sim_log("the agent of %s dies", host->name);
        longjmp(host->death, 1);
    }
}

static void leave(void *ctx)
{
    struct host *host = ctx;
    agent_free(host->agent);
}

/* _exit returns here, as the second return of setjmp: the agent is dead at that instruction. */
static void live(struct host *host, sim_fn *fn, void *ctx)
{
    if (setjmp(host->death) != 0) {
        end_life(host);
        sim_after(sim_between(50, 500) * MS, NULL, restart, host);
        return;
    }
    fn(ctx);
    if (host->loop != NULL) {
        loop_after_callback(host->loop);
    }
}

void host_run(struct host *host, sim_fn *fn, void *ctx)
{
    struct host *before = sim.current;
    uint64_t began = sim.measure ? processor_ns() : 0;
    uint32_t charged = heap_charge(host->heap_owner);
    sim.current = host;
    host->ran = true;
    live(host, fn, ctx);
    if (host->agent != NULL && host->loop != NULL && loop_is_stopped(host->loop)) {
        live(host, leave, host);
        end_life(host);
    }
    host->counts.calls++;
    host->counts.ns += sim.measure ? processor_ns() - began : 0;
    sim.current = before;
    (void)heap_charge(charged);
}

static void start_agent(void *ctx)
{
    struct host *host = ctx;
    struct agent *agent = NULL;
    struct error err = {0};
    host->pid = process_begin(NULL, NULL);
    judge_memory_changed(host, NULL);
    if (agent_new(&host->config, &agent, &err) == TCK_OK) {
        host->agent = agent;
        return;
    }
    log_error("cannot start: %s", err.text);
    end_life(host);
    sim_after(START_AGAIN_US, NULL, restart, host);
}

void host_start(struct host *host)
{
    host_run(host, start_agent, host);
}

void host_kill_agent(struct host *host, uint64_t restart_us)
{
    if (host->agent != NULL) {
        sim_log("the agent of %s is killed", host->name);
        end_life(host);
        sim_after(restart_us, NULL, restart, host);
    }
}

void host_stop_agent(struct host *host, uint64_t for_us)
{
    if (host->agent != NULL && host->stopped_until_us <= sim.us) {
        sim_log("the agent of %s is stopped for %.3f s", host->name, (double)for_us / (double)S);
        host->stopped_until_us = sim.us + for_us;
    }
}

void host_jump_clock(struct host *host, uint64_t by_us)
{
    sim_log("the clock of %s jumps by %.3f s", host->name, (double)by_us / (double)S);
    host->clock_ahead_us += by_us;
    host->wall_ahead_ms = (int64_t)sim_between(0, 2 * DAY_MS) - (int64_t)DAY_MS;
    if (host->loop != NULL) {
        loop_clock_jumped(host->loop, by_us);
    }
    judge_clock_jumped();
}

void host_forget(struct host *host, uint64_t restart_us)
{
    if (host->agent != NULL) {
        host_kill_agent(host, restart_us);
        sim_log("its supervisor is killed as well");
        forget_all(host);
        judge_host_lost(host);
    }
}

static void replace_machine(void *ctx)
{
    struct host *host = ctx;
    host->gone = false;
    sim_log("a new machine %s", host->name);
    host_start(host);
}

void host_lose(struct host *host, uint64_t return_us)
{
    if (host->gone) {
        return;
    }
    sim_log("%s is lost", host->name);
    host->gone = true;
    launch_host_lost(host);
    if (host->loop != NULL) {
        end_life(host);
    }
    forget_all(host);
    judge_host_lost(host);
    sim_after(return_us, NULL, replace_machine, host);
}

void hosts_make(uint32_t count, const char *config_text)
{
    struct config config;
    struct error err = {0};
    if (config_load(NULL, config_text, &config, &err) != TCK_OK) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    sim.hosts = calloc(count, sizeof(*sim.hosts));
    sim.host_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct host *host = &sim.hosts[i];
        host->index = i;
        host->heap_owner = heap_owner_new();
        snprintf(host->name, sizeof(host->name), "n%u", i);
        host->config = config;
        snprintf(host->config.node, sizeof(host->config.node), "%s", host->name);
        host->domain = sim_trait(TRAIT_DOMAINS) ? i / 2 : i;
        snprintf(host->config.domain, sizeof(host->config.domain), "d%u", host->domain);
        json_t *json = config_json(&host->config);
        host->settings = json_print(json, false);
        json_free(json);
        host_start(host);
    }
}

void host_show_slots(const struct host *host)
{
    const struct term_context *tc = host->agent != NULL ? host->agent->term_context : NULL;
    for (uint32_t i = 0; tc != NULL && i < node_slot_total(tc->node); i++) {
        const struct slot *slot = node_slot(tc->node, i);
        sim_log("%s slot %u of shard %u: %s, step %" PRIu64 " of term %" PRIu64, host->name, i, slot->shard,
                slot_state_name(slot->state), slot->version.step, slot->version.term);
    }
}
