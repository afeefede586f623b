/* SPDX-License-Identifier: Apache-2.0
 * A file system that passes everything on to another directory and, as its control file says, lies: it fails calls with
 * errors, returns fewer bytes than there are, lists directories as they were, hangs, or returns a wrong bit.
 *
 *     lying_fs BACKING CONTROL MOUNTPOINT
 *
 * It runs in the foreground until it is unmounted or killed. Nothing is cached by the kernel, so that each call of a
 * program under test arrives here. */
#define FUSE_USE_VERSION 31
#include "control.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static int backing_fd;
static struct control *control;

/* "/a/b" as a path below the backing directory. */
static const char *below(const char *path)
{
    return path[1] == '\0' ? "." : path + 1;
}

static int result_of(int returned)
{
    return returned < 0 ? -errno : returned;
}

/* ---- when it lies -------------------------------------------------------------------------------------------- */

static const int lie_errno[LIE_COUNT] = {
#define LIE_ERRNO(name, number) [LIE_##name] = (number),
    LIE_MAP(LIE_ERRNO)
#undef LIE_ERRNO
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ (x >> 33);
}

/* Lies that make sense for a call: bits have sense only where data comes back. */
static uint32_t sensible(enum call call)
{
    uint32_t all = (1u << LIE_COUNT) - 1;
    uint32_t rooms = 1u << LIE_ENOSPC | 1u << LIE_EDQUOT;
    uint32_t never = 0;
    bool changes = call == CALL_MAKE || call == CALL_WRITE || call == CALL_MOVE || call == CALL_REMOVE;
    never |= changes ? 0 : 1u << LIE_EROFS;
    never |= call == CALL_READ ? 0 : 1u << LIE_SHORT | 1u << LIE_FLIP;
    never |= call == CALL_LIST ? 0 : 1u << LIE_OLD;
    never |= call == CALL_WRITE || call == CALL_MAKE || call == CALL_SYNC || call == CALL_MOVE ? 0 : rooms;
    never |= call == CALL_OPEN || call == CALL_MAKE || call == CALL_LIST ? 0 : 1u << LIE_EMFILE;
    return all & ~never;
}

static enum lie nth_set(uint32_t bits, uint32_t n)
{
    for (enum lie lie = 0; lie < LIE_COUNT; lie++) {
        if ((bits >> lie & 1) && n-- == 0) {
            return lie;
        }
    }
    return LIE_NONE;
}

static bool concerns(const char *path)
{
    return strcmp(path, "/") != 0 && (control->only[0] == '\0' || strstr(path, control->only) != NULL) &&
           (control->spared[0] == '\0' || strstr(path, control->spared) == NULL);
}

/* No longer than storage lies at all. */
static void hang(uint32_t ms)
{
    while (ms > 0 && control->per_1000 > 0) {
        uint32_t slice = ms < 50 ? ms : 50;
        nanosleep(&(struct timespec){.tv_nsec = (long)slice * 1000000}, NULL);
        ms -= slice;
    }
}

/* The lie that this call gets; a hang has been sat out. *dice_out, if not NULL, is for what the lie leaves open. */
static enum lie lie_about(enum call call, const char *path, uint64_t *dice_out)
{
    uint64_t number = __atomic_add_fetch(&control->seen, 1, __ATOMIC_RELAXED);
    uint64_t dice = mix(control->seed ^ mix(number));
    uint32_t kinds = control->kinds & sensible(call);
    if (!(control->calls >> call & 1) || kinds == 0 || dice % 1000 >= control->per_1000 || !concerns(path)) {
        return LIE_NONE;
    }
    dice = mix(dice);
    enum lie lie = nth_set(kinds, (uint32_t)(dice % (uint64_t)__builtin_popcount(kinds)));
    __atomic_add_fetch(&control->told[lie], 1, __ATOMIC_RELAXED);
    if (lie == LIE_HANG) {
        hang(control->hang_ms);
        return LIE_NONE;
    }
    if (dice_out != NULL) {
        *dice_out = mix(dice);
    }
    return lie;
}

/* For calls whose only lies are errors and hangs: 0, or the negative errno. */
static int refusal(enum call call, const char *path)
{
    enum lie lie = lie_about(call, path, NULL);
    return lie == LIE_NONE ? 0 : -lie_errno[lie];
}

/* ---- open files keep their path, for the lies about them ------------------------------------------------------- */

struct handle {
    int fd;
    char path[];
};

static struct handle *handle_of(const struct fuse_file_info *info)
{
    struct handle *handle;
    uint64_t bits = info->fh;
    memcpy(&handle, &bits, sizeof(handle));
    return handle;
}

/* Owns the descriptor from now on, also on failure. */
static int keep_handle(int fd, const char *path, struct fuse_file_info *info)
{
    size_t len = strlen(path) + 1;
    struct handle *handle = malloc(sizeof(*handle) + len);
    if (handle == NULL) {
        close(fd);
        return -ENOMEM;
    }
    handle->fd = fd;
    memcpy(handle->path, path, len);
    uint64_t bits = 0;
    memcpy(&bits, &handle, sizeof(handle));
    info->fh = bits;
    info->direct_io = 1;
    return 0;
}

/* O_DIRECT is between the program and this file system; the buffers here are aligned to nothing. */
static int fs_open(const char *path, struct fuse_file_info *info)
{
    int refused = refusal((info->flags & O_ACCMODE) == O_RDONLY ? CALL_OPEN : CALL_MAKE, path);
    if (refused) {
        return refused;
    }
    int fd = openat(backing_fd, below(path), (info->flags & ~(O_DIRECT | O_EXCL | O_CREAT)) | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : keep_handle(fd, path, info);
}

static int fs_create(const char *path, mode_t mode, struct fuse_file_info *info)
{
    int refused = refusal(CALL_MAKE, path);
    if (refused) {
        return refused;
    }
    int fd = openat(backing_fd, below(path), (info->flags & ~O_DIRECT) | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
    return fd < 0 ? -errno : keep_handle(fd, path, info);
}

static int fs_release(const char *path, struct fuse_file_info *info)
{
    (void)path;
    struct handle *handle = handle_of(info);
    int result = result_of(close(handle->fd));
    free(handle);
    return result;
}

static int fs_read(const char *path, char *to, size_t size, off_t at, struct fuse_file_info *info)
{
    (void)path;
    const struct handle *handle = handle_of(info);
    uint64_t dice = 0;
    enum lie lie = lie_about(CALL_READ, handle->path, &dice);
    if (lie != LIE_NONE && lie_errno[lie]) {
        return -lie_errno[lie];
    }
    ssize_t got = pread(handle->fd, to, size, at);
    if (got < 0) {
        return -errno;
    }
    if (got > 0 && lie == LIE_SHORT) {
        got = (ssize_t)(dice % (uint64_t)got);
    }
    if (got > 0 && lie == LIE_FLIP) {
        to[dice % (uint64_t)got] ^= (char)(1 << (dice >> 32) % 8);
    }
    return (int)got;
}

static int fs_write(const char *path, const char *from, size_t size, off_t at, struct fuse_file_info *info)
{
    (void)path;
    const struct handle *handle = handle_of(info);
    int refused = refusal(CALL_WRITE, handle->path);
    return refused ? refused : result_of((int)pwrite(handle->fd, from, size, at));
}

static int fs_fsync(const char *path, int data_only, struct fuse_file_info *info)
{
    (void)path;
    const struct handle *handle = handle_of(info);
    int refused = refusal(CALL_SYNC, handle->path);
    return refused ? refused : result_of(data_only ? fdatasync(handle->fd) : fsync(handle->fd));
}

static int fs_fallocate(const char *path, int mode, off_t at, off_t len, struct fuse_file_info *info)
{
    (void)path;
    const struct handle *handle = handle_of(info);
    int refused = refusal(CALL_WRITE, handle->path);
    return refused ? refused : result_of(fallocate(handle->fd, mode, at, len));
}

/* ---- names ----------------------------------------------------------------------------------------------------- */

static int fs_getattr(const char *path, struct stat *out, struct fuse_file_info *info)
{
    if (info != NULL) {
        return result_of(fstat(handle_of(info)->fd, out));
    }
    int refused = refusal(CALL_LOOK, path);
    return refused ? refused : result_of(fstatat(backing_fd, below(path), out, AT_SYMLINK_NOFOLLOW));
}

static int fs_mkdir(const char *path, mode_t mode)
{
    int refused = refusal(CALL_MAKE, path);
    return refused ? refused : result_of(mkdirat(backing_fd, below(path), mode));
}

static int fs_unlink(const char *path)
{
    int refused = refusal(CALL_REMOVE, path);
    return refused ? refused : result_of(unlinkat(backing_fd, below(path), 0));
}

static int fs_rmdir(const char *path)
{
    int refused = refusal(CALL_REMOVE, path);
    return refused ? refused : result_of(unlinkat(backing_fd, below(path), AT_REMOVEDIR));
}

static int fs_rename(const char *from, const char *to, unsigned flags)
{
    int refused = refusal(CALL_MOVE, to);
    return refused ? refused : result_of(renameat2(backing_fd, below(from), backing_fd, below(to), flags));
}

static int fs_link(const char *from, const char *to)
{
    int refused = refusal(CALL_MOVE, to);
    return refused ? refused : result_of(linkat(backing_fd, below(from), backing_fd, below(to), 0));
}

static int fs_symlink(const char *target, const char *path)
{
    return result_of(symlinkat(target, backing_fd, below(path)));
}

static int fs_readlink(const char *path, char *to, size_t size)
{
    ssize_t got = readlinkat(backing_fd, below(path), to, size - 1);
    if (got < 0) {
        return -errno;
    }
    to[got] = '\0';
    return 0;
}

static int fs_chmod(const char *path, mode_t mode, struct fuse_file_info *info)
{
    (void)info;
    return result_of(fchmodat(backing_fd, below(path), mode, 0));
}

static int fs_truncate(const char *path, off_t size, struct fuse_file_info *info)
{
    int refused = refusal(CALL_WRITE, path);
    if (refused) {
        return refused;
    }
    if (info != NULL) {
        return result_of(ftruncate(handle_of(info)->fd, size));
    }
    int fd = openat(backing_fd, below(path), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    int result = fd < 0 ? -errno : result_of(ftruncate(fd, size));
    if (fd >= 0) {
        close(fd);
    }
    return result;
}

static int fs_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *info)
{
    (void)info;
    return result_of(utimensat(backing_fd, below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int fs_statfs(const char *path, struct statvfs *out)
{
    (void)path;
    return result_of(fstatvfs(backing_fd, out));
}

/* ---- directories, as they are and as they were ------------------------------------------------------------------ */

#define LISTINGS_MAX 256

/* How a directory looked when it was first listed since the last lie about it. */
struct listing {
    char *path;
    char *names; /* each ended by a NUL, an empty one at the end */
};
static struct listing listings[LISTINGS_MAX];
static pthread_mutex_t listings_lock = PTHREAD_MUTEX_INITIALIZER;

/* All names of the directory in one allocation, which becomes the caller's; NULL with errno. */
static char *names_now(const char *path)
{
    int fd = openat(backing_fd, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    char *names = NULL;
    size_t size = 0;
    FILE *out = dir != NULL ? open_memstream(&names, &size) : NULL;
    for (struct dirent *entry; out != NULL && (entry = readdir(dir)) != NULL;) {
        fwrite(entry->d_name, 1, strlen(entry->d_name) + 1, out);
    }
    if (out != NULL) {
        fputc('\0', out);
        fclose(out);
    }
    if (dir != NULL) {
        closedir(dir);
    } else if (fd >= 0) {
        close(fd);
    }
    return names;
}

/* Takes `now`; the older names, if there are some and a lie is wanted, else `now` again. */
static char *remembered(const char *path, char *now, bool lie)
{
    pthread_mutex_lock(&listings_lock);
    struct listing *free_one = NULL;
    for (struct listing *l = listings; l < listings + LISTINGS_MAX; l++) {
        if (l->path != NULL && strcmp(l->path, path) == 0) {
            if (lie) {
                char *old = l->names;
                l->names = now;
                now = old;
            }
            pthread_mutex_unlock(&listings_lock);
            return now;
        }
        free_one = free_one != NULL || l->path != NULL ? free_one : l;
    }
    size_t size = 1;
    for (const char *name = now; *name; name += strlen(name) + 1) {
        size += strlen(name) + 1;
    }
    char *copy = free_one != NULL ? malloc(size) : NULL;
    if (copy != NULL) {
        memcpy(copy, now, size);
        *free_one = (struct listing){strdup(path), copy};
    }
    pthread_mutex_unlock(&listings_lock);
    return now;
}

static int fs_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t at, struct fuse_file_info *info,
                      enum fuse_readdir_flags flags)
{
    (void)at;
    (void)info;
    (void)flags;
    enum lie lie = lie_about(CALL_LIST, path, NULL);
    if (lie != LIE_NONE && lie_errno[lie]) {
        return -lie_errno[lie];
    }
    char *names = names_now(path);
    if (names == NULL) {
        return -errno;
    }
    names = remembered(path, names, lie == LIE_OLD);
    for (const char *name = names; *name; name += strlen(name) + 1) {
        fill(buffer, name, NULL, 0, 0);
    }
    free(names);
    return 0;
}

static int fs_fsyncdir(const char *path, int data_only, struct fuse_file_info *info)
{
    (void)data_only;
    (void)info;
    int refused = refusal(CALL_SYNC, path);
    if (refused) {
        return refused;
    }
    int fd = openat(backing_fd, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int result = fd < 0 ? -errno : result_of(fsync(fd));
    if (fd >= 0) {
        close(fd);
    }
    return result;
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

static void *fs_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
    (void)connection;
    config->use_ino = 1;
    config->hard_remove = 1;
    config->direct_io = 1;
    config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
    return NULL;
}

static const struct fuse_operations operations = {
    .init = fs_init,
    .getattr = fs_getattr,
    .readlink = fs_readlink,
    .mkdir = fs_mkdir,
    .unlink = fs_unlink,
    .rmdir = fs_rmdir,
    .symlink = fs_symlink,
    .rename = fs_rename,
    .link = fs_link,
    .chmod = fs_chmod,
    .truncate = fs_truncate,
    .open = fs_open,
    .create = fs_create,
    .read = fs_read,
    .write = fs_write,
    .statfs = fs_statfs,
    .release = fs_release,
    .fsync = fs_fsync,
    .readdir = fs_readdir,
    .fsyncdir = fs_fsyncdir,
    .utimens = fs_utimens,
    .fallocate = fs_fallocate,
};

static int map_control(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(*control)) != 0) {
        return -1;
    }
    control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return control == MAP_FAILED ? -1 : 0;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: %s BACKING CONTROL MOUNTPOINT\n", argv[0]);
        return 2;
    }
    backing_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (backing_fd < 0 || map_control(argv[2]) != 0) {
        perror(backing_fd < 0 ? argv[1] : argv[2]);
        return 2;
    }
    umask(0);
    char *options[] = {argv[0], (char[]){"-f"}, (char[]){"-odefault_permissions,fsname=lying_fs"}, argv[3], NULL};
    return fuse_main(4, options, &operations, NULL);
}
