/* SPDX-License-Identifier: Apache-2.0
 * Rebuilds a damaged file of a published version: good chunks are taken from the file, the others from memory, each
 * only if it matches its digest in the manifest. So the version stays bit-identical, and the manifest is not touched.
 * The new file is written and synced in the stage (where a sweep finds it after a crash), read back, and renamed over
 * the old one. */
#include "tiers/persistent_dir.h"

#include "base/failpoint.h"
#include "base/log.h"
#include "tiers/published_chunk.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WHAT_BYTES (DIR_NAME_MAX + MANIFEST_FILE_NAME)

struct repair {
    const struct manifest_file *file;
    const uint8_t *image;
    uint8_t *buffer;                                     /* of one chunk */
    int version_fd, stages_fd, stage_fd, old_fd, new_fd; /* -1: not open */
    char stage[DIR_NAME_MAX], part[BENEATH_NAME_MAX + 1];
};

static bool is_good(const struct repair *m, uint32_t i)
{
    return crc32c(0, m->buffer, chunk_size(m->file->bytes, i)) == m->file->crcs[i];
}

/* A read error counts as wrong bytes. */
static bool read_chunk(const struct repair *m, int fd, uint32_t i)
{
    struct published_chunk chunk = published_chunk_of(m->file, i);
    struct error ignored;
    if (published_chunk_fetch(&(struct folder_file){.fd = fd}, &chunk, m->buffer, &ignored) != TCK_OK) {
        return false;
    }
    failpoint_bytes(repair, read, m->buffer, chunk.bytes);
    return is_good(m, i);
}

static tck_status_t write_chunk(const struct repair *m, uint32_t i, struct error *err)
{
    uint32_t len = chunk_size(m->file->bytes, i), done = 0;
    while (done < len) {
        off_t at = (off_t)((uint64_t)i * CHUNK_BYTES + done);
        ssize_t rc = failpoint_fails(repair, write) ? -1 : pwrite(m->new_fd, m->buffer + done, len - done, at);
        if (rc < 0 && errno != EINTR) {
            return error_set(err, status_of_errno(errno), "write chunk %" PRIu32 ": %m", i);
        }
        done += rc > 0 ? (uint32_t)rc : 0;
    }
    return TCK_OK;
}

/* The slot may be reused at any moment, so the copy is checked, not the slot. */
static tck_status_t gather_chunk(const struct repair *m, uint32_t i, struct error *err)
{
    if (read_chunk(m, m->old_fd, i)) {
        return TCK_OK;
    }
    memcpy(m->buffer, m->image + (uint64_t)i * CHUNK_BYTES, chunk_size(m->file->bytes, i));
    return is_good(m, i) ? TCK_OK : error_set(err, TCK_ERR_CORRUPT, "memory has no good chunk %" PRIu32 " either", i);
}

static tck_status_t write_new(const struct repair *m, struct error *err)
{
    tck_status_t status = TCK_OK;
    for (uint32_t i = 0; i < chunk_count(m->file->bytes) && status == TCK_OK; i++) {
        status = gather_chunk(m, i, err);
        if (status == TCK_OK) {
            status = write_chunk(m, i, err);
        }
    }
    if (status == TCK_OK && (failpoint_fails(repair, fsync) || fsync(m->new_fd) < 0)) {
        status = error_set(err, status_of_errno(errno), "sync: %m");
    }
    return status;
}

static tck_status_t read_back(const struct repair *m, struct error *err)
{
    posix_fadvise(m->new_fd, 0, 0, POSIX_FADV_DONTNEED);
    for (uint32_t i = 0; i < chunk_count(m->file->bytes); i++) {
        if (!read_chunk(m, m->new_fd, i)) {
            return error_set(err, TCK_ERR_IO, "storage returned other bytes for chunk %" PRIu32 " than were written",
                             i);
        }
    }
    return TCK_OK;
}

static tck_status_t put_in_place(const struct repair *m, struct error *err)
{
    tck_status_t status = safe_fs_replace(m->stage_fd, m->part, m->version_fd, m->file->name, err);
    if (status == TCK_OK) {
        failpoint(repair, moved);
        status = safe_fs_sync(m->version_fd, err);
    }
    return status;
}

static tck_status_t make_new(struct repair *m, struct error *err)
{
    tck_status_t status = safe_fs_open(m->version_fd, m->file->name, O_RDONLY, &m->old_fd, err);
    if (status == TCK_OK) {
        status = safe_fs_part_name(m->file->name, m->part, err);
    }
    if (status == TCK_OK) {
        status = safe_fs_open(m->stage_fd, m->part, O_RDWR | O_CREAT | O_EXCL, &m->new_fd, err);
    }
    if (status == TCK_OK) {
        posix_fadvise(m->old_fd, 0, 0, POSIX_FADV_DONTNEED);
        failpoint(repair, opened);
        status = write_new(m, err);
    }
    if (status == TCK_OK) {
        failpoint(repair, written);
        status = read_back(m, err);
    }
    return status;
}

static tck_status_t open_dirs(const struct persistent *p, const struct published *which, struct repair *m,
                              struct error *err)
{
    struct version_dirs dirs = persistent_dirs(p);
    struct folder dir;
    tck_status_t status = version_open(&dirs, which, &dir, err);
    if (status == TCK_OK) {
        m->version_fd = dir.fd;
        status = safe_fs_make_dir(p->job.fd, STAGE_DIR, &m->stages_fd, err);
    }
    if (status == TCK_OK) {
        stage_dir_name(which->version, m->stage);
        status = safe_fs_make_dir(m->stages_fd, m->stage, &m->stage_fd, err);
    }
    return status;
}

static tck_status_t repair_file(const struct persistent *p, const struct published *which, struct repair *m,
                                struct error *err)
{
    tck_status_t status = open_dirs(p, which, m, err);
    if (status == TCK_OK) {
        status = make_new(m, err);
    }
    if (status == TCK_OK) {
        failpoint(repair, checked);
        status = put_in_place(m, err);
    }
    return status;
}

/* A part file or stage that cannot be removed, or that is in use, is left to the next sweep. */
static void repair_end(struct repair *m, bool gave_up)
{
    struct error why = {0};
    if (m->new_fd >= 0 && gave_up && safe_fs_unlink(m->stage_fd, m->part, &why) != TCK_OK) {
        log_debug("a part file is left behind: %s", why.text);
    }
    if (m->stage_fd >= 0 && safe_fs_remove_dir(m->stages_fd, m->stage, &why) != TCK_OK) {
        log_debug("a stage is left behind: %s", why.text);
    }
    const int fds[] = {m->version_fd, m->stages_fd, m->stage_fd, m->old_fd, m->new_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    free(m->buffer);
}

/* NOLINTNEXTLINE(readability-function-size): the file, and the image with its bytes */
tck_status_t dir_repair(struct persistent *p, const struct published *which, const struct manifest_file *file,
                        const uint8_t *image, struct error *err)
{
    char name[DIR_NAME_MAX], what[WHAT_BYTES];
    struct repair m = {file, image, persistent_buffer(file->bytes), -1, -1, -1, -1, -1, "", ""};
    struct error outcome = {0};
    tck_status_t status = TCK_OK;
    version_dir_name(which->version, name);
    snprintf(what, sizeof(what), "%s/%s", name, file->name);
    if (m.buffer == NULL || which->from_second) {
        status = which->from_second
                     ? error_set(err, TCK_ERR_DENIED, "it is not in save_dir, and only files there are repaired")
                     : error_set(err, TCK_ERR_NOMEM, "no memory to repair with");
    } else {
        status = audit_intent(p->audit, AUDIT_REPAIR, what, err);
    }
    if (status == TCK_OK) {
        failpoint(repair, intended);
        status = outcome.code = repair_file(p, which, &m, &outcome);
        failpoint(repair, done);
        audit_result(p->audit, AUDIT_REPAIR, what, &outcome);
        if (status != TCK_OK) {
            error_set(err, status, "%s", outcome.text);
        }
    }
    repair_end(&m, status != TCK_OK);
    if (status != TCK_OK) {
        error_prefix(err, "repair %s", what);
    }
    return status;
}
