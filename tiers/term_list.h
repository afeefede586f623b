/* SPDX-License-Identifier: Apache-2.0
 * The term files of a job. */
#ifndef TCK_TIERS_TERM_LIST_H
#define TCK_TIERS_TERM_LIST_H

#include "tiers/persistent.h"
#include "tiers/term_note.h"

/* The terms found in one listing of the job's folder. */
struct term_list {
    uint64_t newest;  /* claimed or reserved, or of a version that was put there without its term file; 0: none */
    uint64_t version; /* of the newest version */
    size_t count;
    struct term_listed *terms; /* those that have a file, newest first */
};

/* The caller frees the terms. */
must_check tck_status_t term_list_read(const struct folder *job, struct term_list *out, struct error *err);
/* term_list.newest alone. */
must_check tck_status_t term_list_newest(const struct folder *job, uint64_t *term_out, struct error *err);
/* The terms below this one that have a file, newest first; the caller frees them. */
must_check tck_status_t term_list_below(const struct folder *job, uint64_t term, struct term_listed **terms_out,
                                        size_t *count_out, struct error *err);
/* The lowest term, at_least or above, that is above all that were ever used in save_dir, load_dir or archive_dir. If
 * archive_dir cannot be read, save_dir decides alone, unless it has no term. */
must_check tck_status_t term_lowest_free(struct persistent *p, uint64_t at_least, uint64_t *term_out,
                                         struct error *err);

#endif
