/* SPDX-License-Identifier: Apache-2.0
 * Tracks trainers that may still write into slots that are no longer theirs. A trainer whose connection has ended, or
 * whose term is over, may be frozen in the middle of a copy and resume it later. Until it has ended, or has reported
 * that it has stopped copying, its slot stays in quarantine. The slot's header names its writer, so a restarted agent
 * knows it, too. */
#ifndef TCK_AGENT_SLOT_WRITERS_H
#define TCK_AGENT_SLOT_WRITERS_H

#include "base/json.h"
#include "base/version.h"
#include "tiers/slot_header.h"

#include <stdbool.h>
#include <stdint.h>

struct client;
struct slot_ops;
struct storage_ops;
struct term_context;

/* What is needed here. */
struct writers_setup {
    struct client *const *clients;    /* the list of all, as it is at any time */
    struct term_context *const *term; /* the present one, as it is at any time */
    const struct slot_ops *slot_ops;
    const struct storage_ops *storage_ops;
};

/* Frees the slots in quarantine whose writers have ended, or have sealed them since. */
void writers_look(const struct writers_setup *writers);
/* Reports of a trainer about its copies, of whatever term: that of this step has ended; it has reconnected and no
 * longer copies anything granted up to its term. */
void writers_handle_step(const struct writers_setup *writers, struct client *client, uint64_t step);
void writers_returned(const struct writers_setup *writers, struct client *client, uint64_t term);
/* True if a slot of a shard that this local rank saves is in quarantine; and who may write into it. */
bool writers_of_rank(const struct writers_setup *writers, const struct term_context *tc, uint32_t rank,
                     struct slot_writer *writer_out, struct version *version_out);
#define WRITER_TEXT 128
/* Who may write into such a slot, of this version, and the remedy. */
void writers_describe(const struct slot_writer *writer, struct version version, char out[WRITER_TEXT]);
/* All slots in quarantine, for the command. */
json_t *writers_json(const struct writers_setup *writers);

#endif
