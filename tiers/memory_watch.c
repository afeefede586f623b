/* SPDX-License-Identifier: Apache-2.0
 * Triggers of pressure stall information: of the machine, and of this process's control group of version 2. */
#include "tiers/memory_watch.h"

#include "base/log.h"
#include "base/loop.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Some process waits for memory for a tenth of the time. Without privileges a window has to be a multiple of 2 s. */
#define TRIGGER  "some 200000 2000000"
#define TRIGGERS 2

struct trigger {
    struct memory_watch *watch;
    int fd; /* -1: there is none */
    struct loop_fd *source;
};

struct memory_watch {
    struct memory_watch_setup needs;
    char root[PATH_MAX];
    struct trigger triggers[TRIGGERS];
    uint64_t stalls; /* notices so far */
};

static void trigger_end(struct trigger *t)
{
    if (t->source != NULL) {
        loop_fd_remove(t->source);
        t->source = NULL;
    }
    if (t->fd >= 0) {
        close(t->fd);
        t->fd = -1;
    }
}

static void on_trigger(void *ctx, uint32_t events)
{
    struct trigger *t = ctx;
    if (events & EPOLLERR) { /* its control group is gone */
        trigger_end(t);
        return;
    }
    t->watch->stalls++;
    t->watch->needs.stalled(t->watch->needs.ctx);
}

static void trigger_begin(struct trigger *t, const char *path)
{
    t->fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    bool made = t->fd >= 0 && write(t->fd, TRIGGER, sizeof(TRIGGER)) == (ssize_t)sizeof(TRIGGER) &&
                loop_fd_add(t->watch->needs.loop, t->fd, EPOLLPRI, on_trigger, t, &t->source) == TCK_OK;
    if (!made) {
        log_debug("%s: no notice of memory pressure: %m", path);
        t->source = NULL;
        trigger_end(t);
    }
}

tck_status_t memory_watch_new(const struct memory_watch_setup *setup, struct memory_watch **out, struct error *err)
{
    char path[PATH_MAX], group[PATH_MAX];
    struct memory_watch *watch = calloc(1, sizeof(*watch));
    if (watch == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to watch the memory");
    }
    watch->needs = *setup;
    snprintf(watch->root, sizeof(watch->root), "%s", setup->root);
    for (size_t i = 0; i < TRIGGERS; i++) {
        watch->triggers[i] = (struct trigger){.watch = watch, .fd = -1};
    }
    snprintf(path, sizeof(path), "%.4000s/proc/pressure/memory", watch->root);
    trigger_begin(&watch->triggers[0], path);
    if (memory_own_group(watch->root, group)) {
        snprintf(path, sizeof(path), "%.4000s/memory.pressure", group);
        trigger_begin(&watch->triggers[1], path);
    }
    *out = watch;
    return TCK_OK;
}

void memory_watch_free(struct memory_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    for (size_t i = 0; i < TRIGGERS; i++) {
        trigger_end(&watch->triggers[i]);
    }
    free(watch);
}

struct memory_figures memory_watch_read(const struct memory_watch *watch, char of[MEMORY_OF_BYTES])
{
    struct memory_figures figures = memory_figures_read(watch->root, of);
    figures.stalls += watch->stalls;
    return figures;
}
