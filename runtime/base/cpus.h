/* SPDX-License-Identifier: Apache-2.0
 * Sets of processors: those that processes are bound to, and those of NUMA nodes (Linux: /sys/devices/system/node).
 * Memory is taken from the node of the thread that touches it first, so a thread that allocates memory for another
 * process has to run where that process does. libnuma is not used because it prints its errors; a container without
 * CAP_SYS_NICE may not call mbind either. */
#ifndef TCK_BASE_CPUS_H
#define TCK_BASE_CPUS_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define NUMA_NODES "/sys/devices/system/node"
#define CPUS_MAX   4096u

/* A set of processors. Zeroed: none, which stands for any. */
struct cpus {
    cpu_set_t sets[CPUS_MAX / CPU_SETSIZE];
};

bool cpus_is_none(const struct cpus *cpus);
uint32_t cpus_count(const struct cpus *cpus);
/* Those that this process is bound to; none if that is not known. 0: the calling thread. */
struct cpus cpus_of_process(pid_t pid);
struct cpus cpus_of_both(const struct cpus *a, const struct cpus *b);

/* All processors of the NUMA node that contains `bound`; none if `bound` is empty or spans several nodes, if the
 * machine has only one node with processors, or if its nodes cannot be read. Takes long on a large machine. nodes:
 * NUMA_NODES, or another directory in tests. */
struct cpus cpus_of_node(const char *nodes, const struct cpus *bound);
/* Binds the calling thread to these processors. It stays as it is if there are none, or none that it may use. */
void cpus_run_on(const struct cpus *cpus);
/* Memory that the calling thread touches first is from now on taken from the node where it runs, whatever policy its
 * parent was started with (numactl --membind). Stays as it is where a container does not allow that. */
void cpus_use_near_memory(void);

#endif
