/* SPDX-License-Identifier: Apache-2.0
 * What a segment holds, for trainers that come back: they compare it with what they are about to register. The
 * capacities of blobs are a part of the layout, so a trainer reads here which ones it has to register with. Of the
 * rest of the table a sum tells whether it is the same one; docs/formats.md has its definition. */
#ifndef TCK_AGENT_SEGMENT_CONTENTS_H
#define TCK_AGENT_SEGMENT_CONTENTS_H

#include "agent/state/context.h"

/* Adds "blobs", the capacities of those in this segment by key, and "table", a digest of the table of records. Both are
 * empty if the segment has no version yet. */
void contents_add_json(const struct segment *segment, json_t *json);

#endif
