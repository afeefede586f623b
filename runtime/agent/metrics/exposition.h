/* SPDX-License-Identifier: Apache-2.0
 * Prometheus' text format (0.0.4) into a bounded buffer. Pure. What it is given is escaped where the format asks for
 * it, so no name of a job or a node can add a line or a label. */
#ifndef TCK_AGENT_EXPOSITION_H
#define TCK_AGENT_EXPOSITION_H

#include "base/buf.h"

#include <stdint.h>

struct label {
    const char *name, *value; /* any value; the name is one of ours */
};

enum family_kind { FAMILY_GAUGE, FAMILY_COUNTER, FAMILY_HISTOGRAM, FAMILY_KINDS };
/* As the format writes it. */
const char *family_kind_name(enum family_kind kind);

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
