/* SPDX-License-Identifier: Apache-2.0
 * Storage: save_dir and archive_dir, their directories and files, and the system calls on them, as file systems in
 * memory. A host may be cut off from one of them: its calls to open, sync and rename files there then fail. */
#include "files.h"

#include "tiers/names.h"
#include "wrapped.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The contents of a directory when it was opened. */
struct listing {
    struct entry *rest;
    struct dirent last;
};

static struct file root = {.is_dir = true, .inode = 1, .links = 1};
static struct file archive_root = {.is_dir = true, .inode = UINT64_MAX, .links = 1, .in_archive = true};

static int fail(int number)
{
    errno = number;
    return -1;
}

bool storage_refuses(int fd)
{
    const struct object *object = object_of(fd);
    bool archive = object != NULL && object->kind == OBJECT_FILE && object->file->in_archive;
    bool refused = sim.current != NULL && sim.current->refused_by[archive ? AT_ARCHIVE : AT_SAVE_DIR];
    errno = refused ? EIO : errno;
    return refused;
}

void storage_looked_up(void)
{
    if (sim.current != NULL) {
        sim.current->counts.lookups++;
    }
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static struct entry **hash_place(const struct file *dir, const char *name)
{
    return &dir->by_name[hash128_of(name, strlen(name)).lo % dir->hashes];
}

struct entry *entry_find(const struct file *dir, const char *name)
{
    struct entry *entry = dir->hashes > 0 ? *hash_place(dir, name) : NULL;
    while (entry != NULL && strcmp(entry->name, name) != 0) {
        entry = entry->same;
    }
    return entry;
}

static void add_hash(struct file *dir, struct entry *entry)
{
    struct entry **place = hash_place(dir, entry->name);
    entry->same = *place;
    *place = entry;
}

static void remove_hash(struct file *dir, struct entry *entry)
{
    struct entry **place = hash_place(dir, entry->name);
    while (*place != entry) {
        place = &(*place)->same;
    }
    *place = entry->same;
}

static void grow_hashes(struct file *dir)
{
    dir->hashes = dir->hashes ? 4 * dir->hashes : 16;
    free(dir->by_name);
    dir->by_name = calloc(dir->hashes, sizeof(struct entry *));
    if (dir->by_name == NULL) {
        abort();
    }
    for (struct entry *entry = dir->entries; entry != NULL; entry = entry->next) {
        add_hash(dir, entry);
    }
}

static struct file *file_new(bool is_dir)
{
    static uint64_t inode = 1;
    struct file *file = calloc(1, sizeof(*file));
    if (file == NULL) {
        abort();
    }
    file->is_dir = is_dir;
    file->inode = ++inode;
    return file;
}

static void release(struct file *file)
{
    if (file->links == 0 && file->opened == 0) {
        free(file->by_name);
        free(file->data);
        free(file);
    }
}

void file_closed(struct file *file)
{
    file->opened--;
    release(file);
}

struct entry *entry_new(const char *name, struct file *file, struct entry *next)
{
    size_t len = strlen(name) + 1;
    struct entry *entry = malloc(sizeof(*entry) + len);
    if (entry == NULL || len > NAME_MAX + 1) {
        abort();
    }
    *entry = (struct entry){.next = next, .file = file};
    memcpy(entry->name, name, len);
    return entry;
}

struct file *job_dir(void)
{
    static struct file *found; /* it is never removed */
    if (found == NULL && root.entries != NULL) {
        const struct entry *entry = entry_find(&root, sim.hosts[0].config.job);
        found = entry != NULL ? entry->file : NULL;
    }
    return found;
}

struct file *archive_job_dir(void)
{
    static struct file *found; /* it is never removed */
    if (found == NULL && archive_root.entries != NULL) {
        const struct entry *entry = entry_find(&archive_root, sim.hosts[0].config.job);
        found = entry != NULL ? entry->file : NULL;
    }
    return found;
}

void name_file(struct file *dir, const char *name, struct file *file)
{
    struct entry *entry = entry_new(name, file, dir->entries);
    entry->at = &dir->entries;
    if (entry->next != NULL) {
        entry->next->at = &entry->next;
    }
    dir->entries = entry;
    file->links++;
    if (dir->entry_count++ == dir->hashes) {
        grow_hashes(dir);
    } else {
        add_hash(dir, entry);
    }
}

static void notice_claim(const struct file *dir, const char *name)
{
    uint64_t term;
    if (dir == job_dir() && term_name_parse(name, &term)) {
        doubts_claimed(dir);
    }
}

void remove_name(struct file *dir, struct entry *entry)
{
    remove_hash(dir, entry);
    *entry->at = entry->next;
    if (entry->next != NULL) {
        entry->next->at = entry->at;
    }
    dir->entry_count--;
    entry->file->links--;
    release(entry->file);
    free(entry);
}

/* NULL, with errno set, if it is not one of the simulated directories. */
static struct file *dir_of(int fd)
{
    struct object *object = object_of(fd);
    errno = object == NULL || object->kind != OBJECT_FILE ? EBADF : ENOTDIR;
    return object != NULL && object->kind == OBJECT_FILE && object->file->is_dir ? object->file : NULL;
}

static struct file *file_of(int fd)
{
    struct object *object = object_of(fd);
    return object != NULL && object->kind == OBJECT_FILE ? object->file : NULL;
}

/* NULL: it is the kernel's. */
static struct file *root_of(const char *path)
{
    return strcmp(path, sim.save_dir) == 0 ? &root : strcmp(path, ARCHIVE_DIR) == 0 ? &archive_root : NULL;
}

/* Entries of save_dir and archive_dir themselves are always on disk. */
static void make_file(struct file *dir, const char *name, struct file *file)
{
    file->in_archive = dir->in_archive;
    if (dir != &root && dir != &archive_root) {
        power_renames(NULL, NULL, dir, name, file);
    }
    name_file(dir, name, file);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int open_file(struct file *file, int flags)
{
    struct object *object = object_new(OBJECT_FILE);
    object->file = file;
    object->losses = file->losses;
    object->appends = (flags & O_APPEND) != 0;
    file->opened++;
    return object_fd(object);
}

int file_open(int dir_fd, const char *name, int flags)
{
    struct file *dir = dir_of(dir_fd);
    storage_looked_up();
    if (dir == NULL) {
        return -1;
    }
    if (strcmp(name, ".") == 0) {
        return open_file(dir, flags);
    }
    struct entry *entry = entry_find(dir, name);
    bool makes = (flags & O_CREAT) != 0;
    if (entry == NULL && (!makes || dir->links == 0)) {
        return fail(ENOENT);
    }
    if (entry != NULL && makes && (flags & O_EXCL)) {
        return fail(EEXIST);
    }
    if (entry != NULL && doubts_hide(dir, entry)) {
        return fail(EIO);
    }
    if (entry != NULL && (flags & O_DIRECTORY) && !entry->file->is_dir) {
        return fail(ENOTDIR);
    }
    if (entry != NULL && entry->file->is_dir && (flags & O_ACCMODE) != O_RDONLY) {
        return fail(EISDIR);
    }
    if (entry == NULL) {
        make_file(dir, name, file_new(false));
        notice_claim(dir, name);
        entry = dir->entries;
    }
    if (flags & O_TRUNC) {
        power_writes(entry->file);
        entry->file->bytes = 0;
    }
    return open_file(entry->file, flags);
}

static mode_t mode_of(int flags, va_list args)
{
    return flags & O_CREAT ? va_arg(args, mode_t) : 0;
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    if (strcmp(path, "/dev/null") == 0) {
        return object_fd(object_new(OBJECT_OTHER));
    }
    struct file *place = root_of(path);
    if (place == NULL) {
        return __real_open(path, flags, mode);
    }
    storage_looked_up();
    return open_file(place, flags);
}

int __wrap_openat(int dir_fd, const char *name, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return object_of(dir_fd) != NULL ? file_open(dir_fd, name, flags) : __real_openat(dir_fd, name, flags, mode);
}

int __wrap_dup3(int from, int to, int flags)
{
    struct object *object = object_of(from);
    if (object == NULL) {
        return __real_dup3(from, to, flags);
    }
    object_ref(object);
    object_replace(to, object);
    return to;
}

/* ---- reading and writing ----------------------------------------------------------------------------------------- */

static void grow(struct file *file, uint64_t bytes)
{
    if (bytes > file->cap) {
        file->cap = bytes < 256 ? 256 : 2 * bytes;
        file->data = realloc(file->data, file->cap);
        if (file->data == NULL) {
            abort();
        }
    }
    if (bytes > file->bytes) {
        memset(file->data + file->bytes, 0, bytes - file->bytes);
        file->bytes = bytes;
    }
}

ssize_t __wrap_pread(int fd, void *to, size_t len, off_t at)
{
    const struct file *file = file_of(fd);
    if (file == NULL) {
        return __real_pread(fd, to, len, at);
    }
    uint64_t left = (uint64_t)at < file->bytes ? file->bytes - (uint64_t)at : 0;
    size_t n = len < left ? len : (size_t)left;
    if (n > 0) {
        memcpy(to, file->data + at, n);
        if (sim.current != NULL) {
            sim.current->counts.read += n;
            judge_bytes_changed(sim.current, to, n); /* the destination may be a slot */
        }
    }
    return (ssize_t)n;
}

static bool is_full(const struct file *file)
{
    return sim.current != NULL && sim.current->full_until_us[file->in_archive ? AT_ARCHIVE : AT_SAVE_DIR] > sim.us;
}

ssize_t __wrap_pwrite(int fd, const void *from, size_t len, off_t at)
{
    struct file *file = file_of(fd);
    if (file == NULL) {
        return __real_pwrite(fd, from, len, at);
    }
    if (is_full(file)) {
        return fail(ENOSPC);
    }
    if (len > 0) {
        power_writes(file);
        grow(file, (uint64_t)at + len);
        memcpy(file->data + at, from, len);
    }
    return (ssize_t)len;
}

ssize_t __wrap_read(int fd, void *to, size_t len)
{
    struct object *object = object_of(fd);
    if (object == NULL) {
        return __real_read(fd, to, len);
    }
    ssize_t n = __wrap_pread(fd, to, len, (off_t)object->position);
    object->position += n > 0 ? (uint64_t)n : 0;
    return n;
}

ssize_t file_write(int fd, const void *from, size_t len)
{
    struct object *object = object_of(fd);
    object->position = object->appends ? object->file->bytes : object->position;
    ssize_t n = __wrap_pwrite(fd, from, len, (off_t)object->position);
    object->position += n > 0 ? (uint64_t)n : 0;
    return n;
}

off_t __wrap_lseek(int fd, off_t to, int from)
{
    struct object *object = object_of(fd);
    if (object == NULL) {
        return __real_lseek(fd, to, from);
    }
    if (object->kind != OBJECT_FILE) {
        return 0; /* /dev/null */
    }
    uint64_t base = from == SEEK_END ? object->file->bytes : from == SEEK_CUR ? object->position : 0;
    object->position = base + (uint64_t)to;
    return (off_t)object->position;
}

int __wrap_fallocate(int fd, int mode, off_t at, off_t len)
{
    struct file *file = file_of(fd);
    if (file == NULL) {
        return __real_fallocate(fd, mode, at, len);
    }
    if (is_full(file)) {
        return fail(ENOSPC);
    }
    power_writes(file);
    grow(file, (uint64_t)(at + len));
    return 0;
}

int __wrap_posix_fadvise(int fd, off_t at, off_t len, int advice)
{
    return file_of(fd) != NULL ? 0 : __real_posix_fadvise(fd, at, len, advice);
}

/* Each descriptor gets one error when something was lost. */
static int sync_file(struct object *object)
{
    if (object->kind != OBJECT_FILE) {
        return 0; /* /dev/null */
    }
    bool lost = object->losses != object->file->losses;
    object->losses = object->file->losses;
    if (lost) {
        return fail(EIO);
    }
    power_synced(object->file);
    return 0;
}

int __wrap_fdatasync(int fd)
{
    power_may_go();
    return object_of(fd) != NULL ? sync_file(object_of(fd)) : __real_fdatasync(fd);
}

int __wrap_fsync(int fd)
{
    host_does_something();
    power_may_go();
    if (storage_refuses(fd)) {
        return -1;
    }
    return object_of(fd) != NULL ? sync_file(object_of(fd)) : __real_fsync(fd);
}

/* ---- metadata ----------------------------------------------------------------------------------------------- */

void file_stat(const struct file *file, struct stat *out)
{
    static uid_t user = UINT32_MAX; /* queried once, because agents stat many files */
    user = user == UINT32_MAX ? geteuid() : user;
    *out = (struct stat){.st_ino = file->inode,
                         .st_nlink = file->links,
                         .st_uid = user,
                         .st_mode = file->is_dir ? S_IFDIR | 0700 : S_IFREG | 0600,
                         .st_size = (off_t)file->bytes};
}

int __wrap_fstatat(int dir_fd, const char *name, struct stat *out, int flags)
{
    struct file *dir = dir_of(dir_fd);
    if (dir == NULL) {
        return object_of(dir_fd) != NULL ? -1 : __real_fstatat(dir_fd, name, out, flags);
    }
    const struct entry *entry = entry_find(dir, name);
    storage_looked_up();
    if (entry == NULL || doubts_hide(dir, entry)) {
        return fail(entry != NULL ? EIO : ENOENT);
    }
    file_stat(entry->file, out);
    return 0;
}

int __wrap_statfs(const char *path, struct statfs *out)
{
    if (root_of(path) == NULL) {
        return __real_statfs(path, out);
    }
    *out = (struct statfs){0};
    return 0;
}

DIR *__wrap_fdopendir(int fd)
{
    const struct file *dir = dir_of(fd);
    const struct entry *entries = dir != NULL ? doubts_list(dir) : NULL;
    storage_looked_up();
    if (dir == NULL || (dir->entries != NULL && entries == NULL)) {
        return NULL;
    }
    struct listing *listing = calloc(1, sizeof(*listing));
    if (listing == NULL) {
        abort();
    }
    for (const struct entry *entry = entries; entry != NULL; entry = entry->next) {
        listing->rest = entry_new(entry->name, entry->file, listing->rest);
    }
    fd_close(fd);
    return (DIR *)(void *)listing;
}

struct dirent *__wrap_readdir(DIR *stream)
{
    struct listing *listing = (struct listing *)(void *)stream;
    struct entry *entry = listing->rest;
    if (entry == NULL) {
        return NULL;
    }
    memcpy(listing->last.d_name, entry->name, strlen(entry->name) + 1);
    listing->rest = entry->next;
    free(entry);
    return &listing->last;
}

int __wrap_closedir(DIR *stream)
{
    while (__wrap_readdir(stream) != NULL) {
    }
    free(stream);
    return 0;
}

/* ---- changing directories ---------------------------------------------------------------------------------------- */

int __wrap_mkdirat(int dir_fd, const char *name, mode_t mode)
{
    struct file *dir = dir_of(dir_fd);
    if (dir == NULL) {
        return object_of(dir_fd) != NULL ? -1 : __real_mkdirat(dir_fd, name, mode);
    }
    if (entry_find(dir, name) != NULL) {
        return fail(EEXIST);
    }
    if (dir->links == 0) {
        return fail(ENOENT);
    }
    make_file(dir, name, file_new(true));
    return 0;
}

int __wrap_unlinkat(int dir_fd, const char *name, int flags)
{
    struct file *dir = dir_of(dir_fd);
    if (dir == NULL) {
        return object_of(dir_fd) != NULL ? -1 : __real_unlinkat(dir_fd, name, flags);
    }
    struct entry *entry = entry_find(dir, name);
    if (entry == NULL) {
        return fail(ENOENT);
    }
    if (entry->file->is_dir != ((flags & AT_REMOVEDIR) != 0)) {
        return fail(entry->file->is_dir ? EISDIR : ENOTDIR);
    }
    if (entry->file->entries != NULL) {
        return fail(ENOTEMPTY);
    }
    power_renames(dir, name, NULL, NULL, entry->file);
    remove_name(dir, entry);
    return 0;
}

int __wrap_linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    struct file *from_dir = dir_of(from_fd), *to_dir = dir_of(to_fd);
    if (from_dir == NULL || to_dir == NULL) {
        return object_of(from_fd) != NULL ? -1 : __real_linkat(from_fd, from, to_fd, to, flags);
    }
    const struct entry *entry = entry_find(from_dir, from);
    if (entry == NULL || to_dir->links == 0) {
        return fail(ENOENT);
    }
    if (entry_find(to_dir, to) != NULL) {
        return fail(EEXIST);
    }
    make_file(to_dir, to, entry->file);
    notice_claim(to_dir, to);
    return 0;
}

/* 0, or the errno that says why the file must not replace the existing file of that name. */
static int why_not_over(const struct file *file, const struct file *old)
{
    if (old->is_dir != file->is_dir) {
        return old->is_dir ? EISDIR : ENOTDIR;
    }
    return old->entries != NULL ? ENOTEMPTY : 0;
}

static int rename_file(int from_fd, const char *from, int to_fd, const char *to, bool replaces)
{
    struct file *from_dir = dir_of(from_fd), *to_dir = dir_of(to_fd);
    if (from_dir == NULL || to_dir == NULL) {
        return -1;
    }
    struct entry *entry = entry_find(from_dir, from), *old = entry_find(to_dir, to);
    if (entry == NULL || to_dir->links == 0) {
        return fail(ENOENT);
    }
    if (old != NULL && !replaces) {
        return fail(EEXIST);
    }
    struct file *file = entry->file;
    int why_not = old != NULL ? why_not_over(file, old->file) : 0;
    if (why_not != 0) {
        return fail(why_not);
    }
    if (from_dir == job_dir() && to_dir != from_dir) {
        judge_removed(from);
    } else if (from_dir == archive_job_dir() && to_dir != from_dir) {
        judge_unarchived(from);
    }
    power_renames(from_dir, from, to_dir, to, file);
    name_file(to_dir, to, file); /* first, so that the file keeps at least one name */
    if (old != NULL) {
        remove_name(to_dir, old);
    }
    remove_name(from_dir, entry);
    notice_claim(to_dir, to);
    if (to_dir == job_dir() && from_dir != to_dir) {
        judge_renamed_in(to);
    } else if (to_dir == archive_job_dir() && from_dir != to_dir) {
        judge_archived(to, file);
    }
    return 0;
}

int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    host_does_something();
    power_may_go();
    return storage_refuses(to_fd) ? -1 : rename_file(from_fd, from, to_fd, to, true);
}

int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    host_does_something();
    power_may_go();
    return storage_refuses(to_fd) ? -1 : rename_file(from_fd, from, to_fd, to, (flags & RENAME_NOREPLACE) == 0);
}
