/* SPDX-License-Identifier: Apache-2.0
 * Log lines for the user: that the training is attached, and what was restored from where. */
#ifndef TCK_CLIENT_SAY_H
#define TCK_CLIENT_SAY_H

#include "client/client.h"

/* Only rank 0 logs it. */
void notice_attached(const struct tck_client *client);
/* Each rank has its own sources. */
void notice_restored(const struct tck_client *client, const tck_restored_t *restored);
/* Logs what happens to versions that are only in memory, now that the job is done. */
void notice_done(const struct tck_client *client);

#endif
