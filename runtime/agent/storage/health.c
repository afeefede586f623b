/* SPDX-License-Identifier: Apache-2.0
 * What users have to know of this job's state: trouble with storage and copies that are missing, shown to trainers on
 * their shared status pages, to the command, and, from the coordinator, to all other agents. */
#include "agent/storage/health.h"

#include "agent/driver/missing_copies.h"
#include "base/clock.h"

#include <inttypes.h>
#include <string.h>

/* This node's own trouble if it has any, otherwise the coordinator's. */
const struct trouble *health_storage(const struct agent *agent)
{
    return agent->trouble.code != TCK_OK ? &agent->trouble : &agent->trouble_elsewhere;
}

void health_show(const struct client *client)
{
    const struct agent *agent = client->agent;
    const struct term_context *tc = agent->term_context;
    bool formed = tc && !tc->closed;
    trouble_show(&client->shared->storage_trouble, health_storage(agent));
    atomic_store_explicit(&client->shared->shards_short, formed ? tc->placement.domains_short : 0,
                          memory_order_relaxed);
    atomic_store_explicit(&client->shared->copies_missing, copies_missing(agent), memory_order_relaxed);
}

void health_show_all(struct agent *agent)
{
    for (const struct client *c = agent->clients; c; c = c->next) {
        if (c->shared) {
            health_show(c);
        }
    }
}

void health_storage_failed(struct agent *agent, uint64_t step, const struct error *why)
{
    trouble_add(&agent->trouble, step, why, clock_wall_ms());
    health_show_all(agent);
}

void health_storage_published(struct agent *agent)
{
    if (agent->trouble.code != TCK_OK) {
        log_info("storage works again; %" PRIu64 " steps were not saved there", agent->trouble.steps);
        agent->trouble = (struct trouble){0};
        health_show_all(agent);
    }
}

void health_storage_works(struct agent *agent)
{
    if (agent->trouble.steps == 0) {
        health_storage_published(agent);
    }
}

void health_handle_beat(struct agent *agent, const struct trouble *trouble)
{
    const struct trouble *known = &agent->trouble_elsewhere;
    if (known->code != trouble->code || known->since_ms != trouble->since_ms ||
        known->first_step != trouble->first_step || known->newest_step != trouble->newest_step ||
        known->steps != trouble->steps || strcmp(known->text, trouble->text) != 0) {
        agent->trouble_elsewhere = *trouble;
        health_show_all(agent);
    }
}

void health_term_began(struct agent *agent)
{
    agent->trouble_elsewhere = (struct trouble){0};
    health_show_all(agent);
}

json_t *health_json(const struct agent *agent)
{
    const struct trouble *trouble = health_storage(agent);
    json_t *json = json_object();
    json_add_bool(json, "good", trouble->code == TCK_OK);
    if (trouble->code != TCK_OK) {
        json_add_str(json, "error", trouble->text);
        json_add_str(json, "status", status_text((tck_status_t)trouble->code));
        json_add_u64(json, "since_ms", trouble->since_ms);
        json_add_u64(json, "steps", trouble->steps);
        json_add_u64(json, "first_step", trouble->first_step);
        json_add_u64(json, "newest_step", trouble->newest_step);
    }
    return json;
}
