/* SPDX-License-Identifier: Apache-2.0
 * The collective steps of attach, register and restore over the caller's allgather. Every exchange carries the status
 * of each rank along: what fails on one rank fails on all, at the same place, so no rank waits for one that gave up. */
#ifndef TCK_CLIENT_OOB_H
#define TCK_CLIENT_OOB_H

#include "base/status.h"

struct oob {
    tck_oob_t caller;
    uint32_t rank, world_size;
};

/* Puts len bytes of every rank into all (world_size * len, in rank order; both may be NULL if len is 0), given that
 * status is TCK_OK on all ranks. Else every rank gets an error: the failed one its own (err is as it was), the others
 * that of the lowest failed rank. */
must_check tck_status_t oob_exchange(const struct oob *oob, tck_status_t status, const void *mine, void *all,
                                     size_t len, struct error *err);

/* Exchanges only the statuses. */
must_check tck_status_t oob_agree(const struct oob *oob, tck_status_t status, struct error *err);

#endif
