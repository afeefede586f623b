/* SPDX-License-Identifier: Apache-2.0
 * Decides when a published version is also copied to archive_dir. */
#include "core/archive_due.h"

#define PAUSE_MS      10000u
#define DOUBLINGS_MAX 6u /* to about ten minutes */

bool archive_is_due(const struct archive_due *due)
{
    if (version_none(due->published) || version_cmp(due->published, due->archived) <= 0) {
        return false;
    }
    if (due->every_steps == 0 && due->every_ms == 0) {
        return false;
    }
    if (due->published.step < due->archived.step) {
        return true;
    }
    if (due->every_steps > 0) {
        return due->published.step / due->every_steps > due->archived.step / due->every_steps;
    }
    return version_none(due->archived) ||
           (due->now_wall_ms > due->archived_wall_ms && due->now_wall_ms - due->archived_wall_ms >= due->every_ms);
}

uint32_t archive_pause_ms(uint32_t failures)
{
    uint32_t doublings = failures > 0 ? failures - 1 : 0;
    return PAUSE_MS << (doublings < DOUBLINGS_MAX ? doublings : DOUBLINGS_MAX);
}
