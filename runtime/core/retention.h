/* SPDX-License-Identifier: Apache-2.0
 * Decides which published versions may be deleted. A version that was just published supersedes only its ancestors.
 * Versions of another line of history stay, whether this one began afresh or from an older step. Pure. */
#ifndef TCK_CORE_RETENTION_H
#define TCK_CORE_RETENTION_H

#include "base/version.h"
#include <stddef.h>

#define HISTORY_MAX 256 /* terms that are traced back; anything older is kept */

/* A line of history: the newest version that belongs to it of each of its terms, newest first. */
struct history {
    uint32_t count;
    struct version heads[HISTORY_MAX];
};

/* Adds the version that the term of the last head restored; false if the line ends here. */
bool history_add(struct history *history, struct version restored);
/* Given the good versions, newest first, marks in surplus_out those to delete so that `keep` of this line are left
 * (0: keep all). */
void retention_select(const struct history *history, const struct version *versions, size_t count, uint32_t keep,
                      bool *surplus_out);

#endif
