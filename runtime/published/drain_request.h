/* SPDX-License-Identifier: Apache-2.0
 * Brings versions that are only in the agents' memory to storage. */
#ifndef TCK_READER_MEMORY_H
#define TCK_READER_MEMORY_H

#include "base/config.h"

/* Makes the agents of the configuration's job publish their newest committed version, as `tierckpt drain` does, and
 * waits for it. The agents check each copy against its digests and write it directly from memory, while training
 * continues. *step_out is the step of the published version. */
must_check tck_status_t drain_request_publish(const tck_published_open_params_t *source, uint64_t *step_out,
                                              struct error *err);

#endif
