/* SPDX-License-Identifier: Apache-2.0
 * The system calls behind safe_fs.h. Since every name is a single component, O_NOFOLLOW is equivalent to openat2's
 * flags where a kernel or sandbox lacks that call. */
#include "tiers/safe_fs.h"

#include "base/failpoint.h"
#include "base/progress.h"
#include "base/secret.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILE_MODE   0644u
#define DIR_MODE    0755
#define ENTRIES_MAX (1u << 20) /* of one directory */
#define READ_TRIES  3          /* for a file that is replaced each time that it is read */

static bool is_component(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len <= BENEATH_NAME_MAX && strchr(name, '/') == NULL && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static tck_status_t fail(struct error *err, const char *what, const char *name)
{
    if (errno == ELOOP || errno == EXDEV || errno == ENOTDIR) {
        return error_set(err, TCK_ERR_DENIED, "%s %s: a symbolic link or of another file type: %m", what, name);
    }
    return error_set(err, status_of_errno(errno), "%s %s: %m", what, name);
}

static tck_status_t check_name(const char *name, struct error *err)
{
    return is_component(name) ? TCK_OK : error_set(err, TCK_ERR_DENIED, "\"%s\" is not a file name", name);
}

static int open_at(int dir_fd, const char *name, int flags)
{
    struct open_how how = {
        .flags = (unsigned)(flags | O_CLOEXEC | O_NOFOLLOW),
        .mode = flags & O_CREAT ? FILE_MODE : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    long fd = syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
        fd = openat(dir_fd, name, flags | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
    }
    return (int)fd;
}

/* Keeps the errno of the call that has failed. */
static void close_failed(int fd)
{
    int number = errno;
    close(fd);
    errno = number;
}

/* ---- open ------------------------------------------------------------------------------------------------------ */

tck_status_t safe_fs_open(int dir_fd, const char *name, int flags, int *fd_out, struct error *err)
{
    uint64_t bytes;
    return safe_fs_open_sized(dir_fd, name, flags, fd_out, &bytes, err);
}

/* NOLINTNEXTLINE(readability-function-size): the file, how to open it, and both results */
tck_status_t safe_fs_open_sized(int dir_fd, const char *name, int flags, int *fd_out, uint64_t *bytes_out,
                                struct error *err)
{
    struct stat st;
    tck_status_t status = check_name(name, err);
    if (status != TCK_OK) {
        return status;
    }
    int fd = open_at(dir_fd, name, flags | O_NONBLOCK); /* a FIFO in place of the file must not block us */
    progress_moved();
    if (fd < 0) {
        return fail(err, "open", name);
    }
    if (fstat(fd, &st) < 0) {
        status = fail(err, "stat", name);
    } else if (!S_ISREG(st.st_mode)) {
        status = error_set(err, TCK_ERR_DENIED, "%s is not a regular file", name);
    } else if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) < 0) { /* io_uring would honour it */
        status = fail(err, "set the flags of", name);
    }
    if (status != TCK_OK) {
        close_failed(fd);
        return status;
    }
    *fd_out = fd;
    *bytes_out = (uint64_t)st.st_size;
    return TCK_OK;
}

tck_status_t safe_fs_open_dir(int dir_fd, const char *name, int *fd_out, struct error *err)
{
    tck_status_t status = check_name(name, err);
    if (status != TCK_OK) {
        return status;
    }
    int fd = open_at(dir_fd, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0) {
        return fail(err, "open directory", name);
    }
    *fd_out = fd;
    return TCK_OK;
}

tck_status_t safe_fs_make_dir(int dir_fd, const char *name, int *fd_out, struct error *err)
{
    tck_status_t status = check_name(name, err);
    if (status != TCK_OK) {
        return status;
    }
    if ((failpoint_fails(dir, make) || mkdirat(dir_fd, name, DIR_MODE) < 0) && errno != EEXIST) {
        return fail(err, "make directory", name);
    }
    return safe_fs_open_dir(dir_fd, name, fd_out, err);
}

tck_status_t safe_fs_size(int dir_fd, const char *name, uint64_t *bytes_out, struct error *err)
{
    struct stat st;
    tck_status_t status = check_name(name, err);
    if (status != TCK_OK) {
        return status;
    }
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return fail(err, "stat", name);
    }
    if (!S_ISREG(st.st_mode)) {
        return error_set(err, TCK_ERR_DENIED, "%s is not a regular file", name);
    }
    *bytes_out = (uint64_t)st.st_size;
    return TCK_OK;
}

/* ---- small files ----------------------------------------------------------------------------------------------- */

static tck_status_t read_all(int fd, const char *name, char *text, size_t len, struct error *err)
{
    size_t got = 0;
    while (got < len) {
        ssize_t rc = read(fd, text + got, len - got);
        if (rc < 0 && errno == EINTR) {
            continue;
        }
        if (rc <= 0) {
            return rc < 0
                       ? fail(err, "read", name)
                       : error_set(err, TCK_ERR_IO, "%s ends at byte %zu, but its size is %zu bytes", name, got, len);
        }
        got += (size_t)rc;
        progress_moved();
    }
    text[len] = '\0';
    return TCK_OK;
}

static tck_status_t read_once(int dir_fd, const char *name, size_t max, char **text_out, size_t *len_out,
                              struct error *err)
{
    struct stat st;
    int fd = -1;
    tck_status_t status = safe_fs_open(dir_fd, name, O_RDONLY, &fd, err);
    if (status != TCK_OK) {
        return status;
    }
    char *text = NULL;
    if (fstat(fd, &st) < 0) {
        status = fail(err, "stat", name);
    } else if ((uint64_t)st.st_size > max) {
        status = error_set(err, TCK_ERR_CORRUPT, "%s has %lld bytes, over the limit of %zu", name,
                           (long long)st.st_size, max);
    } else if ((text = malloc((size_t)st.st_size + 1)) == NULL) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory to read %s", name);
    } else {
        status = read_all(fd, name, text, (size_t)st.st_size, err);
    }
    if (status != TCK_OK) {
        close_failed(fd);
        free(text);
        return status;
    }
    close(fd);
    *text_out = text;
    *len_out = (size_t)st.st_size;
    return TCK_OK;
}

/* On NFS, a file that another node replaces becomes stale for readers that have it open: they read the new one then. */
tck_status_t safe_fs_read(int dir_fd, const char *name, size_t max, char **text_out, size_t *len_out, struct error *err)
{
    tck_status_t status;
    int tries = 0;
    do {
        errno = 0;
        status = read_once(dir_fd, name, max, text_out, len_out, err);
    } while (status != TCK_OK && errno == ESTALE && ++tries < READ_TRIES);
    return status;
}

static tck_status_t write_all(int fd, const char *name, const char *data, size_t len, struct error *err)
{
    while (len > 0) {
        ssize_t rc = failpoint_fails(file, write) ? -1 : write(fd, data, len);
        if (rc < 0 && errno == EINTR) {
            continue;
        }
        if (rc < 0) {
            return fail(err, "write", name);
        }
        data += rc;
        len -= (size_t)rc;
        progress_moved();
    }
    return failpoint_fails(file, fsync) || fsync(fd) < 0 ? fail(err, "fsync", name) : TCK_OK;
}

/* Writes and syncs a new part file for this name, which the caller renames or unlinks. After an error there is none. */
static tck_status_t part_write(int dir_fd, const char *name, const void *data, size_t len, char *part,
                               struct error *err)
{
    int fd = -1;
    tck_status_t status = safe_fs_part_name(name, part, err);
    if (status == TCK_OK) {
        status = safe_fs_open(dir_fd, part, O_WRONLY | O_CREAT | O_EXCL, &fd, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    status = write_all(fd, part, data, len, err);
    if (close(fd) < 0 && status == TCK_OK) {
        status = fail(err, "close", part);
    }
    if (status != TCK_OK) {
        unlinkat(dir_fd, part, 0); /* best effort: the earlier error is reported */
    }
    return status;
}

tck_status_t safe_fs_write(int dir_fd, const char *name, const void *data, size_t len, struct error *err)
{
    char part[BENEATH_NAME_MAX + 1];
    tck_status_t status = part_write(dir_fd, name, data, len, part, err);
    if (status != TCK_OK) {
        return status;
    }
    status = safe_fs_rename(dir_fd, part, name, err);
    if (status != TCK_OK) {
        unlinkat(dir_fd, part, 0);
        return status;
    }
    return safe_fs_sync(dir_fd, err);
}

tck_status_t safe_fs_create(int dir_fd, const char *name, const void *data, size_t len, struct error *err)
{
    char part[BENEATH_NAME_MAX + 1];
    tck_status_t status = part_write(dir_fd, name, data, len, part, err);
    if (status != TCK_OK) {
        return status;
    }
    if (linkat(dir_fd, part, dir_fd, name, 0) < 0) {
        bool without = errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS;
        status = without ? error_set(err, TCK_ERR_UNSUPPORTED, "link %s: the file system has no hard links: %m", name)
                         : fail(err, "link", name);
    }
    unlinkat(dir_fd, part, 0); /* if this fails, the next sweep removes it */
    return status == TCK_OK ? safe_fs_sync(dir_fd, err) : status;
}

tck_status_t safe_fs_part_name(const char *name, char *out, struct error *err)
{
    uint32_t number;
    tck_status_t status = check_name(name, err);
    if (status == TCK_OK && strlen(name) + BENEATH_PART_EXTRA > BENEATH_NAME_MAX) {
        status = error_set(err, TCK_ERR_INVAL, "%s is too long for a part file", name);
    }
    if (status != TCK_OK) {
        return status;
    }
    status = random_bytes(&number, sizeof(number));
    if (status != TCK_OK) {
        return error_set(err, status, "no random bytes for a part file of %s", name);
    }
    snprintf(out, BENEATH_NAME_MAX + 1, "%s.%08x" BENEATH_PART_SUFFIX, name, number);
    return TCK_OK;
}

bool safe_fs_is_part(const char *part, char *whole_out)
{
    size_t len = strlen(part);
    if (len <= BENEATH_PART_EXTRA || len > BENEATH_NAME_MAX) {
        return false;
    }
    const char *extra = part + len - BENEATH_PART_EXTRA;
    if (extra[0] != '.' || strspn(extra + 1, "0123456789abcdef") != 8 || strcmp(extra + 9, BENEATH_PART_SUFFIX) != 0) {
        return false;
    }
    snprintf(whole_out, BENEATH_NAME_MAX + 1, "%.*s", (int)(len - BENEATH_PART_EXTRA), part);
    return true;
}

/* ---- directory entries ----------------------------------------------------------------------------------------- */

tck_status_t safe_fs_replace(int from_fd, const char *from, int to_fd, const char *to, struct error *err)
{
    tck_status_t status = check_name(from, err);
    if (status == TCK_OK) {
        status = check_name(to, err);
    }
    if (status == TCK_OK && (failpoint_fails(file, rename) || renameat(from_fd, from, to_fd, to) < 0)) {
        status = fail(err, "rename to", to);
    }
    return status;
}

tck_status_t safe_fs_rename(int dir_fd, const char *from, const char *to, struct error *err)
{
    return safe_fs_replace(dir_fd, from, dir_fd, to, err);
}

tck_status_t safe_fs_move_dir(int from_fd, const char *from, int to_fd, const char *to, struct error *err)
{
    tck_status_t status = check_name(from, err);
    if (status == TCK_OK) {
        status = check_name(to, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    int rc = failpoint_fails(dir, move) ? -1 : renameat2(from_fd, from, to_fd, to, RENAME_NOREPLACE);
    if (rc < 0 && (errno == EINVAL || errno == ENOSYS)) {
        /* NFS and others lack the flag. A plain rename of a directory replaces nothing but an empty directory. */
        rc = renameat(from_fd, from, to_fd, to);
    }
    if (rc < 0 && errno == ENOTEMPTY) {
        errno = EEXIST;
    }
    return rc < 0 ? fail(err, "rename to", to) : TCK_OK;
}

static tck_status_t remove_at(int dir_fd, const char *name, int flags, struct error *err)
{
    tck_status_t status = check_name(name, err);
    if (status == TCK_OK && (failpoint_fails(dir, remove) || unlinkat(dir_fd, name, flags) < 0)) {
        status = fail(err, "remove", name);
    }
    progress_moved();
    return status;
}

tck_status_t safe_fs_unlink(int dir_fd, const char *name, struct error *err)
{
    return remove_at(dir_fd, name, 0, err);
}

tck_status_t safe_fs_remove_dir(int dir_fd, const char *name, struct error *err)
{
    return remove_at(dir_fd, name, AT_REMOVEDIR, err);
}

tck_status_t safe_fs_sync(int dir_fd, struct error *err)
{
    if ((failpoint_fails(dir, fsync) || fsync(dir_fd) < 0) &&
        errno != EINVAL) { /* EINVAL: a network file system that does not support it */
        return error_set(err, status_of_errno(errno), "fsync of the directory: %m");
    }
    return TCK_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static tck_status_t names_add(struct names *names, const char *name, struct error *err)
{
    if (names->count >= ENTRIES_MAX) {
        return error_set(err, TCK_ERR_INVAL, "more than %u entries in the directory", ENTRIES_MAX);
    }
    if ((names->count & (names->count - 1)) == 0) { /* a power of two: full */
        size_t cap = names->count == 0 ? 1 : 2 * names->count;
        char **grown = reallocarray(names->names, cap, sizeof(*grown));
        if (grown == NULL) {
            return error_set(err, TCK_ERR_NOMEM, "no memory to list a directory");
        }
        names->names = grown;
    }
    names->names[names->count] = strdup(name);
    if (names->names[names->count] == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to list a directory");
    }
    names->count++;
    return TCK_OK;
}

static tck_status_t read_entries(DIR *dir, struct names *names, struct error *err)
{
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(dir); /* NOLINT(concurrency-mt-unsafe): no other thread has this dir */
        progress_moved();
        if (entry == NULL) {
            return errno == 0 ? TCK_OK : error_set(err, status_of_errno(errno), "list the directory: %m");
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        tck_status_t status = names_add(names, entry->d_name, err);
        if (status != TCK_OK) {
            return status;
        }
    }
}

tck_status_t safe_fs_list(int dir_fd, struct names *out, struct error *err)
{
    /* Opened again, since a duplicate would share its position with every other listing. */
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        tck_status_t status = error_set(err, status_of_errno(errno), "list the directory: %m");
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    struct names names = {0};
    tck_status_t status = read_entries(dir, &names, err);
    closedir(dir);
    if (status != TCK_OK) {
        names_free(&names);
        return status;
    }
    if (names.count > 0) {
        qsort(names.names, names.count, sizeof(*names.names), compare_names);
    }
    *out = names;
    return TCK_OK;
}

bool names_have(const struct names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++) {
        if (strcmp(names->names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

void names_free(struct names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        free(names->names[i]);
    }
    free(names->names);
    *names = (struct names){0};
}
