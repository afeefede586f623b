/* SPDX-License-Identifier: Apache-2.0
 * How many bytes have left this node's network interfaces, as the kernel counts them: for interfaces with RDMA also
 * what their ports have sent past the kernel. */
#ifndef TCK_AGENT_NIC_COUNTER_H
#define TCK_AGENT_NIC_COUNTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NIC_COUNTERS_MAX 16

struct nic_counter {
    size_t count; /* 0: there is nothing to read */
    struct {
        int fd;
        uint32_t unit_bytes;
    } of[NIC_COUNTERS_MAX];
};

/* Opens the counters of a list of interfaces (base/address_list.h), below a directory like /sys/class/net. */
void nic_counter_open(struct nic_counter *c, const char *dir, const char *devices);
void nic_counter_close(struct nic_counter *c);
/* Their sum; false if one of them cannot be read. */
bool nic_counter_read(const struct nic_counter *c, uint64_t *out);

#endif
