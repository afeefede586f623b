/* SPDX-License-Identifier: Apache-2.0
 * Dependencies of claims on the rest of the agent. */
#ifndef TCK_AGENT_CLAIM_SETUP_H
#define TCK_AGENT_CLAIM_SETUP_H

struct adopt_setup;
struct catalog;
struct client;
struct config;
struct connectivity;
struct hard_state;
struct health;
struct holders;
struct metadata;
struct peers;
struct persistent;
struct pool;
struct reservations;
struct storage_ops;

struct claims_setup {
    const struct config *config;
    const struct hard_state *state;
    struct client *const *clients; /* the current list */
    struct peers *peers;
    struct persistent *persistent;
    struct pool *claiming; /* for claims only, which must not wait behind hanging drains */
    struct storage_ops *storage_ops;
    struct health *health;
    struct metadata *metadata;
    struct catalog *catalog; /* NULL: it could not be opened */
    const struct connectivity *connectivity;
    const struct holders *holders;
    struct reservations *reservations;
    const struct adopt_setup *adopt;
};

#endif
