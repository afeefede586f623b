/* SPDX-License-Identifier: Apache-2.0
 * What each function of tierckpt.h checks first. What is wrong becomes the text of the last error. */
#ifndef TCK_CLIENT_API_CHECK_H
#define TCK_CLIENT_API_CHECK_H

#include "client/attach_error.h"
#include "client/client.h"

/* Checks a call of a function that needs no particular state. A forked child has this memory, but neither the
 * threads nor a connection of its own. */
must_check tck_status_t check_caller(struct tck_client *client, const char *function);
/* The same for a function that needs the client to be in a given state. */
must_check tck_status_t check_order_of(struct tck_client *client, enum client_state wanted, const char *function);
must_check tck_status_t check_pointer(struct error *err, const void *pointer, const char *function, const char *name);

#define check_given(client, pointer) check_pointer(&(client)->error, pointer, __func__, #pointer)
#define check_process(client)        check_caller(client, __func__)
#define check_state(client, wanted)  check_order_of(client, wanted, __func__)

#endif
