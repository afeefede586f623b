/* SPDX-License-Identifier: Apache-2.0
 * What the notes of earlier terms say: commits, restores that led nowhere, and who holds the job. */
#include "tiers/persistent_impl.h"
#include "tiers/term_list.h"

#include "base/log.h"
#include "tiers/commit_notes.h"
#include "tiers/moved_job.h"
#include <inttypes.h>
#include <stdlib.h>

#define HOLDERS_READ 64 /* consecutive terms that were claimed but never joined */

/* For counting only: a note that is damaged or unreadable is taken as empty. At worst, a poisoned version is then tried
 * once more. */
static tck_status_t note_read(const struct persistent *p, const struct term_listed *listed, struct term_note *out,
                              struct error *err)
{
    struct error why = {0};
    tck_status_t status = term_note_read_outcome(&p->job, listed, out, &why);
    if (status == TCK_ERR_NOMEM) {
        return error_set(err, status, "%s", why.text);
    }
    if (status != TCK_OK) {
        log_warn("the note of term %" PRIu64 " is taken as empty: %s", listed->term, why.text);
        *out = (struct term_note){.term = listed->term};
    }
    return TCK_OK;
}

tck_status_t persistent_restore_tries(struct persistent *p, uint64_t term, struct version *version_out,
                                      uint32_t *tries_out, struct error *err)
{
    struct term_listed *terms = NULL;
    size_t count = 0;
    tck_status_t status = term_list_below(&p->job, term, &terms, &count, err);
    if (status != TCK_OK) {
        return status;
    }
    uint32_t tries = 0;
    struct version restored = VERSION_NONE;
    for (size_t i = 0; i < count; i++) {
        struct term_note note;
        persistent_moved(p);
        status = note_read(p, &terms[i], &note, err);
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

static struct error moved_job(const struct config *config)
{
    struct error why = {0};
    return moved_job_check(config, &why) == TCK_OK ? (struct error){0} : why;
}

tck_status_t persistent_commit_notes(struct persistent *p, uint64_t term, struct commit_notes *out, struct error *err)
{
    struct commit_notes notes = {0};
    uint64_t forgotten = 0, forgotten_there = 0; /* of save_dir, of load_dir */
    tck_status_t status = commit_notes_read(&p->job, term, &forgotten, &notes, err);
    forgotten_there = forgotten;
    if (status == TCK_OK && p->config->load_dir[0] != '\0' && folder_is(second_place(p))) { /* archives have no terms */
        status = commit_notes_read(second_place(p), term, &forgotten_there, &notes, err);
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

/* The holder is unknown if the claim was cut off or made by a build that did not name its holder. */
static tck_status_t holder_read(const struct persistent *p, const struct term_listed *listed, struct held_term *out,
                                bool *reserved_out, struct error *err)
{
    struct term_note note;
    tck_status_t status = term_note_read_listed(&p->job, listed, &note, &out->holder, err);
    if (status == TCK_OK) {
        out->term = listed->term;
        out->wall_ms = note.wall_ms;
        *reserved_out = note.reserved_by != 0;
    }
    return status;
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
        tck_status_t status = holder_read(p, &list->terms[i], held, &reserved, err);
        bool silent = term_note_has_no_holder(&p->job, list->terms[i].term, status);
        if (status != TCK_OK && !silent) {
            return error_prefix(err, "find out who holds the job");
        }
        if (!reserved && list->terms[i].term > out->newest) {
            out->newest = list->terms[i].term;
        }
        if (silent) {
            log_warn("the claimer of term %" PRIu64 " is unknown: %s", list->terms[i].term, err->text);
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
    tck_status_t status = p->ops->open_again(p, err);
    if (status == TCK_OK) {
        status = term_list_read(&p->job, &list, err);
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

tck_status_t term_restored(const struct persistent *p, uint64_t term, struct version *out, struct error *err)
{
    struct term_note note = {0};
    tck_status_t status = term_note_read(&p->job, term, &note, err);
    if (status == TCK_OK) {
        *out = note.restored;
    }
    return status;
}
