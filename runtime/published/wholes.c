/* SPDX-License-Identifier: Apache-2.0
 * See wholes.h. */
#include "published/wholes.h"
#include "published/convert.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIMIZER "optimizer."
#define MASTER    "master."

/* ---- chosen by name ---------------------------------------------------------------------------------------------- */

static bool matches(const char *const *patterns, const char *key)
{
    for (; patterns != NULL && *patterns != NULL; patterns++) {
        if (fnmatch(*patterns, key, 0) == 0) {
            return true;
        }
    }
    return false;
}

static bool has_patterns(const char *const *patterns)
{
    return patterns != NULL && patterns[0] != NULL;
}

static bool is_chosen(const tck_export_params_t *params, const char *name)
{
    return (!has_patterns(params->include) || matches(params->include, name)) && !matches(params->exclude, name);
}

/* ---- without maps ------------------------------------------------------------------------------------------------ */

/* "rank3/..." of rank 3. */
static bool is_ranks_own(const struct entry *entry, const char *key)
{
    char prefix[32];
    int len = snprintf(prefix, sizeof(prefix), "rank%" PRIu32 "/", entry->rank);
    return entry->rank != NONE32 && strncmp(key, prefix, (size_t)len) == 0;
}

static bool begins(const char *key, const char *prefix)
{
    return strncmp(key, prefix, strlen(prefix)) == 0;
}

static bool has_tensor(const struct table *table, const char *key, size_t len)
{
    char name[TCK_MAX_KEY + 1];
    size_t count = 0;
    memcpy(name, key, len);
    name[len] = '\0';
    const struct entry *entry = table_find(table, name, &count);
    return entry != NULL && !entry->blob;
}

/* "optimizer.<a tensor's key>.<what of it>" */
static bool is_optimizers(const struct table *table, const char *key)
{
    const char *of = key + strlen(OPTIMIZER);
    if (!begins(key, OPTIMIZER)) {
        return false;
    }
    for (const char *dot = strchr(of, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        if (has_tensor(table, of, (size_t)(dot - of))) {
            return true;
        }
    }
    return false;
}

static bool is_master(const struct table *table, const char *key)
{
    return begins(key, MASTER) && has_tensor(table, key + strlen(MASTER), strlen(key) - strlen(MASTER));
}

/* State dicts may have their optimizer under any name; these are the names of it that programs and torch use. */
static bool looks_like_optimizers(const char *key)
{
    static const char *const moments[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer"};
    const char *last = strrchr(key, '.');
    for (size_t i = 0; last != NULL && i < sizeof(moments) / sizeof(*moments); i++) {
        if (strcmp(last + 1, moments[i]) == 0) {
            return true;
        }
    }
    return begins(key, OPTIMIZER) || begins(key, "optim.");
}

/* What is neither known to be a weight nor known not to be one is not guessed. */
static tck_status_t is_weight(const struct table *table, const struct entry *entry, bool *out, struct error *err)
{
    const char *key = entry_key(table, entry);
    *out = !is_ranks_own(entry, key) && !is_optimizers(table, key) && !is_master(table, key);
    if (*out && looks_like_optimizers(key)) {
        return error_set(err, TCK_ERR_UNSUPPORTED,
                         "\"%.200s\" may be the state of an optimizer or a weight, and the version does not say which: "
                         "include the patterns of the weights, or exclude those of the optimizer's state",
                         key);
    }
    return TCK_OK;
}

static tck_status_t is_wanted(const struct table *table, const struct entry *entry, const tck_export_params_t *params,
                              bool *out, struct error *err)
{
    *out = !entry->blob && is_chosen(params, entry_key(table, entry));
    return !*out || has_patterns(params->include) ? TCK_OK : is_weight(table, entry, out, err);
}

static struct box whole_of_entry(const struct table *table, const struct entry *entry)
{
    struct box box = {.ndim = entry->ndim};
    memcpy(box.size, entry_global(table, entry), entry->ndim * sizeof(uint64_t));
    return box;
}

static tck_status_t no_memory(const struct wholes *wholes, struct error *err)
{
    return error_set(err, TCK_ERR_NOMEM, "no memory for %" PRIu32 " tensors", wholes->count);
}

/* A new tensor at the end of the list, with room for sources. */
static struct whole *append(struct wholes *wholes, const char *name, uint32_t source_count)
{
    struct whole *list = reallocarray(wholes->list, (size_t)wholes->count + 1, sizeof(*list));
    if (list == NULL) {
        return NULL;
    }
    wholes->list = list;
    struct whole *whole = &list[wholes->count];
    *whole = (struct whole){.name = strdup(name), .sources = calloc(source_count, sizeof(*whole->sources))};
    wholes->count++;
    return whole->name == NULL || whole->sources == NULL ? NULL : whole;
}

static tck_status_t add_as_saved(struct wholes *wholes, const struct table *table, const struct entry *entry,
                                 struct error *err)
{
    struct whole *whole = append(wholes, entry_key(table, entry), 1);
    if (whole == NULL) {
        return no_memory(wholes, err);
    }
    whole->dtype = (tck_dtype_t)entry->dtype;
    whole->box = whole_of_entry(table, entry);
    whole->source_count = 1;
    whole->sources[0] =
        (struct source){.entry = entry, .rank = NONE32, .held = whole->box, .from = whole->box, .at = whole->box};
    return TCK_OK;
}

static tck_status_t by_rules(const struct table *table, const tck_export_params_t *params, struct wholes *wholes,
                             struct error *err)
{
    tck_status_t status = TCK_OK;
    for (size_t i = 0; i < table->count && status == TCK_OK; i++) {
        const struct entry *entry = &table->entries[i];
        bool first = i == 0 || strcmp(entry_key(table, entry - 1), entry_key(table, entry)) != 0, wanted = false;
        if (first) {
            status = is_wanted(table, entry, params, &wanted, err);
        }
        if (status == TCK_OK && wanted) {
            status = add_as_saved(wholes, table, entry, err);
        }
    }
    return status;
}

/* ---- with maps --------------------------------------------------------------------------------------------------- */

static tck_status_t read_map(struct tck_published *published, uint32_t rank, struct export_map *map, uint32_t *same_out,
                             bool *there_out, struct error *err)
{
    char key[64], *text = NULL;
    size_t size = 0, again = 0;
    snprintf(key, sizeof(key), "rank%" PRIu32 "/" EXPORT_MAP_NAME, rank);
    tck_status_t status = tck_published_read_blob(published, key, (int)rank, NULL, 0, &size);
    *there_out = status != TCK_ERR_NOENT;
    if (status == TCK_ERR_NOENT) {
        return TCK_OK;
    }
    if (status == TCK_ERR_NOSPC) {
        text = malloc(size);
        status = text == NULL ? error_set(&published->error, TCK_ERR_NOMEM, "no memory for %zu bytes", size)
                              : tck_published_read_blob(published, key, (int)rank, text, size, &again);
    }
    if (status != TCK_OK) {
        *err = published->error;
    } else {
        status = export_map_add(map, text, size, rank, same_out, err);
    }
    free(text);
    return status;
}

static tck_status_t refer(uint32_t rank, uint32_t same, const bool *own, struct error *err)
{
    return same == NONE32 || own[same] ? TCK_OK
                                       : error_set(err, TCK_ERR_PROTO,
                                                   "the export map of rank %" PRIu32 " refers to that of rank %" PRIu32
                                                   ", which has none of its own",
                                                   rank, same);
}

static tck_status_t read_maps(struct tck_published *published, struct export_map *map, struct error *err)
{
    uint32_t world = published->found.manifest.world_size, found = 0, missing = NONE32;
    bool *own = calloc((size_t)world + 1, sizeof(*own));
    tck_status_t status =
        own == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for %" PRIu32 " ranks", world) : TCK_OK;
    for (uint32_t rank = 0; rank < world && status == TCK_OK; rank++) {
        uint32_t same = NONE32;
        bool there = false;
        status = read_map(published, rank, map, &same, &there, err);
        own[rank] = there && same == NONE32;
        found += there;
        missing = there || missing != NONE32 ? missing : rank;
        if (status == TCK_OK) {
            status = refer(rank, same, own, err);
        }
    }
    free(own);
    if (status == TCK_OK && found > 0 && missing != NONE32) {
        return error_set(err, TCK_ERR_LAYOUT,
                         "rank %" PRIu32 " has saved no export map, and other ranks have: it is "
                         "not known which weights it has",
                         missing);
    }
    return status == TCK_OK ? export_map_join(map, err) : status;
}

/* Finds what was saved under the key of a part, and whether that has the shape that the map says, or is flat. */
static tck_status_t resolve(const struct table *table, const struct map_part *part, struct source *out,
                            struct error *err)
{
    size_t count = 0;
    const struct entry *entry = table_find(table, part->key, &count);
    if (entry == NULL || entry->blob) {
        return error_set(err, TCK_ERR_LAYOUT,
                         "rank %" PRIu32 " declares that a part of it is in \"%.200s\", and no "
                         "rank has saved that",
                         part->rank, part->key);
    }
    const struct box saved = whole_of_entry(table, entry);
    bool same = box_is(&saved, &part->held);
    if (!same && (saved.ndim != 1 || saved.size[0] != box_count(&part->held))) {
        return error_set(err, TCK_ERR_LAYOUT,
                         "rank %" PRIu32 " declares another shape of \"%.200s\" than it was saved "
                         "with",
                         part->rank, part->key);
    }
    *out = (struct source){entry, !same, part->rank, part->held, part->from, part->at};
    return TCK_OK;
}

static tck_status_t add_mapped(struct wholes *wholes, const struct table *table, const struct map_tensor *tensor,
                               struct error *err)
{
    tck_status_t status = TCK_OK;
    if (tensor->refused != NULL) {
        return error_set(err, TCK_ERR_UNSUPPORTED,
                         "\"%.200s\" of rank %" PRIu32 " cannot be made whole: %.200s. Exclude "
                         "it to export the rest",
                         tensor->name, tensor->rank, tensor->refused);
    }
    struct whole *whole = append(wholes, tensor->name, tensor->part_count);
    if (whole == NULL) {
        return no_memory(wholes, err);
    }
    whole->dtype = tensor->dtype;
    whole->box = tensor->whole;
    for (uint32_t i = 0; i < tensor->part_count && status == TCK_OK; i++) {
        status = resolve(table, &tensor->parts[i], &whole->sources[whole->source_count++], err);
    }
    return status == TCK_OK ? TCK_OK : error_prefix(err, "\"%.200s\"", tensor->name);
}

static tck_status_t by_map(const struct table *table, const tck_export_params_t *params, struct wholes *wholes,
                           struct error *err)
{
    tck_status_t status = TCK_OK;
    for (uint32_t i = 0; i < wholes->map.count && status == TCK_OK; i++) {
        if (is_chosen(params, wholes->map.tensors[i].name)) {
            status = add_mapped(wholes, table, &wholes->map.tensors[i], err);
        }
    }
    return status;
}

/* ---- whether they are whole -------------------------------------------------------------------------------------- */

static tck_status_t check_covered(const struct whole *whole, struct error *err)
{
    struct box *boxes = calloc(whole->source_count, sizeof(*boxes));
    struct reshard plan = {0};
    if (boxes == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for %" PRIu32 " parts", whole->source_count);
    }
    for (uint32_t i = 0; i < whole->source_count; i++) {
        boxes[i] = whole->sources[i].at;
    }
    tck_status_t status = reshard_find(&whole->box, boxes, whole->source_count, &plan, err);
    if (status == TCK_OK && !plan.covered) {
        status = error_set(err, TCK_ERR_LAYOUT,
                           "%" PRIu64 " elements from %" PRIu64 " of dimension 0 on are a part of "
                           "no rank",
                           box_count(&plan.missing), plan.missing.at[0]);
    }
    reshard_free(&plan);
    free(boxes);
    return status;
}

static tck_status_t check_source(struct tck_published *published, const struct whole *whole,
                                 const struct source *source, struct error *err)
{
    tck_dtype_t saved = (tck_dtype_t)source->entry->dtype;
    if (saved != whole->dtype && !(convert_can(saved) && convert_can(whole->dtype))) {
        return error_set(
            err, TCK_ERR_UNSUPPORTED, "its dtype is %s, and \"%.200s\" of rank %" PRIu32 " was saved as %s",
            dtype_name(whole->dtype), entry_key(&published->table, source->entry), source->rank, dtype_name(saved));
    }
    return published_check_whole(published, source->entry, err);
}

static tck_status_t check(struct tck_published *published, const struct whole *whole, struct error *err)
{
    tck_status_t status = check_covered(whole, err);
    for (uint32_t i = 0; i < whole->source_count && status == TCK_OK; i++) {
        status = check_source(published, whole, &whole->sources[i], err);
    }
    return status == TCK_OK ? TCK_OK : error_prefix(err, "\"%.200s\"", whole->name);
}

tck_status_t wholes_find(struct tck_published *published, const tck_export_params_t *params, struct wholes *out,
                         struct error *err)
{
    struct wholes wholes = {0};
    tck_status_t status = read_maps(published, &wholes.map, err);
    if (status == TCK_OK) {
        status = wholes.map.count > 0 ? by_map(&published->table, params, &wholes, err)
                                      : by_rules(&published->table, params, &wholes, err);
    }
    for (uint32_t i = 0; i < wholes.count && status == TCK_OK; i++) {
        status = check(published, &wholes.list[i], err);
    }
    if (status != TCK_OK) {
        wholes_free(&wholes);
        return status;
    }
    *out = wholes;
    return TCK_OK;
}

void wholes_free(struct wholes *wholes)
{
    for (uint32_t i = 0; i < wholes->count; i++) {
        free(wholes->list[i].name);
        free(wholes->list[i].sources);
    }
    free(wholes->list);
    export_map_free(&wholes->map);
    *wholes = (struct wholes){0};
}
