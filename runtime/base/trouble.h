/* SPDX-License-Identifier: Apache-2.0
 * What is wrong with storage at the moment: why, since when, and which steps should be there and are not. Agents
 * tell each other, the command and their trainers; a trainer reads it from a page that it shares with its agent,
 * without a lock or a system call. */
#ifndef TCK_BASE_TROUBLE_H
#define TCK_BASE_TROUBLE_H

#include "base/buf.h"
#include <stdatomic.h>

#define TROUBLE_TEXT 384 /* so that it fits into a heartbeat */

struct trouble {
    int32_t code;                            /* tck_status_t; TCK_OK: there is none */
    uint64_t since_ms;                       /* wall clock */
    uint64_t first_step, newest_step, steps; /* that did not reach storage, and how many; 0: none so far */
    char text[TROUBLE_TEXT];                 /* names the path and the reason */
};

/* Adds a failure. step 0: something other than bringing a step to storage failed. The newest reason is kept, and the
 * time of the first. */
void trouble_add(struct trouble *trouble, uint64_t step, const struct error *why, uint64_t wall_ms);

void write_trouble(struct writer *w, const struct trouble *trouble);
struct trouble read_trouble(struct reader *r);

/* A place in shared memory with one writer and any number of readers. */
struct shared_trouble {
    _Atomic uint64_t sequence; /* odd while it is being written */
    _Atomic uint64_t words[(sizeof(struct trouble) + 7) / 8];
};

void trouble_show(struct shared_trouble *shared, const struct trouble *trouble);
/* False if the writer died while writing: then nothing is known until its successor shows something. */
must_check bool trouble_look(struct shared_trouble *shared, struct trouble *out);

#endif
