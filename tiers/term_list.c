/* SPDX-License-Identifier: Apache-2.0
 * The term files of a directory, as one listing shows them. */
#include "tiers/term_list.h"

#include "base/log.h"
#include "tiers/persistent_impl.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int compare_descending(const void *a, const void *b)
{
    uint64_t x = ((const struct term_listed *)a)->term, y = ((const struct term_listed *)b)->term;
    return x > y ? -1 : x < y;
}

/* What is noted of terms in objects of their own; returns the newest such term. Those without a file are no terms. */
static uint64_t add_objects(const struct names *names, struct term_list *list)
{
    uint64_t noted = 0, term;
    enum term_object what;
    for (size_t i = 0; i < names->count; i++) {
        if (!term_object_parse(names->names[i], &term, &what)) {
            continue;
        }
        const struct term_listed key = {.term = term};
        struct term_listed *listed = bsearch(&key, list->terms, list->count, sizeof(key), compare_descending);
        if (listed != NULL) {
            listed->objects |= 1u << what;
        }
        noted = term > noted ? term : noted;
    }
    return noted;
}

static void sort_names(const struct names *names, struct term_list *list)
{
    for (size_t i = 0; i < names->count; i++) {
        struct version version;
        if (term_name_parse(names->names[i], &list->terms[list->count].term)) {
            list->count++;
        } else if (version_dir_parse(names->names[i], &version) && version.term > list->version) {
            list->version = version.term;
        }
    }
    qsort(list->terms, list->count, sizeof(*list->terms), compare_descending);
    uint64_t noted = add_objects(names, list);
    list->newest = list->count > 0 && list->terms[0].term > list->version ? list->terms[0].term : list->version;
    list->newest = noted > list->newest ? noted : list->newest; /* whose notes would be taken for the next claimer's */
}

tck_status_t term_list_read(const struct folder *job, struct term_list *out, struct error *err)
{
    struct names names;
    struct term_list list = {0};
    tck_status_t status = folder_list(job, &names, err);
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

tck_status_t term_list_newest(const struct folder *job, uint64_t *term_out, struct error *err)
{
    struct term_list list;
    tck_status_t status = term_list_read(job, &list, err);
    if (status == TCK_OK) {
        *term_out = list.newest;
        free(list.terms);
    }
    return status;
}

tck_status_t term_list_below(const struct folder *job, uint64_t term, struct term_listed **terms_out, size_t *count_out,
                             struct error *err)
{
    struct term_list list;
    tck_status_t status = term_list_read(job, &list, err);
    if (status != TCK_OK) {
        return status;
    }
    size_t above = 0;
    while (above < list.count && list.terms[above].term >= term) {
        above++;
    }
    memmove(list.terms, list.terms + above, (list.count - above) * sizeof(*list.terms));
    *terms_out = list.terms;
    *count_out = list.count - above;
    return TCK_OK;
}

/* The newest term in the second place. It owns all its data, since the call may be abandoned. */
struct look {
    uint64_t term;
    tck_status_t status;
    struct error error;
};

static void look(void *job, const struct folder *second)
{
    struct look *l = job;
    l->status = term_list_newest(second, &l->term, &l->error);
}

static tck_status_t look_in_second(struct persistent *p, uint64_t *term_out, struct error *err)
{
    struct look *l = calloc(1, sizeof(*l));
    if (l == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the list of terms");
    }
    const struct second_work work = {.work = look, .drop = free, .job = l};
    tck_status_t status = second_do(p, &work, err);
    if (status != TCK_OK) {
        return error_prefix(err, "%.200s/%s", config_second_dir(p->config), p->config->job);
    }
    status = l->status;
    if (status == TCK_OK) {
        *term_out = l->term;
    } else {
        *err = l->error;
    }
    free(l);
    return status;
}

/* Versions of a higher term in the second place would hide ours. An archive that cannot be reached is no obstacle once
 * save_dir has a term: what is copied into it is of such terms. */
static tck_status_t newest_in_second(struct persistent *p, bool first, uint64_t *term_out, struct error *err)
{
    struct error why = {0};
    tck_status_t status = second_find(p, &why);
    if (status == TCK_OK && folder_is(second_place(p))) {
        status = look_in_second(p, term_out, &why);
    }
    if (status != TCK_OK && (first || p->config->archive_dir[0] == '\0')) {
        *err = why;
        return status;
    }
    if (status != TCK_OK) {
        log_warn("terms are counted from save_dir alone: %s", why.text);
    }
    return TCK_OK;
}

tck_status_t term_lowest_free(struct persistent *p, uint64_t at_least, uint64_t *term_out, struct error *err)
{
    uint64_t newest = 0, loaded = 0;
    tck_status_t status = term_list_newest(&p->job, &newest, err);
    if (status == TCK_OK) {
        status = newest_in_second(p, newest == 0, &loaded, err);
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
