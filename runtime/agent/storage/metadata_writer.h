/* SPDX-License-Identifier: Apache-2.0
 * What this agent writes down outside of memory: rows of the catalog, and notes beside the term's claim. */
#ifndef TCK_AGENT_METADATA_WRITER_H
#define TCK_AGENT_METADATA_WRITER_H

#include "agent/state/context.h"

/* Rows of the catalog and notes beside the term's claim, written in the background in this order. */
void metadata_put_version(struct term_context *tc, struct version version, enum catalog_state state);
void metadata_put_nodes(struct term_context *tc);
/* Once rank 0 has joined: writes the members of its world beside the claim, and retries until that has succeeded. */
void metadata_note_world(struct agent *agent, const struct world *world);
void metadata_note_restored(struct term_context *tc, struct version version);
/* The coordinator notes the first commit of its term beside the claim: the version that it restored did not kill the
 * job. */
void metadata_note_commit(struct term_context *tc);
/* The same when the job is done, which proves that, too. */
void metadata_note_end(struct term_context *tc);
/* Deletes what drains of older terms left in the stage: none of them can be published any more. */
void metadata_sweep_stage(struct term_context *tc);
void metadata_free(struct agent *agent);

#endif
