/* SPDX-License-Identifier: Apache-2.0
 * What a term's file says: who holds the term, and what became of it. */
#ifndef TCK_TIERS_TERM_NOTE_H
#define TCK_TIERS_TERM_NOTE_H

#include "base/json.h"
#include "base/version.h"
#include "tiers/folder.h"
#include "tiers/names.h"
#include "tiers/term_holder.h"

struct term_note {
    uint64_t term, wall_ms;
    uint64_t reserved_by;    /* the term that has reserved this one for its successor; 0: claimed */
    struct version restored; /* VERSION_NONE: nothing */
    bool committed, ended_well;
    uint64_t claim_id; /* in a store of objects: makes each attempt's value its own; 0: none */
};

/* A term in a listing of its job's folder. */
struct term_listed {
    uint64_t term;
    unsigned objects; /* in a store of objects: what is noted of it in objects of their own, 1u << enum term_object */
};

/* The text of a term's file; NULL if out of memory, else the caller frees it. Takes ownership of holder (NULL: none),
 * which is written last. */
char *term_note_print(const struct term_note *note, json_t *holder);
/* Reads a term's file; *out is NULL if its claim was cut off. TCK_ERR_PROTO: the file is damaged. */
must_check tck_status_t term_note_read_json(const struct folder *job, uint64_t term, json_t **out, struct error *err);
/* json NULL: an empty note. */
struct term_note term_note_decode(uint64_t term, const json_t *json);
/* The same decoded, and who holds the term (NULL: not wanted; freed with term_holder_free), with all that was noted in
 * objects of their own. */
must_check tck_status_t term_note_read_all(const struct folder *job, uint64_t term, struct term_note *out,
                                           struct term_holder *holder_out, struct error *err);
/* The same of a term that was just listed: as it was then, without another listing. */
must_check tck_status_t term_note_read_listed(const struct folder *job, const struct term_listed *listed,
                                              struct term_note *out, struct term_holder *holder_out, struct error *err);
/* TCK_ERR_CORRUPT: the file is damaged, and its content is lost. */
must_check tck_status_t term_note_read(const struct folder *job, uint64_t term, struct term_note *out,
                                       struct error *err);
/* What became of a term that was just listed: restored, committed, ended_well alone. In a store of objects a term of
 * which none of these is noted costs no request. */
must_check tck_status_t term_note_read_outcome(const struct folder *job, const struct term_listed *listed,
                                               struct term_note *out, struct error *err);
/* Whether the term's file, which was read with this status, will never name a holder: it is gone, damaged, or not a
 * regular file. A file that may not be read is different: it may name a holder that is alive. */
bool term_note_has_no_holder(const struct folder *job, uint64_t term, tck_status_t status);

#endif
