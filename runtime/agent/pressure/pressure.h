/* SPDX-License-Identifier: Apache-2.0
 * Gives slots and copies back while memory on this node is short, and uses them again later. core/memory_level.h says
 * when, core/node_pressure.h what and in which order. */
#ifndef TCK_AGENT_PRESSURE_H
#define TCK_AGENT_PRESSURE_H

#include "base/status.h"
#include "base/version.h"
#include "core/memory_level.h"

struct config;
struct fetches;
struct loop;
struct memory;
struct pool;
struct slot_ops;
struct term_context;

struct pressure;

/* Dependencies. */
struct pressure_setup {
    const struct config *config;
    struct loop *loop;
    struct pool *pool;
    uint32_t threads; /* that allocate pages */
    const struct memory *memory;
    struct term_context *const *term; /* the current term */
    struct slot_ops *slot_ops;
    const struct fetches *fetches;
    const bool *leaving; /* the agent is exiting */
};

/* Now. */
struct pressure_figures {
    bool watched;
    enum memory_level level;
    uint64_t since_ms; /* wall clock: when this level began; 0: it has been so since the start */
    uint64_t available_bytes, reserve_bytes;
    const char *of; /* the machine or control group that has least left; belongs to pressure */
    uint64_t slots_given_back, bytes_given_back;
    bool saving_suspended;
    uint64_t copies_given_up; /* of the newest committed version */
};

/* A copy of the newest committed version that this node should have and has given up. */
struct given_up {
    uint32_t rank; /* whose state it is */
    struct version version;
    const char *node; /* whose memory has it still; NULL: none has for certain, but storage has it */
    bool stored;      /* storage has it */
};

must_check tck_status_t pressure_new(const struct pressure_setup *setup, struct pressure **out, struct error *err);
void pressure_free(struct pressure *pressure);
struct pressure_figures pressure_figures(const struct pressure *pressure);
/* The next one; *at is 0 for the first. False: there is none. */
bool pressure_given_up(const struct pressure *pressure, uint32_t *at, struct given_up *out);

#endif
