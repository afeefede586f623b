/* SPDX-License-Identifier: Apache-2.0
 * The types of configuration fields: one parser from text and one printer each. */
#include "base/field.h"
#include "base/path.h"
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX            64 /* bytes of a refused value in its error */
#define SHARE_MAX            0.5
#define PPM                  1e6
#define NUMBER_TEXT          32             /* holds a number or an interval */
#define INTERVAL_STEPS_MAX   1000000000000u /* step + interval never wraps */
#define INTERVAL_SECONDS_MIN 1e-3
#define INTERVAL_SECONDS_MAX 1e9

bool name_is_safe(const char *name)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t len = strspn(name, allowed);
    return len > 0 && len < CONFIG_NAME && name[len] == '\0' && name[0] != '.';
}

/* The digits that text begins with; *end_out is what follows them. */
static bool parse_digits(const char *text, const char **end_out, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || errno == ERANGE) {
        return false;
    }
    *end_out = end;
    *out = value;
    return true;
}

static bool parse_bytes(const char *text, uint64_t *out)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    const char *unit;
    uint64_t count;
    if (!parse_digits(text, &unit, &count)) {
        return false;
    }
    for (unsigned i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(unit, units[i]) == 0) {
            if (count > UINT64_MAX >> (10 * i)) {
                return false;
            }
            *out = count << (10 * i);
            return true;
        }
    }
    return false;
}

static bool parse_seconds(const char *text, double *out)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
    size_t span = strspn(text, "0123456789.");
    char *end;
    double count = strtod(text, &end);
    if (span == 0 || end != text + span) {
        return false;
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(end, units[i].name) == 0) {
            *out = count * units[i].seconds;
            return *out <= 0 || (*out >= INTERVAL_SECONDS_MIN && *out <= INTERVAL_SECONDS_MAX);
        }
    }
    return false;
}

/* "auto" or "auto:2m". Until the costs are known, the field's default is in force. */
static bool parse_automatic(const struct field *f, const char *text, struct interval *out)
{
    const char *end;
    struct interval interval = {.automatic = true};
    if (!parse_digits(f->default_text, &end, &interval.steps)) {
        return false;
    }
    const char *bound = text + strlen("auto");
    if (*bound != '\0' &&
        (*bound != ':' || !parse_seconds(bound + 1, &interval.at_most_seconds) || interval.at_most_seconds <= 0)) {
        return false;
    }
    *out = interval;
    return true;
}

static bool parse_interval(const struct field *f, const char *text, struct interval *out)
{
    struct interval interval = {0};
    const char *end;
    if (strncmp(text, "auto", strlen("auto")) == 0) {
        return parse_automatic(f, text, out);
    }
    bool never = strcmp(text, "off") == 0;
    bool steps = parse_digits(text, &end, &interval.steps) && *end == '\0' && interval.steps <= INTERVAL_STEPS_MAX;
    if (!steps) {
        interval.steps = 0;
    }
    if (!never && !steps && !parse_seconds(text, &interval.seconds)) {
        return false;
    }
    *out = interval;
    return true;
}

static const struct word *word_find(const struct field *f, const char *text)
{
    for (const struct word *word = f->words; word->text != NULL; word++) {
        if (strcmp(word->text, text) == 0) {
            return word;
        }
    }
    return NULL;
}

static void list_words(const struct field *f, char *out, size_t cap)
{
    size_t len = 0;
    out[0] = '\0';
    for (const struct word *word = f->words; word->text != NULL && len < cap; word++) {
        if (!word->refused) {
            len += (size_t)snprintf(out + len, cap - len, "%s%s", len == 0 ? "" : ", ", word->text);
        }
    }
}

/* text is shorter than cap. Pads with zeros, so that equal configurations are equal bytes. */
static void put_text(char *at, size_t cap, const char *text)
{
    strncpy(at, text, cap);
}

static tck_status_t set_name(const struct field *f, const char *text, char *at, struct error *err)
{
    if (!name_is_safe(text)) {
        return error_set(err, TCK_ERR_CONFIG,
                         "%s: \"%.*s\" must be 1 to %d of A-Z a-z 0-9 . _ - and not begin with a dot", f->name,
                         SHOWN_MAX, text, CONFIG_NAME - 1);
    }
    put_text(at, f->cap, text);
    return TCK_OK;
}

static tck_status_t set_text(const struct field *f, const char *text, char *at, struct error *err)
{
    if (strlen(text) >= f->cap) {
        return error_set(err, TCK_ERR_CONFIG, "%s: \"%.*s...\" is longer than %zu bytes", f->name, SHOWN_MAX, text,
                         f->cap - 1);
    }
    put_text(at, f->cap, text);
    return TCK_OK;
}

static tck_status_t set_path(const struct field *f, const char *text, const char *dir, char *at, struct error *err)
{
    char path[CONFIG_PATH];
    tck_status_t status = f->type == FIELD_PLACE ? path_or_url(text, dir, path, sizeof(path), err)
                                                 : path_absolute(text, dir, path, sizeof(path), err);
    if (status != TCK_OK) {
        return error_prefix(err, "%s", f->name);
    }
    put_text(at, f->cap, path);
    return TCK_OK;
}

static tck_status_t set_number(const struct field *f, const char *text, uint32_t *at, struct error *err)
{
    const char *end;
    uint64_t value;
    if (!parse_digits(text, &end, &value) || *end != '\0') {
        return error_set(err, TCK_ERR_CONFIG, "%s: \"%.*s\" is not a whole number", f->name, SHOWN_MAX, text);
    }
    if (value < f->min || value > f->max) {
        return error_set(err, TCK_ERR_CONFIG, "%s: %" PRIu64 " is out of range (%u to %u)", f->name, value, f->min,
                         f->max);
    }
    *at = (uint32_t)value;
    return TCK_OK;
}

static tck_status_t set_bytes(const struct field *f, const char *text, uint64_t *at, struct error *err)
{
    if (!parse_bytes(text, at)) {
        return error_set(err, TCK_ERR_CONFIG,
                         "%s: \"%.*s\" is not a number of bytes below 2^64, plain or with KiB, MiB, GiB, TiB", f->name,
                         SHOWN_MAX, text);
    }
    return TCK_OK;
}

static tck_status_t set_interval(const struct field *f, const char *text, struct interval *at, struct error *err)
{
    if (!parse_interval(f, text, at)) {
        return error_set(err, TCK_ERR_CONFIG,
                         "%s: \"%.*s\" is not a number of steps (20), a time (\"500ms\", \"30s\", \"1.5m\", \"2h\"), "
                         "\"auto\", \"auto:TIME\" or \"off\"",
                         f->name, SHOWN_MAX, text);
    }
    return TCK_OK;
}

static bool parse_share(const char *text, uint32_t *out)
{
    size_t span = strspn(text, "0123456789.");
    char *end;
    double share = strtod(text, &end);
    bool percent = strcmp(end, "%") == 0;
    share = percent ? share / 100 : share;
    if (span == 0 || end != text + span || (*end != '\0' && !percent) || share > SHARE_MAX) {
        return false;
    }
    *out = (uint32_t)(share * PPM + 0.5);
    return true;
}

static tck_status_t set_share(const struct field *f, const char *text, uint32_t *at, struct error *err)
{
    if (!parse_share(text, at)) {
        return error_set(err, TCK_ERR_CONFIG, "%s: \"%.*s\" is not a part of the whole, 0.01 or \"1%%\", from 0 to %g",
                         f->name, SHOWN_MAX, text, SHARE_MAX);
    }
    return TCK_OK;
}

static tck_status_t set_word(const struct field *f, const char *text, uint32_t *at, struct error *err)
{
    const struct word *word = word_find(f, text);
    if (word == NULL) {
        char known[SHOWN_MAX];
        list_words(f, known, sizeof(known));
        return error_set(err, TCK_ERR_CONFIG, "%s: \"%.*s\" is not one of: %s", f->name, SHOWN_MAX, text, known);
    }
    if (word->refused) {
        return error_set(err, TCK_ERR_CONFIG, "%s: \"%s\" is not supported by this version", f->name, text);
    }
    *at = word->value;
    return TCK_OK;
}

tck_status_t field_set(const struct field *f, void *base, const char *text, const char *dir, struct error *err)
{
    void *at = (char *)base + f->offset;
    switch (f->type) {
    case FIELD_NAME:
        return set_name(f, text, at, err);
    case FIELD_TEXT:
        return set_text(f, text, at, err);
    case FIELD_PATH:
    case FIELD_PLACE:
        return set_path(f, text, dir, at, err);
    case FIELD_NUMBER:
        return set_number(f, text, at, err);
    case FIELD_BYTES:
        return set_bytes(f, text, at, err);
    case FIELD_INTERVAL:
        return set_interval(f, text, at, err);
    case FIELD_WORD:
        return set_word(f, text, at, err);
    case FIELD_SHARE:
        return set_share(f, text, at, err);
    }
    return error_set(err, TCK_ERR_INTERNAL, "%s: field without a type", f->name);
}

/* What a field takes in JSON. */
static const struct {
    bool number, text;
    const char *wants;
} type_json[] = {
    [FIELD_NAME] = {false, true, "a text"},
    [FIELD_TEXT] = {false, true, "a text"},
    [FIELD_PATH] = {false, true, "a text"},
    [FIELD_PLACE] = {false, true, "a text"},
    [FIELD_NUMBER] = {true, false, "a whole number"},
    [FIELD_BYTES] = {true, true, "a number of bytes or a text such as \"64GiB\""},
    [FIELD_INTERVAL] = {true, true, "a number of steps or a text such as \"30s\""},
    [FIELD_WORD] = {false, true, "a text"},
    [FIELD_SHARE] = {true, true, "a number such as 0.01 or a text such as \"1%\""},
};

void field_takes(const struct field *f, char *out, size_t cap)
{
    static const char *const words[] = {
        [FIELD_NAME] = "a name",
        [FIELD_TEXT] = "a text",
        [FIELD_PATH] = "a path",
        [FIELD_PLACE] = "a path or URL",
        [FIELD_BYTES] = "bytes, \"64GiB\"",
        [FIELD_INTERVAL] = "steps, \"30s\", \"off\"",
        [FIELD_SHARE] = "0.01, \"1%\"",
    };
    if (f->type == FIELD_NUMBER) {
        snprintf(out, cap, "%u to %u", f->min, f->max);
    } else if (f->type == FIELD_WORD) {
        list_words(f, out, cap);
    } else {
        snprintf(out, cap, "%s", words[f->type]);
    }
}

/* Without an exponent, which text does not have. */
static void print_share(double share, char out[NUMBER_TEXT])
{
    snprintf(out, NUMBER_TEXT, "%.9f", share);
    size_t len = strlen(out);
    while (len > 1 && strchr(out, '.') != NULL && strchr("0.", out[len - 1]) != NULL) {
        out[--len] = '\0';
    }
}

static tck_status_t wrong_type(const struct field *f, const json_t *value, struct error *err)
{
    char *shown = json_print(value, false);
    tck_status_t status = error_set(err, TCK_ERR_CONFIG, "%s: must be %s, not %.*s", f->name, type_json[f->type].wants,
                                    SHOWN_MAX, shown == NULL ? "this value" : shown);
    free(shown);
    return status;
}

tck_status_t field_decode(const struct field *f, void *base, const json_t *value, const char *dir, struct error *err)
{
    const char *text = json_str(value);
    char digits[NUMBER_TEXT];
    uint64_t number;
    double share;
    if (text != NULL) {
        return type_json[f->type].text ? field_set(f, base, text, dir, err) : wrong_type(f, value, err);
    }
    if (f->type == FIELD_SHARE && json_f64(value, &share)) {
        print_share(share, digits);
        return field_set(f, base, digits, dir, err);
    }
    if (!type_json[f->type].number || !json_u64(value, &number)) {
        return wrong_type(f, value, err);
    }
    snprintf(digits, sizeof(digits), "%" PRIu64, number);
    return field_set(f, base, digits, dir, err);
}

static void print_seconds(double seconds, char out[NUMBER_TEXT])
{
    double back;
    snprintf(out, NUMBER_TEXT, "%.15gs", seconds);
    if (!parse_seconds(out, &back) || back < seconds || back > seconds) {
        snprintf(out, NUMBER_TEXT, "%.17gs", seconds); /* always exact */
    }
}

static bool add_automatic(json_t *json, const char *name, const struct interval *interval)
{
    char text[sizeof("auto:") + NUMBER_TEXT] = "auto:";
    if (interval->at_most_seconds <= 0) {
        return json_add_str(json, name, "auto");
    }
    print_seconds(interval->at_most_seconds, text + strlen(text));
    return json_add_str(json, name, text);
}

static bool add_interval(json_t *json, const char *name, const struct interval *interval)
{
    char text[NUMBER_TEXT];
    if (interval->automatic) {
        return add_automatic(json, name, interval);
    }
    if (interval->steps != 0) {
        return json_add_u64(json, name, interval->steps);
    }
    if (interval->seconds <= 0) {
        return json_add_str(json, name, "off");
    }
    print_seconds(interval->seconds, text);
    return json_add_str(json, name, text);
}

static bool add_word(json_t *json, const struct field *f, uint32_t value)
{
    const struct word *word = f->words;
    while (word->value != value) {
        word++;
    }
    return json_add_str(json, f->name, word->text);
}

bool field_add(json_t *object, const struct field *f, const void *base)
{
    const void *at = (const char *)base + f->offset;
    switch (f->type) {
    case FIELD_NAME:
    case FIELD_TEXT:
    case FIELD_PATH:
    case FIELD_PLACE:
        return json_add_str(object, f->name, at);
    case FIELD_NUMBER:
        return json_add_u64(object, f->name, *(const uint32_t *)at);
    case FIELD_BYTES:
        return json_add_u64(object, f->name, *(const uint64_t *)at);
    case FIELD_INTERVAL:
        return add_interval(object, f->name, at);
    case FIELD_WORD:
        return add_word(object, f, *(const uint32_t *)at);
    case FIELD_SHARE:
        return json_add_f64(object, f->name, *(const uint32_t *)at / PPM);
    }
    return false;
}
