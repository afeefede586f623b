/* SPDX-License-Identifier: Apache-2.0
 * tierckpt stop: the agents of a job leave before their linger time is over, and their memory goes with them. */
#include "agent/agent.h"

#include "agent/wire.h"

static void leave(struct agent *agent, bool force)
{
    if (force || clients_trainers(agent) == 0) {
        log_info("told to leave by tierckpt stop%s", force ? " --force" : "");
        agent->job_done = true;
        agent->stop_forced = force;
    } else {
        log_warn("tierckpt stop was called on another node, but %u trainers live here: this agent stays",
                 clients_trainers(agent));
    }
}

/* The coordinator has sessions with all nodes of the term; another node asks it to pass the word on. */
static void pass_on(struct formation *f, uint32_t from, bool force)
{
    struct wire_note m = {.term = f->world.term};
    struct writer w = writer_new(0);
    uint16_t type = force ? WIRE_STOP_NOW : WIRE_STOP;
    wire_note_encode(&m, &w);
    if (!formation_is_coordinator(f)) {
        exchange_send(f, 0, type, &w);
    }
    for (uint32_t n = 1; formation_is_coordinator(f) && n < f->world.node_count; n++) {
        if (n != from) {
            exchange_send(f, n, type, &w);
        }
    }
    writer_free(&w);
}

void stop_heard(struct formation *f, uint32_t from, bool force)
{
    if (formation_is_coordinator(f)) {
        pass_on(f, from, force);
    }
    leave(f->agent, force);
}

void stop_asked(struct agent *agent, bool force)
{
    struct formation *f = agent->formation;
    if (f && !f->closed) {
        pass_on(f, f->self, force);
    }
    leave(agent, force);
}

tck_status_t stop_check(const struct agent *agent, struct version held, struct error *err)
{
    const struct formation *f = agent->formation;
    struct version published = f ? node_decision(f->node)->published : VERSION_NONE;
    uint32_t trainers = clients_trainers(agent);
    if (trainers > 0) {
        return error_set(err, TCK_ERR_BUSY,
                         "%u trainers of job %s live on node %s: end them first (--force takes their memory tier away)",
                         trainers, agent->config.job, agent->config.node);
    }
    if (version_cmp(held, published) > 0) {
        return error_set(err, TCK_ERR_BUSY,
                         "version %llu.%llu is in memory alone and would be lost: `tierckpt drain --wait` brings it to "
                         "storage, --force gives it up",
                         (unsigned long long)held.term, (unsigned long long)held.step);
    }
    return TCK_OK;
}
