/* SPDX-License-Identifier: Apache-2.0
 * A term's file in a directory. Its creation with O_EXCL claims the term; what is noted later replaces it as a whole.
 */
#include "tiers/persistent_dir.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- claiming -------------------------------------------------------------------------------------------------- */

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

/* The file's name is the claim, so an empty file suffices on a full disk; any other
 * failure after its creation leaves the term taken and unused. */
tck_status_t dir_claim_one(const struct persistent *p, const struct term_note *note, json_t *holder, bool *full_out,
                           struct error *err)
{
    char name[DIR_NAME_MAX];
    int fd = -1;
    char *text = term_note_print(note, holder);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to claim a term");
    }
    term_name(note->term, name);
    tck_status_t status = safe_fs_open(p->job.fd, name, O_WRONLY | O_CREAT | O_EXCL, &fd, err);
    if (status != TCK_OK) {
        free(text);
        return error_prefix(err, "claim a term in %s/%s", p->config->save_dir, p->config->job);
    }
    failpoint(term, made);
    status = note_fill(fd, text, err);
    *full_out = status == TCK_ERR_NOSPC;
    if (*full_out) {
        log_warn("%s/%s/%s is claimed, but stays empty: %s", p->config->save_dir, p->config->job, name, err->text);
        status = TCK_OK;
    }
    free(text);
    failpoint(term, filled);
    if (close(fd) < 0 && status == TCK_OK) {
        status = error_set(err, status_of_errno(errno), "close: %m");
    }
    if (status == TCK_OK) {
        status = safe_fs_sync(p->job.fd, err);
    }
    if (status != TCK_OK) {
        error_prefix(err, "%s/%s/%s", p->config->save_dir, p->config->job, name);
    }
    return status;
}

/* Made while there is room, so that versions can still be un-published when there is none. */
void dir_claimed(const struct persistent *p)
{
    struct error err = {0};
    int trash_fd = -1;
    if (safe_fs_make_dir(p->job.fd, TRASH_DIR, &trash_fd, &err) == TCK_OK) {
        close(trash_fd);
    } else {
        log_warn("%s/%s/" TRASH_DIR " cannot be made: %s", p->config->save_dir, p->config->job, err.text);
    }
}

/* ---- what is noted later --------------------------------------------------------------------------------------- */

/* A note to add to, and the holder that it names. */
struct open_note {
    struct term_note note;
    json_t *holder; /* NULL: none; note_replace frees it */
};

/* The caller frees *out, which is NULL if the holder is unknown. */
static tck_status_t copy_holder(const json_t *json, json_t **out, struct error *err)
{
    struct term_holder holder;
    tck_status_t status = term_holder_decode(json, &holder, err);
    if (status != TCK_OK) {
        return status;
    }
    json_t *copy = holder.node[0] != '\0' ? term_holder_json(&holder) : NULL;
    bool failed = holder.node[0] != '\0' && copy == NULL;
    term_holder_free(&holder);
    if (failed) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the holder of a term");
    }
    *out = copy;
    return TCK_OK;
}

/* A note that cannot be read now is not overwritten, since its content would be lost. The file is read only once: a
 * second read might fail, and the holder would be lost. Any note on a reserved term claims it. */
static tck_status_t note_open(const struct persistent *p, uint64_t term, struct open_note *out, struct error *err)
{
    json_t *json = NULL;
    struct open_note opened = {0};
    tck_status_t status = term_note_read_json(&p->job, term, &json, err);
    if (status == TCK_ERR_PROTO || status == TCK_ERR_NOENT) {
        log_warn("the note of term %" PRIu64 " is started afresh: %s", term, err->text);
        status = TCK_OK;
    }
    if (status == TCK_OK && json != NULL) {
        status = copy_holder(json_get(json, "holder"), &opened.holder, err);
    }
    if (status == TCK_OK) {
        opened.note = term_note_decode(term, json);
        if (opened.note.reserved_by != 0) {
            opened.note.reserved_by = 0;
            opened.note.wall_ms = clock_wall_ms();
        }
        *out = opened;
    }
    json_free(json);
    return status;
}

/* Consumes the open note. */
static tck_status_t note_replace(const struct persistent *p, const struct open_note *open, struct error *err)
{
    char name[DIR_NAME_MAX];
    char *text = term_note_print(&open->note, open->holder);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the note of term %" PRIu64, open->note.term);
    }
    term_name(open->note.term, name);
    tck_status_t status = safe_fs_write(p->job.fd, name, text, strlen(text), err);
    free(text);
    return status;
}

static tck_status_t add(struct open_note *open, const struct term_addition *what, struct error *err)
{
    if (what->holder != NULL) {
        json_free(open->holder);
        open->holder = term_holder_json(what->holder);
        if (open->holder == NULL) {
            return error_set(err, TCK_ERR_NOMEM, "no memory for the holder of term %" PRIu64, open->note.term);
        }
    }
    if (!version_none(what->restored)) {
        open->note.restored = what->restored;
    }
    open->note.committed = open->note.committed || what->committed;
    open->note.ended_well = open->note.ended_well || what->ended_well;
    return TCK_OK;
}

/* Commits and ends are noted again and again: a file that says it already is not replaced. */
static bool says(const struct term_note *note, const struct term_addition *what)
{
    return (what->committed && note->committed) || (what->ended_well && note->ended_well);
}

tck_status_t dir_note(struct persistent *p, uint64_t term, const struct term_addition *what, struct error *err)
{
    struct open_note open;
    tck_status_t status = note_open(p, term, &open, err);
    if (status != TCK_OK) {
        return status;
    }
    if (says(&open.note, what)) {
        json_free(open.holder);
        return TCK_OK;
    }
    status = add(&open, what, err);
    return status == TCK_OK ? note_replace(p, &open, err) : status;
}
