/* SPDX-License-Identifier: Apache-2.0
 * Claiming a term: that its file can be made once only decides between claimers. */
#include "tiers/persistent_impl.h"
#include "tiers/term_list.h"

#include "base/clock.h"
#include "base/log.h"
#include "tiers/forgotten.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CLAIM_TRIES 10000 /* against concurrent claimers: each failed try means that another one has won */

/* Remembers that the term was claimed here, so that another directory in this one's place is recognized. */
static void saw_claim(struct persistent *p, uint64_t term)
{
    uint64_t newest = atomic_load(&p->claim_seen);
    while (term > newest && !atomic_compare_exchange_weak(&p->claim_seen, &newest, term)) {
    }
}

/* TCK_ERR_EXIST if the term is taken. */
static tck_status_t claim_one(const struct persistent *p, uint64_t term, const struct term_holder *holder,
                              bool *full_out, struct error *err)
{
    const struct term_note note = {.term = term, .wall_ms = clock_wall_ms()};
    return p->ops->claim_one(p, &note, holder != NULL ? term_holder_json(holder) : NULL, full_out, err);
}

/* With follows, only if no term was claimed since `seen` was the newest. */
static tck_status_t claim_from(struct persistent *p, const struct term_claim *claim, uint64_t *term_out, bool *full_out,
                               struct error *err)
{
    uint64_t term = 0, newest = 0;
    tck_status_t status = term_lowest_free(p, claim->at_least, &term, err);
    if (status == TCK_OK) { /* listed after the term was chosen: a claim between the two listings is seen here */
        status = term_list_newest(&p->job, &newest, err);
    }
    if (status == TCK_OK && claim->follows && newest != claim->seen) {
        return error_set(err, TCK_ERR_EXIST, "term %" PRIu64 " was claimed meanwhile", newest);
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
    if (p->ops->sweep(p, newest, VERSION_NONE, &err) != TCK_OK) {
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
    if (status != TCK_ERR_NOSPC || term_list_newest(&p->job, &newest, &ignored) != TCK_OK) {
        return status;
    }
    make_room(p, newest);
    again.seen = newest; /* the attempt may have left an empty file: a term without an owner */
    return claim_from(p, &again, term_out, &full, err);
}

tck_status_t persistent_claim(struct persistent *p, const struct term_claim *claim, uint64_t *term_out,
                              struct error *err)
{
    tck_status_t status = claim_or_make_room(p, claim, term_out, err);
    if (status == TCK_OK) {
        saw_claim(p, *term_out);
        p->ops->claimed(p);
    }
    return status;
}

tck_status_t persistent_find_claim(struct persistent *p, uint64_t term, struct error *err)
{
    char name[DIR_NAME_MAX];
    uint64_t bytes;
    term_name(term, name);
    tck_status_t status = p->ops->open_again(p, err);
    if (status == TCK_OK) {
        status = folder_size(&p->job, name, &bytes, err);
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

/* In a store of objects a term may be released, and even claimed again, until its holder is there: then that is not the
 * holder of what is there now. */
static tck_status_t check_still_reserved(const struct persistent *p, uint64_t term, struct error *err)
{
    char name[DIR_NAME_MAX];
    json_t *json = NULL;
    struct error ignored;
    tck_status_t status = p->job.objects != NULL ? term_note_read_json(&p->job, term, &json, err) : TCK_OK;
    bool lost = status == TCK_ERR_NOENT || (json != NULL && term_note_decode(term, json).reserved_by == 0);
    json_free(json);
    if (!lost) {
        return status;
    }
    term_object_name(term, TERM_HOLDER, name);
    if (folder_remove(&p->job, name, &ignored) != TCK_OK) {
        log_warn("%s/%s/%s stays: %s", p->config->save_dir, p->config->job, name, ignored.text);
    }
    return error_set(err, TCK_ERR_EXIST, "term %" PRIu64 " was released meanwhile", term);
}

tck_status_t persistent_claim_reserved(struct persistent *p, uint64_t term, const struct term_holder *holder,
                                       struct error *err)
{
    uint64_t newest = 0;
    tck_status_t status = p->ops->note(p, term, &(struct term_addition){.holder = holder}, err);
    if (status == TCK_OK) {
        status = check_still_reserved(p, term, err);
    }
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
    p->ops->claimed(p);
    return TCK_OK;
}

/* Where two claims of one term could both succeed, the term that is forgotten last could be that of a start, all of
 * whose versions would then not count. */
static tck_status_t check_decided(const struct persistent *p, struct error *err)
{
    return p->unconditional
               ? error_set(err, TCK_ERR_UNSUPPORTED,
                           "the server of save_dir %s ignores the condition \"only if absent\" (If-None-Match) on "
                           "writes, so a start of the job at the same moment could lose all that it saves: make sure "
                           "that none is under way, and repeat this with --force",
                           p->config->save_dir)
               : TCK_OK;
}

tck_status_t persistent_forget(struct persistent *p, bool alone, uint64_t *term_out, struct error *err)
{
    uint64_t term = 0;
    tck_status_t status = alone ? TCK_OK : check_decided(p, err);
    if (status == TCK_OK) { /* before anything changes: with save_dir alone, a lost save_dir would bring it back */
        status = second_find(p, err);
    }
    if (status == TCK_OK) {
        status = persistent_claim_term(p, 1, &term, err);
    }
    if (status == TCK_OK) {
        status = forgotten_write(&p->job, term, clock_wall_ms(), err);
    }
    if (status == TCK_OK && p->config->archive_dir[0] != '\0' && folder_is(second_place(p)) &&
        forgotten_write(second_place(p), term, clock_wall_ms(), err) != TCK_OK) {
        status = error_prefix(err, "save_dir has forgotten what was saved, and archive_dir %s has not: repeat this",
                              p->config->archive_dir);
    }
    if (status == TCK_OK) {
        *term_out = term;
    }
    return status;
}
