/* SPDX-License-Identifier: Apache-2.0
 * Digests and copies of a term that are under way, so that the node machine learns which of them move. */
#ifndef TCK_AGENT_MOVING_H
#define TCK_AGENT_MOVING_H

#include "agent/driver/term.h"
#include "base/progress.h"

/* One of them: the caller's from moving_begin to moving_end, with slot, node and version filled in. */
struct moving {
    struct moving *next, **at;
    struct progress progress;  /* counted by whatever does the work, in any thread */
    uint64_t bytes, queued_ms; /* as reported last */
    uint32_t slot, node;       /* as in EVENT_MOVED */
    struct version version;
};

void moving_begin(struct term_context *tc, struct moving *m);
/* Does nothing if it was not begun. */
void moving_end(struct moving *m);
#define STUCK_TEXT 256
/* Why this version is not ready on this node, for an error of which it is the end. */
void moving_lacks(const struct term_context *tc, struct version version, char text[STUCK_TEXT]);
/* Feeds an event for each that has moved since the last call. */
void moving_report(struct term_context *tc);

#endif
