/* SPDX-License-Identifier: Apache-2.0
 * The kernel's counters of network interfaces. */
#include "agent/pace/nic_counter.h"

#include "base/address_list.h"

#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_MAX_BYTES 512
#define RDMA_UNIT      4u /* port_xmit_data counts words of 4 bytes */

static void add(struct nic_counter *c, const char *path, uint32_t unit_bytes)
{
    int fd = c->count < NIC_COUNTERS_MAX ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        c->of[c->count].fd = fd;
        c->of[c->count].unit_bytes = unit_bytes;
        c->count++;
    }
}

/* The caller frees what was found with globfree; nothing, if it cannot be read. */
static glob_t find(const char *pattern)
{
    glob_t found = {0};
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): only patterns with a tilde make it unsafe (glob(3)) */
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0) {
        globfree(&found);
        found = (glob_t){0};
    }
    return found;
}

/* All files of this name. */
static void add_matching(struct nic_counter *c, const char *pattern, uint32_t unit_bytes)
{
    glob_t found = find(pattern);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (strstr(found.gl_pathv[i], "/lo/") == NULL) {
            add(c, found.gl_pathv[i], unit_bytes);
        }
    }
    globfree(&found);
}

static void add_device(struct nic_counter *c, const char *dir, const char *device)
{
    char pattern[PATH_MAX_BYTES];
    snprintf(pattern, sizeof(pattern), "%s/%s/statistics/tx_bytes", dir, device);
    add_matching(c, pattern, 1);
    snprintf(pattern, sizeof(pattern), "%s/%s/device/infiniband/*/ports/*/counters/port_xmit_data", dir, device);
    add_matching(c, pattern, RDMA_UNIT);
}

/* What a bond, a VLAN or a bridge sends is sent by an adapter, too, and would count twice. Without any adapter, as in a
 * container, every interface counts. */
static void add_any(struct nic_counter *c, const char *dir)
{
    char pattern[PATH_MAX_BYTES];
    snprintf(pattern, sizeof(pattern), "%s/*/device", dir);
    glob_t found = find(pattern);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        *strrchr(found.gl_pathv[i], '/') = '\0';
        add_device(c, dir, strrchr(found.gl_pathv[i], '/') + 1);
    }
    globfree(&found);
    if (c->count == 0) {
        add_device(c, dir, "*");
    }
}

void nic_counter_open(struct nic_counter *c, const char *dir, const char *devices)
{
    struct address_list list;
    c->count = 0;
    if (address_list_read(devices, &list, NULL) != TCK_OK || list.count == 0) {
        add_any(c, dir); /* agents use whatever interface leads to the other one */
        return;
    }
    for (size_t i = 0; i < list.count; i++) {
        list.of[i][strcspn(list.of[i], ":")] = '\0'; /* an alias has no counters of its own */
        add_device(c, dir, list.of[i]);
    }
}

void nic_counter_close(struct nic_counter *c)
{
    while (c->count > 0) {
        close(c->of[--c->count].fd);
    }
}

bool nic_counter_read(const struct nic_counter *c, uint64_t *out)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < c->count; i++) {
        char text[32], *end;
        ssize_t n = pread(c->of[i].fd, text, sizeof(text) - 1, 0);
        if (n <= 0) {
            return false;
        }
        text[n] = '\0';
        sum += strtoull(text, &end, 10) * c->of[i].unit_bytes;
        if (end == text) {
            return false;
        }
    }
    *out = sum;
    return c->count > 0;
}
