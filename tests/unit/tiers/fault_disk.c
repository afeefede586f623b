/* SPDX-License-Identifier: Apache-2.0
 * See fault_disk.h. Nothing is really synced: a killed process leaves its files as they are, and for a lost machine a
 * list of the changes that were not synced is kept here and undone. A name is durable once its directory was synced, a
 * file's bytes once the file was. */
#include "fault_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PENDING_MAX 1024
#define NAME_BYTES  256

enum act { ACT_WRITE, ACT_CREATE, ACT_MKDIR, ACT_RENAME, ACT_UNLINK, ACT_RMDIR };

/* A change that was made and not synced. */
struct pending {
    enum act act;
    ino_t inode;           /* of the file written, or of the directory that must be synced */
    int fd;                /* of the file, or of that directory; a duplicate */
    char name[NAME_BYTES]; /* in that directory */
    int from_fd;           /* RENAME */
    char from[NAME_BYTES];
    char saved[NAME_BYTES]; /* the entry in limbo that UNLINK and RMDIR removed or RENAME replaced; "" if none */
    off_t size, at, len;    /* WRITE: size of the file before it; its position */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum fault fault;
static uint32_t calls, fault_at, saved_count;
static int limbo_fd = -1;
static char hit[32];
static struct pending list[PENDING_MAX];
static uint32_t list_count;

int __real_openat(int dir_fd, const char *name, int flags, ...);
long __real_syscall(long number, ...);
int __real_mkdirat(int dir_fd, const char *name, mode_t mode);
int __real_renameat(int from_fd, const char *from, int to_fd, const char *to);
int __real_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
int __real_unlinkat(int dir_fd, const char *name, int flags);
int __real_fstat(int fd, struct stat *st);
int __real_fstatat(int dir_fd, const char *name, struct stat *st, int flags);
int __real_close(int fd);
int __real_fallocate(int fd, int mode, off_t offset, off_t len);
ssize_t __real_write(int fd, const void *data, size_t len);
ssize_t __real_pwrite(int fd, const void *data, size_t len, off_t at);
ssize_t __real_read(int fd, void *data, size_t len);
ssize_t __real_pread(int fd, void *data, size_t len, off_t at);

void fault_disk_begin(enum fault wanted, uint32_t at, const char *limbo)
{
    fault = wanted;
    fault_at = at;
    calls = 0;
    list_count = 0;
    hit[0] = '\0';
    limbo_fd = open(limbo, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (limbo_fd < 0) {
        perror(limbo);
        abort();
    }
}

uint32_t fault_disk_calls(void)
{
    return calls;
}

const char *fault_disk_hit(void)
{
    return hit;
}

/* ---- a lost machine -------------------------------------------------------------------------------------------- */

static bool losing(void)
{
    return fault >= FAULT_LOSE_ALL;
}

static uint32_t chance(uint32_t below)
{
    static uint32_t state;
    state = (state == 0 ? fault_at * 2654435761u + 1 : state) * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

/* A file that had grown becomes short again; one that was allocated before has zeros. */
static void undo_write(const struct pending *p)
{
    int rc = p->at >= p->size ? ftruncate(p->fd, p->size)
                              : __real_fallocate(p->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, p->at, p->len);
    if (rc != 0) {
        perror("undo a write");
    }
}

static void undo(const struct pending *p)
{
    switch (p->act) {
    case ACT_WRITE:
        undo_write(p);
        break;
    case ACT_CREATE:
        __real_unlinkat(p->fd, p->name, 0);
        break;
    case ACT_MKDIR:
        __real_unlinkat(p->fd, p->name, AT_REMOVEDIR);
        break;
    case ACT_RENAME:
        __real_renameat(p->fd, p->name, p->from_fd, p->from);
        if (p->saved[0] != '\0') {
            __real_renameat(limbo_fd, p->saved, p->fd, p->name);
        }
        break;
    case ACT_UNLINK:
    case ACT_RMDIR:
        __real_renameat(limbo_fd, p->saved, p->fd, p->name);
        break;
    }
}

/* Names: all changes after some time are lost, and any deletion before it may be undone. Bytes: any may be lost. */
static void lose(void)
{
    uint32_t cut = fault == FAULT_LOSE_ALL ? 0 : fault == FAULT_LOSE_DATA ? list_count : chance(list_count + 1);
    for (uint32_t i = list_count; i-- > 0;) {
        const struct pending *p = &list[i];
        bool by_chance = fault == FAULT_LOSE_RANDOM && chance(2) == 0;
        if (p->act == ACT_WRITE ? fault != FAULT_LOSE_RANDOM || by_chance
                                : i >= cut || (p->act == ACT_UNLINK && by_chance)) {
            undo(p);
        }
    }
}

static ino_t inode_of(int fd)
{
    struct stat st;
    return __real_fstat(fd, &st) == 0 ? st.st_ino : 0;
}

static struct pending *note(enum act act, int fd, const char *name)
{
    if (!losing()) {
        return NULL;
    }
    if (list_count == PENDING_MAX) {
        fprintf(stderr, "more than %d acts are not synced\n", PENDING_MAX);
        abort();
    }
    struct pending *p = &list[list_count++];
    *p = (struct pending){.act = act, .inode = inode_of(fd), .fd = dup(fd), .from_fd = -1};
    snprintf(p->name, sizeof(p->name), "%s", name);
    return p;
}

/* at -1: at the end of the file, as for all writes without an offset */
static void note_write(int fd, off_t at, size_t len)
{
    struct stat st;
    if (__real_fstat(fd, &st) == 0) {
        struct pending *p = note(ACT_WRITE, fd, "");
        if (p != NULL) {
            p->size = st.st_size;
            p->at = at < 0 ? st.st_size : at;
            p->len = (off_t)len;
        }
    }
}

static void synced(int fd)
{
    ino_t inode = inode_of(fd);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list_count; i++) {
        if (list[i].inode == inode) {
            __real_close(list[i].fd);
        } else {
            list[kept++] = list[i];
        }
    }
    list_count = kept;
}

/* Moves an entry into limbo, under a new name. */
static bool save(int dir_fd, const char *name, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "%u", saved_count++);
    return __real_renameat(dir_fd, name, limbo_fd, out) == 0;
}

/* ---- the n-th call --------------------------------------------------------------------------------------------- */

static void end_here(void)
{
    if (losing()) {
        lose();
    }
    kill(getpid(), SIGKILL);
    for (;;) {
        pause();
    }
}

/* Called with the lock held. 0: carry it out; 1: carry out half; else the errno to fail with. */
static int strike(const char *what)
{
    if (++calls != fault_at || fault == FAULT_NONE) {
        return 0;
    }
    snprintf(hit, sizeof(hit), "%s", what);
    switch (fault) {
    case FAULT_EIO:
        return EIO;
    case FAULT_ENOSPC:
        return ENOSPC;
    case FAULT_EINTR:
        return EINTR;
    case FAULT_SHORT:
        return 1;
    case FAULT_NONE:
    case FAULT_COUNT:
        return 0;
    case FAULT_KILL:
    case FAULT_LOSE_ALL:
    case FAULT_LOSE_DATA:
    case FAULT_LOSE_RANDOM:
        end_here();
    }
    return 0;
}

static bool is_file(int fd)
{
    struct stat st;
    return __real_fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
}

static int enter(const char *what)
{
    pthread_mutex_lock(&lock);
    return strike(what);
}

static long leave(long result)
{
    int saved_errno = errno;
    pthread_mutex_unlock(&lock);
    errno = saved_errno;
    return result;
}

static long fail(int number)
{
    errno = number;
    return leave(-1);
}

#define ENTER(what)               \
    int struck = enter(what);     \
    if (struck > 1) {             \
        return (int)fail(struck); \
    }

/* ---- names ----------------------------------------------------------------------------------------------------- */

static long open_and_note(int dir_fd, const char *name, int flags, long (*open_it)(void *ctx), void *ctx)
{
    struct stat st;
    bool is_new = losing() && (flags & O_CREAT) && __real_fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0;
    long fd = open_it(ctx);
    if (fd >= 0 && is_new) {
        note(ACT_CREATE, dir_fd, name);
    }
    return fd;
}

struct open_args {
    int dir_fd;
    const char *name;
    int flags;
    mode_t mode;
    void *how;
    size_t size;
};

static long open_plain(void *ctx)
{
    struct open_args *a = ctx;
    return __real_openat(a->dir_fd, a->name, a->flags, a->mode);
}

static long open_how(void *ctx)
{
    struct open_args *a = ctx;
    return __real_syscall(SYS_openat2, a->dir_fd, a->name, a->how, a->size);
}

int __wrap_openat(int dir_fd, const char *name, int flags, ...);
int __wrap_openat(int dir_fd, const char *name, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    struct open_args a = {.dir_fd = dir_fd, .name = name, .flags = flags};
    a.mode = flags & O_CREAT ? (mode_t)va_arg(args, int) : 0;
    va_end(args);
    ENTER("openat")
    return (int)leave(open_and_note(dir_fd, name, flags, open_plain, &a));
}

/* Only openat2 uses this function here. */
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    va_list args;
    long v[6];
    va_start(args, number);
    for (int i = 0; i < 6; i++) {
        v[i] = va_arg(args, long);
    }
    va_end(args);
    if (number != SYS_openat2) {
        return __real_syscall(number, v[0], v[1], v[2], v[3], v[4], v[5]);
    }
    struct open_how *how = (struct open_how *)v[2];
    struct open_args a = {.dir_fd = (int)v[0], .name = (const char *)v[1], .how = how, .size = (size_t)v[3]};
    ENTER("openat2")
    return leave(open_and_note(a.dir_fd, a.name, (int)how->flags, open_how, &a));
}

int __wrap_mkdirat(int dir_fd, const char *name, mode_t mode);
int __wrap_mkdirat(int dir_fd, const char *name, mode_t mode)
{
    ENTER("mkdirat")
    int rc = __real_mkdirat(dir_fd, name, mode);
    if (rc == 0) {
        note(ACT_MKDIR, dir_fd, name);
    }
    return (int)leave(rc);
}

static int move(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    char replaced[NAME_BYTES] = "";
    struct stat st;
    if (losing() && flags == 0 && __real_fstatat(to_fd, to, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
        save(to_fd, to, replaced);
    }
    int rc = __real_renameat2(from_fd, from, to_fd, to, flags);
    struct pending *p = rc == 0 ? note(ACT_RENAME, to_fd, to) : NULL;
    if (p != NULL) {
        p->from_fd = dup(from_fd);
        snprintf(p->from, sizeof(p->from), "%s", from);
        memcpy(p->saved, replaced, sizeof(p->saved));
    }
    return rc;
}

int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to);
int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    ENTER("renameat")
    return (int)leave(move(from_fd, from, to_fd, to, 0));
}

int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    ENTER("renameat2")
    return (int)leave(move(from_fd, from, to_fd, to, flags));
}

int __wrap_unlinkat(int dir_fd, const char *name, int flags);
int __wrap_unlinkat(int dir_fd, const char *name, int flags)
{
    ENTER("unlinkat")
    if (!losing()) {
        return (int)leave(__real_unlinkat(dir_fd, name, flags));
    }
    char saved[NAME_BYTES];
    int fd = __real_openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool whole = (fd >= 0) == ((flags & AT_REMOVEDIR) != 0);
    if (fd >= 0) {
        __real_close(fd);
    }
    if (!whole || !save(dir_fd, name, saved)) {
        return (int)leave(__real_unlinkat(dir_fd, name, flags));
    }
    struct pending *p = note(flags & AT_REMOVEDIR ? ACT_RMDIR : ACT_UNLINK, dir_fd, name);
    memcpy(p->saved, saved, sizeof(p->saved));
    return (int)leave(0);
}

int __wrap_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st)
{
    if (!is_file(fd)) {
        return __real_fstat(fd, st);
    }
    ENTER("fstat")
    return (int)leave(__real_fstat(fd, st));
}

int __wrap_fstatat(int dir_fd, const char *name, struct stat *st, int flags);
int __wrap_fstatat(int dir_fd, const char *name, struct stat *st, int flags)
{
    ENTER("fstatat")
    return (int)leave(__real_fstatat(dir_fd, name, st, flags));
}

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

/* A descriptor is closed even if close fails. */
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    if (!is_file(fd)) {
        return __real_close(fd);
    }
    int struck = enter("close");
    int rc = __real_close(fd);
    return struck > 1 ? (int)fail(struck) : (int)leave(rc);
}

static int sync_it(const char *what, int fd)
{
    if (!is_file(fd)) {
        return 0;
    }
    ENTER(what)
    synced(fd);
    return (int)leave(0);
}

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    return sync_it("fsync", fd);
}

int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    return sync_it("fdatasync", fd);
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t len);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t len)
{
    ENTER("fallocate")
    return (int)leave(__real_fallocate(fd, mode, offset, len));
}

/* Half of the bytes, in whole blocks, as direct I/O would carry. */
static size_t half(int struck, size_t len)
{
    if (struck == 0) {
        return len;
    }
    return len >= 8192 ? len / 8192 * 4096 : len / 2;
}

ssize_t __wrap_write(int fd, const void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len)
{
    if (!is_file(fd)) {
        return __real_write(fd, data, len);
    }
    ENTER("write")
    note_write(fd, -1, len);
    return leave(__real_write(fd, data, half(struck, len)));
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at)
{
    ENTER("pwrite")
    note_write(fd, at, len);
    return leave(__real_pwrite(fd, data, half(struck, len), at));
}

ssize_t __wrap_read(int fd, void *data, size_t len);
ssize_t __wrap_read(int fd, void *data, size_t len)
{
    if (!is_file(fd)) {
        return __real_read(fd, data, len);
    }
    ENTER("read")
    return leave(__real_read(fd, data, half(struck, len)));
}

ssize_t __wrap_pread(int fd, void *data, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *data, size_t len, off_t at)
{
    ENTER("pread")
    return leave(__real_pread(fd, data, half(struck, len), at));
}

/* io_uring's operations run within the kernel: without it the same requests are plain calls. */
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    (void)entries;
    (void)ring;
    (void)flags;
    return -ENOSYS;
}
