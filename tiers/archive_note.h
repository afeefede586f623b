/* SPDX-License-Identifier: Apache-2.0
 * The file "archive" in the job's folder of save_dir: it says that archive_dir has a folder of this job, and which
 * version was copied there last. From then on an archive_dir without that folder is not mounted, or is another one, and
 * is not treated as empty. While archive_dir cannot be read, the note says how new its versions are at least. */
#ifndef TCK_TIERS_ARCHIVE_NOTE_H
#define TCK_TIERS_ARCHIVE_NOTE_H

#include "base/version.h"
#include "tiers/folder.h"

#define ARCHIVE_NOTE_NAME   "archive"
#define ARCHIVE_NOTE_FORMAT 1

struct archive_note {
    bool there;            /* there is a note, and it names this archive_dir */
    struct version newest; /* that was copied; VERSION_NONE: none yet */
};

/* A job without a folder has no note. */
must_check tck_status_t archive_note_read(const struct folder *job, const char *archive_dir, struct archive_note *out,
                                          struct error *err);
/* Writes the note unless it says that already. copied: VERSION_NONE leaves the version as it is. */
must_check tck_status_t archive_note_write(const struct folder *job, const char *archive_dir, struct version copied,
                                           struct error *err);
/* Whether a directory is missing from its parent directory, which is there. If save_dir has the job's folder and no
 * note of this archive_dir, that is an empty archive: the first copy makes it, as the first save makes save_dir. May
 * hang. */
bool archive_is_unmade(const char *archive_dir);
/* An error if the note names this archive_dir: for callers that have found no folder of the job there. */
must_check tck_status_t archive_note_check_empty(const struct folder *job, const char *archive_dir, struct error *err);

#endif
