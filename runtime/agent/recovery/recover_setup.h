/* SPDX-License-Identifier: Apache-2.0
 * Dependencies of recoveries on the rest of the agent. */
#ifndef TCK_AGENT_RECOVER_SETUP_H
#define TCK_AGENT_RECOVER_SETUP_H

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
