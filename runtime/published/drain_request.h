/* SPDX-License-Identifier: Apache-2.0
 * What lies only in the agents' memory, brought to storage. */
#ifndef TCK_READER_MEMORY_H
#define TCK_READER_MEMORY_H

#include "base/config.h"
#include "base/version.h"

/* Has the agents of the configuration's job publish their newest committed version, as `tierckpt drain` does, and waits
 * for it: agents check each copy against its digests, write from where it lies, and training goes on. *step_out is that
 * of what is published then. */
must_check tck_status_t drain_request_publish(const tck_published_open_params_t *source, uint64_t *step_out,
                                              struct error *err);

/* Asks the agent of this node for that, which has answer_ms to answer; *wanted_out is what it will publish, or a newer
 * one. */
must_check tck_status_t drain_request_send(const struct config *config, int answer_ms, struct version *wanted_out,
                                           struct error *err);
struct memory_state {
    struct version published, draining; /* newest, and what is on its way to storage */
    bool recovered;                     /* of what there was before this term nothing needs to be held any more */
};

must_check tck_status_t drain_request_newest(const struct config *config, int answer_ms, struct memory_state *out,
                                             struct error *err);

#endif
