/* SPDX-License-Identifier: Apache-2.0
 * The commits that the terms of a directory have noted. */
#include "tiers/commit_notes.h"

#include "tiers/forgotten.h"
#include "tiers/term_list.h"
#include "tiers/term_note.h"

#include <stdlib.h>

/* Finds the newest of these terms (sorted newest first) that has noted a commit, if it is newer than the known one. */
static tck_status_t find_commit(const struct folder *job, const struct term_listed *terms, size_t count,
                                struct commit_notes *notes, struct error *err)
{
    for (size_t i = 0; i < count && terms[i].term > notes->newest; i++) {
        struct term_note note = {0};
        struct error why = {0};
        tck_status_t status = term_note_read_outcome(job, &terms[i], &note, &why);
        if (status == TCK_ERR_NOMEM) {
            return error_set(err, status, "%s", why.text);
        }
        if (status != TCK_OK && notes->unsure.code == TCK_OK) {
            notes->unsure = why;
        }
        if (status == TCK_OK && note.committed) {
            notes->newest = terms[i].term;
        }
    }
    return TCK_OK;
}

tck_status_t commit_notes_read(const struct folder *job, uint64_t term, uint64_t *forgotten, struct commit_notes *notes,
                               struct error *err)
{
    struct term_listed *terms = NULL;
    uint64_t here = 0;
    size_t count = 0;
    tck_status_t status = forgotten_read(job, &here, err);
    if (status == TCK_OK) {
        *forgotten = here > *forgotten ? here : *forgotten;
        status = term_list_below(job, term, &terms, &count, err);
    }
    while (count > 0 && terms[count - 1].term <= *forgotten) {
        count--;
    }
    if (status == TCK_OK) {
        status = find_commit(job, terms, count, notes, err);
        free(terms);
    }
    return status;
}
