/* SPDX-License-Identifier: Apache-2.0
 * Decides which published versions may be deleted. A version that was just published supersedes only its ancestors.
 * Versions of another line of history stay, whether this one began afresh or from an older step. Pure. */
#ifndef TCK_CORE_RETENTION_H
#define TCK_CORE_RETENTION_H

#include "base/version.h"
#include <stddef.h>

#define HISTORY_MAX 256 /* terms that are followed back; what is older than that stays */

/* A line of history: of each of its terms, newest first, the newest version that belongs to it. */
struct history {
    uint32_t count;
    struct version heads[HISTORY_MAX];
};

/* The version that the last head's term restored; false if it ends here. */
bool history_add(struct history *history, struct version restored);
bool history_has(const struct history *history, struct version version);
/* Of good versions, newest first: which may go so that `keep` of this line stay, 0: all. Sets surplus_out of each. */
void retention_select(const struct history *history, const struct version *versions, size_t count, uint32_t keep,
                      bool *surplus_out);

#endif
