/* SPDX-License-Identifier: Apache-2.0
 * Where each image that this rank restores lies: in a slot of its node, or, of what its node lacks and a twin has, in
 * memory that the ranks have filled from each other. */
#ifndef TCK_CLIENT_GATHER_H
#define TCK_CLIENT_GATHER_H

#include "client/client.h"
#include "client/spread_run.h"

struct gather {
    struct spread_own own; /* images in the order of the layout's shards */
};

/* The way that this rank is configured for, if it has anybody to pass shards to. */
enum restore_spread gather_wanted(const struct tck_client *client);
/* Takes the slots of the offer; on success freed by gather_free. */
must_check tck_status_t gather_begin(const struct tck_client *client, const struct msg_restored *offer,
                                     struct gather *out, struct error *err);
/* Collective, and not with SPREAD_AGENTS: what is not here comes from other ranks, checked. Or all ranks fail. */
must_check tck_status_t gather_spread(struct tck_client *client, enum restore_spread spread, struct gather *gather,
                                      struct error *err);
void gather_free(struct tck_client *client, struct gather *gather);

#endif
