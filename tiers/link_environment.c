/* SPDX-License-Identifier: Apache-2.0
 * The UCX 1.13 environment with which link_ucx.c was measured and survives dying peers. A separate file, since the
 * supervisor sets it and must not load UCX. */
#include "tiers/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* UCX closes a connection twice if it has no handler left for it, and the second close may hit a descriptor that
 * another thread has opened meanwhile. So it gets as many handlers as there can be descriptors, at 8 bytes each per
 * worker. */
#define DESCRIPTORS_MOST 65000
#define HANDLERS         "65536"

struct variable {
    const char *name, *value;
};

static const struct variable variables[] = {
    {"UCX_TLS", "tcp"},
    {"UCX_TCP_CM_REUSEADDR", "y"},
    {"UCX_TCP_CM_SYN_CNT", "2"}, /* never UCX_TCP_SYN_CNT: with it no worker can be created */
    {"UCX_TCP_PUT_ENABLE", "n"}, /* with it, a sender aborts when its receiver closes by force */
    {"UCX_TCP_TX_SEG_SIZE", "256K"},
    {"UCX_TCP_RX_SEG_SIZE", "256K"},
    {"UCX_PROTO_ENABLE", "n"},
    {"UCX_KEEPALIVE_INTERVAL", "inf"}, /* its messages switch off the kernel's keepalive, the next three */
    {"UCX_TCP_KEEPIDLE", "5s"},
    {"UCX_TCP_KEEPINTVL", "1s"},
    {"UCX_TCP_KEEPCNT", "3"},
    {"UCX_MEM_EVENTS", "n"},
    {"UCX_ERROR_SIGNALS", ""}, /* signal handlers are up to the program */
    {"UCX_HANDLE_ERRORS", "none"},
    {"UCX_WARN_UNUSED_ENV_VARS", "n"},
    {"UCX_ASYNC_MAX_EVENTS", HANDLERS},
};

/* As many as are allowed, since each segment of memory takes two, but no more than UCX has handlers. */
static void set_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max < DESCRIPTORS_MOST ? limit.rlim_max : DESCRIPTORS_MOST;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void set_defaults(const struct variable *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        setenv(from[i].name, from[i].value, 0); /* NOLINT(concurrency-mt-unsafe): called before any thread is started */
    }
}

void link_environment(const char *device)
{
    const struct variable net[] = {{"UCX_NET_DEVICES", device}};
    set_descriptor_limit();
    set_defaults(variables, sizeof(variables) / sizeof(variables[0]));
    if (device[0] != '\0' && strchr(device, ',') == NULL) { /* of several, link_ucx.c chooses one for each address */
        set_defaults(net, 1);
    }
}

void link_environment_family(bool ipv6)
{
    const struct variable family[] = {{"UCX_TCP_AF_PRIO", ipv6 ? "inet6" : "inet"}};
    set_defaults(family, 1);
}

/* The lower two bits are those of explicit congestion notification. They say, as in UCX's own default for RoCE, that
 * switches may mark packets instead of dropping them, on which RoCE's congestion control relies. */
#define ECN_CAPABLE 2u

static void set_number(const char *name, uint32_t number)
{
    char text[16];
    snprintf(text, sizeof(text), "%u", number);
    set_defaults(&(const struct variable){name, text}, 1);
}

void link_environment_class(uint32_t dscp, uint32_t service_level)
{
    if (dscp != 0) {
        set_number("UCX_IB_TRAFFIC_CLASS", dscp << 2 | ECN_CAPABLE);
    }
    if (service_level != 0) {
        set_number("UCX_IB_SL", service_level);
    }
}
