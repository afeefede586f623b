/* SPDX-License-Identifier: Apache-2.0
 * Ways to copy a large stretch of memory that will not be read again soon. Which is best differs from machine to
 * machine by 1.4 times. */
#ifndef TCK_CLIENT_KERNEL_H
#define TCK_CLIENT_KERNEL_H

#include <stdbool.h>
#include <stddef.h>

#define KERNELS_MAX 5

/* As memcpy. Stores may not be visible to others before memcpy_nt_fence. */
typedef void (*kernel_fn)(void *dst, const void *src, size_t bytes);

struct memcpy_nt {
    const char *name;
    kernel_fn copy;
};

/* Lists the kernels that this machine supports, the default first and libc's last. Returns how many. */
unsigned memcpy_nt_list(struct memcpy_nt out[KERNELS_MAX]);

/* Orders all stores of this thread's copies before what it does next. */
void memcpy_nt_fence(void);

#endif
