/* SPDX-License-Identifier: Apache-2.0
 * The persistent tier on a store of objects in memory. */
#ifndef TCK_TESTS_OBJECTS_RIG_H
#define TCK_TESTS_OBJECTS_RIG_H

#include "memory_store.h"
#include "tiers/persistent.h"

#define OBJECTS_JOB "job"

extern struct object_store *objects_store; /* a client for the test itself */
extern struct config objects_config;
extern struct loop *objects_loop;
extern struct error objects_err;
extern struct tier_pace objects_pace; /* of the tiers that are made from now on */

/* The store, the configuration, loop and pool. */
void objects_begin(void);
void objects_end(void);
/* A tier of its own, as another node's: with the loop and the pool, or for blocking calls alone. */
struct persistent *objects_tier(bool with_loop);
/* Waits for a call's done function, which is objects_ended with objects_err. */
struct error objects_wait(tck_status_t begun);
void objects_ended(void *ctx, const struct error *outcome);
/* Waits until what a publish has left to the pool is done. */
void objects_settle(void);
/* The key of a file of a version, and of the file of shard {9, number}; each call overwrites the fourth last result. */
const char *objects_key(struct version version, const char *name);
const char *objects_shard_key(struct version version, uint32_t number);

#endif
