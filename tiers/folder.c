/* SPDX-License-Identifier: Apache-2.0
 * See folder.h. */
#include "tiers/folder.h"

#include "base/progress.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A store calls an answer that makes no sense corrupt, too. That says nothing about what is stored, which callers take
 * TCK_ERR_CORRUPT and TCK_ERR_PROTO for. */
static tck_status_t of_call(tck_status_t status, struct error *err)
{
    return status == TCK_ERR_CORRUPT || status == TCK_ERR_PROTO ? (err->code = TCK_ERR_IO) : status;
}

/* ---- folders --------------------------------------------------------------------------------------------------- */

bool folder_is(const struct folder *folder)
{
    return folder->fd >= 0 || folder->objects != NULL;
}

static tck_status_t dup_fd(int fd, int *out, struct error *err)
{
    *out = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return *out < 0 ? error_set(err, status_of_errno(errno), "duplicate a descriptor: %m") : TCK_OK;
}

tck_status_t folder_dup(const struct folder *folder, struct folder *out, struct error *err)
{
    *out = FOLDER_NONE;
    if (folder->objects != NULL) {
        out->objects = object_folder_ref(folder->objects);
        return TCK_OK;
    }
    return dup_fd(folder->fd, &out->fd, err);
}

void folder_close(struct folder *folder)
{
    if (folder->fd >= 0) {
        close(folder->fd);
    }
    object_folder_unref(folder->objects);
    *folder = FOLDER_NONE;
}

tck_status_t folder_open(const struct folder *folder, const char *name, struct folder *out, struct error *err)
{
    struct folder found = FOLDER_NONE;
    tck_status_t status = folder->objects != NULL ? object_folder_open(folder->objects, name, &found.objects, err)
                                                  : safe_fs_open_dir(folder->fd, name, &found.fd, err);
    if (status == TCK_OK) {
        *out = found;
    }
    return status;
}

tck_status_t folder_list(const struct folder *folder, struct names *out, struct error *err)
{
    return folder->objects != NULL ? of_call(object_folder_list(folder->objects, "", out, err), err)
                                   : safe_fs_list(folder->fd, out, err);
}

/* Frees the names that do not begin so. */
static void keep_beginning(struct names *names, const char *beginning)
{
    size_t kept = 0;
    for (size_t i = 0; i < names->count; i++) {
        if (strncmp(names->names[i], beginning, strlen(beginning)) == 0) {
            names->names[kept++] = names->names[i];
        } else {
            free(names->names[i]);
        }
    }
    names->count = kept;
}

tck_status_t folder_list_some(const struct folder *folder, const char *beginning, struct names *out, struct error *err)
{
    if (folder->objects != NULL) {
        return of_call(object_folder_list(folder->objects, beginning, out, err), err);
    }
    tck_status_t status = safe_fs_list(folder->fd, out, err);
    if (status == TCK_OK) {
        keep_beginning(out, beginning);
    }
    return status;
}

tck_status_t folder_gather(const struct folder *folder, struct error *err)
{
    return folder->objects != NULL ? of_call(object_folder_gather(folder->objects, err), err) : TCK_OK;
}

tck_status_t folder_size(const struct folder *folder, const char *name, uint64_t *bytes_out, struct error *err)
{
    return folder->objects != NULL ? of_call(object_folder_size(folder->objects, name, bytes_out, err), err)
                                   : safe_fs_size(folder->fd, name, bytes_out, err);
}

/* NOLINTNEXTLINE(readability-function-size): the file, its limit and its content */
tck_status_t folder_read(const struct folder *folder, const char *name, size_t max, char **text_out, size_t *len_out,
                         struct error *err)
{
    return folder->objects != NULL
               ? of_call(object_folder_read(folder->objects, name, max, text_out, len_out, err), err)
               : safe_fs_read(folder->fd, name, max, text_out, len_out, err);
}

tck_status_t folder_write(const struct folder *folder, const char *name, const void *data, size_t len,
                          struct error *err)
{
    return folder->objects != NULL ? of_call(object_folder_write(folder->objects, name, data, len, err), err)
                                   : safe_fs_write(folder->fd, name, data, len, err);
}

tck_status_t folder_create(const struct folder *folder, const char *name, const void *data, size_t len,
                           struct error *err)
{
    return folder->objects != NULL ? of_call(object_folder_create(folder->objects, name, data, len, err), err)
                                   : safe_fs_create(folder->fd, name, data, len, err);
}

tck_status_t folder_remove(const struct folder *folder, const char *name, struct error *err)
{
    return folder->objects != NULL ? of_call(object_folder_remove(folder->objects, name, err), err)
                                   : safe_fs_unlink(folder->fd, name, err);
}

tck_status_t folder_sync(const struct folder *folder, struct error *err)
{
    return folder->objects != NULL ? TCK_OK : safe_fs_sync(folder->fd, err);
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

/* Its reads name it: nothing has to be opened. */
static tck_status_t open_object(const struct folder *folder, const char *name, struct folder_file *out,
                                struct error *err)
{
    *out = FOLDER_FILE_NONE;
    int len = snprintf(out->name, sizeof(out->name), "%s", name);
    if (len < 0 || (size_t)len >= sizeof(out->name)) {
        return error_set(err, TCK_ERR_INVAL, "%s: the name is too long", name);
    }
    out->in = object_folder_ref(folder->objects);
    return TCK_OK;
}

tck_status_t folder_open_file(const struct folder *folder, const char *name, struct folder_file *out, struct error *err)
{
    struct folder_file file = FOLDER_FILE_NONE;
    if (folder->objects != NULL) {
        return open_object(folder, name, out, err);
    }
    tck_status_t status = safe_fs_open(folder->fd, name, O_RDONLY, &file.fd, err);
    if (status == TCK_OK) {
        *out = file;
    }
    return status;
}

bool folder_file_is(const struct folder_file *file)
{
    return file->fd >= 0 || file->in != NULL;
}

tck_status_t folder_file_dup(const struct folder_file *file, struct folder_file *out, struct error *err)
{
    *out = *file;
    if (file->in != NULL) {
        out->in = object_folder_ref(file->in);
        return TCK_OK;
    }
    return dup_fd(file->fd, &out->fd, err);
}

void folder_file_close(struct folder_file *file)
{
    if (file->fd >= 0) {
        close(file->fd);
    }
    object_folder_unref(file->in);
    *file = FOLDER_FILE_NONE;
}

void folder_file_forget_cached(const struct folder_file *file)
{
    if (file->fd >= 0) {
        posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
    }
}

/* Too few bytes are damage only if the object has no more of them. */
static tck_status_t read_object(const struct folder_file *file, uint64_t offset, void *buffer, size_t bytes,
                                struct error *err)
{
    uint64_t size = UINT64_MAX;
    struct error ignored;
    tck_status_t status = object_folder_read_at(file->in, file->name, offset, buffer, bytes, err);
    bool ends = status == TCK_ERR_CORRUPT && object_folder_size(file->in, file->name, &size, &ignored) == TCK_OK &&
                (offset > size || bytes > size - offset);
    return ends ? status : of_call(status, err);
}

tck_status_t folder_file_read(const struct folder_file *file, uint64_t offset, void *buffer, size_t bytes,
                              struct error *err)
{
    size_t got = 0;
    if (file->in != NULL) {
        return read_object(file, offset, buffer, bytes, err);
    }
    while (got < bytes) {
        ssize_t rc = pread(file->fd, (uint8_t *)buffer + got, bytes - got, (off_t)(offset + got));
        if (rc < 0 && errno == EINTR) {
            continue;
        }
        if (rc < 0) {
            return error_set(err, status_of_errno(errno), "%m");
        }
        if (rc == 0) {
            return error_set(err, TCK_ERR_CORRUPT, "the file ends");
        }
        got += (size_t)rc;
        progress_moved();
    }
    return TCK_OK;
}
