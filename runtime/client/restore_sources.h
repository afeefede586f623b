/* SPDX-License-Identifier: Apache-2.0
 * The location of each image that this rank restores: a slot of its node or, if its node lacks the image and a twin
 * has it, memory that the ranks have filled from each other. */
#ifndef TCK_CLIENT_GATHER_H
#define TCK_CLIENT_GATHER_H

#include "client/client.h"
#include "client/spread_run.h"

struct restore_sources {
    struct spread_own own; /* images in the order of the layout's shards */
    const uint32_t **crcs; /* of each image's chunks, as they are in the offer; NULL: it was not here */
};

/* The means that this rank is configured for, if there are ranks to exchange shards with. */
enum restore_spread restore_sources_wanted(const struct tck_client *client);
/* Fills the sources with the slots and digests of the offer, which must stay valid; on success freed by
 * restore_sources_free. TCK_ERR_CORRUPT: the digests of an image do not match its root. */
must_check tck_status_t restore_sources_begin(const struct tck_client *client, const struct msg_restored *offer,
                                              struct restore_sources *out, struct error *err);
/* Collective, and not with SPREAD_AGENTS: receives the missing images from other ranks and checks them, or fails on all
 * ranks. */
must_check tck_status_t restore_sources_spread(struct tck_client *client, enum restore_spread spread,
                                               struct restore_sources *gather, struct error *err);
void restore_sources_free(struct tck_client *client, struct restore_sources *gather);

#endif
