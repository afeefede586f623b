/* SPDX-License-Identifier: Apache-2.0
 * The published versions of a job in its directories on storage: which there are, and the standing of each. Agent,
 * command and library use these functions, so that all of them mean the same by
 *
 *     missing      a directory was listed or opened without an error, and does not contain it
 *     damaged      its content proves that it is not whole
 *     unreadable   any other error (EIO, ESTALE, EMFILE, missing permissions): it may be whole, and it may be the
 * newest. It is never left out: the caller retries for as long as it can wait, and then reports the error, which names
 * the file
 *
 * Nothing here waits, retries or logs. All calls block. */
#ifndef TCK_TIERS_PUBLISHED_VERSIONS_H
#define TCK_TIERS_PUBLISHED_VERSIONS_H

#include "tiers/folder.h"
#include "tiers/manifest.h"

/* <save_dir>/<job> and beside it <load_dir>/<job> or <archive_dir>/<job>, open, if there are any. */
struct version_dirs {
    const char *job, *save_dir, *second_dir;
    bool second_may_be_away; /* it is archive_dir: a listing of it that fails is not the end of the call */
    bool files_unseen;       /* version_look leaves out the sizes of files: the caller finds out what is missing */
    struct error away;       /* of opening it; code TCK_OK: it is open, or has no folder of the job */
    struct folder save, second;
};

struct published {
    struct version version;
    bool from_second;
};

struct version_list {
    uint64_t forgotten; /* by save_dir: versions of terms up to this one do not count and are left out */
    size_t count;
    struct published *versions; /* owned; newest first; of two of the same version that of save_dir first */
    struct error unread;        /* why archive_dir was not listed, which may have others; code TCK_OK: it was */
    struct version archived; /* if it was not: that was copied there last, as save_dir notes; VERSION_NONE: unknown */
};

/* The subdirectories of both places that have a version's name, and the version that LATEST names if a listing is
 * out of date and lacks it; an error unless both are listed completely, except as `unread` says. They are only
 * candidates: version_look checks each. Versions forgotten in the second place by its own file are left out, too. */
must_check tck_status_t version_list(const struct version_dirs *dirs, struct version_list *out, struct error *err);
void version_list_free(struct version_list *list);
/* Which version was copied last to an archive that cannot be listed, as save_dir notes; VERSION_NONE: none, or one that
 * was forgotten since. */
must_check tck_status_t version_archived(const struct version_dirs *dirs, uint64_t forgotten, struct version *out,
                                         struct error *err);

/* The version that LATEST in a job's directory names, none if it names none. Damage to it, or something else in its
 * place, loses a hint and no version; but it is not taken for missing while it cannot be read. */
must_check tck_status_t version_latest(const struct folder *job, struct version *out, struct error *err);

must_check tck_status_t version_open(const struct version_dirs *dirs, const struct published *which, struct folder *out,
                                     struct error *err);
/* Reads the manifest in an open directory: of any job and version, or of the given ones. */
must_check tck_status_t version_manifest_of_any(const struct folder *dir, struct manifest *out, struct error *err);
must_check tck_status_t version_manifest(const struct folder *dir, const char *job, struct version version,
                                         struct manifest *out, struct error *err);
/* TCK_ERR_CORRUPT, with the file's name, if its size differs from the manifest. The bytes are checked when they are
 * read (published_chunk.h). */
must_check tck_status_t version_check_file(const struct folder *dir, const struct manifest_file *file,
                                           struct error *err);
must_check tck_status_t version_check_files(const struct folder *dir, const struct manifest *manifest,
                                            struct error *err);

/* The result of checking a version's directory, its manifest and the sizes of its files. */
struct version_look {
    enum standing standing;
    bool gone;                /* removed since it was listed: its successor may not be in that listing */
    struct error why;         /* unless it is good */
    struct folder dir;        /* if it is good; owned, as is */
    struct manifest manifest; /* this */
};
void version_look(const struct version_dirs *dirs, const struct published *which, struct version_look *out);
void version_look_free(struct version_look *look);

/* Whether an error in reading a version proves that it is not whole. */
static inline bool status_proves_damage(tck_status_t status)
{
    return status == TCK_ERR_NOENT || status == TCK_ERR_CORRUPT;
}

#endif
