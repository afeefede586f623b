/* SPDX-License-Identifier: Apache-2.0
 * One field of a configuration struct: how its value is read from text and JSON, checked and printed. Every value, a
 * JSON number too, goes through the one text parser of its type, so a file, a default and a command line mean the same.
 * Private to config.c, which has the table. */
#ifndef TCK_BASE_FIELD_H
#define TCK_BASE_FIELD_H

#include "base/config.h"

enum field_type {
    FIELD_NAME,     /* char[CONFIG_NAME], name_is_safe */
    FIELD_TEXT,     /* char[cap] */
    FIELD_PATH,     /* char[CONFIG_PATH], made absolute by path_absolute */
    FIELD_NUMBER,   /* uint32_t from min to max */
    FIELD_BYTES,    /* uint64_t, also as "64GiB" */
    FIELD_INTERVAL, /* struct interval */
    FIELD_WORD,     /* an enum, by its words */
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
