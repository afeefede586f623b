/* SPDX-License-Identifier: Apache-2.0
 * Prometheus' text format into a bounded buffer. */
#include "base/exposition.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define DECIMALS_MAX 9u

static void put(struct writer *w, const char *text)
{
    write_bytes(w, text, strlen(text));
}

/* Backslash, quote and line feed are escaped. A reader would refuse the whole text because of bytes that are not UTF-8,
 * and some do because of control characters, so those become other characters. */
static void put_value(struct writer *w, const char *value)
{
    bool is_utf8 = utf8_valid(value, strlen(value));
    for (const char *c = value; *c != '\0'; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte == '\\' || byte == '"') {
            char escaped[2] = {'\\', *c};
            write_bytes(w, escaped, sizeof(escaped));
        } else if (byte == '\n') {
            put(w, "\\n");
        } else if (byte < ' ' || byte == 0x7f || (byte > 0x7f && !is_utf8)) {
            put(w, "?");
        } else {
            write_bytes(w, c, 1);
        }
    }
}

static void put_labels(struct writer *w, const struct label *labels, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        put(w, i > 0 ? "," : "");
        put(w, labels[i].name);
        put(w, "=\"");
        put_value(w, labels[i].value);
        put(w, "\"");
    }
}

void exposition_begin(struct exposition *x, size_t max, const struct label *common, size_t count)
{
    struct writer labels = writer_new(max);
    put_labels(&labels, common, count);
    write_u8(&labels, 0);
    *x = (struct exposition){.w = writer_new(max), .common = writer_take(&labels, &(size_t){0})};
    x->w.failed = x->common == NULL;
}

const char *family_kind_name(enum family_kind kind)
{
    static const char *const names[FAMILY_KINDS] = {
        [FAMILY_GAUGE] = "gauge", [FAMILY_COUNTER] = "counter", [FAMILY_HISTOGRAM] = "histogram"};
    return names[kind];
}

void family_print(FILE *to, const char *name, const char *labels, const char *kind, const char *help)
{
    bool more = labels[0] != '\0';
    fprintf(to, "- `%s%s%s%s` (%s): %s\n", name, more ? "{" : "", labels, more ? "}" : "", kind, help);
}

void exposition_family(struct exposition *x, const char *name, enum family_kind kind, const char *help)
{
    x->family = name;
    put(&x->w, "# HELP ");
    put(&x->w, name);
    put(&x->w, " ");
    put(&x->w, help);
    put(&x->w, "\n# TYPE ");
    put(&x->w, name);
    put(&x->w, " ");
    put(&x->w, family_kind_name(kind));
    put(&x->w, "\n");
}

/* Exact, which a double is not above 2^53. */
static void put_number(struct writer *w, uint64_t value, unsigned decimals)
{
    char text[48];
    uint64_t unit = 1;
    for (unsigned i = 0; i < decimals; i++) {
        unit *= 10;
    }
    if (decimals == 0 || decimals > DECIMALS_MAX) {
        snprintf(text, sizeof(text), " %" PRIu64 "\n", value);
    } else {
        snprintf(text, sizeof(text), " %" PRIu64 ".%0*" PRIu64 "\n", value / unit, (int)decimals, value % unit);
    }
    put(w, text);
}

void exposition_part(struct exposition *x, const char *suffix, const struct label *extra, size_t count, uint64_t value,
                     unsigned decimals)
{
    if (x->w.failed) {
        return;
    }
    put(&x->w, x->family);
    put(&x->w, suffix);
    put(&x->w, "{");
    put(&x->w, x->common);
    put(&x->w, x->common[0] != '\0' && count > 0 ? "," : "");
    put_labels(&x->w, extra, count);
    put(&x->w, "}");
    put_number(&x->w, value, decimals);
}

void exposition_sample(struct exposition *x, const struct label *extra, size_t count, uint64_t value, unsigned decimals)
{
    exposition_part(x, "", extra, count, value, decimals);
}

char *exposition_end(struct exposition *x, size_t *len_out)
{
    free(x->common);
    x->common = NULL;
    char *text = writer_take(&x->w, len_out);
    if (text == NULL) {
        writer_free(&x->w);
    }
    return text;
}
