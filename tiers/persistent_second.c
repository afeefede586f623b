/* SPDX-License-Identifier: Apache-2.0
 * The place beside save_dir from which versions are read. load_dir must exist when the tier is opened. archive_dir
 * may be unreachable, then or later: each call that needs it tries to open it, and save_dir is used without it. */
#include "tiers/persistent_dir.h"
#include "tiers/persistent_objects.h"

#include "base/bounded.h"
#include "base/path.h"
#include "tiers/archive_note.h"
#include "tiers/object/s3_store.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const struct folder *second_place(const struct persistent *p)
{
    static const struct folder none = {.fd = -1};
    return atomic_load(&p->second_open) ? &p->second : &none;
}

/* ---- archive_dir in a directory, which may hang ---------------------------------------------------------------- */

struct search {
    char path[CONFIG_PATH], job[CONFIG_NAME];
    int fd;      /* the job's directory; -1: there is none */
    bool absent; /* archive_is_unmade */
    tck_status_t status;
    struct error error;
};

static void search(void *job)
{
    struct search *s = job;
    struct names names = {0};
    int fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) { /* for whatever reason, this does not mean that there is no version */
        int errnum = errno;
        s->absent = errnum == ENOENT && archive_is_unmade(s->path);
        errno = errnum;
        s->status = error_set(&s->error, errno == ENOENT ? TCK_ERR_IO : status_of_errno(errno), "cannot be opened: %m");
        return;
    }
    s->status = safe_fs_open_dir(fd, s->job, &s->fd, &s->error);
    close(fd);
    if (s->status == TCK_OK) {
        s->status = safe_fs_list(s->fd, &names, &s->error);
        names_free(&names);
    }
    s->status = s->status == TCK_ERR_NOENT ? TCK_OK : s->status;
}

static void drop_search(void *job)
{
    struct search *s = job;
    if (s->fd >= 0) {
        close(s->fd);
    }
    free(s);
}

/* The same directory under two paths (a link, a mount): the copies would be the versions themselves, and what retention
 * deletes in one would be gone in both. */
static bool is_save_dir(const struct persistent *p, int fd)
{
    struct stat saved, found;
    return p->job.fd >= 0 && fstat(p->job.fd, &saved) == 0 && fstat(fd, &found) == 0 && saved.st_dev == found.st_dev &&
           saved.st_ino == found.st_ino;
}

tck_status_t second_check_other(const struct persistent *p, int fd, struct error *err)
{
    return !is_save_dir(p, fd) ? TCK_OK
                               : error_set(err, TCK_ERR_CONFIG,
                                           "it has the same directory of job %s as save_dir %s, by another path: name "
                                           "another one",
                                           p->config->job, p->config->save_dir);
}

/* Takes over fd. A descriptor that is open already keeps its number, since pool threads use it. */
static tck_status_t take_directory(struct persistent *p, int fd, struct error *err)
{
    struct stat open_dir, found;
    if (!atomic_load(&p->second_open)) {
        p->second.fd = fd;
        return TCK_OK;
    }
    bool same = fstat(p->second.fd, &open_dir) == 0 && fstat(fd, &found) == 0 && open_dir.st_dev == found.st_dev &&
                open_dir.st_ino == found.st_ino;
    int rc = same ? 0 : dup3(fd, p->second.fd, O_CLOEXEC);
    tck_status_t status = rc < 0 ? error_set(err, status_of_errno(errno), "replace a descriptor: %m") : TCK_OK;
    close(fd);
    return status;
}

static tck_status_t find_directory(struct persistent *p, struct error *err)
{
    struct search *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to look for it");
    }
    memcpy(s->path, p->config->archive_dir, sizeof(s->path));
    memcpy(s->job, p->config->job, sizeof(s->job));
    s->fd = -1;
    const struct bounded_work work = {.work = search, .drop = drop_search, .job = s};
    tck_status_t status = bounded_do(&work, p->config->storage_timeout_ms / 4, err);
    if (status != TCK_OK) {
        return status;
    }
    status = s->status;
    if ((s->absent && folder_is(&p->job)) || (status == TCK_OK && s->fd < 0)) {
        status = archive_note_check_empty(&p->job, p->config->archive_dir, err);
    } else if (status != TCK_OK) {
        *err = s->error;
    } else {
        status = second_check_other(p, s->fd, err);
        if (status == TCK_OK) {
            status = take_directory(p, s->fd, err);
            s->fd = -1;
        }
        atomic_store(&p->second_open, status == TCK_OK || atomic_load(&p->second_open));
    }
    drop_search(s);
    return status;
}

/* ---- both ------------------------------------------------------------------------------------------------------ */

/* A wrong bucket, or one that was emptied, would look like an archive without versions, so the job's marker must be in
 * it. Once the marker has been found, it is not read again. */
static tck_status_t check_known(struct persistent *p, struct error *err)
{
    uint64_t bytes;
    struct archive_note note = {0};
    tck_status_t status = p->second_known ? TCK_OK : archive_note_read(&p->job, p->config->archive_dir, &note, err);
    if (status != TCK_OK || !note.there) {
        return status;
    }
    status = folder_size(&p->second, MARKER_NAME, &bytes, err);
    p->second_known = status == TCK_OK;
    return status != TCK_ERR_NOENT ? status : archive_note_check_empty(&p->job, p->config->archive_dir, err);
}

/* Those of its requests that follow have their own time limits. */
static tck_status_t find_objects(struct persistent *p, struct error *err)
{
    struct object_store *store = p->second_store;
    if (atomic_load(&p->second_open)) {
        return check_known(p, err);
    }
    p->second_store = NULL;
    tck_status_t status = store != NULL ? TCK_OK : s3_store_new(p->config->archive_dir, &store, err);
    if (status == TCK_OK) {
        status = objects_open_archive(p, store, err);
    }
    atomic_store(&p->second_open, status == TCK_OK);
    return status == TCK_OK ? check_known(p, err) : status;
}

tck_status_t second_find(struct persistent *p, struct error *err)
{
    const char *dir = p->config->archive_dir;
    if (dir[0] == '\0') {
        return TCK_OK;
    }
    pthread_mutex_lock(&p->second_lock);
    bool objects = path_is_url(dir) || p->second_store != NULL || p->second.objects != NULL;
    tck_status_t status = objects ? find_objects(p, err) : find_directory(p, err);
    pthread_mutex_unlock(&p->second_lock);
    return status == TCK_OK ? TCK_OK : name_place(err, "archive_dir", dir);
}

/* ---- what is done there ---------------------------------------------------------------------------------------- */

/* A call that may be abandoned, with a folder of its own. */
struct call {
    struct second_work work;
    struct folder second;
};

static void do_call(void *job)
{
    struct call *call = job;
    call->work.work(call->work.job, &call->second);
}

static void drop_call(void *job)
{
    struct call *call = job;
    call->work.drop(call->work.job);
    folder_close(&call->second);
    free(call);
}

static tck_status_t do_bounded(const struct persistent *p, const struct second_work *work, struct error *err)
{
    struct call *call = calloc(1, sizeof(*call));
    tck_status_t status = call != NULL ? folder_dup(second_place(p), &call->second, err)
                                       : error_set(err, TCK_ERR_NOMEM, "no memory for work on storage");
    if (status != TCK_OK) {
        free(call);
        work->drop(work->job);
        return status;
    }
    call->work = *work;
    const struct bounded_work bounded = {.work = do_call, .drop = drop_call, .job = call};
    status = bounded_do(&bounded, p->config->storage_timeout_ms / 4, err);
    if (status == TCK_OK) {
        folder_close(&call->second);
        free(call);
    }
    return status;
}

tck_status_t second_do(struct persistent *p, const struct second_work *work, struct error *err)
{
    const struct folder *second = second_place(p);
    if (p->config->archive_dir[0] != '\0' && second->fd >= 0) {
        return do_bounded(p, work, err);
    }
    work->work(work->job, second); /* requests to a store of objects have their own time limits */
    return TCK_OK;
}
