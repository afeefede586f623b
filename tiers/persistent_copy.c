/* SPDX-License-Identifier: Apache-2.0
 * Copies a file of a published version into the stage of a directory: chunk by chunk, each checked against the
 * manifest, synced and read back before the file gets its name. */
#include "tiers/persistent_dir.h"

#include "base/log.h"
#include "tiers/published_chunk.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WHAT_BYTES (sizeof(STAGE_DIR) + DIR_NAME_MAX + MANIFEST_FILE_NAME)

static tck_status_t write_chunk(int fd, const uint8_t *data, uint32_t bytes, uint64_t at, struct error *err)
{
    uint32_t done = 0;
    while (done < bytes) {
        ssize_t rc = pwrite(fd, data + done, bytes - done, (off_t)(at + done));
        if (rc < 0 && errno != EINTR) {
            return error_set(err, status_of_errno(errno), "write: %m");
        }
        if (rc == 0) {
            return error_set(err, TCK_ERR_IO, "write: the file system takes no bytes, and names no error");
        }
        done += rc > 0 ? (uint32_t)rc : 0;
    }
    return TCK_OK;
}

tck_status_t copy_goes_on(const struct persistent *p, const struct copy_source *source, struct error *err)
{
    persistent_came_further(p);
    return source->stops == NULL || !atomic_load(source->stops)
               ? TCK_OK
               : error_set(err, TCK_ERR_CANCELED, "the copy is no longer wanted");
}

tck_status_t copy_read(const struct persistent *p, const struct copy_source *source,
                       const struct published_chunk *chunk, uint8_t *buffer, struct error *err)
{
    tck_status_t status = published_chunk_read(source->from, chunk, buffer, err);
    return status == TCK_OK ? TCK_OK : name_place(err, "save_dir", p->terms->config->save_dir);
}

static tck_status_t write_chunks(const struct persistent *p, const struct copy_source *source, int fd, uint8_t *buffer,
                                 struct error *err)
{
    tck_status_t status = TCK_OK;
    for (uint32_t i = 0; i < chunk_count(source->file->bytes) && status == TCK_OK; i++) {
        struct published_chunk chunk = published_chunk_of(source->file, i);
        status = copy_read(p, source, &chunk, buffer, err);
        if (status == TCK_OK) {
            status = write_chunk(fd, buffer, chunk.bytes, (uint64_t)i * CHUNK_BYTES, err);
        }
        if (status == TCK_OK) {
            status = copy_goes_on(p, source, err);
        }
    }
    if (status == TCK_OK && fsync(fd) < 0) {
        status = error_set(err, status_of_errno(errno), "sync: %m");
    }
    return status;
}

tck_status_t copy_check(const struct persistent *p, const struct folder *dir, const char *name,
                        const struct copy_source *source, struct error *err)
{
    const struct manifest_file *file = source->file;
    struct folder_file written = FOLDER_FILE_NONE;
    uint8_t *buffer = persistent_buffer(file->bytes);
    tck_status_t status = buffer == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory to read it back")
                                         : folder_open_file(dir, name, &written, err);
    if (status == TCK_OK) {
        folder_file_forget_cached(&written);
    }
    for (uint32_t i = 0; i < chunk_count(file->bytes) && status == TCK_OK; i++) {
        struct published_chunk chunk = published_chunk_of(file, i);
        status = published_chunk_read(&written, &chunk, buffer, err);
        if (status == TCK_OK) {
            status = copy_goes_on(p, source, err);
        }
    }
    folder_file_forget_cached(&written); /* these pages are not needed again */
    folder_file_close(&written);
    free(buffer);
    return status;
}

/* Under a name that is no other attempt's. */
static tck_status_t write_part(const struct persistent *p, const struct copy_source *source, int stage_fd,
                               const char *part, struct error *err)
{
    int fd = -1;
    uint8_t *buffer = persistent_buffer(source->file->bytes);
    tck_status_t status = buffer == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory to copy with")
                                         : safe_fs_open(stage_fd, part, O_WRONLY | O_CREAT | O_EXCL, &fd, err);
    if (status == TCK_OK) {
        status = write_chunks(p, source, fd, buffer, err);
        if (close(fd) < 0 && status == TCK_OK) {
            status = error_set(err, status_of_errno(errno), "close: %m");
        }
    }
    free(buffer);
    if (status == TCK_OK && p->config->storage_verify == SWITCH_ON) {
        status = copy_check(p, &(struct folder){.fd = stage_fd}, part, source, err);
        status = status == TCK_ERR_CORRUPT ? (err->code = TCK_ERR_IO) : status; /* the source was good */
    }
    return status;
}

static tck_status_t copy_into(const struct persistent *p, const struct copy_source *source, int stage_fd,
                              struct error *err)
{
    char part[BENEATH_NAME_MAX + 1];
    struct error ignored;
    tck_status_t status = safe_fs_part_name(source->file->name, part, err);
    if (status != TCK_OK) {
        return status;
    }
    status = write_part(p, source, stage_fd, part, err);
    if (status == TCK_OK) {
        status = safe_fs_rename(stage_fd, part, source->file->name, err);
    }
    if (status == TCK_OK) {
        return safe_fs_sync(stage_fd, err);
    }
    if (safe_fs_unlink(stage_fd, part, &ignored) != TCK_OK) { /* else a sweep does it */
        log_debug("%s stays: %s", part, ignored.text);
    }
    return status;
}

tck_status_t dir_copy(struct persistent *p, const struct copy_source *source, struct error *err)
{
    char stage[DIR_NAME_MAX], what[WHAT_BYTES];
    int stage_fd = -1;
    struct error outcome = {0}, ignored;
    stage_dir_name(source->version, stage);
    snprintf(what, sizeof(what), STAGE_DIR "/%s/%s", stage, source->file->name);
    tck_status_t status = dir_open_to_publish(p, err);
    if (status == TCK_OK) {
        status = stage_make(p, source->version, &stage_fd, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    /* An earlier process of this agent may have copied it. */
    status = copy_check(p, &(struct folder){.fd = stage_fd}, source->file->name, source, &ignored);
    if (status == TCK_ERR_CANCELED) {
        *err = ignored;
    } else if (status != TCK_OK) {
        status = audit_intent(p->audit, AUDIT_WRITE, what, err);
        if (status == TCK_OK) {
            outcome.code = copy_into(p, source, stage_fd, &outcome);
            audit_result(p->audit, AUDIT_WRITE, what, &outcome);
            *err = outcome;
            status = outcome.code;
        }
    }
    close(stage_fd);
    return status;
}
