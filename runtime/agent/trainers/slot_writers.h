/* SPDX-License-Identifier: Apache-2.0
 * Trainers that may still write into slots that are no longer theirs. A trainer whose connection has ended, or whose
 * term is over, may only be stopped or frozen in the middle of a copy, and goes on with it when it wakes up. Until it
 * has ended, or has said that it copies no more, its slot stays in quarantine. The slot's header names its writer, so
 * an agent that is started after this one knows it, too. */
#ifndef TCK_AGENT_SLOT_WRITERS_H
#define TCK_AGENT_SLOT_WRITERS_H

#include "agent/state/context.h"

/* Frees the slots in quarantine whose writers have ended, or have sealed them since. */
void writers_look(struct agent *agent);
/* What a trainer says of its copies, in whatever term they were begun: of this step; that it is back and copies nothing
 * that it was given up to its term; that it has detached. */
void writers_handle_step(struct client *client, uint64_t step);
void writers_returned(struct client *client, uint64_t term);
void writers_detached(struct client *client);
/* Whether a slot of a shard that this local rank saves is in quarantine, and who may write into it. */
bool writers_of_rank(const struct term_context *tc, uint32_t rank, struct slot_writer *writer_out,
                     struct version *version_out);
/* All slots in quarantine, for the command. */
json_t *writers_json(const struct agent *agent);

#endif
