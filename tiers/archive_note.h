/* SPDX-License-Identifier: Apache-2.0
 * The file "archive" in the job's folder of save_dir: it says that archive_dir has a folder of this job. From then on
 * an archive_dir without one is not mounted, or is another one, and does not count as empty. */
#ifndef TCK_TIERS_ARCHIVE_NOTE_H
#define TCK_TIERS_ARCHIVE_NOTE_H

#include "tiers/folder.h"

#define ARCHIVE_NOTE_NAME   "archive"
#define ARCHIVE_NOTE_FORMAT 1

/* *out: whether the note names this archive_dir. A job without a folder has no note. */
must_check tck_status_t archive_note_read(const struct folder *job, const char *archive_dir, bool *out,
                                          struct error *err);
/* Writes the note unless it names this archive_dir already. */
must_check tck_status_t archive_note_write(const struct folder *job, const char *archive_dir, struct error *err);
/* An error if the note names this archive_dir: for callers that have found nothing of the job there. */
must_check tck_status_t archive_note_check_empty(const struct folder *job, const char *archive_dir, struct error *err);

#endif
