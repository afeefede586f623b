/* SPDX-License-Identifier: Apache-2.0
 * Restoring a published version of another layout. */
#ifndef TCK_CLIENT_RESHARD_H
#define TCK_CLIENT_RESHARD_H

#include "client/client.h"

/* Collective. Nothing of the caller's memory is written before all ranks have read and checked all that they need.
 * Fills in the counts of out, but not its seconds. */
must_check tck_status_t client_reshard(struct tck_client *client, struct version version, tck_restored_t *out,
                                       struct error *err);

#endif
