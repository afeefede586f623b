/* SPDX-License-Identifier: Apache-2.0
 * Term files: claiming a term by O_EXCL, and the notes in it from which the poison counter is made. Claims take no
 * notice of a file's content, so one that a crash left empty still counts. */
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
#define HOLDERS_READ  64         /* terms that were claimed and never joined, one after the other */
#define CLAIM_TRIES   10000      /* others that claim at the same moment; each try is lost to another one that won */

struct term_note {
    uint64_t term, wall_ms;
    struct version restored; /* VERSION_NONE: nothing */
    bool committed, ended_well;
};

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

/* That it was claimed here, so that another directory in its place is told from this one. */
static void saw_claim(struct persistent *p, uint64_t term)
{
    uint64_t newest = atomic_load(&p->claim_seen);
    while (term > newest && !atomic_compare_exchange_weak(&p->claim_seen, &newest, term)) {
    }
}

tck_status_t persistent_newest_term(struct persistent *p, uint64_t *term_out, struct error *err)
{
    return newest_in(p->job_fd, term_out, err);
}

/* Takes over holder, NULL for none. It comes last: is_unfinished_claim counts on that. */
static char *note_print(const struct term_note *note, json_t *holder)
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

/* TCK_ERR_EXIST if another has it. The file's name is the claim, so on a full disk an empty one does; what else fails
 * after it was made leaves the term taken and unused. */
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
    tck_status_t status = beneath_open(p->job_fd, name, O_WRONLY | O_CREAT | O_EXCL, &fd, err);
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
        status = beneath_sync(p->job_fd, err);
    }
    if (status != TCK_OK) {
        error_prefix(err, "%s/%s/%s", p->config->save_dir, p->config->job, name);
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

/* With follows, if nobody has claimed a term since `seen` was the newest. */
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

/* What fills the storage may be what drains of older terms left there: a term that is formed sweeps that away, and to
 * be formed it must be claimed. Should one of those terms still live, it loses a drain and tries again. */
static void make_room(struct persistent *p, uint64_t newest)
{
    struct error err = {0};
    log_warn("%s/%s: there is no room to claim a term: what unfinished drains have left is removed",
             p->config->save_dir, p->config->job);
    if (persistent_sweep(p, newest, VERSION_NONE, &err) != TCK_OK) {
        log_warn("it cannot be removed: %s", err.text);
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
    again.seen = newest; /* the attempt may have left an empty file, which is a term that nobody has */
    return claim_from(p, &again, term_out, &full, err);
}

/* Made while there is room, so that versions can be un-published when there is none. */
static void make_trash(const struct persistent *p)
{
    struct error err = {0};
    int trash_fd = -1;
    if (beneath_make_dir(p->job_fd, TRASH_DIR, &trash_fd, &err) == TCK_OK) {
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
        status = beneath_size(p->job_fd, name, &bytes, err);
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
    if (!json_bool(json_get(json, "committed"), &note.committed)) {
        note.committed = false;
    }
    if (!json_bool(json_get(json, "ended_well"), &note.ended_well)) {
        note.ended_well = false;
    }
    return note;
}

/* The beginning of the claim's last member. What notes say of commits and restores comes before it. */
static bool is_cut_holder(const char *text, size_t len)
{
    static const char begin[] = ",\"holder\":{";
    size_t head = len < sizeof(begin) - 1 ? len : sizeof(begin) - 1;
    return strncmp(text, begin, head) == 0 && (len < 2 || strncmp(text + len - 2, "}}", 2) != 0);
}

/* A claim that was cut off, of which only a beginning came to the disk, or zeros in its place. Notes are replaced as a
 * whole afterwards, so this one has never had any. */
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

/* What a term's file says; *out is NULL if its claim was cut off. TCK_ERR_PROTO: the file is damaged. */
static tck_status_t note_json(int dir_fd, uint64_t term, json_t **out, struct error *err)
{
    char name[DIR_NAME_MAX], *text;
    size_t len;
    json_t *json = NULL;
    struct error why = {0};
    term_name(term, name);
    tck_status_t status = beneath_read(dir_fd, name, TERM_FILE_MAX, &text, &len, err);
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

/* TCK_ERR_CORRUPT: it is damaged, and what it said is lost. */
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

/* Nothing is known of the holder of a claim that was cut off, or of one made by a build that did not name its holder.
 * wall_ms_out: when it was claimed. */
static tck_status_t holder_read(const struct persistent *p, uint64_t term, struct term_holder *out,
                                uint64_t *wall_ms_out, struct error *err)
{
    json_t *json = NULL;
    tck_status_t status = note_json(p->job_fd, term, &json, err);
    if (status == TCK_OK) {
        status = term_holder_decode(json == NULL ? NULL : json_get(json, "holder"), out, err);
    }
    if (status == TCK_OK) {
        *wall_ms_out = note_or_empty(term, json).wall_ms;
    }
    json_free(json);
    return status;
}

/* For what is only counted: a note that is damaged or cannot be read is taken as empty, and what is missing then only
 * makes a poisoned version be tried again. */
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

/* A note to add to, and what it says of its holder. */
struct open_note {
    struct term_note note;
    json_t *holder; /* NULL: nothing; note_replace frees it */
};

/* The caller frees *out, which is NULL if nothing is known of the holder. */
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

/* One that cannot be read now is not overwritten, because what it says would be lost. Its file is read once: a second
 * reading might fail, and the holder would be lost. */
static tck_status_t note_open(const struct persistent *p, uint64_t term, struct open_note *out, struct error *err)
{
    json_t *json = NULL;
    struct open_note opened = {0};
    tck_status_t status = note_json(p->job_fd, term, &json, err);
    if (status == TCK_ERR_PROTO || status == TCK_ERR_NOENT) {
        log_warn("the note of term %" PRIu64 " is written from its beginning: %s", term, err->text);
        status = TCK_OK;
    }
    if (status == TCK_OK && json != NULL) {
        status = copy_holder(json_get(json, "holder"), &opened.holder, err);
    }
    if (status == TCK_OK) {
        opened.note = note_or_empty(term, json);
        *out = opened;
    }
    json_free(json);
    return status;
}

/* Ends with the open note. */
static tck_status_t note_replace(const struct persistent *p, const struct open_note *open, struct error *err)
{
    char name[DIR_NAME_MAX];
    char *text = note_print(&open->note, open->holder);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the note of term %" PRIu64, open->note.term);
    }
    term_name(open->note.term, name);
    tck_status_t status = beneath_write(p->job_fd, name, text, strlen(text), err);
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

/* Sets `flag` in the open note, and ends with it. */
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

static int compare_descending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : x < y;
}

/* Claimed terms below this one, newest first; the caller frees. */
static tck_status_t terms_below(int dir_fd, uint64_t term, uint64_t **terms_out, size_t *count_out, struct error *err)
{
    struct names names;
    tck_status_t status = beneath_list(dir_fd, &names, err);
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

/* ---- commits --------------------------------------------------------------------------------------------------- */

/* The newest one of these terms that has noted a commit, if it is newer than what is known. */
static tck_status_t look_for_commit(int dir_fd, const uint64_t *terms, size_t count, struct commit_notes *notes,
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

static tck_status_t commits_in(int dir_fd, uint64_t term, struct commit_notes *notes, struct error *err)
{
    uint64_t *terms = NULL;
    size_t count = 0;
    tck_status_t status = terms_below(dir_fd, term, &terms, &count, err);
    if (status == TCK_OK) {
        status = look_for_commit(dir_fd, terms, count, notes, err);
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
    uint64_t forgotten = 0;
    tck_status_t status = forgotten_read(p->job_fd, &forgotten, err);
    notes.newest = forgotten; /* older ones are not looked at */
    if (status == TCK_OK) {
        status = commits_in(p->job_fd, term, &notes, err);
    }
    if (status == TCK_OK && p->load_fd >= 0) {
        status = commits_in(p->load_fd, term, &notes, err);
    }
    if (status != TCK_OK) {
        return error_prefix(err, "look for notes of commits");
    }
    notes.newest = notes.newest > forgotten ? notes.newest : 0;
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

/* Whether the term's file tells nothing, now and later: it is gone, damaged, or something else than a file is in its
 * place. A file without rights tells nothing now, but it may name a holder that is alive. */
static bool tells_nothing(const struct persistent *p, uint64_t term, tck_status_t status)
{
    char name[DIR_NAME_MAX];
    struct error ignored = {0};
    uint64_t bytes;
    term_name(term, name);
    return status == TCK_ERR_PROTO || status == TCK_ERR_NOENT ||
           (status == TCK_ERR_DENIED && beneath_size(p->job_fd, name, &bytes, &ignored) == TCK_ERR_DENIED);
}

/* From the newest down to the first that all its ranks have joined. A note that tells nothing names nobody; one that
 * cannot be read now is an error, since it may name a holder that is alive. */
static tck_status_t read_holders(const struct persistent *p, const uint64_t *terms, size_t count,
                                 struct term_holders *out, struct error *err)
{
    bool joined = false;
    for (size_t i = 0; i < count && i < HOLDERS_READ && !joined; i++) {
        struct held_term *held = &out->terms[out->count];
        tck_status_t status = holder_read(p, terms[i], &held->holder, &held->wall_ms, err);
        if (tells_nothing(p, terms[i], status)) {
            log_warn("who has claimed term %" PRIu64 " is not known: %s", terms[i], err->text);
            continue;
        }
        if (status != TCK_OK) {
            return error_prefix(err, "who holds the job");
        }
        held->term = terms[i];
        joined = held->holder.joined;
        out->count++;
    }
    return TCK_OK;
}

tck_status_t persistent_term_holders(struct persistent *p, struct term_holders *out, struct error *err)
{
    struct term_holders holders = {0};
    uint64_t *terms = NULL;
    size_t count = 0;
    tck_status_t status = persistent_open_again(p, err);
    /* First: what is claimed between the two listings is then among the terms, and a claim that follows `newest` fails.
     * The other way round it would be followed without a question to its holder. */
    if (status == TCK_OK) {
        status = newest_in(p->job_fd, &holders.newest, err);
    }
    if (status == TCK_OK) {
        status = terms_below(p->job_fd, UINT64_MAX, &terms, &count, err);
    }
    holders.terms = status == TCK_OK ? calloc(HOLDERS_READ, sizeof(*holders.terms)) : NULL;
    if (status == TCK_OK && holders.terms == NULL) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for the terms' holders");
    }
    if (status == TCK_OK) {
        status = read_holders(p, terms, count, &holders, err);
    }
    free(terms);
    if (status != TCK_OK) {
        term_holders_free(&holders);
        return error_prefix(err, "%s/%s", p->config->save_dir, p->config->job);
    }
    *out = holders;
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
