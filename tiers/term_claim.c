/* SPDX-License-Identifier: Apache-2.0
 * Claiming a term: O_EXCL decides between claimers. */
#include "tiers/persistent_impl.h"
#include "tiers/term_list.h"
#include "tiers/term_note.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "tiers/forgotten.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLAIM_TRIES 10000 /* against concurrent claimers: each failed try means that another one has won */

/* Remembers that the term was claimed here, so that another directory in this one's place is recognized. */
static void saw_claim(struct persistent *p, uint64_t term)
{
    uint64_t newest = atomic_load(&p->claim_seen);
    while (term > newest && !atomic_compare_exchange_weak(&p->claim_seen, &newest, term)) {
    }
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

/* TCK_ERR_EXIST if the term is taken. The file's name is the claim, so an empty file suffices on a full disk; any other
 * failure after its creation leaves the term taken and unused. */
static tck_status_t claim_one(const struct persistent *p, uint64_t term, const struct term_holder *holder,
                              bool *full_out, struct error *err)
{
    struct term_note note = {.term = term, .wall_ms = clock_wall_ms()};
    char name[DIR_NAME_MAX];
    int fd = -1;
    char *text = term_note_print(&note, holder != NULL ? term_holder_json(holder) : NULL);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to claim a term");
    }
    term_name(term, name);
    tck_status_t status = safe_fs_open(p->job_fd, name, O_WRONLY | O_CREAT | O_EXCL, &fd, err);
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
        status = safe_fs_sync(p->job_fd, err);
    }
    if (status != TCK_OK) {
        error_prefix(err, "%s/%s/%s", p->config->save_dir, p->config->job, name);
    }
    return status;
}

/* With follows, only if no term was claimed since `seen` was the newest. */
static tck_status_t claim_from(const struct persistent *p, const struct term_claim *claim, uint64_t *term_out,
                               bool *full_out, struct error *err)
{
    uint64_t term = 0, newest = 0;
    tck_status_t status = term_list_newest(p->job_fd, &newest, err);
    if (status == TCK_OK && claim->follows && newest != claim->seen) {
        return error_set(err, TCK_ERR_EXIST, "term %" PRIu64 " was claimed meanwhile", newest);
    }
    if (status == TCK_OK) {
        status = term_lowest_free(p, claim->at_least, &term, err);
    }
    if (status != TCK_OK) {
        return error_prefix(err, "claim a term in %s/%s", p->config->save_dir, p->config->job);
    }
    for (int i = 0; i < CLAIM_TRIES && term < UINT64_MAX; i++, term++) {
        status = claim_one(p, term, claim->holder, full_out, err);
        if (status == TCK_OK) {
            *term_out = term;
        }
        if (status != TCK_ERR_EXIST || claim->follows) {
            return status;
        }
    }
    return error_set(err, TCK_ERR_BUSY, "claim a term: all up to %" PRIu64 " are taken", term - 1);
}

/* Storage may be full of the remains of older terms' drains. Only a formed term sweeps them away, and it must be
 * claimed first. If one of those terms is still alive, it loses a drain and tries again. */
static void make_room(struct persistent *p, uint64_t newest)
{
    struct error err = {0};
    log_warn("%s/%s: there is no room to claim a term: removing what unfinished drains have left", p->config->save_dir,
             p->config->job);
    if (persistent_sweep(p, newest, VERSION_NONE, &err) != TCK_OK) {
        log_warn("what unfinished drains have left cannot be removed: %s", err.text);
    }
}

static tck_status_t claim_or_make_room(struct persistent *p, const struct term_claim *claim, uint64_t *term_out,
                                       struct error *err)
{
    struct error ignored = {0};
    struct term_claim again = *claim;
    uint64_t newest = 0;
    bool full = false;
    tck_status_t status = claim_from(p, claim, term_out, &full, err);
    if (status == TCK_OK && full) {
        make_room(p, *term_out - 1);
    }
    if (status != TCK_ERR_NOSPC || term_list_newest(p->job_fd, &newest, &ignored) != TCK_OK) {
        return status;
    }
    make_room(p, newest);
    again.seen = newest; /* the attempt may have left an empty file: a term without an owner */
    return claim_from(p, &again, term_out, &full, err);
}

/* Made while there is room, so that versions can still be un-published when there is none. */
static void make_trash(const struct persistent *p)
{
    struct error err = {0};
    int trash_fd = -1;
    if (safe_fs_make_dir(p->job_fd, TRASH_DIR, &trash_fd, &err) == TCK_OK) {
        close(trash_fd);
    } else {
        log_warn("%s/%s/" TRASH_DIR " cannot be made: %s", p->config->save_dir, p->config->job, err.text);
    }
}

tck_status_t persistent_claim(struct persistent *p, const struct term_claim *claim, uint64_t *term_out,
                              struct error *err)
{
    tck_status_t status = claim_or_make_room(p, claim, term_out, err);
    if (status == TCK_OK) {
        saw_claim(p, *term_out);
        make_trash(p);
    }
    return status;
}

tck_status_t persistent_find_claim(struct persistent *p, uint64_t term, struct error *err)
{
    char name[DIR_NAME_MAX];
    uint64_t bytes;
    term_name(term, name);
    tck_status_t status = persistent_open_again(p, err);
    if (status == TCK_OK) {
        status = safe_fs_size(p->job_fd, name, &bytes, err);
    }
    if (status == TCK_OK) {
        saw_claim(p, term);
    }
    return status;
}

tck_status_t persistent_claim_term(struct persistent *p, uint64_t at_least, uint64_t *term_out, struct error *err)
{
    return persistent_claim(p, &(struct term_claim){.at_least = at_least}, term_out, err);
}

tck_status_t persistent_claim_reserved(struct persistent *p, uint64_t term, const struct term_holder *holder,
                                       struct error *err)
{
    uint64_t newest = 0;
    tck_status_t status = persistent_note_holder(p, term, holder, err);
    if (status == TCK_OK) {
        status = persistent_newest_term(p, &newest, err);
    }
    if (status != TCK_OK) {
        return error_prefix(err, "%s/%s: claim term %" PRIu64, p->config->save_dir, p->config->job, term);
    }
    if (newest > term) {
        return error_set(err, TCK_ERR_EXIST, "term %" PRIu64 " was claimed meanwhile", newest);
    }
    saw_claim(p, term);
    make_trash(p);
    return TCK_OK;
}

tck_status_t persistent_forget(struct persistent *p, uint64_t *term_out, struct error *err)
{
    uint64_t term = 0;
    tck_status_t status = persistent_claim_term(p, 1, &term, err);
    if (status == TCK_OK) {
        status = forgotten_write(p->job_fd, term, clock_wall_ms(), err);
    }
    if (status == TCK_OK) {
        *term_out = term;
    }
    return status;
}
