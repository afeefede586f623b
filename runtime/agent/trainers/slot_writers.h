/* SPDX-License-Identifier: Apache-2.0
 * Tracks trainers that may still write into slots that are no longer theirs. A trainer whose connection has ended, or
 * whose term is over, may be frozen in the middle of a copy and resume it later. Until it has ended, or has reported
 * that it has stopped copying, its slot stays in quarantine. The slot's header names its writer, so a restarted agent
 * knows it as well. */
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

/* Dependencies. */
struct writers_setup {
    struct client *const *clients;    /* the current list */
    struct term_context *const *term; /* the current term */
    const struct slot_ops *slot_ops;
    const struct storage_ops *storage_ops;
};

/* Frees slots in quarantine whose writers have ended, or have since sealed them. */
void writers_check(const struct writers_setup *writers);
/* Handle reports of a trainer of any term about its copies: the copy of this step has ended; or the trainer has
 * reconnected, and no longer copies into slots that were granted up to that term. */
void writers_handle_step(const struct writers_setup *writers, struct client *client, uint64_t step);
void writers_returned(const struct writers_setup *writers, struct client *client, uint64_t term);
/* True if a slot of a shard that this local rank saves is in quarantine; the results say who may still write into it.
 */
bool writers_of_rank(const struct writers_setup *writers, const struct term_context *tc, uint32_t rank,
                     struct slot_writer *writer_out, struct version *version_out);
#define WRITER_TEXT 128
/* Describes who may still write this version into such a slot, and the remedy. */
void writers_describe(const struct slot_writer *writer, struct version version, char out[WRITER_TEXT]);
/* All slots in quarantine, for the command. */
json_t *writers_json(const struct writers_setup *writers);

#endif
