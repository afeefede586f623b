/* SPDX-License-Identifier: Apache-2.0
 * Versions of a term up to its head are ancestors of everything later in the line. */
#include "core/retention.h"

bool history_add(struct history *history, struct version restored)
{
    bool older = history->count == 0 || restored.term < history->heads[history->count - 1].term;
    if (version_none(restored) || !older || history->count == HISTORY_MAX) {
        return false;
    }
    history->heads[history->count++] = restored;
    return true;
}

static bool history_has(const struct history *history, struct version version)
{
    for (uint32_t i = 0; i < history->count; i++) {
        if (history->heads[i].term == version.term) {
            return version.step <= history->heads[i].step;
        }
    }
    return false;
}

void retention_select(const struct history *history, const struct version *versions, size_t count, uint32_t keep,
                      bool *surplus_out)
{
    uint32_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        bool ours = history_has(history, versions[i]);
        surplus_out[i] = ours && keep > 0 && kept >= keep;
        kept += ours && !surplus_out[i];
    }
}
