/* SPDX-License-Identifier: Apache-2.0
 * The metrics of a command as text, and how a run ended out of such a text. */
#include "cli/operation_text.h"

#include "base/exposition.h"

#include <stdlib.h>
#include <string.h>

#define MS 3u /* decimals of seconds that are known in milliseconds */

static const struct family {
    const char *name, *labels, *help; /* labels: beside job_id and node */
} families[] = {
    {OPERATION_FAMILY, "operation", OPERATION_FAMILY_HELP},
    {"tierckpt_operation_quiet_seconds", "operation",
     "For how long the command has made no progress; 0: it is not under way."},
    {"tierckpt_operation_bytes", "operation, direction",
     "Bytes that the command has read (in) and written (out); of its last run if none is under way."},
    {"tierckpt_operation_updated_timestamp_seconds", "operation",
     "When these values were written. Old while the command is under way: it hangs or was killed."},
    {"tierckpt_operation_ended_timestamp_seconds", "operation", "When the last run ended; missing until one has."},
    {"tierckpt_operation_good", "operation", "1: the last run that ended gave a good answer; 0: it did not."},
    {"tierckpt_verify_findings", "result",
     "What the last verify found: damaged copies (bad), and what it could not check (unchecked)."},
    {"tierckpt_verify_checked", "what", "Slots and versions that the last verify checked."},
};

enum { AGE, QUIET, BYTES, UPDATED, ENDED, GOOD, FINDINGS, CHECKED };

/* Where the values of an outcome are. */
static const struct {
    const char *label, *value; /* NULL: the operation */
    int family;
    unsigned decimals;
} places[OUTCOME_VALUES] = {
    [OUTCOME_ENDED_MS] = {NULL, NULL, ENDED, MS},          [OUTCOME_GOOD] = {NULL, NULL, GOOD, 0},
    [OUTCOME_BAD] = {"result", "bad", FINDINGS, 0},        [OUTCOME_UNCHECKED] = {"result", "unchecked", FINDINGS, 0},
    [OUTCOME_VERSIONS] = {"what", "versions", CHECKED, 0}, [OUTCOME_SLOTS] = {"what", "slots", CHECKED, 0},
};

static void begin(struct exposition *x, const struct operation_figures *f)
{
    exposition_begin(x, OPERATION_TEXT_MAX, (struct label[]){{"job_id", f->job}, {"node", f->node}}, 2);
}

static void begin_family(struct exposition *x, int family)
{
    exposition_family(x, families[family].name, FAMILY_GAUGE, families[family].help);
}

/* ---- progress -------------------------------------------------------------------------------------------------- */

static void put_ms(struct exposition *x, const struct operation_figures *f, int family, uint64_t ms)
{
    begin_family(x, family);
    exposition_sample(x, &(struct label){"operation", f->operation}, 1, ms, MS);
}

static void put_bytes(struct exposition *x, const struct operation_figures *f)
{
    begin_family(x, BYTES);
    exposition_sample(x, (struct label[]){{"operation", f->operation}, {"direction", "in"}}, 2, f->read_bytes, 0);
    exposition_sample(x, (struct label[]){{"operation", f->operation}, {"direction", "out"}}, 2, f->written_bytes, 0);
}

/* ---- outcomes -------------------------------------------------------------------------------------------------- */

static uint32_t values_of(const struct operation_figures *f)
{
    return f->verifies ? OUTCOME_VALUES : OUTCOME_BAD;
}

static void put_value(struct exposition *x, const struct operation_figures *f, uint32_t i)
{
    bool own = places[i].label == NULL;
    const struct label label = {own ? "operation" : places[i].label, own ? f->operation : places[i].value};
    exposition_sample(x, &label, 1, f->last.values[i], places[i].decimals);
}

static void put_outcome(struct exposition *x, const struct operation_figures *f)
{
    for (uint32_t i = 0; i < values_of(f); i++) {
        if (i == 0 || places[i].family != places[i - 1].family) {
            begin_family(x, places[i].family);
        }
        put_value(x, f, i);
    }
}

char *operation_text(const struct operation_figures *f, size_t *len_out)
{
    struct exposition x;
    begin(&x, f);
    put_ms(&x, f, AGE, f->age_ms);
    put_ms(&x, f, QUIET, f->quiet_ms);
    put_bytes(&x, f);
    put_ms(&x, f, UPDATED, f->now_wall_ms);
    if (f->last.values[OUTCOME_ENDED_MS] != 0) {
        put_outcome(&x, f);
    }
    return exposition_end(&x, len_out);
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

/* The line of this value up to the number, after a line feed. The caller frees it; NULL: out of memory. */
static char *line_before(const struct operation_figures *whose, uint32_t i)
{
    struct exposition x;
    size_t len;
    begin(&x, whose);
    begin_family(&x, places[i].family);
    put_value(&x, whose, i);
    char *text = exposition_end(&x, &len);
    if (text == NULL) {
        return NULL;
    }
    while (text[len - 1] != ' ') { /* the number, whose value does not matter here */
        len--;
    }
    const char *line = memrchr(text, '\n', len);
    char *key = strndup(line, len - (size_t)(line - text));
    free(text);
    return key;
}

/* value * 10^decimals, written with as many decimals; 0 for anything else. */
static uint64_t number_at(const char *text, unsigned decimals)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    end += decimals > 0 && *end == '.';
    for (; decimals > 0 && *end >= '0' && *end <= '9'; decimals--, end++) {
        value = value * 10 + (uint64_t)(*end - '0');
    }
    return decimals == 0 && *end == '\n' ? value : 0;
}

struct operation_outcome operation_text_outcome(const char *text, const struct operation_figures *whose)
{
    struct operation_outcome outcome = {0};
    for (uint32_t i = 0; i < values_of(whose); i++) {
        char *key = line_before(whose, i);
        const char *at = key != NULL ? strstr(text, key) : NULL;
        outcome.values[i] = at != NULL ? number_at(at + strlen(key), places[i].decimals) : 0;
        free(key);
    }
    return outcome;
}

void operation_text_list(FILE *to)
{
    for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++) {
        family_print(to, families[i].name, families[i].labels, family_kind_name(FAMILY_GAUGE), families[i].help);
    }
}
