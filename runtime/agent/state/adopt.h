/* SPDX-License-Identifier: Apache-2.0
 * Adopting a newer term: from then on this agent serves no older one. */
#ifndef TCK_AGENT_ADOPT_H
#define TCK_AGENT_ADOPT_H

#include <stdbool.h>
#include <stdint.h>

struct hard_state;

struct adopt_setup {
    struct hard_state *state;
    /* Called for each adopted term; newer: it is newer than all before it. */
    void (*adopted)(void *ctx, uint64_t term, bool newer);
    void *ctx;
};

/* Persists the term if it is newer than all that were adopted before. */
void adopt_term(const struct adopt_setup *adopt, uint64_t term);

#endif
