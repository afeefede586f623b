/* SPDX-License-Identifier: Apache-2.0
 * A store of objects in this process's memory, with the faults that a caller of object_store.h has to live with. Any
 * thread. */
#ifndef TCK_TESTS_MEMORY_STORE_H
#define TCK_TESTS_MEMORY_STORE_H

#include "tiers/object/object_store.h"

enum memory_op {
    MEMORY_PUT = 1u << 0,
    MEMORY_CREATE = 1u << 1,
    MEMORY_GET = 1u << 2, /* and get_range */
    MEMORY_HEAD = 1u << 3,
    MEMORY_LIST = 1u << 4,
    MEMORY_REMOVE = 1u << 5,
    MEMORY_PART = 1u << 6,
    MEMORY_FINISH = 1u << 7,
    MEMORY_BEGIN = 1u << 8,
    MEMORY_ABORT = 1u << 9,
};

enum memory_fault {
    MEMORY_LOST,  /* it takes effect, but the call ends with TCK_ERR_TIMEDOUT */
    MEMORY_NEVER, /* it takes no effect, and the call ends with TCK_ERR_TIMEDOUT */
    MEMORY_LATE,  /* put, create, remove: the call ends with TCK_ERR_TIMEDOUT, and memory_store_deliver gives it effect
                   */
    MEMORY_TWICE, /* put, create, remove: it takes effect, and once more with memory_store_deliver */
    MEMORY_DENIED,
    MEMORY_GONE,    /* no such bucket */
    MEMORY_GARBLED, /* it takes no effect, and the answer makes no sense: TCK_ERR_CORRUPT */
    MEMORY_HANGS,   /* it takes no effect, and ends only when it is canceled */
    MEMORY_WRONG,   /* get: other bytes than are there; a part: others have arrived than were sent */
};

/* Which calls fail. */
struct memory_failure {
    unsigned ops;    /* of enum memory_op, added up */
    const char *key; /* those of keys that contain this text; must outlive the store */
    enum memory_fault fault;
    uint32_t skip, count; /* the first `skip` of them go well, and the next `count` fail */
};

/* Each is another client of the same objects; the last one that is freed frees them. */
struct object_store *memory_store_new(void);
struct object_store *memory_store_client(struct object_store *store);

void memory_store_fail(struct object_store *store, const struct memory_failure *failure);
void memory_store_heal(struct object_store *store);
/* Carries out what was sent late or twice, in the order of the calls. */
void memory_store_deliver(struct object_store *store);
/* From now on, creations replace what is there, as by a server that does not know the condition. */
void memory_store_forget_conditions(struct object_store *store);
/* From now on, values are stored as they arrive, whatever their checksum. */
void memory_store_forget_checksums(struct object_store *store);
/* Called without a lock after each call that has changed or read something, by the thread of the call; may be NULL. */
void memory_store_watch(struct object_store *store, void (*called)(void *ctx, enum memory_op op, const char *key),
                        void *ctx);

/* Calls so far; bytes that were sent to it as values or parts. */
uint32_t memory_store_calls(struct object_store *store, unsigned ops);
uint64_t memory_store_sent(struct object_store *store);
/* Objects whose keys begin so; uploads under way. */
uint32_t memory_store_count(struct object_store *store, const char *prefix);
uint32_t memory_store_uploads(struct object_store *store);
/* Without a call of the interface: what somebody else has done. NULL data: removes it. */
void memory_store_set(struct object_store *store, const char *key, const void *data, size_t bytes);
bool memory_store_has(struct object_store *store, const char *key);
/* Turns one bit of an object around. */
void memory_store_damage(struct object_store *store, const char *key, uint64_t offset);

#endif
