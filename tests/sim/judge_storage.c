/* SPDX-License-Identifier: Apache-2.0
 * Checks the guarantees for storage: a version that was reported to trainers as published is complete, unless an
 * injected fault has damaged it, and only superseded versions are removed. */
#include "sim.h"

#include "tiers/names.h"

#include <inttypes.h>
#include <stdlib.h>

static struct version promised; /* newest version that was reported as published and is undamaged */
static struct version reported; /* newest version that was reported as published */

/* The version that each term has restored, from which its own versions descend. */
struct base {
    uint64_t term;
    struct version version;
};
static struct base *bases;
static size_t base_count;

/* ---- published versions ------------------------------------------------------------------------------------------ */

static bool is_torn(struct version version)
{
    struct published_version p = {.version = VERSION_MOST};
    while (published_next(&p)) {
        if (version_is(p.version, version)) {
            return p.torn;
        }
    }
    return false;
}

/* The newest undamaged version that is not newer than this one. */
static struct version newest_whole(struct version top)
{
    struct published_version p = {.version = VERSION_MOST};
    while (published_next(&p)) {
        if (!p.torn && version_cmp(p.version, top) <= 0) {
            return p.version;
        }
    }
    return VERSION_NONE;
}

struct version stored_promise(void)
{
    return promised;
}

void stored_reported(struct version version)
{
    struct published_version p = {.version = VERSION_MOST};
    if (!published_next(&p) || version_cmp(p.version, version) < 0) {
        sim_violation("step %" PRIu64 " of term %" PRIu64
                      " is reported as published, but neither it nor a newer one is there",
                      version.step, version.term);
    }
    promised = is_torn(version) ? promised : version;
    reported = version;
}

/* A version that was never reported may have been promised because a launch has found it on storage. */
void judge_unpublished(struct version version)
{
    if (version_is(version, reported)) {
        sim_violation("step %" PRIu64 " of term %" PRIu64 " was reported as published, and is lost with the power",
                      version.step, version.term);
    }
    promised = version_is(version, promised) ? newest_whole(version) : promised;
}

void judge_torn(struct version version)
{
    promised = version_is(version, promised) ? newest_whole(version) : promised;
}

/* Newer versions were given up. */
void stored_restored(uint64_t term, struct version version)
{
    bases = realloc(bases, (base_count + 1) * sizeof(*bases));
    if (bases == NULL) {
        abort();
    }
    bases[base_count++] = (struct base){term, version};
    promised = newest_whole(version);
    archive_restored(version);
}

void stored_resharded(struct launch *launch, struct version version)
{
    if (is_torn(version)) {
        launch_fail(launch, sim_between(200, 2000) * MS, "what is read from storage does not have its digests");
        launch_reshape(launch); /* its agents read all of the version, and then choose an older one */
    } else if (!version_is(newest_whole(version), version) && !is_archived(version)) {
        sim_violation("step %" PRIu64 " of term %" PRIu64 " is to be read from storage, but it is not there",
                      version.step, version.term);
    }
}

const char *stored_passed_over(struct version version)
{
    static char text[64];
    struct published_version p = {.version = VERSION_MOST};
    if (!published_next(&p) || !p.torn || version_cmp(p.version, version) <= 0) {
        return NULL;
    }
    snprintf(text, sizeof(text), "step %" PRIu64 " of term %" PRIu64, p.version.step, p.version.term);
    return text;
}

/* A version that nobody has committed must not be published, unless a later term has protected it as its base. */
void judge_renamed_in(const char *name)
{
    struct version version;
    if (sim.measure) {
        judge_decisions();
    }
    if (!version_dir_parse(name, &version)) {
        return;
    }
    archive_saved(version);
    if (!judge_was_committed(version) && !judge_is_base(version)) {
        sim_violation("%s publishes step %" PRIu64 " of term %" PRIu64 ", which was not committed", sim.current->name,
                      version.step, version.term);
    }
}

/* ---- removed versions -------------------------------------------------------------------------------------------- */

static bool base_of(uint64_t term, struct version *out)
{
    for (size_t i = base_count; i-- > 0;) {
        if (bases[i].term == term) {
            *out = bases[i].version;
            return true;
        }
    }
    return false;
}

bool is_ancestor(struct version version, struct version head)
{
    while (head.term > version.term) {
        if (!base_of(head.term, &head)) {
            return false;
        }
    }
    return head.term == version.term && version.step <= head.step;
}

typedef bool next_fn(struct published_version *at);

/* Counts the newer versions in the line of history that ends at head. */
static uint32_t count_newer(struct version version, struct version head, next_fn *next)
{
    struct published_version p = {.version = VERSION_MOST};
    uint32_t newer = 0;
    while (next(&p) && version_cmp(p.version, version) > 0) {
        newer += is_ancestor(p.version, head);
    }
    return newer;
}

bool is_superseded(struct version version, next_fn *next, uint32_t kept)
{
    struct published_version p = {.version = VERSION_MOST};
    while (next(&p) && version_cmp(p.version, version) > 0) {
        if (is_ancestor(version, p.version) && count_newer(version, p.version, next) >= kept) {
            return true;
        }
    }
    return false;
}

void judge_removed(const char *name)
{
    struct version version;
    const struct launch *launch = job.launch;
    if (!version_dir_parse(name, &version)) {
        return;
    }
    if (!is_superseded(version, published_next, job.kept)) {
        sim_violation("published step %" PRIu64 " of term %" PRIu64 " is removed, although nothing supersedes it",
                      version.step, version.term);
    }
    if (version_is(version, promised)) { /* trainers may not know of the newer version yet */
        struct version newest = newest_whole(VERSION_MOST);
        promised = version_is(newest, version)
                       ? VERSION_NONE
                       : newest; /* or the newer version is damaged without anyone having noticed */
    }
    struct version trained = {launch != NULL ? launch->term : 0, UINT64_MAX};
    if (launch != NULL && launch->phase == PHASE_TRAIN && is_ancestor(version, trained) &&
        count_newer(version, trained, published_next) == 0) {
        sim_violation("published step %" PRIu64 " of term %" PRIu64
                      " is removed, although it is the newest one of the current history",
                      version.step, version.term);
    }
}

/* Reads storage without being refused, because no agent makes the call. */
bool stored_notes(uint64_t term)
{
    struct persistent *p = NULL;
    struct error err = {0};
    struct commit_notes notes = {0};
    struct persistent_setup setup = {.config = &sim.hosts[0].config, .only_reads = true};
    bool known = persistent_new(&setup, &p, &err) == TCK_OK && persistent_commit_notes(p, term, &notes, &err) == TCK_OK;
    persistent_free(p);
    return known && (notes.newest > 0 || notes.unsure.code != TCK_OK);
}

/* ---- at the end -------------------------------------------------------------------------------------------------- */

static void check_published(struct persistent *p, const struct published *list, size_t count)
{
    struct error err;
    bool found = version_none(promised);
    for (size_t i = 0; i < count; i++) {
        judge_published(list[i].version);
        found = found || version_cmp(list[i].version, promised) >= 0;
        if (!is_torn(list[i].version) && persistent_verify(p, &list[i], &err) != TCK_OK) {
            sim_violation("a published version is damaged: %s", err.text);
        }
    }
    if (!found) {
        sim_violation("step %" PRIu64 " of term %" PRIu64
                      " was reported as published, but neither it nor a newer one is there",
                      promised.step, promised.term);
    }
}

void judge_end(void)
{
    struct persistent *p = NULL;
    struct published *list = NULL;
    size_t count = 0;
    struct error err = {0};
    struct persistent_setup setup = {.config = &sim.hosts[0].config, .only_reads = true};
    if (persistent_new(&setup, &p, &err) != TCK_OK || persistent_list(p, &list, &count, &err) != TCK_OK) {
        sim_violation("storage cannot be read: %s", err.text);
    } else {
        check_published(p, list, count);
    }
    free(list);
    persistent_free(p);
    judge_archive_end();
}
