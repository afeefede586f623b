/* SPDX-License-Identifier: Apache-2.0
 * What lies only in the agents' memory, brought to storage. */
#ifndef TCK_READER_MEMORY_H
#define TCK_READER_MEMORY_H

#include "base/config.h"

/* Has the agents of the configuration's job publish their newest committed version, as `tierckpt drain` does, and waits
 * for it: agents check each copy against its digests, write from where it lies, and training goes on. *step_out is that
 * of what is published then. */
must_check tck_status_t drain_request_publish(const tck_published_open_params_t *source, uint64_t *step_out,
                                              struct error *err);

#endif
