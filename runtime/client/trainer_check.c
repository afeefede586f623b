/* SPDX-License-Identifier: Apache-2.0
 * Calls the trainer's check of restored blobs (tck_set_check). */
#include "client/client.h"

tck_status_t client_ask_trainer(struct tck_client *client, struct error *err)
{
    char why[512] = "";

    if (client->check == NULL || client->check(client->check_ctx, why, sizeof(why)) == 0) {
        return TCK_OK;
    }
    why[sizeof(why) - 1] = '\0';
    return error_set(err, TCK_ERR_LAYOUT, "%s", why[0] == '\0' ? "the trainer cannot use what was restored" : why);
}
