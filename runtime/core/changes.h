/* SPDX-License-Identifier: Apache-2.0
 * Settings that were changed while the job runs. Every agent keeps them and sends them with its heartbeats, so they
 * outlive the node on which they were changed. Pure. */
#ifndef TCK_CORE_CHANGES_H
#define TCK_CORE_CHANGES_H

#include "base/schema.h"

#define CHANGE_VALUE_BYTES 32

/* The keys that may change, X(key). */
#define CHANGE_KEYS(X)       \
    X(save_mem_interval)     \
    X(save_storage_interval) \
    X(max_ckpt_num)          \
    X(on_node_loss)
#define CHANGE_INDEX(key) CHANGE_##key,
enum { CHANGE_KEYS(CHANGE_INDEX) CHANGES_COUNT };
#undef CHANGE_INDEX

#define ONE_CHANGE_FIELDS(F)                                                      \
    F(u64, at_ms) /* milliseconds since 1970; 0: this key has not been changed */ \
    F(str, value, CHANGE_VALUE_BYTES)
SCHEMA_STRUCT(key_change, ONE_CHANGE_FIELDS)

struct changes {
    struct key_change of[CHANGES_COUNT]; /* in the order of CHANGE_KEYS */
};

static inline bool key_change_is_none(const struct key_change *c)
{
    return c->at_ms == 0;
}

/* The messages and the state that have them know the order. */
#define CHANGES_FIELDS(F)          \
    F(optional, key_change, of[0]) \
    F(optional, key_change, of[1]) \
    F(optional, key_change, of[2]) \
    F(optional, key_change, of[3])
_Static_assert(CHANGES_COUNT == 4, "each key has a field");
SCHEMA_DECLARE_PART(key_change, ONE_CHANGE_FIELDS)
SCHEMA_DECLARE_PART(changes, CHANGES_FIELDS)

/* What this node's own configuration said of each key when its change was noted here, in the order of CHANGE_KEYS; "":
 * not known. It is not sent, because the configurations of nodes may differ. */
struct overridden {
    char of[CHANGES_COUNT][CHANGE_VALUE_BYTES];
};
#define OVERRIDDEN_FIELDS(F)          \
    F(str, of[0], CHANGE_VALUE_BYTES) \
    F(str, of[1], CHANGE_VALUE_BYTES) \
    F(str, of[2], CHANGE_VALUE_BYTES) \
    F(str, of[3], CHANGE_VALUE_BYTES)
SCHEMA_DECLARE_PART(overridden, OVERRIDDEN_FIELDS)

const char *changes_key(size_t i);
/* Notes that the key was changed. It is later than every change of it that is known here, whatever the clocks of other
 * nodes say. False: it is no key that may change, or the value is too long to be sent. */
bool changes_note(struct changes *c, const char *key, const char *value, uint64_t wall_ms);
/* Takes over one key of another node's, if that one was changed later. */
bool changes_take(struct changes *mine, const struct changes *theirs, size_t i);
/* Whether the change of this key holds in an agent that starts with this configuration: not if the configuration said
 * something else when the change was noted, because then it is the configuration that was changed last. */
bool changes_hold(const struct overridden *noted, const struct overridden *configured, size_t i);

#endif
