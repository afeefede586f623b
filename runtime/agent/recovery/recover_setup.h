/* SPDX-License-Identifier: Apache-2.0
 * Dependencies of recoveries on the rest of the agent. */
#ifndef TCK_AGENT_RECOVER_SETUP_H
#define TCK_AGENT_RECOVER_SETUP_H

#include <stdint.h>

struct catalog;
struct client;
struct config;
struct fetches;
struct hard_state;
struct health;
struct memory;
struct peers;
struct persistent;
struct pool;
struct reservations;
struct restore_setup;
struct slot_ops;
struct storage_ops;

/* Recoveries that this agent has led as the coordinator since it started. */
struct recovery_counts {
    uint64_t restored;           /* a version could be read by all ranks */
    uint64_t resharded;          /* the trainers were given the name of one that they read themselves */
    uint64_t fresh;              /* nothing had ever been saved */
    uint64_t failed;             /* what had been saved could not be restored */
    uint64_t bases_lost;         /* a version that was restored was lost before it had all its copies again */
    uint64_t last_ms;            /* how long the last one took until all ranks could read; 0: none did */
    uint64_t under_way_since_ms; /* clock_ms; 0: none is */
};

struct recoveries_setup {
    const struct config *config;
    struct hard_state *state;
    const struct memory *memory;
    struct slot_ops *slot_ops;
    struct client *const *clients; /* the current list */
    struct peers *peers;
    struct catalog *catalog; /* NULL: there is none */
    struct persistent *persistent;
    struct pool *io;
    struct storage_ops *storage_ops;
    struct health *health;
    struct reservations *reservations;
    struct fetches *fetches;
    const struct restore_setup *restore;
};

#endif
