/* SPDX-License-Identifier: Apache-2.0
 * The library's own allgather, if the caller's is that of a tck_bootstrap. */
#ifndef TCK_CLIENT_BOOTSTRAP_H
#define TCK_CLIENT_BOOTSTRAP_H

#include "base/status.h"

/* Why the last allgather failed; NULL if this is another allgather. */
const struct error *bootstrap_failure(const tck_oob_t *oob);

#endif
