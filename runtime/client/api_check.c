/* SPDX-License-Identifier: Apache-2.0
 * See api_check.h. */
#include "client/api_check.h"

tck_status_t check_caller(struct tck_client *client, const char *function)
{
    if (client == NULL) {
        return error_set(&attach_error, TCK_ERR_INVAL,
                         "%s was called in the wrong order: there is no client (NULL), call tck_attach first",
                         function);
    }
    if (client->forks == forks_count()) {
        return TCK_OK;
    }
    return error_set(&client->error, TCK_ERR_INVAL,
                     "this process is a fork of process %d, which attached: only that one can use its client",
                     (int)client->pid);
}

static const char *remedy_of(enum client_state state)
{
    switch (state) {
    case CLIENT_ATTACHED:
        return "call tck_register first";
    case CLIENT_REGISTERED:
        return "tck_register was called already; what is saved can only be changed by tck_detach and another "
               "tck_attach";
    case CLIENT_FAILED:
        break;
    }
    return "its tck_register or tck_restore has failed, so it can only be detached";
}

tck_status_t check_order_of(struct tck_client *client, enum client_state wanted, const char *function)
{
    tck_status_t status = check_caller(client, function);

    if (status != TCK_OK || client->state == wanted) {
        return status;
    }
    return error_set(&client->error, TCK_ERR_INVAL, "%s was called in the wrong order: %s", function,
                     remedy_of(client->state));
}

tck_status_t check_pointer(struct error *err, const void *pointer, const char *function, const char *name)
{
    return pointer == NULL ? error_set(err, TCK_ERR_INVAL, "%s: %s is NULL", function, name) : TCK_OK;
}
