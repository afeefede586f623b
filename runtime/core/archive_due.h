/* SPDX-License-Identifier: Apache-2.0
 * Decides when a published version is also copied to archive_dir (save_archive_interval). Pure. */
#ifndef TCK_CORE_ARCHIVE_DUE_H
#define TCK_CORE_ARCHIVE_DUE_H

#include "base/version.h"

#include <stdbool.h>
#include <stdint.h>

struct archive_due {
    uint64_t every_steps; /* 0: not by steps */
    uint64_t every_ms;    /* 0: not by time */
    struct version published;
    struct version archived;                /* newest one in the archive; VERSION_NONE: it has none */
    uint64_t now_wall_ms, archived_wall_ms; /* for an interval in time: now, and of the save */
};

/* Whether `published` is to be copied now: a multiple of every_steps lies between it and the archived one, or that was
 * saved every_ms ago. A version that continues from an older step than the archived one is of another line of
 * history, and copied at once: only it is restored from now on. */
bool archive_is_due(const struct archive_due *due);

/* Pause before the next attempt after so many failures in a row: it grows, since each attempt may send and read again
 * all that a version consists of. */
uint32_t archive_pause_ms(uint32_t failures);

#endif
