/* SPDX-License-Identifier: Apache-2.0
 * JSON through cJSON, with the checks that cJSON leaves out: trailing bytes, duplicate keys, exact 64-bit integers. */
#include "base/json.h"
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_MAX (UINT64_C(1) << 53) /* every whole number up to here is a double */

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* *duplicate_out is a key that the object has twice, or NULL. */
static tck_status_t object_find_duplicate(const cJSON *object, const char **duplicate_out)
{
    size_t count = json_len(object);
    *duplicate_out = NULL;
    if (count < 2) {
        return TCK_OK;
    }
    const char **keys = malloc(count * sizeof(*keys));
    if (keys == NULL) {
        return TCK_ERR_NOMEM;
    }
    size_t n = 0;
    for (const cJSON *member = object->child; member != NULL; member = member->next) {
        keys[n++] = member->string;
    }
    qsort(keys, n, sizeof(*keys), compare_keys);
    for (size_t i = 1; i < n && *duplicate_out == NULL; i++) {
        *duplicate_out = strcmp(keys[i - 1], keys[i]) == 0 ? keys[i] : NULL;
    }
    free(keys);
    return TCK_OK;
}

/* Walks the tree depth first without recursion; the stack suffices because cJSON refuses deeper texts. */
static tck_status_t refuse_duplicates(const cJSON *root, struct error *err)
{
    const cJSON *rest[CJSON_NESTING_LIMIT + 1]; /* what is still to visit on each level */
    size_t depth = 0;
    rest[depth++] = root;
    while (depth > 0) {
        const cJSON *item = rest[depth - 1];
        if (item == NULL) {
            depth--;
            continue;
        }
        rest[depth - 1] = item == root ? NULL : item->next;
        const char *duplicate = NULL;
        if (cJSON_IsObject(item) && object_find_duplicate(item, &duplicate) != TCK_OK) {
            return error_set(err, TCK_ERR_NOMEM, "out of memory while reading JSON");
        }
        if (duplicate != NULL) {
            return error_set(err, TCK_ERR_PROTO, "key \"%s\" appears twice in one JSON object: keep one of them",
                             duplicate);
        }
        if (item->child != NULL) {
            rest[depth++] = item->child;
        }
    }
    return TCK_OK;
}

/* The character before p that is no white space; '\0' if there is none. */
static char before(const char *text, const char *p)
{
    while (p > text && strchr(" \t\r\n", p[-1]) != NULL) {
        p--;
    }
    return (char)(p > text ? p[-1] : '\0');
}

/* Where the fault is. cJSON gives up one character after what should have been the quote that a key begins with. */
static const char *fault_at(const char *text, const char *end)
{
    if (end == text || strchr(" \t\r\n0123456789,:{[", end[-1]) != NULL) {
        return end;
    }
    char last = before(text, end - 1);
    bool opens = last == '{' && end[-1] != '}';
    return opens || last == ',' || (last == ':' && end[-1] == '"') ? end - 1 : end;
}

/* Names the common mistake that this is, something that people write and JSON does not have; "" if it is another
 * one. */
static const char *syntax_hint(const char *text, const char *at)
{
    char last = before(text, at);
    switch (*at) {
    case '\0':
        return ": the text ends before it is complete";
    case '}':
    case ']':
        return last == ',' ? ": there is a comma before the closing bracket" : "";
    case '\'':
        return ": strings need double quotes";
    case '#':
    case '/':
        return ": JSON has no comments";
    case '"':
        return strchr(",{[:", last) == NULL ? ": a comma or a colon is missing before it"
                                            : ": the string that begins there is not closed";
    case 'T':
    case 'F':
    case 'N':
        return ": JSON has true, false and null";
    default:
        return last == '{' || last == ',' ? ": keys need double quotes" : "";
    }
}

static tck_status_t syntax_error(const char *text, const char *end, struct error *err)
{
    const char *at = fault_at(text, end);
    size_t line = 1, column = 1;
    for (const char *p = text; p < at; p++) {
        column = *p == '\n' ? 1 : column + 1;
        line += *p == '\n';
    }
    return error_set(err, TCK_ERR_PROTO, "not valid JSON at line %zu, column %zu%s", line, column,
                     syntax_hint(text, at));
}

tck_status_t json_parse(const char *text, size_t len, json_t **out, struct error *err)
{
    if (len > JSON_MAX_BYTES) {
        return error_set(err, TCK_ERR_PROTO, "JSON text of %zu bytes is over the limit of %u", len, JSON_MAX_BYTES);
    }
    if (len == 0) { /* text may be NULL */
        return error_set(err, TCK_ERR_PROTO, "is empty: there is no JSON text");
    }
    if (memchr(text, '\0', len) != NULL) {
        return error_set(err, TCK_ERR_PROTO, "JSON text has a NUL byte");
    }
    /* A copy with a NUL: cJSON 1.7.15 may look one byte past the length that it was given (CVE-2023-53154). */
    char *copy = strndup(text, len);
    if (copy == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for %zu bytes of JSON", len);
    }
    const char *end = copy;
    cJSON *json = cJSON_ParseWithLengthOpts(copy, len + 1, &end, true);
    tck_status_t status = json == NULL ? syntax_error(copy, end, err) : refuse_duplicates(json, err);
    free(copy);
    if (status != TCK_OK) {
        cJSON_Delete(json);
        return status;
    }
    *out = json;
    return TCK_OK;
}

void json_free(json_t *json)
{
    cJSON_Delete(json);
}

char *json_print(const json_t *json, bool pretty)
{
    return pretty ? cJSON_Print(json) : cJSON_PrintUnformatted(json);
}

char *json_plain(const json_t *value)
{
    const char *text = json_str(value);
    return text != NULL ? strdup(text) : json_print(value, false);
}

json_t *json_object(void)
{
    return cJSON_CreateObject();
}

json_t *json_array(void)
{
    return cJSON_CreateArray();
}

bool json_add(json_t *parent, const char *key, json_t *value)
{
    bool added = key == NULL ? cJSON_AddItemToArray(parent, value) : cJSON_AddItemToObject(parent, key, value);
    if (!added) {
        cJSON_Delete(value);
    }
    return added;
}

bool json_add_str(json_t *parent, const char *key, const char *value)
{
    return json_add(parent, key, cJSON_CreateString(value));
}

bool json_add_u64(json_t *parent, const char *key, uint64_t value)
{
    char digits[24];
    snprintf(digits, sizeof(digits), "%" PRIu64, value);
    /* As raw digits, because cJSON prints numbers from 10^15 on rounded to 15 places. */
    return json_add(parent, key, value <= EXACT_MAX ? cJSON_CreateRaw(digits) : cJSON_CreateString(digits));
}

bool json_add_f64(json_t *parent, const char *key, double value)
{
    return json_add(parent, key, cJSON_CreateNumber(value));
}

bool json_add_bool(json_t *parent, const char *key, bool value)
{
    return json_add(parent, key, cJSON_CreateBool(value));
}

const json_t *json_get(const json_t *object, const char *key)
{
    return cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, key) : NULL;
}

const char *json_str(const json_t *value)
{
    return cJSON_GetStringValue(value);
}

static bool digits_u64(const char *text, uint64_t *out)
{
    if (text[0] == '\0' || text[strspn(text, "0123456789")] != '\0') {
        return false;
    }
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno == ERANGE) {
        return false;
    }
    *out = value;
    return true;
}

bool json_u64(const json_t *value, uint64_t *out)
{
    if (cJSON_IsString(value) || cJSON_IsRaw(value)) {
        return digits_u64(value->valuestring, out);
    }
    if (!cJSON_IsNumber(value)) {
        return false;
    }
    double number = value->valuedouble;
    if (!(number >= 0 && number <= (double)EXACT_MAX) || floor(number) < number) {
        return false;
    }
    *out = (uint64_t)number;
    return true;
}

bool json_f64(const json_t *value, double *out)
{
    uint64_t whole;
    if (cJSON_IsRaw(value) && digits_u64(value->valuestring, &whole)) {
        *out = (double)whole;
        return true;
    }
    if (!cJSON_IsNumber(value) || !isfinite(value->valuedouble)) {
        return false;
    }
    *out = value->valuedouble;
    return true;
}

bool json_bool(const json_t *value, bool *out)
{
    if (!cJSON_IsBool(value)) {
        return false;
    }
    *out = cJSON_IsTrue(value);
    return true;
}

bool json_is_object(const json_t *value)
{
    return cJSON_IsObject(value);
}

bool json_is_array(const json_t *value)
{
    return cJSON_IsArray(value);
}

size_t json_len(const json_t *array_or_object)
{
    return (size_t)cJSON_GetArraySize(array_or_object);
}

const json_t *json_first(const json_t *array_or_object)
{
    return cJSON_IsArray(array_or_object) || cJSON_IsObject(array_or_object) ? array_or_object->child : NULL;
}

const json_t *json_next(const json_t *item)
{
    return item->next;
}

const char *json_key(const json_t *member)
{
    return member->string;
}
