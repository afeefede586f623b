/* SPDX-License-Identifier: Apache-2.0
 * JSON through cJSON; this module is the only one that includes its header. Values of a parsed tree live as long as the
 * tree. Parsing is bounded (JSON_MAX_BYTES, cJSON's nesting limit) and refuses trailing bytes and duplicate keys. */
#ifndef TCK_BASE_JSON_H
#define TCK_BASE_JSON_H

#include "base/status.h"
#include <stdbool.h>

#define JSON_MAX_BYTES (256u << 20)

typedef struct cJSON json_t;

must_check tck_status_t json_parse(const char *text, size_t len, json_t **out, struct error *err);
void json_free(json_t *json);
/* NUL-terminated text, freed by the caller with free(); NULL if out of memory. */
char *json_print(const json_t *json, bool pretty);

json_t *json_object(void);
json_t *json_array(void);
/* Adders take over value and return false only when out of memory (value is freed then). json_add to an array: key
 * NULL. */
bool json_add(json_t *parent, const char *key, json_t *value);
bool json_add_str(json_t *parent, const char *key, const char *value);
bool json_add_u64(json_t *parent, const char *key, uint64_t value); /* exact up to 2^53; beyond it a decimal string */
bool json_add_f64(json_t *parent, const char *key, double value);
bool json_add_bool(json_t *parent, const char *key, bool value);

/* Lookups: NULL / false if the key is missing or of another type. */
const json_t *json_get(const json_t *object, const char *key);
const char *json_str(const json_t *value);
/* As a user would write it: a string without quotes, all else as JSON. Freed by the caller; NULL if out of memory. */
char *json_plain(const json_t *value);
bool json_u64(const json_t *value, uint64_t *out); /* a non-negative integral number, or a decimal string */
bool json_f64(const json_t *value, double *out);
bool json_bool(const json_t *value, bool *out);
bool json_is_object(const json_t *value);
bool json_is_array(const json_t *value);
size_t json_len(const json_t *array_or_object);
const json_t *json_first(const json_t *array_or_object);
const json_t *json_next(const json_t *item);
const char *json_key(const json_t *member);

#endif
