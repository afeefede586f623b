/* SPDX-License-Identifier: Apache-2.0
 * The holder in a term's file, as JSON. */
#include "tiers/term_holder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void term_holder_free(struct term_holder *holder)
{
    free(holder->agents);
    *holder = (struct term_holder){0};
}

static json_t *agent_json(const struct node_info *agent)
{
    json_t *json = json_object();
    if (json != NULL && json_add_str(json, "node", agent->name) && json_add_str(json, "domain", agent->domain) &&
        json_add_str(json, "address", agent->address) && json_add_u64(json, "id", agent->agent_id)) {
        return json;
    }
    json_free(json);
    return NULL;
}

static json_t *agents_json(const struct term_holder *holder)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (uint32_t i = 0; ok && i < holder->agent_count; i++) {
        json_t *agent = agent_json(&holder->agents[i]);
        ok = agent != NULL && json_add(list, NULL, agent);
    }
    if (!ok) {
        json_free(list);
        return NULL;
    }
    return list;
}

json_t *term_holder_json(const struct term_holder *holder)
{
    json_t *json = json_object(), *agents = agents_json(holder);
    bool ok = json != NULL && agents != NULL && json_add(json, "agents", agents);
    if (json == NULL) {
        json_free(agents);
    }
    ok = ok && json_add_str(json, "node", holder->node) && json_add_u64(json, "pid", holder->pid) &&
         json_add_str(json, "run_id", holder->run_id) && json_add_bool(json, "joined", holder->joined);
    if (!ok) {
        json_free(json);
        return NULL;
    }
    return json;
}

/* False: it is missing or does not fit. */
static bool take_text(const json_t *json, const char *key, char *out, size_t cap)
{
    const char *text = json_str(json_get(json, key));
    if (text == NULL || strlen(text) >= cap) {
        return false;
    }
    snprintf(out, cap, "%s", text);
    return true;
}

static bool take_agent(const json_t *json, struct node_info *out)
{
    return take_text(json, "node", out->name, sizeof(out->name)) &&
           take_text(json, "domain", out->domain, sizeof(out->domain)) &&
           take_text(json, "address", out->address, sizeof(out->address)) &&
           json_u64(json_get(json, "id"), &out->agent_id) && name_is_safe(out->name) && name_is_safe(out->domain);
}

tck_status_t term_holder_decode(const json_t *json, struct term_holder *out, struct error *err)
{
    const json_t *agents = json_get(json, "agents");
    uint64_t pid = 0;
    size_t count = json_is_array(agents) ? json_len(agents) : 0;
    struct term_holder holder = {0};
    holder.agents = calloc(count + 1, sizeof(*holder.agents));
    if (holder.agents == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the agents of a term");
    }
    for (const json_t *agent = count > 0 ? json_first(agents) : NULL; agent != NULL; agent = json_next(agent)) {
        holder.agent_count += take_agent(agent, &holder.agents[holder.agent_count]);
    }
    bool claimed = take_text(json, "node", holder.node, sizeof(holder.node)) && json_u64(json_get(json, "pid"), &pid) &&
                   pid <= UINT32_MAX;
    if (!claimed) {
        holder.node[0] = '\0';
    }
    holder.pid = (uint32_t)pid;
    (void)take_text(json, "run_id", holder.run_id, sizeof(holder.run_id));
    if (!json_bool(json_get(json, "joined"), &holder.joined)) {
        holder.joined = false;
    }
    *out = holder;
    return TCK_OK;
}
