/* SPDX-License-Identifier: Apache-2.0
 * Terms that are reserved for a restart while storage is away (core/reserve.h): they end no term until they are
 * claimed. */
#include "tiers/persistent_impl.h"
#include "tiers/term_list.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include <stdlib.h>
#include <string.h>

#define LISTINGS 8

/* Loads `last` first: ranges only move up, so a mixture of two of them is empty or smaller than either. */
static bool is_ours(const struct persistent *p, uint64_t term)
{
    uint64_t last = atomic_load(&p->reserved_last);
    uint64_t first = atomic_load(&p->reserved_first);
    return first != 0 && first <= term && term <= last;
}

/* An uninformative file counts as a claim. TCK_ERR_NOENT: it is gone. */
static tck_status_t is_reserved(const struct persistent *p, const struct term_listed *listed, bool *out,
                                struct error *err)
{
    struct term_note note;
    *out = is_ours(p, listed->term);
    if (*out) {
        return TCK_OK;
    }
    tck_status_t status = term_note_read_listed(&p->job, listed, &note, NULL, err);
    *out = status == TCK_OK && note.reserved_by != 0;
    return status != TCK_ERR_NOENT && term_note_has_no_holder(&p->job, listed->term, status) ? TCK_OK : status;
}

static tck_status_t newest_claimed(const struct persistent *p, const struct term_list *list, uint64_t *term_out,
                                   struct error *err)
{
    uint64_t newest = list->version;
    bool reserved = true;
    for (size_t i = 0; reserved && i < list->count && list->terms[i].term > newest; i++) {
        tck_status_t status = is_reserved(p, &list->terms[i], &reserved, err);
        if (status != TCK_OK) {
            *term_out = list->terms[i].term;
            return status;
        }
        newest = reserved ? newest : list->terms[i].term;
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
        status = term_list_read(&p->job, &list, err);
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
    tck_status_t status = p->job.objects != NULL ? random_bytes(&note.claim_id, sizeof(note.claim_id)) : TCK_OK;
    if (status != TCK_OK) {
        return error_set(err, status, "no random bytes");
    }
    char *text = term_note_print(&note, NULL);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to reserve a term");
    }
    term_name(term, name);
    status = folder_create(&p->job, name, text, strlen(text), err);
    free(text);
    failpoint(term, reserved);
    return status;
}

/* True for a term that this one has reserved in an attempt whose outcome was lost, because storage failed in the middle
 * of it. A file that cannot be read counts as another's. */
static bool was_left(const struct persistent *p, uint64_t term, uint64_t by)
{
    struct error ignored;
    struct term_note note;
    return term_note_read_all(&p->job, term, &note, NULL, &ignored) == TCK_OK && note.reserved_by == by;
}

/* Only where the terms continue a reservation may one be there already: any other could have been granted meanwhile. */
static tck_status_t reserve_or_find(const struct persistent *p, uint64_t term, const struct term_reserve *wanted,
                                    struct error *err)
{
    tck_status_t status = reserve_one(p, term, wanted->by, err);
    bool left = status == TCK_ERR_EXIST && wanted->follows && was_left(p, term, wanted->by);
    return left ? folder_sync(&p->job, err) : status;
}

/* A term that has ended reserves none, because they would be above the term that ended it. Terms above the requested
 * ones belong to a reservation whose agent is gone or to a start that went past ours; ours is not extended then, since
 * a reservation must be contiguous. */
tck_status_t persistent_reserve(struct persistent *p, const struct term_reserve *wanted, uint64_t *first_out,
                                uint64_t *last_out, struct error *err)
{
    uint64_t first = wanted->first, newest = 0, term;
    tck_status_t status = term_lowest_free(p, first, &first, err);
    *first_out = *last_out = 0;
    if (status == TCK_OK) {
        status = persistent_newest_term(p, &newest, err); /* any later claim gets `first` before us */
    }
    if (status == TCK_OK && wanted->follows && was_left(p, wanted->first, wanted->by)) {
        first = wanted->first;
    }
    if (status != TCK_OK || newest > wanted->by || (wanted->follows && first != wanted->first)) {
        return status;
    }
    uint64_t last = first + (wanted->last - wanted->first);
    for (term = first; status == TCK_OK && term <= last; term++) {
        status = reserve_or_find(p, term, wanted, err);
        if (status == TCK_OK) {
            *first_out = first;
            *last_out = term;
        }
    }
    return *first_out != 0 || status == TCK_ERR_EXIST ? TCK_OK : error_prefix(err, "reserve a term");
}

/* In a store of objects a request to delete may take effect late, when another start has claimed the term. There the
 * terms stay reserved, which ends no term; later claims go past them. */
tck_status_t persistent_unreserve(struct persistent *p, uint64_t first, uint64_t last, struct error *err)
{
    tck_status_t status = TCK_OK;
    if (p->job.objects != NULL) {
        return TCK_OK;
    }
    for (uint64_t term = last; status == TCK_OK && term >= first; term--) {
        struct term_note note;
        char name[DIR_NAME_MAX];
        term_name(term, name);
        status = term_note_read_all(&p->job, term, &note, NULL, err);
        if (status == TCK_OK && note.reserved_by != 0) {
            status = folder_remove(&p->job, name, err);
        }
    }
    return status == TCK_OK ? folder_sync(&p->job, err) : error_prefix(err, "release reserved terms");
}
