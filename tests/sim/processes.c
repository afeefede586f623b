/* SPDX-License-Identifier: Apache-2.0
 * Processes, and the system calls of an agent about its own process. */
#include "sim.h"

#include "base/bounded.h"
#include "wrapped.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIRST_PID 5000000 /* above all of the kernel's */

struct process_entry {
    bool ended;
    struct object *watched;
    void (*killed)(void *ctx);
    void *ctx;
};

static struct process_entry *entries;
static size_t entry_count;

static struct process_entry *entry_of(pid_t pid)
{
    return pid >= FIRST_PID && (size_t)(pid - FIRST_PID) < entry_count ? &entries[pid - FIRST_PID] : NULL;
}

pid_t process_begin(void (*killed)(void *ctx), void *ctx)
{
    entries = realloc(entries, (entry_count + 1) * sizeof(*entries));
    if (entries == NULL) {
        abort();
    }
    entries[entry_count] = (struct process_entry){.killed = killed, .ctx = ctx, .watched = object_new(OBJECT_PROCESS)};
    entries[entry_count].watched->refs = 1;
    entries[entry_count].watched->pid = (pid_t)(FIRST_PID + entry_count);
    return (pid_t)(FIRST_PID + entry_count++);
}

void process_end(pid_t pid)
{
    struct process_entry *entry = entry_of(pid);
    if (entry != NULL && !entry->ended) {
        entry->ended = true;
        entry->watched->hung_up = true;
        object_wake(entry->watched);
    }
}

struct process process_of(pid_t pid)
{
    return (struct process){.pid = pid, .start = 1};
}

bool process_has_ended(struct process process)
{
    const struct process_entry *entry = entry_of(process.pid);
    return entry == NULL || entry->ended;
}

static void kill_later(void *ctx)
{
    struct process_entry *entry = entry_of(((struct object *)ctx)->pid);
    if (!entry->ended && entry->killed != NULL) {
        entry->killed(entry->ctx);
    }
}

long __wrap_syscall(long number, long a, long b, long c, long d, long e)
{
    if (number == SYS_pidfd_open && entry_of((pid_t)a) != NULL) {
        return object_fd(entry_of((pid_t)a)->watched);
    }
    if (number == SYS_pidfd_send_signal && object_of((int)a) != NULL) {
        sim_after(sim_between(10, 1000), NULL, kill_later, object_of((int)a));
        return 0;
    }
    if (number == SYS_openat2) {
        return storage_refuses((int)a) ? -1
                                       : file_open((int)a, (const char *)b,
                                                   (int)*(const uint64_t *)c); /* struct open_how begins with flags */
    }
    return __real_syscall(number, a, b, c, d, e);
}

/* Reports the same machine everywhere, so that a seed always gives the same schedule. */
long __wrap_sysconf(int name)
{
    switch (name) {
    case _SC_NPROCESSORS_ONLN:
        return 2;
    case _SC_PHYS_PAGES:
        return 1L << 22;
    case _SC_PAGESIZE:
        return 4096;
    default:
        return -1;
    }
}

uint32_t __wrap_processors_usable(const char *root)
{
    (void)root;
    return 2;
}

pid_t __wrap_getpid(void)
{
    return sim.current != NULL ? sim.current->pid : __real_getpid();
}

void __wrap__exit(int status)
{
    sim_log("%s ends itself with status %d", sim.current->name, status);
    longjmp(sim.current->death, 1);
}

/* The agent sleeps only to wait for pool threads. */
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left)
{
    (void)wanted;
    (void)left;
    pools_work(sim.current);
    return 0;
}

/* What an agent does so is work in an archive. */
tck_status_t bounded_do(const struct bounded_work *work, uint32_t limit_ms, struct error *err)
{
    if (sim.current != NULL && sim.current->hangs_until_us[AT_ARCHIVE] > sim.us) {
        work->drop(work->job);
        return error_set(err, TCK_ERR_TIMEDOUT, "storage hangs: it has not answered for %u ms", limit_ms);
    }
    work->work(work->job);
    return TCK_OK;
}
