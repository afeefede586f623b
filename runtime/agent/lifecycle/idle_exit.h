/* SPDX-License-Identifier: Apache-2.0
 * Ends an agent: soon after its job has ended cleanly, when no trainer has connected for linger_s, or when the system
 * asks it to end. */
#ifndef TCK_AGENT_IDLE_EXIT_H
#define TCK_AGENT_IDLE_EXIT_H

#include "base/status.h"

#include <stdbool.h>

struct client;
struct config;
struct fdstore;
struct idle_exit;
struct loop;
struct metadata;
struct term_context;

/* Dependencies. */
struct idle_exit_setup {
    const struct config *config;
    struct loop *loop;
    struct client *const *clients;    /* the current list */
    struct term_context *const *term; /* the current term */
    const struct metadata *metadata;
    struct fdstore *fdstore;
    bool (*archives)(const void *ctx); /* whether a version is being copied to archive_dir */
    const void *ctx;
};

must_check tck_status_t idle_exit_new(const struct idle_exit_setup *setup, struct idle_exit **out, struct error *err);
void idle_exit_free(struct idle_exit *x);
void idle_exit_tick(struct idle_exit *x);
void idle_exit_trainer_connected(struct idle_exit *x);
/* The job has ended, so the agent may exit. */
void idle_exit_job_done(struct idle_exit *x);
/* A command requests the exit; forced: even if trainers are running. */
void idle_exit_stop(struct idle_exit *x, bool forced);
/* The system wants the agent to end: what is committed now and only in memory is drained first, for at most grace_s. */
void idle_exit_ask(struct idle_exit *x);
bool idle_exit_is_asked(const struct idle_exit *x);
bool idle_exit_is_job_done(const struct idle_exit *x);

#endif
