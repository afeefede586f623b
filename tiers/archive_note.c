/* SPDX-License-Identifier: Apache-2.0
 * Reads and writes the file of archive_note.h: {"format":1,"archive_dir":D,"term":T,"step":S}, replaced as a whole. */
#include "tiers/archive_note.h"

#include "base/config.h"
#include "base/json.h"
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NOTE_MAX 16384

static tck_status_t decode(const json_t *json, const char *archive_dir, struct archive_note *out, struct error *err)
{
    uint64_t format = 0;
    const char *dir = json_str(json_get(json, "archive_dir"));
    const json_t *term = json_get(json, "term");
    if (!json_u64(json_get(json, "format"), &format) || format != ARCHIVE_NOTE_FORMAT) {
        return error_set(err, TCK_ERR_PROTO, ARCHIVE_NOTE_NAME ": format %" PRIu64 ", this build reads format %d",
                         format, ARCHIVE_NOTE_FORMAT);
    }
    if (dir == NULL || (term != NULL &&
                        (!json_u64(term, &out->newest.term) || !json_u64(json_get(json, "step"), &out->newest.step)))) {
        return error_set(err, TCK_ERR_CORRUPT, ARCHIVE_NOTE_NAME ": it names no archive_dir, or no version");
    }
    out->there = strcmp(dir, archive_dir) == 0;
    if (!out->there) {
        out->newest = VERSION_NONE;
    }
    return TCK_OK;
}

tck_status_t archive_note_read(const struct folder *job, const char *archive_dir, struct archive_note *out,
                               struct error *err)
{
    char *text;
    size_t len;
    json_t *json;
    *out = (struct archive_note){0};
    if (!folder_is(job)) {
        return TCK_OK;
    }
    tck_status_t status = folder_read(job, ARCHIVE_NOTE_NAME, NOTE_MAX, &text, &len, err);
    if (status != TCK_OK) {
        return status == TCK_ERR_NOENT ? TCK_OK : status;
    }
    status = json_parse(text, len, &json, err);
    free(text);
    if (status != TCK_OK) {
        return error_prefix(err, ARCHIVE_NOTE_NAME);
    }
    status = decode(json, archive_dir, out, err);
    json_free(json);
    return status;
}

/* The caller frees it; NULL: no memory. */
static char *encode(const char *archive_dir, struct version newest)
{
    char *text = NULL;
    json_t *json = json_object();
    if (json != NULL && json_add_u64(json, "format", ARCHIVE_NOTE_FORMAT) &&
        json_add_str(json, "archive_dir", archive_dir) &&
        (version_none(newest) ||
         (json_add_u64(json, "term", newest.term) && json_add_u64(json, "step", newest.step)))) {
        text = json_print(json, false);
    }
    json_free(json);
    return text;
}

tck_status_t archive_note_write(const struct folder *job, const char *archive_dir, struct version copied,
                                struct error *err)
{
    struct archive_note note;
    tck_status_t status = archive_note_read(job, archive_dir, &note, err);
    if (status != TCK_OK || (note.there && (version_none(copied) || version_is(note.newest, copied)))) {
        return status;
    }
    char *text = encode(archive_dir, copied);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for " ARCHIVE_NOTE_NAME);
    }
    status = folder_write(job, ARCHIVE_NOTE_NAME, text, strlen(text), err);
    free(text);
    return status;
}

bool archive_is_unmade(const char *archive_dir)
{
    char parent[CONFIG_PATH];
    struct stat st;
    snprintf(parent, sizeof(parent), "%s", archive_dir);
    return lstat(archive_dir, &st) != 0 && errno == ENOENT && stat(dirname(parent), &st) == 0;
}

tck_status_t archive_note_check_empty(const struct folder *job, const char *archive_dir, struct error *err)
{
    struct archive_note note;
    tck_status_t status = archive_note_read(job, archive_dir, &note, err);
    return status != TCK_OK || !note.there
               ? status
               : error_set(err, TCK_ERR_IO,
                           "it has no directory of this job, although versions were copied there before: mount it, or, "
                           "if the copies no longer exist, remove the file \"" ARCHIVE_NOTE_NAME
                           "\" from the job's directory in save_dir");
}
