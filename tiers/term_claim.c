/* SPDX-License-Identifier: Apache-2.0
 * Term files: claiming a term by O_EXCL, and the notes in its file from which the poison counter is computed. Claims
 * ignore a file's content, so one that a crash left empty still counts. */
#include "tiers/persistent_impl.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "tiers/forgotten.h"
#include "tiers/moved_job.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TERM_FILE_MAX (8u << 20) /* with the agents of all nodes */
#define HOLDERS_READ  64         /* consecutive terms that were claimed but never joined */
#define LISTINGS      8
#define CLAIM_TRIES   10000 /* against concurrent claimers: each failed try means that another one has won */

struct term_note {
    uint64_t term, wall_ms;
    uint64_t reserved_by;    /* the term that has reserved this one for its successor; 0: claimed */
    struct version restored; /* VERSION_NONE: nothing */
    bool committed, ended_well;
};

/* The terms found in one listing of a directory. */
struct term_list {
    uint64_t newest;  /* claimed or reserved, or of a version that was put there without its term file; 0: none */
    uint64_t version; /* of the newest version */
    size_t count;
    uint64_t *terms; /* those that have a file, newest first */
};

/* ---- claim ----------------------------------------------------------------------------------------------------- */

static int compare_descending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : x < y;
}

static void sort_names(const struct names *names, struct term_list *list)
{
    for (size_t i = 0; i < names->count; i++) {
        struct version version;
        if (term_name_parse(names->names[i], &list->terms[list->count])) {
            list->count++;
        } else if (version_dir_parse(names->names[i], &version) && version.term > list->version) {
            list->version = version.term;
        }
    }
    qsort(list->terms, list->count, sizeof(*list->terms), compare_descending);
    list->newest = list->count > 0 && list->terms[0] > list->version ? list->terms[0] : list->version;
}

/* The caller frees the terms. */
static tck_status_t list_terms(int dir_fd, struct term_list *out, struct error *err)
{
    struct names names;
    struct term_list list = {0};
    tck_status_t status = safe_fs_list(dir_fd, &names, err);
    if (status != TCK_OK) {
        return status;
    }
    list.terms = calloc(names.count + 1, sizeof(*list.terms));
    if (list.terms != NULL) {
        sort_names(&names, &list);
        *out = list;
    }
    names_free(&names);
    return list.terms != NULL ? TCK_OK : error_set(err, TCK_ERR_NOMEM, "no memory for the list of terms");
}

static tck_status_t newest_in(int dir_fd, uint64_t *term_out, struct error *err)
{
    struct term_list list;
    tck_status_t status = list_terms(dir_fd, &list, err);
    if (status == TCK_OK) {
        *term_out = list.newest;
        free(list.terms);
    }
    return status;
}

/* Remembers that the term was claimed here, so that another directory in this one's place is recognized. */
static void saw_claim(struct persistent *p, uint64_t term)
{
    uint64_t newest = atomic_load(&p->claim_seen);
    while (term > newest && !atomic_compare_exchange_weak(&p->claim_seen, &newest, term)) {
    }
}

/* Takes ownership of holder (NULL: none). It is written last: is_unfinished_claim relies on that. */
static char *note_print(const struct term_note *note, json_t *holder)
{
    char *text = NULL;
    json_t *json = json_object();
    bool ok = json != NULL && json_add_u64(json, "term", note->term) && json_add_u64(json, "wall_ms", note->wall_ms);
    if (ok && note->reserved_by != 0) {
        ok = json_add_u64(json, "reserved_by", note->reserved_by);
    }
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
    if (ok && holder != NULL) {
        ok = json_add(json, "holder", holder);
    } else {
        json_free(holder);
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

/* TCK_ERR_EXIST if the term is taken. The file's name is the claim, so an empty file suffices on a full disk; any other
 * failure after its creation leaves the term taken and unused. */
static tck_status_t claim_one(const struct persistent *p, uint64_t term, const struct term_holder *holder,
                              bool *full_out, struct error *err)
{
    struct term_note note = {.term = term, .wall_ms = clock_wall_ms()};
    char name[DIR_NAME_MAX];
    int fd = -1;
    char *text = note_print(&note, holder != NULL ? term_holder_json(holder) : NULL);
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

/* The lowest term above all that were ever used here or in load_dir: versions of a higher term would hide ours. */
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

/* With follows, only if no term was claimed since `seen` was the newest. */
static tck_status_t claim_from(const struct persistent *p, const struct term_claim *claim, uint64_t *term_out,
                               bool *full_out, struct error *err)
{
    uint64_t term = 0, newest = 0;
    tck_status_t status = newest_in(p->job_fd, &newest, err);
    if (status == TCK_OK && claim->follows && newest != claim->seen) {
        return error_set(err, TCK_ERR_EXIST, "term %" PRIu64 " was claimed meanwhile", newest);
    }
    if (status == TCK_OK) {
        status = lowest_free(p, claim->at_least, &term, err);
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
    if (status != TCK_ERR_NOSPC || newest_in(p->job_fd, &newest, &ignored) != TCK_OK) {
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
    if (!json_u64(json_get(json, "reserved_by"), &note.reserved_by)) {
        note.reserved_by = 0;
    }
    if (!json_bool(json_get(json, "committed"), &note.committed)) {
        note.committed = false;
    }
    if (!json_bool(json_get(json, "ended_well"), &note.ended_well)) {
        note.ended_well = false;
    }
    return note;
}

/* Whether the text is the beginning of the claim's last member. Notes of commits and restores come before it. */
static bool is_cut_holder(const char *text, size_t len)
{
    static const char begin[] = ",\"holder\":{";
    size_t head = len < sizeof(begin) - 1 ? len : sizeof(begin) - 1;
    return strncmp(text, begin, head) == 0 && (len < 2 || strncmp(text + len - 2, "}}", 2) != 0);
}

/* A claim that was cut off: only its beginning reached the disk, or zeros in its place. Notes added later replace the
 * file as a whole, so this one has never had any. */
static bool is_unfinished_claim(uint64_t term, const char *text, size_t len)
{
    char begin[DIR_NAME_MAX];
    size_t zeros = 0;
    snprintf(begin, sizeof(begin), "{\"term\":%" PRIu64 ",\"wall_ms\":", term);
    while (zeros < len && text[zeros] == '\0') {
        zeros++;
    }
    if (zeros == len || strncmp(begin, text, len) == 0) {
        return true;
    }
    size_t head = strlen(begin);
    if (len <= head || strncmp(begin, text, head) != 0) {
        return false;
    }
    size_t digits = head + strspn(text + head, "0123456789");
    return digits == len || is_cut_holder(text + digits, len - digits);
}

/* Reads a term's file; *out is NULL if its claim was cut off. TCK_ERR_PROTO: the file is damaged. */
static tck_status_t note_json(int dir_fd, uint64_t term, json_t **out, struct error *err)
{
    char name[DIR_NAME_MAX], *text;
    size_t len;
    json_t *json = NULL;
    struct error why = {0};
    term_name(term, name);
    tck_status_t status = safe_fs_read(dir_fd, name, TERM_FILE_MAX, &text, &len, err);
    if (status != TCK_OK) {
        return status;
    }
    status = is_unfinished_claim(term, text, len) ? TCK_OK : json_parse(text, len, &json, &why);
    free(text);
    if (status != TCK_OK) {
        return error_set(err, status, "%s: %s", name, why.text);
    }
    *out = json;
    return TCK_OK;
}

static struct term_note note_or_empty(uint64_t term, const json_t *json)
{
    return json != NULL ? note_decode(term, json) : (struct term_note){.term = term};
}

/* TCK_ERR_CORRUPT: the file is damaged, and its content is lost. */
static tck_status_t note_load(int dir_fd, uint64_t term, struct term_note *out, struct error *err)
{
    json_t *json = NULL;
    tck_status_t status = note_json(dir_fd, term, &json, err);
    if (status == TCK_OK) {
        *out = note_or_empty(term, json);
        json_free(json);
    } else if (status == TCK_ERR_PROTO) {
        status = err->code = TCK_ERR_CORRUPT;
    }
    return status;
}

/* The holder is unknown if the claim was cut off or made by a build that did not name its holder. */
static tck_status_t holder_read(const struct persistent *p, uint64_t term, struct held_term *out, bool *reserved_out,
                                struct error *err)
{
    json_t *json = NULL;
    tck_status_t status = note_json(p->job_fd, term, &json, err);
    if (status == TCK_OK) {
        status = term_holder_decode(json == NULL ? NULL : json_get(json, "holder"), &out->holder, err);
    }
    if (status == TCK_OK) {
        struct term_note note = note_or_empty(term, json);
        out->term = term;
        out->wall_ms = note.wall_ms;
        *reserved_out = note.reserved_by != 0;
    }
    json_free(json);
    return status;
}

/* For counting only: a note that is damaged or unreadable is taken as empty. At worst, a poisoned version is then tried
 * once more. */
static tck_status_t note_read(const struct persistent *p, uint64_t term, struct term_note *out, struct error *err)
{
    struct error why = {0};
    tck_status_t status = note_load(p->job_fd, term, out, &why);
    if (status == TCK_ERR_NOMEM) {
        return error_set(err, status, "%s", why.text);
    }
    if (status != TCK_OK) {
        log_warn("the note of term %" PRIu64 " is taken as empty: %s", term, why.text);
        *out = (struct term_note){.term = term};
    }
    return TCK_OK;
}

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
    tck_status_t status = note_json(p->job_fd, term, &json, err);
    if (status == TCK_ERR_PROTO || status == TCK_ERR_NOENT) {
        log_warn("the note of term %" PRIu64 " is started afresh: %s", term, err->text);
        status = TCK_OK;
    }
    if (status == TCK_OK && json != NULL) {
        status = copy_holder(json_get(json, "holder"), &opened.holder, err);
    }
    if (status == TCK_OK) {
        opened.note = note_or_empty(term, json);
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
    char *text = note_print(&open->note, open->holder);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the note of term %" PRIu64, open->note.term);
    }
    term_name(open->note.term, name);
    tck_status_t status = safe_fs_write(p->job_fd, name, text, strlen(text), err);
    free(text);
    return status;
}

tck_status_t persistent_note_holder(struct persistent *p, uint64_t term, const struct term_holder *holder,
                                    struct error *err)
{
    struct open_note open;
    tck_status_t status = note_open(p, term, &open, err);
    if (status != TCK_OK) {
        return status;
    }
    json_free(open.holder);
    open.holder = term_holder_json(holder);
    if (open.holder == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the holder of term %" PRIu64, term);
    }
    return note_replace(p, &open, err);
}

tck_status_t persistent_note_restore(struct persistent *p, uint64_t term, struct version version, struct error *err)
{
    struct open_note open;
    tck_status_t status = note_open(p, term, &open, err);
    if (status != TCK_OK) {
        return status;
    }
    open.note.restored = version;
    return note_replace(p, &open, err);
}

/* Sets `flag` in the open note and consumes it. */
static tck_status_t note_flag(struct persistent *p, struct open_note *open, bool *flag, struct error *err)
{
    if (*flag) {
        json_free(open->holder);
        return TCK_OK;
    }
    *flag = true;
    return note_replace(p, open, err);
}

tck_status_t persistent_note_commit(struct persistent *p, uint64_t term, struct error *err)
{
    struct open_note open;
    tck_status_t status = note_open(p, term, &open, err);
    return status == TCK_OK ? note_flag(p, &open, &open.note.committed, err) : status;
}

tck_status_t persistent_note_end(struct persistent *p, uint64_t term, struct error *err)
{
    struct open_note open;
    tck_status_t status = note_open(p, term, &open, err);
    return status == TCK_OK ? note_flag(p, &open, &open.note.ended_well, err) : status;
}

/* ---- tries ----------------------------------------------------------------------------------------------------- */

/* The terms below this one that have a file, newest first; the caller frees them. */
static tck_status_t terms_below(int dir_fd, uint64_t term, uint64_t **terms_out, size_t *count_out, struct error *err)
{
    struct term_list list;
    tck_status_t status = list_terms(dir_fd, &list, err);
    if (status != TCK_OK) {
        return status;
    }
    size_t above = 0;
    while (above < list.count && list.terms[above] >= term) {
        above++;
    }
    memmove(list.terms, list.terms + above, (list.count - above) * sizeof(*list.terms));
    *terms_out = list.terms;
    *count_out = list.count - above;
    return TCK_OK;
}

tck_status_t persistent_restore_tries(struct persistent *p, uint64_t term, struct version *version_out,
                                      uint32_t *tries_out, struct error *err)
{
    uint64_t *terms = NULL;
    size_t count = 0;
    tck_status_t status = terms_below(p->job_fd, term, &terms, &count, err);
    if (status != TCK_OK) {
        return status;
    }
    uint32_t tries = 0;
    struct version restored = VERSION_NONE;
    for (size_t i = 0; i < count; i++) {
        struct term_note note;
        persistent_moved(p);
        status = note_read(p, terms[i], &note, err);
        if (status != TCK_OK) {
            break;
        }
        if (version_none(note.restored) && !note.committed && !note.ended_well) {
            continue; /* it never got as far as a restore, so it says nothing about any version */
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

/* ---- commits --------------------------------------------------------------------------------------------------- */

/* Finds the newest of these terms (sorted newest first) that has noted a commit, if it is newer than the known one. */
static tck_status_t find_commit(int dir_fd, const uint64_t *terms, size_t count, struct commit_notes *notes,
                                struct error *err)
{
    for (size_t i = 0; i < count && terms[i] > notes->newest; i++) {
        struct term_note note = {0};
        struct error why = {0};
        tck_status_t status = note_load(dir_fd, terms[i], &note, &why);
        if (status == TCK_ERR_NOMEM) {
            return error_set(err, status, "%s", why.text);
        }
        if (status != TCK_OK && notes->unsure.code == TCK_OK) {
            notes->unsure = why;
        }
        if (status == TCK_OK && note.committed) {
            notes->newest = terms[i];
        }
    }
    return TCK_OK;
}

/* Ignores terms up to *forgotten, which is raised to what this directory says. */
static tck_status_t commits_in(int dir_fd, uint64_t term, uint64_t *forgotten, struct commit_notes *notes,
                               struct error *err)
{
    uint64_t *terms = NULL, here = 0;
    size_t count = 0;
    tck_status_t status = forgotten_read(dir_fd, &here, err);
    if (status == TCK_OK) {
        *forgotten = here > *forgotten ? here : *forgotten;
        status = terms_below(dir_fd, term, &terms, &count, err);
    }
    while (count > 0 && terms[count - 1] <= *forgotten) {
        count--;
    }
    if (status == TCK_OK) {
        status = find_commit(dir_fd, terms, count, notes, err);
        free(terms);
    }
    return status;
}

static struct error moved_job(const struct config *config)
{
    struct error why = {0};
    return moved_job_check(config, &why) == TCK_OK ? (struct error){0} : why;
}

tck_status_t persistent_commit_notes(struct persistent *p, uint64_t term, struct commit_notes *out, struct error *err)
{
    struct commit_notes notes = {0};
    uint64_t forgotten = 0, forgotten_there = 0; /* of save_dir, of load_dir */
    tck_status_t status = commits_in(p->job_fd, term, &forgotten, &notes, err);
    forgotten_there = forgotten;
    if (status == TCK_OK && p->load_fd >= 0) {
        status = commits_in(p->load_fd, term, &forgotten_there, &notes, err);
    }
    if (status != TCK_OK) {
        return error_prefix(err, "look for notes of commits");
    }
    if (notes.newest == 0 && forgotten == 0 && notes.unsure.code == TCK_OK) {
        notes.unsure = moved_job(p->config);
    }
    *out = notes;
    return TCK_OK;
}

/* ---- holders --------------------------------------------------------------------------------------------------- */

void term_holders_free(struct term_holders *holders)
{
    for (uint32_t i = 0; i < holders->count; i++) {
        term_holder_free(&holders->terms[i].holder);
    }
    free(holders->terms);
    *holders = (struct term_holders){0};
}

/* Whether the term's file will never name a holder: it is gone, damaged, or not a regular file. A file that may not be
 * read is different: it may name a holder that is alive. */
static bool is_uninformative(const struct persistent *p, uint64_t term, tck_status_t status)
{
    char name[DIR_NAME_MAX];
    struct error ignored = {0};
    uint64_t bytes;
    term_name(term, name);
    return status == TCK_ERR_PROTO || status == TCK_ERR_NOENT ||
           (status == TCK_ERR_DENIED && safe_fs_size(p->job_fd, name, &bytes, &ignored) == TCK_ERR_DENIED);
}

/* From the newest term down to the first that all its ranks have joined. An uninformative note is skipped; one that
 * cannot be read now is an error, since it may name a holder that is alive. */
static tck_status_t read_holders(const struct persistent *p, const struct term_list *list, struct term_holders *out,
                                 struct error *err)
{
    bool joined = false;
    for (size_t i = 0; i < list->count && out->count < HOLDERS_READ && !joined; i++) {
        struct held_term *held = &out->terms[out->count];
        bool reserved = false;
        tck_status_t status = holder_read(p, list->terms[i], held, &reserved, err);
        bool silent = is_uninformative(p, list->terms[i], status);
        if (status != TCK_OK && !silent) {
            return error_prefix(err, "find out who holds the job");
        }
        if (!reserved && list->terms[i] > out->newest) {
            out->newest = list->terms[i];
        }
        if (silent) {
            log_warn("the claimer of term %" PRIu64 " is unknown: %s", list->terms[i], err->text);
        } else if (reserved) {
            term_holder_free(&held->holder);
        } else {
            joined = held->holder.joined;
            out->count++;
        }
    }
    return TCK_OK;
}

tck_status_t persistent_term_holders(struct persistent *p, struct term_holders *out, struct error *err)
{
    struct term_holders holders = {0};
    struct term_list list = {0};
    tck_status_t status = persistent_open_again(p, err);
    if (status == TCK_OK) {
        status = list_terms(p->job_fd, &list, err);
    }
    holders.seen = list.newest;
    holders.newest = list.version;
    holders.terms = status == TCK_OK ? calloc(HOLDERS_READ, sizeof(*holders.terms)) : NULL;
    if (status == TCK_OK && holders.terms == NULL) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for the terms' holders");
    }
    if (status == TCK_OK) {
        status = read_holders(p, &list, &holders, err);
    }
    free(list.terms);
    if (status != TCK_OK) {
        term_holders_free(&holders);
        return error_prefix(err, "%s/%s", p->config->save_dir, p->config->job);
    }
    *out = holders;
    return TCK_OK;
}

/* ---- the newest ------------------------------------------------------------------------------------------------ */

/* Loads `last` first: ranges only move up, so a mixture of two of them is empty or smaller than either. */
static bool is_ours(const struct persistent *p, uint64_t term)
{
    uint64_t last = atomic_load(&p->reserved_last);
    uint64_t first = atomic_load(&p->reserved_first);
    return first != 0 && first <= term && term <= last;
}

/* An uninformative file counts as a claim. TCK_ERR_NOENT: it is gone. */
static tck_status_t is_reserved(const struct persistent *p, uint64_t term, bool *out, struct error *err)
{
    json_t *json = NULL;
    *out = is_ours(p, term);
    if (*out) {
        return TCK_OK;
    }
    tck_status_t status = note_json(p->job_fd, term, &json, err);
    *out = status == TCK_OK && note_or_empty(term, json).reserved_by != 0;
    json_free(json);
    return status != TCK_ERR_NOENT && is_uninformative(p, term, status) ? TCK_OK : status;
}

static tck_status_t newest_claimed(const struct persistent *p, const struct term_list *list, uint64_t *term_out,
                                   struct error *err)
{
    uint64_t newest = list->version;
    bool reserved = true;
    for (size_t i = 0; reserved && i < list->count && list->terms[i] > newest; i++) {
        tck_status_t status = is_reserved(p, list->terms[i], &reserved, err);
        if (status != TCK_OK) {
            *term_out = list->terms[i];
            return status;
        }
        newest = reserved ? newest : list->terms[i];
    }
    *term_out = newest;
    return TCK_OK;
}

/* A file that is gone since the listing was a reservation that was given back: list again. If files still vanish after
 * LISTINGS attempts, the last one counts as a claim. */
tck_status_t persistent_newest_term(struct persistent *p, uint64_t *term_out, struct error *err)
{
    uint64_t newest = 0;
    tck_status_t status = TCK_ERR_NOENT;
    for (int i = 0; i < LISTINGS && status == TCK_ERR_NOENT; i++) {
        struct term_list list;
        status = list_terms(p->job_fd, &list, err);
        if (status != TCK_OK) {
            return status;
        }
        status = newest_claimed(p, &list, &newest, err);
        free(list.terms);
    }
    if (status == TCK_OK || status == TCK_ERR_NOENT) {
        *term_out = newest;
        return TCK_OK;
    }
    return status;
}

/* ---- reserving ------------------------------------------------------------------------------------------------- */

void persistent_set_reserved(struct persistent *p, uint64_t first, uint64_t last)
{
    atomic_store(&p->reserved_last, 0); /* is_ours relies on this order */
    atomic_store(&p->reserved_first, first);
    atomic_store(&p->reserved_last, last);
}

static tck_status_t reserve_one(const struct persistent *p, uint64_t term, uint64_t by, struct error *err)
{
    char name[DIR_NAME_MAX];
    struct term_note note = {.term = term, .wall_ms = clock_wall_ms(), .reserved_by = by};
    char *text = note_print(&note, NULL);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to reserve a term");
    }
    term_name(term, name);
    tck_status_t status = safe_fs_create(p->job_fd, name, text, strlen(text), err);
    free(text);
    failpoint(term, reserved);
    return status;
}

/* A term that is over reserves none: they would be above those of the start that ended it. Terms above the requested
 * ones belong to a reservation whose agent is gone or to a start that went past ours; ours is not extended then, since
 * a reservation must be contiguous. */
tck_status_t persistent_reserve(struct persistent *p, const struct term_reserve *wanted, uint64_t *first_out,
                                uint64_t *last_out, struct error *err)
{
    uint64_t first = wanted->first, newest = 0, term;
    tck_status_t status = lowest_free(p, first, &first, err);
    *first_out = *last_out = 0;
    if (status == TCK_OK) {
        status = persistent_newest_term(p, &newest, err); /* any later claim gets `first` before us */
    }
    if (status != TCK_OK || newest > wanted->by || (wanted->follows && first != wanted->first)) {
        return status;
    }
    uint64_t last = first + (wanted->last - wanted->first);
    for (term = first; status == TCK_OK && term <= last; term++) {
        status = reserve_one(p, term, wanted->by, err);
        if (status == TCK_OK) {
            *first_out = first;
            *last_out = term;
        }
    }
    return *first_out != 0 || status == TCK_ERR_EXIST ? TCK_OK : error_prefix(err, "reserve a term");
}

tck_status_t persistent_unreserve(struct persistent *p, uint64_t first, uint64_t last, struct error *err)
{
    tck_status_t status = TCK_OK;
    for (uint64_t term = last; status == TCK_OK && term >= first; term--) {
        json_t *json = NULL;
        char name[DIR_NAME_MAX];
        term_name(term, name);
        status = note_json(p->job_fd, term, &json, err);
        if (status == TCK_OK && note_or_empty(term, json).reserved_by != 0) {
            status = safe_fs_unlink(p->job_fd, name, err);
        }
        json_free(json);
    }
    return status == TCK_OK ? safe_fs_sync(p->job_fd, err) : error_prefix(err, "release reserved terms");
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

/* ---- history --------------------------------------------------------------------------------------------------- */

tck_status_t term_restored(const struct persistent *p, uint64_t term, struct version *out, struct error *err)
{
    struct term_note note = {0};
    tck_status_t status = note_load(p->job_fd, term, &note, err);
    if (status == TCK_OK) {
        *out = note.restored;
    }
    return status;
}

/* ---- forgetting ------------------------------------------------------------------------------------------------ */

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
