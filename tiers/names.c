/* SPDX-License-Identifier: Apache-2.0
 * Prints and parses the names of names.h: v<step, 12 digits>.t<term>, <term>-<step> and term.<T>. */
#include "tiers/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void version_dir_name(struct version version, char out[DIR_NAME_MAX])
{
    snprintf(out, DIR_NAME_MAX, "v%012" PRIu64 ".t%" PRIu64, version.step, version.term);
}

bool version_dir_parse(const char *name, struct version *out)
{
    struct version version;
    char again[DIR_NAME_MAX];
    if (sscanf(name, "v%" SCNu64 ".t%" SCNu64, &version.step, &version.term) != 2 || version_none(version)) {
        return false;
    }
    version_dir_name(version, again);
    if (strcmp(name, again) != 0) {
        return false;
    }
    *out = version;
    return true;
}

void stage_dir_name(struct version version, char out[DIR_NAME_MAX])
{
    snprintf(out, DIR_NAME_MAX, "%" PRIu64 "-%" PRIu64, version.term, version.step);
}

bool stage_dir_parse(const char *name, struct version *out)
{
    struct version version;
    char again[DIR_NAME_MAX];
    if (sscanf(name, "%" SCNu64 "-%" SCNu64, &version.term, &version.step) != 2 || version_none(version)) {
        return false;
    }
    stage_dir_name(version, again);
    if (strcmp(name, again) != 0) {
        return false;
    }
    *out = version;
    return true;
}

void term_name(uint64_t term, char out[DIR_NAME_MAX])
{
    snprintf(out, DIR_NAME_MAX, "term.%" PRIu64, term);
}

bool term_name_parse(const char *name, uint64_t *out)
{
    uint64_t term;
    char again[DIR_NAME_MAX];
    if (sscanf(name, "term.%" SCNu64, &term) != 1 || term == 0) {
        return false;
    }
    term_name(term, again);
    if (strcmp(name, again) != 0) {
        return false;
    }
    *out = term;
    return true;
}

bool term_object_parse(const char *name, uint64_t *term_out, enum term_object *what_out)
{
    char again[DIR_NAME_MAX];
    uint64_t term;
    if (sscanf(name, "term.%" SCNu64 ".", &term) != 1 || term == 0) {
        return false;
    }
    for (enum term_object what = 0; what < TERM_OBJECTS; what++) {
        term_object_name(term, what, again);
        if (strcmp(name, again) == 0) {
            *term_out = term;
            *what_out = what;
            return true;
        }
    }
    return false;
}

void term_object_name(uint64_t term, enum term_object what, char out[DIR_NAME_MAX])
{
    static const char *const names[TERM_OBJECTS] = {[TERM_HOLDER] = "holder",
                                                    [TERM_JOINED] = "joined",
                                                    [TERM_RESTORE] = "restore",
                                                    [TERM_COMMIT] = "commit",
                                                    [TERM_END] = "end"};
    snprintf(out, DIR_NAME_MAX, "term.%" PRIu64 ".%s", term, names[what]);
}
