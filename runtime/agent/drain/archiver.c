/* SPDX-License-Identifier: Apache-2.0
 * Copies published versions to archive_dir: carries out what core/archive_lead.h and core/archive_share.h decide. */
#include "agent/drain/archiver.h"

#include "agent/drain/archive_calls.h"
#include "agent/drain/archive_files.h"
#include "agent/driver/term_context.h"
#include "agent/replication/peer_rpc.h"
#include "agent/state/wire.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/pool.h"
#include "core/archive_lead.h"
#include "core/archive_share.h"
#include "core/coordinator.h"
#include "tiers/archive.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct archiver {
    struct archiver_setup needs;
    struct archive *archive;
    struct pool *pool;

    struct archive_share share;
    struct archive_files *copying; /* as share.copying */
    struct archive_lead lead;
    struct archive_job *calling; /* as lead.calling */
    bool *reported;              /* of lead */

    struct trouble trouble;
    uint64_t files, bytes, versions, failures;
};

/* 0: it is over. */
static uint64_t present_term(const struct archiver *a)
{
    const struct term_context *tc = *a->needs.term;
    return tc == NULL || tc->closed ? 0 : tc->world.term;
}

static struct archive_now now_of(const struct archiver *a, const struct term_context *tc)
{
    const struct interval *every = &a->needs.config->save_archive_interval;
    return (struct archive_now){.ms = clock_ms(),
                                .wall_ms = clock_wall_ms(),
                                .every_steps = every->steps,
                                .every_ms = (uint64_t)(every->seconds * 1000),
                                .published = coordinator_decision(tc->coordinator)->published};
}

/* ---- trouble ------------------------------------------------------------------------------------------------- */

static void failed(struct archiver *a, const struct error *why)
{
    if (a->trouble.code == TCK_OK) {
        log_warn("the archive is not up to date, which does not affect save_dir: %s", why->text);
    }
    trouble_add(&a->trouble, 0, why, clock_wall_ms());
    a->failures++;
}

static void works(struct archiver *a)
{
    if (a->trouble.code != TCK_OK) {
        log_info("the archive works again");
        a->trouble = (struct trouble){0};
    }
}

/* In a directory that hangs, no call returns by itself. */
static void notice_hang(struct archiver *a)
{
    uint64_t since_ms = a->copying != NULL   ? archive_files_since_ms(a->copying)
                        : a->calling != NULL ? archive_call_since_ms(a->calling)
                                             : 0;
    uint64_t moved_ms = archive_moved_ms(a->archive);
    struct error why;
    since_ms = since_ms != 0 && moved_ms > since_ms ? moved_ms : since_ms;
    if (since_ms != 0 && a->trouble.code == TCK_OK && clock_ms() - since_ms >= a->needs.config->storage_timeout_ms) {
        (void)error_set(&why, TCK_ERR_TIMEDOUT,
                        "archive_dir %s does not answer: a copy has made no progress for %u ms (storage_timeout_ms)",
                        a->needs.config->archive_dir, a->needs.config->storage_timeout_ms);
        failed(a, &why);
    }
}

/* ---- the files of this node ---------------------------------------------------------------------------------- */

static void report(struct archiver *a, bool ok, const char *why)
{
    struct term_context *tc = *a->needs.term;
    struct wire_archived m = {.term = tc->world.term, .version = a->share.wanted, .ok = ok};
    snprintf(m.why, sizeof(m.why), "%s", why);
    struct writer w = writer_new(0);
    wire_archived_encode(&m, &w);
    rpc_send_coordinator(tc, WIRE_ARCHIVED, &w);
    writer_free(&w);
}

static void on_copied(void *ctx, const struct archive_files_result *result)
{
    struct archiver *a = ctx;
    enum archive_end end = result->outcome.code == TCK_OK ? ARCHIVE_DONE : ARCHIVE_FAILED;
    end = result->stopped || result->outcome.code == TCK_ERR_CANCELED ? ARCHIVE_CANCELED : end;
    a->copying = NULL;
    a->files += result->files;
    a->bytes += result->bytes;
    struct archive_share_effects effects = archive_share_ended(&a->share, end, present_term(a), clock_ms());
    if (effects.failed) {
        failed(a, &result->outcome);
    } else if (effects.works) {
        works(a);
    }
    if (effects.report) {
        report(a, !effects.failed, effects.failed ? result->outcome.text : "");
    }
}

static void copy_begin(struct archiver *a, const struct term_context *tc)
{
    a->copying = archive_files_begin(a->archive, a->pool, a->share.wanted, tc, on_copied, a);
    if (a->copying != NULL) {
        archive_share_begun(&a->share);
    } else {
        archive_share_unable(&a->share, clock_ms());
    }
}

static void follow(struct archiver *a, const struct term_context *tc)
{
    switch (archive_share_next(&a->share, clock_ms())) {
    case SHARE_WAIT:
        break;
    case SHARE_STOP:
        archive_files_stop(a->copying);
        break;
    case SHARE_REPORT:
        report(a, true, "");
        break;
    case SHARE_COPY:
        copy_begin(a, tc);
        break;
    }
}

void archiver_want(struct archiver *a, struct version version)
{
    if (a != NULL) {
        archive_share_want(&a->share, version, clock_ms());
    }
}

/* ---- the coordinator's part ---------------------------------------------------------------------------------- */

static void take_choice(struct archiver *a)
{
    persistent_pin(a->needs.persistent, a->lead.chosen);
    archiver_want(a, a->lead.chosen);
    a->needs.announce(*a->needs.term);
}

static void say_ahead(struct archiver *a)
{
    struct error why;
    (void)error_set(&why, TCK_ERR_EXIST,
                    "archive_dir %s has version %" PRIu64 ".%" PRIu64 ", of a term that save_dir has not reached: "
                    "save_dir was replaced by an older copy of itself. Nothing is copied, and the next start restores "
                    "that version, unless it is moved out of the archive before",
                    a->needs.config->archive_dir, a->lead.archived.term, a->lead.archived.step);
    failed(a, &why);
}

static void log_call(const struct archiver *a, const struct archive_ask *ask, const struct archive_effects *effects)
{
    if (effects->published) {
        log_info("version %" PRIu64 ".%" PRIu64 " is copied to archive_dir %s", ask->version.term, ask->version.step,
                 a->needs.config->archive_dir);
    } else if (effects->chosen && !effects->failed) {
        log_info("version %" PRIu64 ".%" PRIu64 " is being copied to archive_dir", ask->version.term,
                 ask->version.step);
    }
}

static void on_answered(void *ctx, const struct archive_ask *ask, const struct archive_answer *answer,
                        const struct error *outcome)
{
    struct archiver *a = ctx;
    struct archive_effects effects = archive_lead_answered(&a->lead, ask, answer, present_term(a), clock_ms());
    a->calling = NULL;
    a->versions += effects.published;
    log_call(a, ask, &effects);
    if (effects.failed) {
        failed(a, outcome);
    } else if (effects.ahead) {
        say_ahead(a);
    } else if (effects.works) {
        works(a);
    }
    if (effects.chosen) {
        take_choice(a);
    }
}

static void lead(struct archiver *a, const struct term_context *tc)
{
    struct archive_now now = now_of(a, tc);
    struct archive_ask ask = archive_lead_next(&a->lead, &now);
    if (ask.call == ARCHIVE_NOTHING) {
        return;
    }
    if (ask.call == ARCHIVE_PREPARE) { /* from now on, so that no publish in save_dir deletes it before it is chosen */
        persistent_pin(a->needs.persistent, ask.version);
    }
    a->calling = archive_call_begin(a->archive, a->pool, &ask, on_answered, a);
    a->lead.calling = a->calling != NULL;
}

void archiver_handle(struct archiver *a, struct term_context *tc, uint32_t node, const void *data, size_t len)
{
    struct wire_archived m;
    struct error why;
    if (a == NULL || wire_archived_decode(data, len, &m) != TCK_OK || a->lead.term != tc->world.term) {
        return;
    }
    if (m.ok) {
        archive_lead_copied(&a->lead, node, m.version, clock_ms());
        return;
    }
    struct archive_now now = now_of(a, tc);
    struct archive_effects effects = archive_lead_could_not(&a->lead, node, m.version, &now);
    if (effects.failed && node != tc->self) { /* its own is known */
        (void)error_set(&why, TCK_ERR_IO, "node %s: %s", tc->world.nodes[node].name, m.why);
        failed(a, &why);
    }
    if (effects.chosen) {
        take_choice(a);
    }
}

struct version archiver_choice(const struct archiver *a)
{
    return a != NULL && present_term(a) == a->lead.term ? a->lead.chosen : VERSION_NONE;
}

/* ---- time ---------------------------------------------------------------------------------------------------- */

/* False: no memory. */
static bool begin_term(struct archiver *a, const struct term_context *tc)
{
    bool *reported = calloc((size_t)tc->world.node_count + 1, sizeof(*reported));
    if (reported == NULL) {
        return false;
    }
    archive_lead_begin(&a->lead, tc->world.term, tc->world.node_count, reported);
    archive_share_begin(&a->share, tc->world.term);
    persistent_pin(a->needs.persistent, VERSION_NONE);
    free(a->reported);
    a->reported = reported;
    return true;
}

void archiver_tick(struct archiver *a)
{
    if (a == NULL) {
        return;
    }
    notice_hang(a);
    const struct term_context *tc = *a->needs.term;
    if (present_term(a) == 0 || (tc->world.term != a->lead.term && !begin_term(a, tc))) {
        return;
    }
    if (tc->coordinator != NULL) {
        lead(a, tc);
    }
    follow(a, tc);
}

bool archiver_is_busy(const struct archiver *a)
{
    if (a == NULL || present_term(a) == 0 || a->trouble.code != TCK_OK) {
        return false;
    }
    uint32_t patience_ms = a->needs.config->storage_timeout_ms;
    bool awaits = !version_none(a->lead.chosen) && clock_ms() - a->lead.reported_ms < patience_ms;
    return a->copying != NULL || a->calling != NULL || awaits || archive_share_owes(&a->share, patience_ms, clock_ms());
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

struct archiver_figures archiver_figures(const struct archiver *a)
{
    if (a == NULL) {
        return (struct archiver_figures){0};
    }
    return (struct archiver_figures){.used = true,
                                     .known = a->lead.known,
                                     .archived = a->lead.archived,
                                     .copying = a->share.wanted,
                                     .files = a->files,
                                     .bytes = a->bytes,
                                     .versions = a->versions,
                                     .failures = a->failures,
                                     .trouble = a->trouble};
}

tck_status_t archiver_new(const struct archiver_setup *setup, struct archiver **out, struct error *err)
{
    if (setup->config->archive_dir[0] == '\0') {
        *out = NULL;
        return TCK_OK;
    }
    struct archiver *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    a->needs = *setup;
    tck_status_t status = archive_new(setup->config, setup->persistent, NULL, &a->archive, err);
    if (status == TCK_OK) {
        status = pool_new(setup->loop, ARCHIVE_FILES_THREADS, &a->pool, err);
    }
    if (status != TCK_OK) {
        archiver_free(a);
        return status;
    }
    *out = a;
    return TCK_OK;
}

void archiver_free(struct archiver *a)
{
    if (a == NULL) {
        return;
    }
    archive_cancel(a->archive);
    if (a->copying != NULL) {
        archive_files_stop(a->copying);
    }
    if (a->pool != NULL) {
        pool_free(a->pool);
    }
    archive_free(a->archive);
    free(a->reported);
    free(a);
}
