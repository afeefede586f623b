/* SPDX-License-Identifier: Apache-2.0
 * Walks along a path, component by component, and opens each in the one before it. */
#include "base/safe_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIR_MODE  0700
#define LINKS_MAX 40 /* as Linux has it */
#define REMEDY    "set runtime_dir (or TIERCKPT_RUNTIME_DIR) to a directory that only you can write to"

/* The state of the walk: dir_fd has been checked, rest is still to be walked. */
struct walk {
    const char *path; /* whole, for messages */
    int dir_fd;
    bool others_write; /* another user may create names in it */
    bool make;
    uint32_t links;
    char rest[PATH_MAX];
};

/* The owner that the kernel shows for users without an id in this user namespace, the real root among them; -1: all
 * have one. */
static int64_t unmapped_owner(void)
{
    long long inside, outside, count, overflow = -1;
    FILE *map = fopen("/proc/self/uid_map", "re");
    bool all = map == NULL || (fscanf(map, "%lld %lld %lld", &inside, &outside, &count) == 3 && inside == 0 &&
                               outside == 0 && count == UINT32_MAX);
    if (map != NULL) {
        fclose(map);
    }
    FILE *file = all ? NULL : fopen("/proc/sys/kernel/overflowuid", "re");
    if (file != NULL) {
        overflow = fscanf(file, "%lld", &overflow) == 1 ? overflow : -1;
        fclose(file);
    }
    return overflow;
}

static bool is_trusted(uid_t owner)
{
    return owner == 0 || owner == geteuid() || (int64_t)owner == unmapped_owner();
}

/* A group of this user's own, as many systems have for each user, has no other member. */
static bool others_may_write(const struct stat *st)
{
    bool own_group = st->st_uid == geteuid() && st->st_gid == getegid();
    return (st->st_mode & S_IWOTH) != 0 || ((st->st_mode & S_IWGRP) != 0 && !own_group);
}

/* Checks what was opened as `name`. */
static tck_status_t check(struct walk *w, int fd, const char *name, struct error *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0) {
        return error_set(err, status_of_errno(errno), "stat %s of %s: %m", name, w->path);
    }
    if (!S_ISDIR(st.st_mode)) {
        return error_set(err, TCK_ERR_DENIED, "%s: \"%s\" is not a directory: " REMEDY, w->path, name);
    }
    if (!is_trusted(st.st_uid)) {
        return error_set(err, TCK_ERR_DENIED,
                         "%s: \"%s\" belongs to user %u, who could replace what lies in it: " REMEDY, w->path, name,
                         st.st_uid);
    }
    w->others_write = others_may_write(&st);
    if (w->others_write && (st.st_mode & S_ISVTX) == 0) {
        return error_set(
            err, TCK_ERR_DENIED,
            "%s: \"%s\" of user %u can be written to by others (mode %04o): take that permission away, or " REMEDY,
            w->path, name, st.st_uid, st.st_mode & 07777);
    }
    return TCK_OK;
}

static void step_into(struct walk *w, int fd)
{
    close(w->dir_fd);
    w->dir_fd = fd;
}

static tck_status_t begin(struct walk *w, const char *from, struct error *err)
{
    int fd = open(from, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "open %s: %m", from);
    }
    step_into(w, fd);
    return from[0] == '/' ? check(w, fd, from, err) : TCK_OK;
}

static bool is_last(const struct walk *w)
{
    return w->rest[strspn(w->rest, "/")] == '\0';
}

/* Puts the target in the place of the link. */
static tck_status_t follow(struct walk *w, const char *name, struct error *err)
{
    char target[PATH_MAX], rest[PATH_MAX];
    ssize_t len = readlinkat(w->dir_fd, name, target, sizeof(target) - 1);

    if (len < 0) {
        return error_set(err, status_of_errno(errno), "%s: read the link \"%s\": %m", w->path, name);
    }
    target[len] = '\0';
    if (w->others_write || is_last(w) || ++w->links > LINKS_MAX) {
        return error_set(err, TCK_ERR_DENIED,
                         "%s: \"%s\" is a symbolic link, at its end or where others can make one: " REMEDY, w->path,
                         name);
    }
    memcpy(rest, w->rest, strlen(w->rest) + 1);
    if ((size_t)snprintf(w->rest, sizeof(w->rest), "%s/%s", target, rest) >= sizeof(w->rest)) {
        return error_set(err, TCK_ERR_INVAL, "%s: with its symbolic links resolved the path is too long", w->path);
    }
    return target[0] == '/' ? begin(w, "/", err) : TCK_OK;
}

static int open_component(const struct walk *w, const char *name)
{
    return openat(w->dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

static tck_status_t enter(struct walk *w, const char *name, struct error *err)
{
    struct stat st;
    int fd = open_component(w, name);

    if (fd < 0 && errno == ENOENT && w->make) {
        if (mkdirat(w->dir_fd, name, DIR_MODE) < 0 && errno != EEXIST) {
            return error_set(err, status_of_errno(errno), "make directory \"%s\" of %s: %m", name, w->path);
        }
        fd = open_component(w, name);
    }
    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "open directory \"%s\" of %s: %m", name, w->path);
    }
    if (fstat(fd, &st) == 0 && S_ISLNK(st.st_mode)) {
        close(fd);
        return follow(w, name, err);
    }
    step_into(w, fd);
    return check(w, fd, name, err);
}

/* Takes the first component off the rest; false: there is none. */
static bool next_name(struct walk *w, char name[NAME_MAX + 1], tck_status_t *status_out, struct error *err)
{
    size_t skip = strspn(w->rest, "/");
    size_t len = strcspn(w->rest + skip, "/");

    if (len > NAME_MAX) {
        *status_out = error_set(err, TCK_ERR_INVAL, "%s: one of its components is too long", w->path);
        return false;
    }
    memcpy(name, w->rest + skip, len);
    name[len] = '\0';
    memmove(w->rest, w->rest + skip + len, strlen(w->rest + skip + len) + 1);
    return len > 0;
}

tck_status_t safe_dir_open(const char *path, bool make, int *fd_out, struct error *err)
{
    struct walk w = {.path = path, .dir_fd = -1, .make = make};
    char name[NAME_MAX + 1];
    tck_status_t status;

    if (path[0] == '\0' || (size_t)snprintf(w.rest, sizeof(w.rest), "%s", path) >= sizeof(w.rest)) {
        return error_set(err, TCK_ERR_INVAL, "socket directory with a path of %zu bytes", strlen(path));
    }
    status = begin(&w, path[0] == '/' ? "/" : ".", err);
    while (status == TCK_OK && next_name(&w, name, &status, err)) {
        status = enter(&w, name, err);
    }
    if (status != TCK_OK) {
        if (w.dir_fd >= 0) {
            close(w.dir_fd);
        }
        return status;
    }
    *fd_out = w.dir_fd;
    return TCK_OK;
}
