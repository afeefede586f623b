/* SPDX-License-Identifier: Apache-2.0
 * Publishes settings, decisions and health on the trainers' shared status pages and, if so configured, ends trainers
 * after the loss of a node, because the launcher would otherwise wait for a collective's time-out. */
#ifndef TCK_AGENT_TRAINER_CONTROL_H
#define TCK_AGENT_TRAINER_CONTROL_H

#include "base/config.h"

#include <stdbool.h>
#include <stdint.h>

struct client;
struct changes;
struct hard_state;
struct health;
struct slot_ops;
struct term_context;
struct trainers;

/* The save intervals. The coordinator announces them in its heartbeats. */
struct settings {
    uint64_t mem_steps, storage_steps, from_step;
    uint64_t mem_target, storage_target;
};

/* Dependencies. */
struct trainers_setup {
    struct config *config;            /* updated when settings change */
    struct hard_state *state;         /* keeps the changes */
    struct client *const *clients;    /* the current list */
    struct term_context *const *term; /* the current term */
    const struct health *health;
    const struct slot_ops *slot_ops;
    /* Coordinator: sends new settings to the other nodes at once. */
    void (*announce)(struct term_context *tc);
};

/* Initially, the settings are those of the configuration, which is that of the agent's file. */
must_check tck_status_t trainers_new(const struct trainers_setup *setup, struct trainers **out, struct error *err);
void trainers_free(struct trainers *ts);

/* A node of the world is down. If it stays down, that is reported, or the trainers of this node are ended, as
 * configured. */
void trainers_node_down(struct term_context *tc, uint32_t node, const char *why);
void trainers_node_up(const struct trainers *ts, struct term_context *tc, uint32_t node);
/* This agent has resumed its term: a node that does not connect counts as lost, like one that goes down. */
void trainers_nodes_awaited(const struct trainers *ts, struct term_context *tc);
/* Acts on nodes that stay down; kills trainers that did not end after SIGTERM. */
void trainers_tick(const struct trainers *ts);
/* Writes the decisions that a trainer missed to its new shared status page when it reconnects to a restarted agent. */
void trainers_show_decisions(const struct trainers *ts, struct client *client);
/* Publishes the step up to which every version is decided. */
void trainers_decided(const struct term_context *tc);
/* Writes what users should know about the job, trouble with storage and missing copies, to the status page of one
 * trainer, or of all trainers. */
void trainers_show_health(const struct trainers *ts, const struct client *client);
void trainers_show_health_to_all(const struct trainers *ts);
/* Writes the settings in force to every trainer's shared status. */
void trainers_show_settings(const struct trainers *ts);
const struct settings *trainers_settings(const struct trainers *ts);
/* Applies the coordinator's settings from its heartbeat. */
void trainers_apply_settings(struct trainers *ts, const struct settings *settings, enum on_node_loss on_node_loss);
/* The intervals in the configuration have changed. */
void trainers_config_changed(struct trainers *ts);
/* A start has changed this key in the configuration: it is passed on like a change by the command. */
void trainers_note_change(struct trainers *ts, const char *key, const char *value);
/* Applies what was changed later on another node. */
void trainers_take_changes(struct trainers *ts, const struct changes *theirs);
/* Applies the changes that an earlier process of this agent has kept. Where the configuration says something else than
 * when the change was made, the configuration is newer: its value stays in force, and the other nodes are sent it. */
void trainers_recall_changes(struct trainers *ts);
/* The file with which this agent starts again has this configuration now. */
void trainers_file_written(struct trainers *ts, const struct config *config);
/* Coordinator: intervals that are "auto" have these steps from now on. Nothing happens if they had before. */
void trainers_choose(struct trainers *ts, uint64_t mem_steps, uint64_t storage_steps);
/* Coordinator: sets the target steps of intervals in seconds. */
void trainers_targets(struct trainers *ts, struct term_context *tc);
/* Coordinator: changes a setting; it takes effect a few steps ahead of the fastest trainer. */
must_check tck_status_t trainers_setting(struct trainers *ts, const char *key, const char *value, struct error *err);

#endif
