/* SPDX-License-Identifier: Apache-2.0
 * The UCX 1.13 environment under which link_ucx.c was measured and survives dying peers. A file of its own: the keeper
 * sets it and must not load UCX. */
#include "tiers/link.h"

#include <stdlib.h>

struct variable {
    const char *name, *value;
};

static const struct variable variables[] = {
    {"UCX_TLS", "tcp"},
    {"UCX_TCP_AF_PRIO", "inet"}, /* a mixed setting aborts both sides */
    {"UCX_TCP_CM_REUSEADDR", "y"},
    {"UCX_TCP_CM_SYN_CNT", "2"}, /* never UCX_TCP_SYN_CNT: no worker can be made then */
    {"UCX_TCP_PUT_ENABLE", "n"}, /* with it a sender aborts when its receiver closes by force */
    {"UCX_TCP_TX_SEG_SIZE", "256K"},
    {"UCX_TCP_RX_SEG_SIZE", "256K"},
    {"UCX_PROTO_ENABLE", "n"},
    {"UCX_KEEPALIVE_INTERVAL", "inf"}, /* its messages switch off the kernel's keepalive, the next three */
    {"UCX_TCP_KEEPIDLE", "5s"},
    {"UCX_TCP_KEEPINTVL", "1s"},
    {"UCX_TCP_KEEPCNT", "3"},
    {"UCX_MEM_EVENTS", "n"},
    {"UCX_ERROR_SIGNALS", ""}, /* signal handlers are the program's own */
    {"UCX_HANDLE_ERRORS", "none"},
    {"UCX_WARN_UNUSED_ENV_VARS", "n"},
};

void link_environment(const char *device)
{
    /* NOLINTBEGIN(concurrency-mt-unsafe): called before any thread is started */
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        setenv(variables[i].name, variables[i].value, 0);
    }
    if (device[0] != '\0') {
        setenv("UCX_NET_DEVICES", device, 0);
    }
    /* NOLINTEND(concurrency-mt-unsafe) */
}
