/* SPDX-License-Identifier: Apache-2.0
 * A directory with a version's name is only a candidate: its manifest and the sizes of its files decide. */
#include "tiers/published_versions.h"

#include "base/progress.h"
#include "tiers/archive_note.h"
#include "tiers/forgotten.h"
#include "tiers/names.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LISTINGS_MAX 5

/* ---- list ------------------------------------------------------------------------------------------------------ */

static tck_status_t append(struct version_list *list, struct published which, struct error *err)
{
    struct published *grown = reallocarray(list->versions, list->count + 1, sizeof(*grown));
    if (grown == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the list of versions");
    }
    grown[list->count++] = which;
    list->versions = grown;
    return TCK_OK;
}

static bool is_other_than(const struct folder *dir, const char *name, mode_t kind)
{
    struct stat st;
    return dir->fd >= 0 && fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (st.st_mode & S_IFMT) != kind;
}

tck_status_t version_latest(const struct folder *job, struct version *out, struct error *err)
{
    char *text = NULL;
    size_t len = 0;
    struct version version = VERSION_NONE;
    tck_status_t status = folder_read(job, LATEST_NAME, DIR_NAME_MAX, &text, &len, err);
    if (status == TCK_OK) {
        text[strcspn(text, "\n")] = '\0';
        *out = version_dir_parse(text, &version) ? version : VERSION_NONE;
        free(text);
        return TCK_OK;
    }
    *out = VERSION_NONE;
    bool lost = status_proves_damage(status) || is_other_than(job, LATEST_NAME, S_IFREG);
    return lost ? TCK_OK : status;
}

static bool lists(const struct version_list *list, const struct published *which)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct published *other = &list->versions[i];
        if (other->from_second == which->from_second && version_is(other->version, which->version)) {
            return true;
        }
    }
    return false;
}

/* A network file system may list a directory as it was some time ago. The newest version that was reported to a trainer
 * is still found, because LATEST names it, and a lookup by name is not answered from the listing. */
static tck_status_t add_latest(const struct folder *job, bool from_second, uint64_t forgotten,
                               struct version_list *list, struct error *err)
{
    char name[DIR_NAME_MAX];
    struct folder dir;
    struct error why;
    struct published which = {.from_second = from_second};
    tck_status_t status = TCK_OK;
    if (job->objects != NULL) { /* whose listings are never out of date */
        return TCK_OK;
    }
    status = version_latest(job, &which.version, err);
    if (status != TCK_OK || which.version.term <= forgotten || lists(list, &which)) {
        return status;
    }
    version_dir_name(which.version, name);
    status = folder_open(job, name, &dir, &why);
    if (status == TCK_OK) {
        folder_close(&dir);
    }
    return status == TCK_ERR_NOENT ? TCK_OK : append(list, which, err); /* version_look judges it, as any other */
}

/* ---- in a store of objects ------------------------------------------------------------------------------------- */

/* A version is published there as long as its manifest is there: files may have been put that are not published yet, or
 * no longer. */
static tck_status_t is_published(const struct folder *job, const char *name, bool *out, struct error *err)
{
    struct folder dir;
    uint64_t bytes;
    tck_status_t status = folder_open(job, name, &dir, err);
    if (status != TCK_OK) {
        return status;
    }
    status = folder_size(&dir, MANIFEST_NAME, &bytes, err);
    folder_close(&dir);
    progress_moved();
    *out = status == TCK_OK;
    return status == TCK_ERR_NOENT ? TCK_OK : status;
}

/* Moves the names of versions that are not published to *rest. Those in `known` were published a moment ago, and are
 * not asked for again: a reader that finds a version gone makes a new listing. */
static tck_status_t keep_published(const struct folder *job, const struct names *known, struct names *names,
                                   struct names *rest, struct error *err)
{
    size_t kept = 0;
    tck_status_t status = TCK_OK;
    rest->names = calloc(names->count + 1, sizeof(*rest->names));
    if (rest->names == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the names of versions");
    }
    for (size_t i = 0; i < names->count; i++) {
        struct version version;
        bool keep = true;
        if (status == TCK_OK && version_dir_parse(names->names[i], &version) && !names_have(known, names->names[i])) {
            status = is_published(job, names->names[i], &keep, err);
        }
        if (keep) {
            names->names[kept++] = names->names[i];
        } else {
            rest->names[rest->count++] = names->names[i];
        }
    }
    names->count = kept;
    return status;
}

static bool same_names(const struct names *a, const struct names *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++) {
        same = strcmp(a->names[i], b->names[i]) == 0;
    }
    return same;
}

/* A version that is found unpublished may have been superseded since the listing, by one that was not published yet
 * when it was looked at. So only what two listings in a row find unpublished is left out: between the two, no other
 * version was published. */
static tck_status_t list_published(const struct folder *job, struct names *out, struct error *err)
{
    struct names before = {0}, known = {0};
    tck_status_t status = TCK_OK;
    bool agreed = false;
    for (int i = 0; i < LISTINGS_MAX && !agreed && status == TCK_OK; i++) {
        struct names rest = {0};
        names_free(&known);
        known = *out;
        *out = (struct names){0};
        status = folder_list(job, out, err);
        if (status == TCK_OK) {
            status = keep_published(job, &known, out, &rest, err);
        }
        agreed = status == TCK_OK && (rest.count == 0 || (i > 0 && same_names(&rest, &before)));
        names_free(&before);
        before = rest;
    }
    names_free(&before);
    names_free(&known);
    if (status == TCK_OK && !agreed) {
        status = error_set(err, TCK_ERR_BUSY, "versions are published faster than they can be listed");
    }
    return status;
}

static tck_status_t list_names(const struct folder *job, struct names *out, struct error *err)
{
    return job->objects != NULL ? list_published(job, out, err) : folder_list(job, out, err);
}

/* Puts the job's directory before an error, unless it begins with its URL already. */
static tck_status_t name_dir(struct error *err, const char *dir, const char *job)
{
    return strncmp(err->text, dir, strlen(dir)) == 0 ? err->code : error_prefix(err, "%.200s/%s", dir, job);
}

/* ---- all ------------------------------------------------------------------------------------------------------- */

static tck_status_t list_dir(const struct folder *job, bool from_second, struct version_list *list, struct error *err)
{
    struct names names = {0};
    uint64_t forgotten = 0;
    tck_status_t status = forgotten_read(job, &forgotten, err);
    if (status == TCK_OK) {
        status = list_names(job, &names, err);
    }
    if (!from_second) {
        list->forgotten = forgotten;
    } else if (forgotten < list->forgotten) {
        forgotten = list->forgotten;
    }
    for (size_t i = 0; i < names.count && status == TCK_OK; i++) {
        struct published which = {.from_second = from_second};
        if (version_dir_parse(names.names[i], &which.version) && which.version.term > forgotten) {
            status = append(list, which, err);
        }
    }
    names_free(&names);
    return status == TCK_OK ? add_latest(job, from_second, forgotten, list, err) : status;
}

static int compare_published(const void *a, const void *b)
{
    const struct published *x = a, *y = b;
    int order = version_cmp(y->version, x->version);
    return order != 0 ? order : (int)x->from_second - (int)y->from_second;
}

tck_status_t version_archived(const struct version_dirs *dirs, uint64_t forgotten, struct version *out,
                              struct error *err)
{
    struct archive_note note;
    tck_status_t status = archive_note_read(&dirs->save, dirs->second_dir, &note, err);
    *out = status == TCK_OK && note.newest.term > forgotten ? note.newest : VERSION_NONE;
    return status == TCK_OK ? TCK_OK : name_dir(err, dirs->save_dir, dirs->job);
}

static tck_status_t list_second(const struct version_dirs *dirs, struct version_list *list, struct error *err)
{
    size_t before = list->count;
    struct error why = dirs->away;
    if (why.code == TCK_OK && folder_is(&dirs->second)) {
        why.code = list_dir(&dirs->second, true, list, &why);
        if (why.code != TCK_OK) {
            (void)name_dir(&why, dirs->second_dir, dirs->job);
        }
    }
    if (why.code != TCK_OK && dirs->second_may_be_away) {
        list->count = before;
        list->unread = why;
        return version_archived(dirs, list->forgotten, &list->archived, err);
    } else if (why.code != TCK_OK) {
        *err = why;
        return why.code;
    }
    return TCK_OK;
}

tck_status_t version_list(const struct version_dirs *dirs, struct version_list *out, struct error *err)
{
    struct version_list list = {0};
    tck_status_t status = !folder_is(&dirs->save) ? TCK_OK : list_dir(&dirs->save, false, &list, err);
    if (status != TCK_OK) {
        (void)name_dir(err, dirs->save_dir, dirs->job);
    } else {
        status = list_second(dirs, &list, err);
    }
    if (status != TCK_OK) {
        version_list_free(&list);
        return status;
    }
    if (list.count > 0) {
        qsort(list.versions, list.count, sizeof(*list.versions), compare_published);
    }
    *out = list;
    return TCK_OK;
}

void version_list_free(struct version_list *list)
{
    free(list->versions);
    *list = (struct version_list){0};
}

/* ---- open ------------------------------------------------------------------------------------------------------ */

static const struct folder *parent_of(const struct version_dirs *dirs, const struct published *which)
{
    return which->from_second ? &dirs->second : &dirs->save;
}

tck_status_t version_open(const struct version_dirs *dirs, const struct published *which, struct folder *out,
                          struct error *err)
{
    char name[DIR_NAME_MAX];
    const struct folder *parent = parent_of(dirs, which);
    version_dir_name(which->version, name);
    if (!folder_is(parent)) {
        return error_set(err, TCK_ERR_NOENT, "%s: the job has no directory there", name);
    }
    return folder_open(parent, name, out, err);
}

tck_status_t version_manifest_of_any(const struct folder *dir, struct manifest *out, struct error *err)
{
    char *text = NULL;
    size_t len = 0;
    tck_status_t status = folder_read(dir, MANIFEST_NAME, JSON_MAX_BYTES, &text, &len, err);
    if (status == TCK_OK) {
        status = manifest_parse(text, len, out, err);
        free(text);
    }
    return status;
}

static tck_status_t check_owner(const struct manifest *manifest, const char *job, struct version version,
                                struct error *err)
{
    if (strcmp(manifest->job, job) != 0) {
        return error_set(err, TCK_ERR_CORRUPT, MANIFEST_NAME " is of job %s, not of %s", manifest->job, job);
    }
    if (!version_is(manifest->version, version)) {
        return error_set(err, TCK_ERR_CORRUPT,
                         MANIFEST_NAME " is of term %" PRIu64 " step %" PRIu64 ", unlike its directory's name",
                         manifest->version.term, manifest->version.step);
    }
    return TCK_OK;
}

tck_status_t version_manifest(const struct folder *dir, const char *job, struct version version, struct manifest *out,
                              struct error *err)
{
    struct manifest manifest = {0};
    tck_status_t status = version_manifest_of_any(dir, &manifest, err);
    if (status != TCK_OK) {
        return status;
    }
    status = check_owner(&manifest, job, version, err);
    if (status != TCK_OK) {
        manifest_free(&manifest);
        return status;
    }
    *out = manifest;
    return TCK_OK;
}

tck_status_t version_check_file(const struct folder *dir, const struct manifest_file *file, struct error *err)
{
    uint64_t bytes = 0;
    tck_status_t status = folder_size(dir, file->name, &bytes, err);
    if (status == TCK_OK && bytes != file->bytes) {
        status = error_set(err, TCK_ERR_CORRUPT, "%s has %" PRIu64 " bytes, its manifest says %" PRIu64, file->name,
                           bytes, file->bytes);
    }
    return status;
}

tck_status_t version_check_files(const struct folder *dir, const struct manifest *manifest, struct error *err)
{
    tck_status_t status = folder_gather(dir, err);
    for (uint32_t i = 0; i < manifest->file_count && status == TCK_OK; i++) {
        status = version_check_file(dir, &manifest->files[i], err);
        progress_moved();
    }
    return status;
}

/* ---- look ------------------------------------------------------------------------------------------------------ */

/* Whether a link, a directory or the like has taken the place of one of the version's files. */
static bool has_impostor(const struct folder *parent, const char *name)
{
    struct names names = {0};
    struct error ignored;
    struct folder dir;
    if (is_other_than(parent, name, S_IFDIR)) {
        return true;
    }
    if (folder_open(parent, name, &dir, &ignored) != TCK_OK) {
        return false;
    }
    bool found = is_other_than(&dir, MANIFEST_NAME, S_IFREG);
    if (!found && folder_list(&dir, &names, &ignored) == TCK_OK) {
        for (size_t i = 0; i < names.count && !found; i++) {
            found = manifest_is_file_name(names.names[i]) && is_other_than(&dir, names.names[i], S_IFREG);
        }
        names_free(&names);
    }
    folder_close(&dir);
    return found;
}

/* TCK_ERR_DENIED on opening a file has two meanings: permissions are missing, which can be repaired, or something else
 * has taken the file's place, such as a link or a pipe, which is never published. Only the second proves damage. */
static enum standing standing_of(tck_status_t outcome, const struct folder *parent, const char *name)
{
    if (outcome == TCK_OK) {
        return STANDING_GOOD;
    }
    if (status_proves_damage(outcome)) {
        return STANDING_DAMAGED;
    }
    if (outcome == TCK_ERR_PROTO) {
        return STANDING_FOREIGN;
    }
    bool may_be_impostor = outcome == TCK_ERR_DENIED || outcome == TCK_ERR_IO; /* opening a socket fails with ENXIO */
    return may_be_impostor && has_impostor(parent, name) ? STANDING_DAMAGED : STANDING_UNREADABLE;
}

static tck_status_t open_whole(const struct version_dirs *dirs, const struct published *which, struct version_look *out,
                               struct error *err)
{
    tck_status_t status = version_open(dirs, which, &out->dir, err);
    if (status == TCK_OK) {
        status = version_manifest(&out->dir, dirs->job, which->version, &out->manifest, err);
    }
    return status == TCK_OK && !dirs->files_unseen ? version_check_files(&out->dir, &out->manifest, err) : status;
}

/* Retention may delete the version during the check, or storage may die: what is missing is no damage then.
 * TCK_ERR_NOENT: the version has been removed. Another error: that cannot be seen. */
static tck_status_t look_again(const struct version_dirs *dirs, const struct published *which, struct error *err)
{
    struct folder dir = FOLDER_NONE;
    uint64_t bytes;
    tck_status_t status = version_open(dirs, which, &dir, err);
    if (status == TCK_OK && dir.objects != NULL) { /* a folder of objects is not looked up, but its manifest is */
        status = folder_size(&dir, MANIFEST_NAME, &bytes, err);
    }
    folder_close(&dir);
    return status;
}

void version_look(const struct version_dirs *dirs, const struct published *which, struct version_look *out)
{
    char name[DIR_NAME_MAX];
    struct version_look look = {.dir = FOLDER_NONE};
    tck_status_t status = open_whole(dirs, which, &look, &look.why);
    if (status != TCK_OK) {
        struct error why = look.why, again;
        version_look_free(&look);
        tck_status_t there = look_again(dirs, which, &again);
        look.gone = there == TCK_ERR_NOENT;
        bool seen = there == TCK_OK || look.gone;
        look.why = seen ? why : again;
        status = seen ? status : there;
    }
    version_dir_name(which->version, name);
    look.standing = look.gone ? STANDING_UNREADABLE : standing_of(status, parent_of(dirs, which), name);
    *out = look;
}

void version_look_free(struct version_look *look)
{
    folder_close(&look->dir);
    manifest_free(&look->manifest);
    *look = (struct version_look){.dir = FOLDER_NONE};
}
