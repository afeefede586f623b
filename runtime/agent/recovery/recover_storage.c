/* SPDX-License-Identifier: Apache-2.0
 * Reads the contents of storage for a recovery: which versions are published, which are damaged or cannot be read, and
 * which terms have noted a commit. Anything that could not be read is reported as such and never omitted. */
#include "agent/recovery/recover_internal.h"

#include "agent/storage/health.h"
#include "agent/storage/storage_ops.h"
#include "base/failpoint.h"
#include "recovery/catalog.h"
#include "tiers/persistent.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- in a pool thread ------------------------------------------------------------------------------------------ */

static bool add_unfit(struct stored_look *look, struct version version, enum standing standing, const char *why)
{
    char *text = strdup(why);
    if (text != NULL) {
        look->unfit[look->view.unfit_count++] =
            (struct unfit_version){.version = version, .standing = standing, .why = text};
    }
    return text != NULL;
}

/* Takes over the candidate's list of shards. */
static void add_good(struct stored_look *look, struct candidate *c)
{
    look->stored[look->view.stored_count++] = (struct stored_version){
        .version = c->which.version, .layout = c->layout, .shard_count = c->shard_count, .shards = c->shards};
    c->shards = NULL;
}

static bool add(struct stored_look *look, struct candidate *c)
{
    if (c->standing != STANDING_GOOD) {
        return add_unfit(look, c->which.version, c->standing, c->why);
    }
    add_good(look, c);
    return true;
}

static void take_survey(struct stored_look *look, struct survey *survey)
{
    look->stored = calloc(survey->count + 1, sizeof(*look->stored));
    look->unfit = calloc(survey->count + 1, sizeof(*look->unfit));
    bool all = look->stored != NULL && look->unfit != NULL;
    for (size_t i = 0; all && i < survey->count; i++) {
        all = add(look, &survey->candidates[i]);
    }
    look->view.complete = all;
    look->view.stored = look->stored;
    look->view.unfit = look->unfit;
    if (!all) {
        look->view.why = "out of memory";
    }
}

/* The archive could not be listed: whether something else than save_dir's newest version, which is good, is to be
 * restored. A step that is asked for may be in the archive alone; or it is in both, and the archive's is of a newer
 * term, so of another line of history than save_dir's. If save_dir's newest version is poisoned, the archive may have
 * the next one before it. */
static bool may_be_missed(const struct survey *survey, uint64_t step, struct version poisoned)
{
    return survey->count == 0 || step != TCK_NEWEST || version_is(survey->candidates[0].which.version, poisoned);
}

/* Finds a version after whose restore the job failed repeatedly, so that it is not restored forever. */
static void find_poisoned(const struct recoveries_setup *needs, uint64_t term, struct stored_look *look)
{
    struct version restored;
    struct error err;
    if (persistent_restore_tries(needs->persistent, term, &restored, &look->tries, &err) != TCK_OK) {
        log_warn("cannot read how often the last version was restored: %s", err.text);
    } else if (look->tries >= needs->config->max_restore_tries) {
        look->view.give_up = restored;
    }
}

static void find_catalogued(struct catalog *catalog, uint64_t term, struct stored_look *look)
{
    struct version newest;
    struct error ignored; /* the catalog is a hint */
    if (catalog != NULL && catalog_newest_commit(catalog, term, &newest, &ignored) == TCK_OK &&
        version_cmp(newest, look->view.noted) > 0) {
        look->view.noted = newest;
    }
}

static void find_commits(const struct recoveries_setup *needs, uint64_t term, struct stored_look *look)
{
    struct commit_notes notes;
    tck_status_t status = persistent_commit_notes(needs->persistent, term, &notes, &look->unsure);
    if (status == TCK_OK) {
        look->view.noted = (struct version){.term = notes.newest};
        look->unsure = notes.unsure;
    }
    if (look->unsure.code != TCK_OK) {
        look->view.unsure = look->unsure.text;
        look->view.unsure_passes = look->unsure.code != TCK_ERR_CORRUPT && look->unsure.code != TCK_ERR_EXIST;
    }
    find_catalogued(needs->catalog, term, look);
}

#define LISTING "a listing"

/* One listing. It owns all its data: the recovery may be over before storage answers. */
struct listing {
    struct storage_op storage;
    const struct recoveries_setup *needs;
    struct recover *r;   /* NULL: it is over, or continues without this listing, because that hangs */
    uint64_t term, step; /* that is to be restored */
    struct survey_range range;
    struct stored_look look;
};

static void list_versions(struct listing *l)
{
    struct stored_look *look = &l->look;
    struct survey survey = {0};
    if (persistent_survey_newest(l->needs->persistent, l->range, &survey, &look->list_err) != TCK_OK) {
        look->view.why = look->list_err.text;
        return;
    }
    look->view.forgotten = survey.forgotten;
    look->view.deeper = survey.deeper;
    take_survey(look, &survey);
    if (look->view.complete && survey.unread.code != TCK_OK) {
        bool missed = may_be_missed(&survey, l->step, look->view.give_up);
        look->view.complete = !missed;
        look->view.newest_only = !missed;
        look->list_err = survey.unread;
        look->view.why = look->list_err.text;
    }
    survey_free(&survey);
}

static void look_at_storage(void *ctx)
{
    struct listing *l = ctx;
    failpoint(recovery, listing);
    progress_begin(&l->storage.progress);
    find_poisoned(l->needs, l->term, &l->look);
    find_commits(l->needs, l->term, &l->look);
    list_versions(l);
    progress_end(&l->storage.progress);
}

/* ---- in the loop's thread -------------------------------------------------------------------------------------- */

static void free_text(const char *text)
{
    void *owned;
    memcpy(&owned, &text, sizeof(owned)); /* we own it; the planner's view is const */
    free(owned);
}

static void free_look(struct stored_look *look)
{
    for (uint32_t i = 0; i < look->view.stored_count; i++) {
        void *shards;
        memcpy(&shards, &look->stored[i].shards, sizeof(shards));
        free(shards);
    }
    for (uint32_t i = 0; i < look->view.unfit_count; i++) {
        free_text(look->unfit[i].why);
    }
    free(look->stored);
    free(look->unfit);
    *look = (struct stored_look){0};
}

void recover_free_look(struct recover *r)
{
    free_look(&r->look);
}

/* Texts of the view may point into the look itself. */
static void move_look(struct stored_look *to, struct stored_look *from)
{
    *to = *from;
    if (from->view.why == from->list_err.text) {
        to->view.why = to->list_err.text;
    }
    if (from->view.unsure == from->unsure.text) {
        to->view.unsure = to->unsure.text;
    }
    *from = (struct stored_look){0};
}

static void log_poisoned(const struct recover *r)
{
    struct version v = r->look.view.give_up;
    if (!version_none(v) && r->step == TCK_NEWEST) {
        log_error("version %" PRIu64 ".%" PRIu64
                  " was restored %u times and nothing was committed after it: using the version before it",
                  v.term, v.step, r->look.tries);
    }
}

/* Logged once for each range: storage may be listed several times until all of it can be read. */
static void log_unfit(struct recover *r)
{
    static const char *const texts[] = {[STANDING_GOOD] = "is good",
                                        [STANDING_UNREADABLE] = "cannot be read now",
                                        [STANDING_FOREIGN] = "is of another format",
                                        [STANDING_DAMAGED] = "is damaged"};
    const struct storage_view *view = &r->look.view;
    bool first = r->logged_newest == 0;
    if (r->logged_newest == r->list_range.newest) {
        return;
    }
    r->logged_newest = r->list_range.newest;
    if (!view->complete) {
        log_error("storage cannot be listed: %s", view->why);
    }
    if (view->unsure != NULL && first) {
        log_warn("cannot determine if an older term has committed: %s", view->unsure);
    }
    for (uint32_t i = 0; i < view->unfit_count; i++) {
        const struct unfit_version *u = &view->unfit[i];
        log_warn("version %" PRIu64 ".%" PRIu64 " on storage %s: %s", u->version.term, u->version.step,
                 texts[u->standing], u->why);
    }
    if (first) {
        log_poisoned(r);
    }
}

static void take_listing(struct recover *r)
{
    r->listing = NULL;
    r->listed = true;
    if (r->machine != NULL) {
        log_unfit(r);
        recover_step(r, (struct recovery_event){.type = RECOVERY_EVENT_STORED, .storage = &r->look.view});
        r->run(r);
    }
}

static void on_listed(void *ctx, bool canceled)
{
    struct listing *l = ctx;
    struct recover *r = l->r;
    if (r != NULL) {
        r->listing = NULL;
    }
    if (r != NULL && !canceled) {
        move_look(&r->look, &l->look);
    }
    storage_end(&l->storage);
    free_look(&l->look);
    free(l);
    if (r != NULL && !canceled) {
        take_listing(r);
    }
}

/* Memory alone may be sufficient. */
static void on_list_failed(struct recover *r, const struct error *why)
{
    r->look.list_err = *why;
    r->look.view.why = r->look.list_err.text;
    take_listing(r);
}

static void listing_give_up(void *ctx, const struct error *why)
{
    struct listing *l = ctx;
    struct recover *r = l->r;
    health_storage_failed(l->needs->health, 0, why);
    l->r = NULL;
    if (r != NULL) {
        on_list_failed(r, why);
    }
}

void recover_drop_listing(struct recover *r)
{
    if (r->listing != NULL) {
        r->listing->r = NULL;
        r->listing = NULL;
    }
}

static bool start_listing(struct listing *l, struct recover *r)
{
    const struct recoveries_setup *needs = &r->all->needs;
    *l = (struct listing){.needs = needs, .r = r, .term = r->tc->world.term, .step = r->step, .range = r->list_range};
    l->storage = (struct storage_op){.what = LISTING, .give_up = listing_give_up, .ctx = l};
    storage_begin(&l->storage, needs->storage_ops, NULL);
    if (pool_submit(needs->io, look_at_storage, on_listed, l) != TCK_OK) {
        storage_end(&l->storage);
        return false;
    }
    return true;
}

void recover_list_storage(struct recover *r, struct survey_range range)
{
    struct error err;
    if (r->listing != NULL) {
        return; /* the listing is still under way */
    }
    recover_free_look(r);
    r->list_range = range;
    if (storage_hangs(r->all->needs.storage_ops, LISTING, &err)) {
        on_list_failed(r, &err);
        return;
    }
    struct listing *l = calloc(1, sizeof(*l));
    if (l == NULL || !start_listing(l, r)) {
        free(l);
        (void)error_set(&err, TCK_ERR_NOMEM, "out of memory");
        on_list_failed(r, &err);
        return;
    }
    r->listing = l;
}
