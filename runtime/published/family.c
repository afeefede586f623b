/* SPDX-License-Identifier: Apache-2.0
 * See family.h. */
#include "published/family.h"
#include "base/json.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_FORMAT     1
#define PLACEHOLDERS_MAX 8
#define DIGITS_MAX       9 /* of a number in a name */
#define PLACEHOLDER_MAX  31

enum split { SPLIT_NONE, SPLIT_HALVES, SPLIT_QKV };

struct rule {
    char *from;
    char *to[RENAMED_MAX];
    uint32_t to_count; /* 0: the tensor is left out */
    enum split split;
    bool transpose;
    char *rows; /* the name of the number of rows that are kept; NULL: all are */
};

struct family_rules {
    uint32_t count;
    struct rule *list;
    struct map_number *numbers;
    uint32_t number_count;
    char *base;
};

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

/* What the placeholders of a pattern stand for in a name. */
struct captured {
    uint32_t count;
    struct {
        const char *placeholder, *digits;
        size_t placeholder_len, len;
    } list[PLACEHOLDERS_MAX];
};

/* The length of "{word}" at the start of text; 0 if there is none. */
static size_t placeholder_at(const char *text)
{
    size_t len = 1;
    if (text[0] != '{') {
        return 0;
    }
    while (isalpha((unsigned char)text[len])) {
        len++;
    }
    return text[len] == '}' && len > 1 && len <= PLACEHOLDER_MAX ? len + 1 : 0;
}

static bool capture(const char *pattern, size_t placeholder_len, const char *name, struct captured *out)
{
    size_t len = strspn(name, "0123456789");
    if (len == 0 || len > DIGITS_MAX || out->count == PLACEHOLDERS_MAX) {
        return false;
    }
    out->list[out->count].placeholder = pattern;
    out->list[out->count].placeholder_len = placeholder_len;
    out->list[out->count].digits = name;
    out->list[out->count++].len = len;
    return true;
}

static bool fits(const char *pattern, const char *name, struct captured *out)
{
    out->count = 0;
    while (*pattern != '\0') {
        size_t len = placeholder_at(pattern);
        if (len == 0) {
            if (*pattern++ != *name++) {
                return false;
            }
            continue;
        }
        if (!capture(pattern, len, name, out)) {
            return false;
        }
        name += out->list[out->count - 1].len;
        pattern += len;
    }
    return *name == '\0';
}

static uint32_t find_captured(const struct captured *captured, const char *placeholder, size_t len)
{
    for (uint32_t i = 0; i < captured->count; i++) {
        if (captured->list[i].placeholder_len == len && memcmp(captured->list[i].placeholder, placeholder, len) == 0) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* The name that a template makes; NULL if it is too long or out of memory. */
static char *fill(const char *template, const struct captured *captured)
{
    char name[TCK_MAX_KEY + 1];
    size_t used = 0;
    while (*template != '\0') {
        size_t len = placeholder_at(template), copied = 1;
        const char *from = template;
        if (len > 0) {
            uint32_t i = find_captured(captured, template, len);
            if (i == UINT32_MAX) {
                return NULL; /* parsing refuses it */
            }
            from = captured->list[i].digits;
            copied = captured->list[i].len;
        }
        if (used + copied >= sizeof(name)) {
            return NULL;
        }
        memcpy(name + used, from, copied);
        used += copied;
        template += len > 0 ? len : 1;
    }
    name[used] = '\0';
    return strdup(name);
}

/* Whether braces are those of placeholders alone, each different, and each among `known` if that is not NULL. */
static bool placeholders_good(const char *text, const char *known)
{
    struct captured seen = {0};
    for (const char *at = strpbrk(text, "{}"); at != NULL; at = strpbrk(at, "{}")) {
        size_t len = placeholder_at(at);
        if (len == 0 || seen.count == PLACEHOLDERS_MAX ||
            (known == NULL && find_captured(&seen, at, len) != UINT32_MAX)) {
            return false;
        }
        seen.list[seen.count].placeholder = at;
        seen.list[seen.count++].placeholder_len = len;
        if (known != NULL && memmem(known, strlen(known), at, len) == NULL) {
            return false;
        }
        at += len;
    }
    return true;
}

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

static tck_status_t wrong(struct error *err, uint32_t number, const char *what)
{
    return error_set(err, TCK_ERR_PROTO, "rule %" PRIu32 ": %s", number, what);
}

static tck_status_t keep(char **out, const char *text, struct error *err)
{
    *out = strdup(text);
    return *out == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for a mapping") : TCK_OK;
}

static tck_status_t check_members(const json_t *object, const char *const *known, struct error *err)
{
    for (const json_t *member = json_first(object); member != NULL; member = json_next(member)) {
        size_t i = 0;
        while (known[i] != NULL && strcmp(known[i], json_key(member)) != 0) {
            i++;
        }
        if (known[i] == NULL) {
            return error_set(err, TCK_ERR_PROTO, "unknown key \"%.100s\"", json_key(member));
        }
    }
    return TCK_OK;
}

static tck_status_t take_target(struct rule *rule, const json_t *json, uint32_t number, struct error *err)
{
    const char *to = json_str(json);
    if (to == NULL || to[0] == '\0' || rule->to_count == RENAMED_MAX || !placeholders_good(to, rule->from)) {
        return wrong(err, number, "\"to\" is a name, or a list of up to three, with placeholders of \"from\"");
    }
    tck_status_t status = keep(&rule->to[rule->to_count], to, err);
    rule->to_count += status == TCK_OK;
    return status;
}

static tck_status_t take_targets(struct rule *rule, const json_t *to, uint32_t number, struct error *err)
{
    tck_status_t status = TCK_OK;
    if (!json_is_array(to)) {
        return take_target(rule, to, number, err);
    }
    for (const json_t *item = json_first(to); item != NULL && status == TCK_OK; item = json_next(item)) {
        status = take_target(rule, item, number, err);
    }
    return status;
}

static tck_status_t take_split(struct rule *rule, const json_t *json, uint32_t number, struct error *err)
{
    const char *split = json == NULL ? "none" : json_str(json);
    if (split != NULL && strcmp(split, "halves") == 0) {
        rule->split = SPLIT_HALVES;
    } else if (split != NULL && strcmp(split, "qkv") == 0) {
        rule->split = SPLIT_QKV;
    } else if (json != NULL) {
        return wrong(err, number, "\"split\" is \"halves\" or \"qkv\"");
    }
    bool fit = rule->split == SPLIT_QKV ? rule->to_count == 1 || rule->to_count == 3
                                        : rule->to_count == (rule->split == SPLIT_HALVES ? 2u : 1u);
    return fit ? TCK_OK
               : wrong(err, number,
                       "\"to\" has one name; two with \"split\": \"halves\", and one or three with \"qkv\"");
}

static tck_status_t take_rows(struct rule *rule, const json_t *json, uint32_t number, struct error *err)
{
    const char *rows = json_str(json);
    if (json == NULL) {
        return TCK_OK;
    }
    if (rows == NULL || rows[0] == '\0' || rule->split != SPLIT_NONE) {
        return wrong(err, number, "\"rows\" is the name of a number, and not used together with \"split\"");
    }
    return keep(&rule->rows, rows, err);
}

static tck_status_t parse_rule(struct rule *rule, const json_t *json, uint32_t number, struct error *err)
{
    static const char *const known[] = {"from", "to", "drop", "split", "transpose", "rows", "about", NULL};
    const char *from = json_str(json_get(json, "from"));
    const json_t *to = json_get(json, "to"), *drops = json_get(json, "drop"), *turns = json_get(json, "transpose");
    bool drop = false;
    if (!json_is_object(json) || from == NULL || from[0] == '\0' || !placeholders_good(from, NULL)) {
        return wrong(err, number, "\"from\" is a name with placeholders such as {n} for numbers, each different");
    }
    tck_status_t status = check_members(json, known, err);
    if (status != TCK_OK) {
        return error_prefix(err, "rule %" PRIu32, number);
    }
    if ((drops != NULL && !json_bool(drops, &drop)) || (turns != NULL && !json_bool(turns, &rule->transpose))) {
        return wrong(err, number, "\"drop\" and \"transpose\" are true or false");
    }
    if (drop == (to != NULL)) {
        return wrong(err, number, "it has either \"to\" or \"drop\": true");
    }
    status = keep(&rule->from, from, err);
    if (status == TCK_OK && !drop) {
        status = take_targets(rule, to, number, err);
    }
    if (status == TCK_OK && !drop) {
        status = take_split(rule, json_get(json, "split"), number, err);
    }
    return status == TCK_OK && !drop ? take_rows(rule, json_get(json, "rows"), number, err) : status;
}

static tck_status_t parse_rules(struct family_rules *rules, const json_t *list, struct error *err)
{
    tck_status_t status = TCK_OK;
    if (!json_is_array(list)) {
        return error_set(err, TCK_ERR_PROTO, "\"rules\" is a list of rules");
    }
    rules->list = calloc(json_len(list) + 1, sizeof(*rules->list));
    if (rules->list == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a mapping");
    }
    for (const json_t *item = json_first(list); item != NULL && status == TCK_OK; item = json_next(item)) {
        status = parse_rule(&rules->list[rules->count], item, rules->count + 1, err);
        rules->count++;
    }
    return status;
}

static tck_status_t parse_numbers(struct family_rules *rules, const json_t *json, struct error *err)
{
    tck_status_t status = TCK_OK;
    if (json == NULL) {
        return TCK_OK;
    }
    rules->numbers = calloc(json_len(json) + 1, sizeof(*rules->numbers));
    if (rules->numbers == NULL || !json_is_object(json)) {
        return error_set(err, TCK_ERR_PROTO, "\"numbers\" is an object of numbers");
    }
    for (const json_t *item = json_first(json); item != NULL && status == TCK_OK; item = json_next(item)) {
        struct map_number *number = &rules->numbers[rules->number_count];
        if (!json_u64(item, &number->value) || number->value == 0) {
            return error_set(err, TCK_ERR_PROTO, "number \"%.100s\" is not a whole number above 0", json_key(item));
        }
        status = keep(&number->name, json_key(item), err);
        rules->number_count += status == TCK_OK;
    }
    return status;
}

static tck_status_t parse(struct family_rules *rules, const json_t *json, struct error *err)
{
    static const char *const known[] = {"format", "about", "extends", "numbers", "rules", NULL};
    uint64_t format = 0;
    if (!json_u64(json_get(json, "format"), &format) || format != NAMES_FORMAT) {
        return error_set(err, TCK_ERR_PROTO, "\"format\" is not %d, which this build reads", NAMES_FORMAT);
    }
    tck_status_t status = check_members(json, known, err);
    const json_t *base = json_get(json, "extends");
    if (status == TCK_OK && base != NULL) {
        status = json_str(base) == NULL ? error_set(err, TCK_ERR_PROTO, "\"extends\" is the name of a mapping")
                                        : keep(&rules->base, json_str(base), err);
    }
    if (status == TCK_OK) {
        status = parse_numbers(rules, json_get(json, "numbers"), err);
    }
    return status == TCK_OK ? parse_rules(rules, json_get(json, "rules"), err) : status;
}

tck_status_t family_parse(const char *text, size_t len, struct family_rules **out, const char **base_out,
                          struct error *err)
{
    struct family_rules *rules = calloc(1, sizeof(*rules));
    json_t *json = NULL;
    tck_status_t status =
        rules == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for a mapping") : json_parse(text, len, &json, err);
    if (status == TCK_OK) {
        status = parse(rules, json, err);
    }
    json_free(json);
    if (status != TCK_OK) {
        family_free(rules);
        return status;
    }
    *out = rules;
    *base_out = rules->base;
    return TCK_OK;
}

static void free_rule(struct rule *rule)
{
    for (uint32_t i = 0; i < rule->to_count; i++) {
        free(rule->to[i]);
    }
    free(rule->from);
    free(rule->rows);
}

void family_free(struct family_rules *rules)
{
    if (rules == NULL) {
        return;
    }
    for (uint32_t i = 0; i < rules->count; i++) {
        free_rule(&rules->list[i]);
    }
    for (uint32_t i = 0; i < rules->number_count; i++) {
        free(rules->numbers[i].name);
    }
    free(rules->list);
    free(rules->numbers);
    free(rules->base);
    free(rules);
}

tck_status_t family_extend(struct family_rules *rules, struct family_rules *base, struct error *err)
{
    struct rule *list = reallocarray(rules->list, (size_t)rules->count + base->count + 1, sizeof(*list));
    rules->list = list != NULL ? list : rules->list;
    struct map_number *numbers =
        reallocarray(rules->numbers, (size_t)rules->number_count + base->number_count + 1, sizeof(*numbers));
    rules->numbers = numbers != NULL ? numbers : rules->numbers;
    if (list == NULL || numbers == NULL) {
        family_free(base);
        return error_set(err, TCK_ERR_NOMEM, "no memory for a mapping");
    }
    memcpy(list + rules->count, base->list, base->count * sizeof(*list));
    rules->count += base->count;
    for (uint32_t i = 0; i < base->number_count; i++) { /* the first number of a name is the one that counts */
        numbers[rules->number_count++] = base->numbers[i];
    }
    base->count = base->number_count = 0;
    family_free(base);
    return TCK_OK;
}

/* ---- applying ---------------------------------------------------------------------------------------------------- */

static bool find_number(const struct map_number *list, uint32_t count, const char *name, uint64_t *out)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0) {
            *out = list[i].value;
            return true;
        }
    }
    return false;
}

/* A number of the mapping, or else of the model. */
static bool number_of(const struct family_rules *rules, const struct export_map *map, const char *name, uint64_t *out)
{
    return find_number(rules->numbers, rules->number_count, name, out) ||
           find_number(map->numbers, map->number_count, name, out);
}

/* How the rows of a fused tensor lie: for each group of queries those of its heads, then one key and one value. */
struct fused {
    uint64_t groups, queries, head; /* queries: heads of a group; head: rows of one */
};

static tck_status_t find_fused(const struct family_rules *rules, const struct export_map *map, uint64_t rows,
                               struct fused *out, struct error *err)
{
    static const char *const names[] = {"heads", "query_groups", "head_size"};
    uint64_t n[3] = {0}, want = 0;
    for (uint32_t i = 0; i < 3; i++) {
        if (!number_of(rules, map, names[i], &n[i]) || n[i] == 0) {
            return error_set(err, TCK_ERR_INVAL,
                             "the model's \"%s\" is not known, and is needed to split it: give it in "
                             "\"numbers\" of the mapping",
                             names[i]);
        }
    }
    *out = (struct fused){.groups = n[1], .queries = n[0] / n[1], .head = n[2]};
    if (n[0] % n[1] != 0 || __builtin_mul_overflow(n[0] + 2 * n[1], n[2], &want) || want != rows) {
        return error_set(err, TCK_ERR_LAYOUT,
                         "%" PRIu64 " heads in %" PRIu64 " groups, each of %" PRIu64 " rows, do not "
                         "make its %" PRIu64 " rows",
                         n[0], n[1], n[2], rows);
    }
    return TCK_OK;
}

/* Appends queries (0), keys (1) or values (2) of all groups. */
static void add_fused(struct renamed *out, const struct fused *fused, uint32_t which)
{
    const uint64_t begin[3] = {0, fused->queries * fused->head, (fused->queries + 1) * fused->head};
    uint64_t group = (fused->queries + 2) * fused->head,
             count = which == 0 ? fused->queries * fused->head : fused->head;
    for (uint64_t g = 0; g < fused->groups; g++) {
        out->rows[out->count++] = (struct rows){g * group + begin[which], count};
    }
}

static tck_status_t make_room(struct renamed *out, uint64_t count, struct error *err)
{
    out->rows = count > UINT32_MAX ? NULL : calloc(count, sizeof(*out->rows));
    return out->rows == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for %" PRIu64 " ranges of rows", count)
                             : TCK_OK;
}

static tck_status_t split_fused(const struct rule *rule, const struct fused *fused, struct renamed *out,
                                struct error *err)
{
    tck_status_t status = TCK_OK;
    uint32_t each = 3 / rule->to_count;
    for (uint32_t i = 0; i < rule->to_count && status == TCK_OK; i++) {
        status = make_room(&out[i], fused->groups * each, err);
        for (uint32_t k = 0; k < each && status == TCK_OK; k++) {
            add_fused(&out[i], fused, i * each + k);
        }
    }
    return status;
}

static tck_status_t take_range(struct renamed *out, uint64_t from, uint64_t count, struct error *err)
{
    tck_status_t status = make_room(out, 1, err);
    if (status == TCK_OK) {
        out->rows[out->count++] = (struct rows){from, count};
    }
    return status;
}

/* Chooses the rows of each target. */
static tck_status_t cut(const struct family_rules *rules, const struct export_map *map, const struct rule *rule,
                        const struct box *box, struct renamed *out, struct error *err)
{
    uint64_t rows = box->size[0];
    struct fused fused = {0};
    if (box->ndim == 0) {
        return rule->split == SPLIT_NONE && rule->rows == NULL && !rule->transpose
                   ? TCK_OK
                   : error_set(err, TCK_ERR_LAYOUT, "it is a single number, and has no rows");
    }
    if (rule->split == SPLIT_QKV) {
        tck_status_t status = find_fused(rules, map, rows, &fused, err);
        return status == TCK_OK ? split_fused(rule, &fused, out, err) : status;
    }
    if (rule->split == SPLIT_HALVES) {
        if (rows % 2 != 0) {
            return error_set(err, TCK_ERR_LAYOUT, "its %" PRIu64 " rows have no halves", rows);
        }
        tck_status_t status = take_range(&out[0], 0, rows / 2, err);
        return status == TCK_OK ? take_range(&out[1], rows / 2, rows / 2, err) : status;
    }
    if (rule->rows != NULL && number_of(rules, map, rule->rows, &rows) && rows > box->size[0]) {
        return error_set(err, TCK_ERR_LAYOUT, "it has %" PRIu64 " rows, and \"%.100s\" is %" PRIu64, box->size[0],
                         rule->rows, rows);
    }
    return take_range(&out[0], 0, rows, err);
}

static void shape(struct renamed *out, const struct box *box)
{
    out->box = *box;
    if (box->ndim > 0) {
        out->box.size[0] = 0;
    }
    for (uint32_t i = 0; i < out->count; i++) {
        out->box.size[0] += out->rows[i].count;
    }
    if (out->transposed) {
        uint64_t rows = out->box.size[0];
        out->box.size[0] = out->box.size[1];
        out->box.size[1] = rows;
    }
}

static tck_status_t apply(const struct family_rules *rules, const struct export_map *map, const struct rule *rule,
                          const struct captured *captured, const struct box *box, struct renamed *out,
                          struct error *err)
{
    if (rule->transpose && box->ndim != 2) {
        return error_set(err, TCK_ERR_LAYOUT, "it has %" PRIu32 " dimensions: only two can be transposed", box->ndim);
    }
    tck_status_t status = cut(rules, map, rule, box, out, err);
    for (uint32_t i = 0; i < rule->to_count && status == TCK_OK; i++) {
        out[i].transposed = rule->transpose;
        shape(&out[i], box);
        out[i].name = fill(rule->to[i], captured);
        if (out[i].name == NULL) {
            status = error_set(err, TCK_ERR_NOMEM, "no memory for its new name, or that is too long");
        }
    }
    return status;
}

tck_status_t family_apply(const struct family_rules *rules, const struct export_map *map, const char *name,
                          const struct box *box, struct renamed out[RENAMED_MAX], uint32_t *count_out,
                          struct error *err)
{
    struct captured captured;
    const struct rule *rule = NULL;
    for (uint32_t i = 0; i < rules->count && rule == NULL; i++) {
        rule = fits(rules->list[i].from, name, &captured) ? &rules->list[i] : NULL;
    }
    if (rule == NULL) {
        return error_set(err, TCK_ERR_NOENT,
                         "no rule of the mapping fits \"%.200s\": add one, with \"drop\": true if it "
                         "is to be left out",
                         name);
    }
    memset(out, 0, RENAMED_MAX * sizeof(*out));
    tck_status_t status = rule->to_count == 0 ? TCK_OK : apply(rules, map, rule, &captured, box, out, err);
    if (status != TCK_OK) {
        for (uint32_t i = 0; i < RENAMED_MAX; i++) {
            renamed_free(&out[i]);
        }
        return error_prefix(err, "\"%.200s\"", name);
    }
    *count_out = rule->to_count;
    return TCK_OK;
}

void renamed_free(struct renamed *renamed)
{
    free(renamed->name);
    free(renamed->rows);
    *renamed = (struct renamed){0};
}
