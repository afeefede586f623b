/* SPDX-License-Identifier: Apache-2.0
 * The owner of a term, as named in its file on storage: the claimer, and the agents of those that have joined. */
#ifndef TCK_TIERS_TERM_HOLDER_H
#define TCK_TIERS_TERM_HOLDER_H

#include "base/json.h"
#include "base/world.h"

struct term_holder {
    char node[CONFIG_NAME]; /* of the claimer, rank 0; "": unknown */
    uint32_t pid;           /* on that node */
    char run_id[CONFIG_RUN];
    bool joined; /* agents are those of all its ranks; else the claimer's alone */
    uint32_t agent_count;
    struct node_info *agents; /* freed with term_holder_free */
};

void term_holder_free(struct term_holder *holder);
/* NULL if out of memory. */
json_t *term_holder_json(const struct term_holder *holder);
/* Anything missing or malformed counts as unknown. */
must_check tck_status_t term_holder_decode(const json_t *json, struct term_holder *out, struct error *err);

#endif
