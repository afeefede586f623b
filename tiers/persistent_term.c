/* SPDX-License-Identifier: Apache-2.0
 * Term files: claiming a term by O_EXCL, and the notes in it from which the poison counter is made. Claims take no
 * notice of a file's content, so one that a crash left empty still counts. */
#include "tiers/persistent_impl.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TERM_FILE_MAX 4096
#define CLAIM_TRIES   10000 /* others that claim at the same moment; each try is lost to another one that won */

struct term_note {
    uint64_t term, wall_ms;
    struct version restored; /* VERSION_NONE: nothing */
    bool committed, ended_well;
};

static void term_name(uint64_t term, char out[DIR_NAME_MAX])
{
    snprintf(out, DIR_NAME_MAX, "term.%" PRIu64, term);
}

bool term_name_parse(const char *name, uint64_t *out)
{
    uint64_t term;
    char again[DIR_NAME_MAX];
    if (sscanf(name, "term.%" SCNu64, &term) != 1 || term == 0) {
        return false;
    }
    term_name(term, again);
    if (strcmp(name, again) != 0) {
        return false;
    }
    *out = term;
    return true;
}

/* ---- claim ----------------------------------------------------------------------------------------------------- */

/* Highest term in the directory's names: claimed, or of a version that was put there without its term file. */
static tck_status_t newest_in(int dir_fd, uint64_t *term_out, struct error *err)
{
    struct names names;
    tck_status_t status = beneath_list(dir_fd, &names, err);
    if (status != TCK_OK) {
        return status;
    }
    uint64_t newest = 0, term;
    for (size_t i = 0; i < names.count; i++) {
        struct version version;
        if (!term_name_parse(names.names[i], &term)) {
            term = version_dir_parse(names.names[i], &version) ? version.term : 0;
        }
        newest = term > newest ? term : newest;
    }
    names_free(&names);
    *term_out = newest;
    return TCK_OK;
}

tck_status_t persistent_newest_term(struct persistent *p, uint64_t *term_out, struct error *err)
{
    return newest_in(p->job_fd, term_out, err);
}

static char *note_print(const struct term_note *note)
{
    char *text = NULL;
    json_t *json = json_object();
    bool ok = json != NULL && json_add_u64(json, "term", note->term) && json_add_u64(json, "wall_ms", note->wall_ms);
    if (ok && !version_none(note->restored)) {
        ok = json_add_u64(json, "restored_term", note->restored.term) &&
             json_add_u64(json, "restored_step", note->restored.step);
    }
    if (ok && note->committed) {
        ok = json_add_bool(json, "committed", true);
    }
    if (ok && note->ended_well) {
        ok = json_add_bool(json, "ended_well", true);
    }
    if (ok) {
        text = json_print(json, false);
    }
    json_free(json);
    return text;
}

static tck_status_t note_fill(int fd, const char *text, struct error *err)
{
    size_t len = strlen(text);
    ssize_t rc = failpoint_fails(term, write) ? -1 : write(fd, text, len);
    if (rc < 0 || (size_t)rc != len) {
        errno = rc < 0 ? errno : ENOSPC; /* a short write */
        return error_set(err, status_of_errno(errno), "write: %m");
    }
    return failpoint_fails(term, fsync) || fsync(fd) < 0 ? error_set(err, status_of_errno(errno), "fsync: %m") : TCK_OK;
}

/* TCK_ERR_EXIST if another has it. Whatever fails after the file was made, the term stays taken and unused. */
static tck_status_t claim_one(const struct persistent *p, uint64_t term, struct error *err)
{
    struct term_note note = {.term = term, .wall_ms = clock_wall_ms()};
    char name[DIR_NAME_MAX];
    int fd = -1;
    char *text = note_print(&note);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to claim a term");
    }
    term_name(term, name);
    tck_status_t status = beneath_open(p->job_fd, name, O_WRONLY | O_CREAT | O_EXCL, &fd, err);
    if (status != TCK_OK) {
        free(text);
        return status;
    }
    failpoint(term, made);
    status = note_fill(fd, text, err);
    free(text);
    failpoint(term, filled);
    if (close(fd) < 0 && status == TCK_OK) {
        status = error_set(err, status_of_errno(errno), "close: %m");
    }
    if (status == TCK_OK) {
        status = beneath_sync(p->job_fd, err);
    }
    if (status != TCK_OK) {
        error_prefix(err, "%s", name);
    }
    return status;
}

/* The lowest term that is above all that were ever used here or in load_dir: versions of a higher term would hide ours.
 */
static tck_status_t lowest_free(const struct persistent *p, uint64_t at_least, uint64_t *term_out, struct error *err)
{
    uint64_t newest = 0, loaded = 0;
    tck_status_t status = newest_in(p->job_fd, &newest, err);
    if (status == TCK_OK && p->load_fd >= 0) {
        status = newest_in(p->load_fd, &loaded, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    newest = loaded > newest ? loaded : newest;
    if (newest == UINT64_MAX || at_least == UINT64_MAX) {
        return error_set(err, TCK_ERR_INVAL, "no term is left above %" PRIu64, newest);
    }
    *term_out = at_least > newest ? at_least : newest + 1;
    return TCK_OK;
}

static tck_status_t claim_from(const struct persistent *p, uint64_t at_least, uint64_t *term_out, struct error *err)
{
    uint64_t term = 0;
    tck_status_t status = lowest_free(p, at_least, &term, err);
    if (status != TCK_OK) {
        error_prefix(err, "claim a term");
        return status;
    }
    for (int i = 0; i < CLAIM_TRIES && term < UINT64_MAX; i++, term++) {
        status = claim_one(p, term, err);
        if (status == TCK_OK) {
            *term_out = term;
        }
        if (status != TCK_ERR_EXIST) {
            return status;
        }
    }
    return error_set(err, TCK_ERR_BUSY, "claim a term: all up to %" PRIu64 " are taken", term - 1);
}

/* What fills the storage may be what drains of older terms left there: a term that is formed sweeps that away, and to
 * be formed it must be claimed. Should one of those terms still live, it loses a drain and tries again. */
tck_status_t persistent_claim_term(struct persistent *p, uint64_t at_least, uint64_t *term_out, struct error *err)
{
    struct error ignored = {0};
    uint64_t newest = 0;
    tck_status_t status = claim_from(p, at_least, term_out, err);
    if (status != TCK_ERR_NOSPC || newest_in(p->job_fd, &newest, &ignored) != TCK_OK) {
        return status;
    }
    log_warn("no room to claim a term: what unfinished drains have left is removed");
    if (persistent_sweep(p, newest, VERSION_NONE, &ignored) != TCK_OK) {
        log_warn("it cannot be removed: %s", ignored.text);
    }
    return claim_from(p, at_least, term_out, err);
}

/* ---- notes ----------------------------------------------------------------------------------------------------- */

static struct term_note note_decode(uint64_t term, const json_t *json)
{
    struct term_note note = {.term = term};
    struct version restored = VERSION_NONE;
    if (json_u64(json_get(json, "restored_term"), &restored.term) &&
        json_u64(json_get(json, "restored_step"), &restored.step)) {
        note.restored = restored;
    }
    if (!json_u64(json_get(json, "wall_ms"), &note.wall_ms)) {
        note.wall_ms = 0;
    }
    if (!json_bool(json_get(json, "committed"), &note.committed)) {
        note.committed = false;
    }
    if (!json_bool(json_get(json, "ended_well"), &note.ended_well)) {
        note.ended_well = false;
    }
    return note;
}

/* A file that is empty, damaged or cannot be read says nothing, as if its agent had got no further than the claim. What
 * is missing then only makes a poisoned version be tried again. */
static tck_status_t note_read(const struct persistent *p, uint64_t term, struct term_note *out, struct error *err)
{
    char name[DIR_NAME_MAX], *text;
    size_t len;
    json_t *json;
    struct error why = {0};
    term_name(term, name);
    tck_status_t status = beneath_read(p->job_fd, name, TERM_FILE_MAX, &text, &len, &why);
    if (status == TCK_OK) {
        status = json_parse(text, len, &json, &why);
        free(text);
    }
    if (status == TCK_ERR_NOMEM) {
        return error_set(err, status, "%s: %s", name, why.text);
    }
    if (status != TCK_OK) {
        log_warn("the note of term %" PRIu64 " is taken as empty: %s: %s", term, name, why.text);
        *out = (struct term_note){.term = term};
        return TCK_OK;
    }
    *out = note_decode(term, json);
    json_free(json);
    return TCK_OK;
}

static tck_status_t note_write(const struct persistent *p, const struct term_note *note, struct error *err)
{
    char name[DIR_NAME_MAX];
    char *text = note_print(note);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the note of term %" PRIu64, note->term);
    }
    term_name(note->term, name);
    tck_status_t status = beneath_write(p->job_fd, name, text, strlen(text), err);
    free(text);
    return status;
}

tck_status_t persistent_note_restore(struct persistent *p, uint64_t term, struct version version, struct error *err)
{
    struct term_note note;
    tck_status_t status = note_read(p, term, &note, err);
    if (status != TCK_OK) {
        return status;
    }
    note.restored = version;
    return note_write(p, &note, err);
}

tck_status_t persistent_note_commit(struct persistent *p, uint64_t term, struct error *err)
{
    struct term_note note;
    tck_status_t status = note_read(p, term, &note, err);
    if (status != TCK_OK || note.committed) {
        return status;
    }
    note.committed = true;
    return note_write(p, &note, err);
}

tck_status_t persistent_note_end(struct persistent *p, uint64_t term, struct error *err)
{
    struct term_note note;
    tck_status_t status = note_read(p, term, &note, err);
    if (status != TCK_OK || note.ended_well) {
        return status;
    }
    note.ended_well = true;
    return note_write(p, &note, err);
}

/* ---- tries ----------------------------------------------------------------------------------------------------- */

static int compare_descending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : x < y;
}

/* Claimed terms below this one, newest first; the caller frees. */
static tck_status_t terms_below(const struct persistent *p, uint64_t term, uint64_t **terms_out, size_t *count_out,
                                struct error *err)
{
    struct names names;
    tck_status_t status = beneath_list(p->job_fd, &names, err);
    if (status != TCK_OK) {
        return status;
    }
    size_t count = 0;
    uint64_t *terms = calloc(names.count + 1, sizeof(*terms));
    for (size_t i = 0; terms != NULL && i < names.count; i++) {
        if (term_name_parse(names.names[i], &terms[count]) && terms[count] < term) {
            count++;
        }
    }
    names_free(&names);
    if (terms == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the list of terms");
    }
    qsort(terms, count, sizeof(*terms), compare_descending);
    *terms_out = terms;
    *count_out = count;
    return TCK_OK;
}

tck_status_t persistent_restore_tries(struct persistent *p, uint64_t term, struct version *version_out,
                                      uint32_t *tries_out, struct error *err)
{
    uint64_t *terms = NULL;
    size_t count = 0;
    tck_status_t status = terms_below(p, term, &terms, &count, err);
    if (status != TCK_OK) {
        return status;
    }
    uint32_t tries = 0;
    struct version restored = VERSION_NONE;
    for (size_t i = 0; i < count; i++) {
        struct term_note note;
        status = note_read(p, terms[i], &note, err);
        if (status != TCK_OK) {
            break;
        }
        if (version_none(note.restored) && !note.committed && !note.ended_well) {
            continue; /* never got as far as a restore: says nothing about any version */
        }
        if (note.committed || note.ended_well || (tries > 0 && !version_is(note.restored, restored))) {
            break;
        }
        restored = note.restored;
        tries++;
    }
    free(terms);
    if (status == TCK_OK) {
        *version_out = restored;
        *tries_out = tries;
    }
    return status;
}
