/* SPDX-License-Identifier: Apache-2.0
 * Prints the plan as JSON, for `tierckpt plan`. */
#include "recovery/plan.h"

static bool add_version(json_t *parent, const char *key, struct version version)
{
    json_t *json = json_object();
    bool ok = json_add_u64(json, "term", version.term) && json_add_u64(json, "step", version.step);
    return json_add(parent, key, json) && ok;
}

static bool add_hash(json_t *parent, const char *key, struct hash128 hash)
{
    char text[HASH128_TEXT];
    hash128_text(hash, text);
    return json_add_str(parent, key, text);
}

static bool add_action(json_t *actions, const struct plan_action *action, const struct plan_input *input)
{
    json_t *json = json_object();
    const char *from = action->inventory == NONE32 ? "storage" : input->inventories[action->inventory].node.name;
    bool ok = add_hash(json, "shard", input->world->shards[action->shard].id) &&
              json_add_str(json, "node", input->world->nodes[action->node].name) &&
              json_add_str(json, "source", source_kind_name(action->source)) && json_add_str(json, "from", from) &&
              json_add_u64(json, "bytes", action->bytes) &&
              json_add_str(json, "for", action->for_holder ? "holder" : "owner");
    return json_add(actions, NULL, json) && ok;
}

static bool add_actions(json_t *parent, const struct plan *plan, const struct plan_input *input)
{
    json_t *actions = json_array();
    bool ok = true;
    for (uint32_t i = 0; i < plan->action_count && ok; i++) {
        ok = add_action(actions, &plan->actions[i], input);
    }
    return json_add(parent, "actions", actions) && ok;
}

static bool add_passed(json_t *list, const struct passed_over *passed)
{
    json_t *json = json_object();
    bool ok = add_version(json, "version", passed->version) && json_add_u64(json, "missing_shards", passed->missing) &&
              (passed->missing == 0 || add_hash(json, "example", passed->example)) &&
              json_add_bool(json, "given_up", passed->poisoned) &&
              json_add_bool(json, "other_layout", passed->other_layout) && json_add_bool(json, "gone", passed->gone) &&
              (passed->unfit == NULL || json_add_str(json, "on_storage", passed->unfit->why));
    return json_add(list, NULL, json) && ok;
}

static bool add_all_passed(json_t *parent, const struct plan *plan)
{
    json_t *list = json_array();
    bool ok = true;
    for (uint32_t i = 0; i < plan->passed_count && ok; i++) {
        ok = add_passed(list, &plan->passed[i]);
    }
    return json_add(parent, "passed_over", list) && ok;
}

static bool add_bytes_by_source(json_t *parent, const struct plan *plan)
{
    json_t *json = json_object();
    bool ok = true;
    for (uint32_t source = 0; source < SOURCE_KINDS; source++) {
        ok = ok && json_add_u64(json, source_kind_name(source), plan->bytes_by_source[source]);
    }
    return json_add(parent, "bytes_by_source", json) && ok;
}

json_t *plan_json(const struct plan *plan, const struct plan_input *input)
{
    json_t *json = json_object();
    bool ok = (version_none(plan->version) || add_version(json, "version", plan->version)) &&
              (version_none(plan->reshard) || add_version(json, "resharded", plan->reshard));
    ok = ok && json_add_str(json, "reason", plan->reason) &&
         json_add_bool(json, "nothing_saved", plan->nothing_saved) &&
         json_add_bool(json, "unreadable", plan->blocked != BLOCK_NONE) &&
         json_add_bool(json, "from_storage_only", plan->from_storage_only) &&
         (version_none(plan->newest_seen) || add_version(json, "newest_seen", plan->newest_seen)) &&
         add_bytes_by_source(json, plan) && add_all_passed(json, plan) && add_actions(json, plan, input);
    if (!ok) {
        json_free(json);
        return NULL;
    }
    return json;
}
