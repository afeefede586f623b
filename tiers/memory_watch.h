/* SPDX-License-Identifier: Apache-2.0
 * Watches how much memory is left: figures that are read when asked for, and the kernel's notice (PSI) that processes
 * have begun to wait for memory. */
#ifndef TCK_TIERS_MEMORY_WATCH_H
#define TCK_TIERS_MEMORY_WATCH_H

#include "tiers/memory_limits.h"

struct loop;
struct memory_watch;

struct memory_watch_setup {
    struct loop *loop;
    const char *root;           /* before all paths: "" but in tests */
    void (*stalled)(void *ctx); /* processes wait for memory: a good time to read the figures */
    void *ctx;
};

/* Where the kernel offers no such notice, the figures are all there is. */
must_check tck_status_t memory_watch_new(const struct memory_watch_setup *setup, struct memory_watch **out,
                                         struct error *err);
void memory_watch_free(struct memory_watch *watch);
struct memory_figures memory_watch_read(const struct memory_watch *watch, char of[MEMORY_OF_BYTES]);

#endif
