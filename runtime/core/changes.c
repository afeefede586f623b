/* SPDX-License-Identifier: Apache-2.0
 * See changes.h. */
#include "core/changes.h"

#include <stdio.h>
#include <string.h>

#define NAME(key) #key,
static const char *const keys[CHANGES_COUNT] = {CHANGE_KEYS(NAME)};
#undef NAME

SCHEMA_SHARED_PART(key_change, ONE_CHANGE_FIELDS, schema_any)
SCHEMA_SHARED_PART(changes, CHANGES_FIELDS, schema_any)
SCHEMA_SHARED_PART(overridden, OVERRIDDEN_FIELDS, schema_any)

const char *changes_key(size_t i)
{
    return keys[i];
}

bool changes_note(struct changes *c, const char *key, const char *value, uint64_t wall_ms)
{
    for (size_t i = 0; i < CHANGES_COUNT; i++) {
        struct key_change *change = &c->of[i];
        if (strcmp(keys[i], key) == 0 && strlen(value) < sizeof(change->value)) {
            change->at_ms = wall_ms > change->at_ms ? wall_ms : change->at_ms + 1;
            snprintf(change->value, sizeof(change->value), "%s", value);
            return true;
        }
    }
    return false;
}

/* Of two changes at the same millisecond all nodes must take the same one. */
bool changes_take(struct changes *mine, const struct changes *theirs, size_t i)
{
    const struct key_change *old = &mine->of[i], *new = &theirs->of[i];
    if (new->at_ms < old->at_ms || (new->at_ms == old->at_ms &&strcmp(new->value, old->value) <= 0)) {
        return false;
    }
    mine->of[i] = *new;
    return true;
}

bool changes_hold(const struct overridden *noted, const struct overridden *configured, size_t i)
{
    const char *before = noted->of[i], *now = configured->of[i];
    return before[0] == '\0' || now[0] == '\0' || strcmp(before, now) == 0;
}
