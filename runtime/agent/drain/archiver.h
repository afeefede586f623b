/* SPDX-License-Identifier: Apache-2.0
 * Copies published versions to archive_dir (tiers/archive.h). The coordinator chooses a version and names it in its
 * heartbeats; each node copies the files that it drains, from save_dir, and reports; when all have, the coordinator
 * publishes the copy. It has threads of its own, since the archive may hang: nothing else waits for it, and what fails
 * is tried again. */
#ifndef TCK_AGENT_ARCHIVER_H
#define TCK_AGENT_ARCHIVER_H

#include "base/status.h"
#include "base/trouble.h"
#include "base/version.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct archiver;
struct config;
struct loop;
struct persistent;
struct term_context;

/* Dependencies. */
struct archiver_setup {
    const struct config *config;
    struct loop *loop;
    struct persistent *persistent;
    struct term_context *const *term;          /* the current term */
    void (*announce)(struct term_context *tc); /* sends heartbeats at once */
};

/* *out is NULL without archive_dir. All functions below do nothing then. */
must_check tck_status_t archiver_new(const struct archiver_setup *setup, struct archiver **out, struct error *err);
/* Ends what is under way. */
void archiver_free(struct archiver *a);
void archiver_tick(struct archiver *a);

/* The coordinator's choice, for its heartbeats; VERSION_NONE: none. */
struct version archiver_choice(const struct archiver *a);
/* The same, as a heartbeat says it. */
void archiver_want(struct archiver *a, struct version version);
/* A node's report. */
void archiver_handle(struct archiver *a, struct term_context *tc, uint32_t node, const void *data, size_t len);

/* Whether this agent should not exit yet, because a copy is being made. */
bool archiver_is_busy(const struct archiver *a);

struct archiver_figures {
    bool used;               /* there is an archive */
    bool known;              /* by the coordinator's agent, once it has looked: */
    struct version archived; /* newest one that is whole there */
    struct version copying;  /* VERSION_NONE: nothing is being copied */
    uint64_t files, bytes;   /* copied by this node */
    uint64_t versions;       /* published there by this agent */
    uint64_t failures;
    struct trouble trouble; /* code TCK_OK: there is none */
};
struct archiver_figures archiver_figures(const struct archiver *a);

#endif
