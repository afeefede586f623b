/* SPDX-License-Identifier: Apache-2.0
 * Describes the contents of a segment to returning trainers, which compare them with what they are about to register.
 */
#ifndef TCK_AGENT_SEGMENT_CONTENTS_H
#define TCK_AGENT_SEGMENT_CONTENTS_H

#include "base/json.h"

struct segment;

/* Adds "blobs", the capacities of those in this segment by key, and "table", a digest of the table of records. Both are
 * empty if the segment has no version yet. */
void contents_add_json(const struct segment *segment, json_t *json);

#endif
