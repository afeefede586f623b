/* SPDX-License-Identifier: Apache-2.0
 * What this agent writes down outside of memory: rows of the catalog, and notes beside the term's claim. All of it in a
 * pool thread, one after the other, because a slow device must not hold up the event loop; none of it is ever waited
 * for. */
#ifndef TCK_AGENT_METADATA_WRITER_H
#define TCK_AGENT_METADATA_WRITER_H

#include "agent/state/context.h"

/* Rows of the catalog and notes beside the term's claim, written in the background in this order. */
void metadata_put_version(struct term_context *tc, struct version version, enum catalog_state state);
void metadata_put_nodes(struct term_context *tc);
/* Once rank 0 has joined: notes beside the claim who is in its world, until that is written. */
void metadata_note_world(struct agent *agent, const struct world *world);
void metadata_note_restored(struct term_context *tc, struct version version);
/* The coordinator notes the first commit of its term beside the claim: what it began from did not kill the job. */
void metadata_note_commit(struct term_context *tc);
/* So does it when the job is done: what it began from did not kill it either. */
void metadata_note_end(struct term_context *tc);
/* What drains of older terms left in the stage goes; none of them can be published any more. */
void metadata_sweep_stage(struct term_context *tc);
void metadata_free(struct agent *agent);

#endif
