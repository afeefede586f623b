/* SPDX-License-Identifier: Apache-2.0
 * Time. Deadlines and intervals use the monotonic clock; wall time appears only in logs and manifests. */
#ifndef TCK_BASE_CLOCK_H
#define TCK_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_ns(void);        /* CLOCK_MONOTONIC */
uint64_t clock_ms(void);        /* CLOCK_MONOTONIC */
uint64_t clock_wall_ms(void);   /* CLOCK_REALTIME since 1970 */
uint64_t clock_wall_us(void);   /* the same */
uint64_t clock_thread_ns(void); /* processor time of the calling thread */

#endif
