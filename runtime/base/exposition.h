/* SPDX-License-Identifier: Apache-2.0
 * Prometheus' text format (0.0.4) into a bounded buffer. Pure. What it is given is escaped where the format asks for
 * it, so no name of a job or a node can add a line or a label. */
#ifndef TCK_BASE_EXPOSITION_H
#define TCK_BASE_EXPOSITION_H

#include "base/buf.h"

#include <stdint.h>
#include <stdio.h>

struct label {
    const char *name, *value; /* any value; the name is one of ours */
};

enum family_kind { FAMILY_GAUGE, FAMILY_COUNTER, FAMILY_HISTOGRAM, FAMILY_KINDS };
/* As the format writes it. */
const char *family_kind_name(enum family_kind kind);
/* Prints a family as docs/metrics.md lists it; labels: their names, "" if it has none of its own. */
void family_print(FILE *to, const char *name, const char *labels, const char *kind, const char *help);

/* Agents and commands export this family, and readers of both expect one help text for a name. */
#define OPERATION_FAMILY "tierckpt_operation_seconds"
#define OPERATION_FAMILY_HELP                                                                                          \
    "For how long an operation has been under way; 0: none is. register and restore: that trainers of this node wait " \
    "for."

struct exposition {
    struct writer w;
    char *common;       /* labels of every sample, as text; NULL: out of memory */
    const char *family; /* whose samples follow */
};

/* The text may have max bytes. Every sample carries these labels. */
void exposition_begin(struct exposition *x, size_t max, const struct label *common, size_t count);
/* Begins a family of metrics. Name and help are ours. */
void exposition_family(struct exposition *x, const char *name, enum family_kind kind, const char *help);
/* A sample of that family; extra: further labels. value * 10^-decimals. */
void exposition_sample(struct exposition *x, const struct label *extra, size_t count, uint64_t value,
                       unsigned decimals);
/* A sample whose name ends with this suffix, as those of a histogram do. */
void exposition_part(struct exposition *x, const char *suffix, const struct label *extra, size_t count, uint64_t value,
                     unsigned decimals);
/* The text, without a NUL, which the caller frees. NULL: it did not fit, or there was no memory. Frees the rest. */
char *exposition_end(struct exposition *x, size_t *len_out);

#endif
