/* SPDX-License-Identifier: Apache-2.0
 * How trainers and agents form a term: HELLO, the claim of a term, joining its world, registering shards. */
#ifndef TCK_AGENT_MEMBERSHIP_H
#define TCK_AGENT_MEMBERSHIP_H

#include "agent/driver/term.h"
#include "base/secret.h"

struct adopt_setup;
struct client;
struct connectivity;
struct health;
struct holders;
struct idle_exit;
struct join_setup;
struct membership;
struct metadata;
struct peers;
struct pool;
struct progress;
struct slot_ops;
struct start_config;
struct storage_ops;
struct trainers;
struct writers_setup;

/* Dependencies. */
struct membership_setup {
    const struct config *config;
    struct hard_state *state;
    struct memory *memory;
    const struct progress *touched; /* pages of it */
    struct pool *pool;
    struct peers *peers;
    const struct secret *secret;
    struct client *const *clients;       /* the current list */
    struct term_context **term;          /* the current term, set by membership */
    const struct term_setup *term_setup; /* for each new term context */
    const bool *leaving;                 /* the agent is exiting: no term is formed */
    struct slot_ops *slot_ops;
    struct storage_ops *storage_ops;
    struct health *health;
    struct metadata *metadata;
    const struct adopt_setup *adopt;
    const struct join_setup *join;
    const struct writers_setup *writers;
    struct connectivity *connectivity;
    struct holders *holders;
    struct trainers *trainers;
    struct start_config *start_config;
    struct idle_exit *idle_exit;
    /* Another term is about to take over: ends the remaining work of the previous one. */
    void (*replaced)(void *ctx, const struct term_context *next);
    void *ctx;
};

must_check tck_status_t membership_new(const struct membership_setup *setup, struct membership **out,
                                       struct error *err);
void membership_free(struct membership *ms);

void membership_handle_hello(struct membership *ms, struct client *client, const uint8_t *payload, size_t len);
void membership_handle_join(struct membership *ms, struct client *client, const uint8_t *payload, size_t len);
void membership_handle_register(struct membership *ms, struct client *client, const uint8_t *payload, size_t len);
void membership_handle_segment_get(struct membership *ms, struct client *client, const uint8_t *payload, size_t len);
/* How much of the memory of the registration under way is allocated; zeros while there is none. */
void membership_allocated(const struct membership *ms, uint64_t *done_out, uint64_t *total_out);
/* Called when no operation is under way: starts a waiting registration. */
void membership_ops_idle(struct membership *ms);
/* After a restart of the agent: resumes the kept term. */
void membership_resume(struct membership *ms);
/* Drops the registration that waits: the agent is exiting. */
void membership_abandon(struct membership *ms);

#endif
