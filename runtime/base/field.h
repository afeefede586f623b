/* SPDX-License-Identifier: Apache-2.0
 * One field of a configuration struct: how its value is read from text and JSON, checked and printed. Every value, a
 * JSON number too, goes through the one text parser of its type, so a file, a default and a command line mean the same.
 * The table of fields is config.c's. */
#ifndef TCK_BASE_FIELD_H
#define TCK_BASE_FIELD_H

#include "base/json.h"

#define CONFIG_NAME 64   /* bytes of a name, its NUL included */
#define CONFIG_PATH 1024 /* the same of a path */

/* Every so many steps, or every so many seconds; both 0: never. */
struct interval {
    uint64_t steps;
    double seconds;
    bool automatic;         /* steps are chosen by what saves cost, and change while the job runs */
    double at_most_seconds; /* automatic: the longest time from one save to the next; 0: not given */
};

enum field_type {
    FIELD_NAME,     /* char[CONFIG_NAME], name_is_safe */
    FIELD_TEXT,     /* char[cap] */
    FIELD_PATH,     /* char[CONFIG_PATH], made absolute by path_absolute */
    FIELD_PLACE,    /* the same, or a URL: path_or_url */
    FIELD_NUMBER,   /* uint32_t from min to max */
    FIELD_BYTES,    /* uint64_t, also as "64GiB" */
    FIELD_INTERVAL, /* struct interval */
    FIELD_WORD,     /* an enum, by its words */
    FIELD_SHARE,    /* uint32_t, millionths: 0.01 or "1%", at most a half */
};

struct word {
    const char *text;
    uint32_t value;
    bool refused; /* known, but not in this version */
};

struct field {
    const char *name, *default_text, *help;
    enum field_type type;
    bool changeable;
    size_t offset;            /* in the configuration struct, base below */
    size_t cap;               /* of a text, with its NUL */
    uint32_t min, max;        /* of a number */
    const struct word *words; /* ends with an empty one */
};

/* True for names that may become a path component or socket name: 1..63 of [A-Za-z0-9._-], not starting with a dot. */
bool name_is_safe(const char *name);

/* Each error is one TCK_ERR_CONFIG line with the field's name, the reason and the value; the field is unchanged then.
 * Relative paths begin at dir (NULL: the working directory). */
must_check tck_status_t field_set(const struct field *f, void *base, const char *text, const char *dir,
                                  struct error *err);
must_check tck_status_t field_decode(const struct field *f, void *base, const json_t *value, const char *dir,
                                     struct error *err);
/* Which values it takes, in words. */
void field_takes(const struct field *f, char *out, size_t cap);
/* Adds the value under the field's name; false if out of memory. */
bool field_add(json_t *object, const struct field *f, const void *base);

#endif
