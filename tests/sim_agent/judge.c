/* SPDX-License-Identifier: Apache-2.0
 * The promises, as a user sees them: in the status pages of the trainers, in what they restore, in save_dir. */
#include "sim.h"

#include "agent/state/hard_state.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define NOTE_US (5 * S) /* a commit is noted on storage long before */

/* A version that all ranks have sealed, or some. */
struct sealed_version {
    struct version version;
    uint32_t ranks;
};

static struct sealed_version *versions;
static size_t version_count;
static struct version promise;   /* newest that trainers were told to be committed */
static uint32_t losses;          /* machines lost since, */
static uint64_t witnesses;       /* and those that still know of it: a bit each */
static uint64_t quiet_us;        /* since when storage answers all, and no agent died */
static bool noted;               /* save_dir says that something was committed */
static struct version published; /* newest that they were told to be on storage */

static bool is_older(struct version a, struct version b)
{
    return a.term < b.term || (a.term == b.term && a.step < b.step);
}

/* ---- what was sealed
 * ------------------------------------------------------------------------------------------------------ */

static struct sealed_version *sealed_of(struct version version)
{
    for (size_t i = version_count; i-- > 0;) {
        if (version_is(versions[i].version, version)) {
            return &versions[i];
        }
    }
    return NULL;
}

void judge_sealed(const struct rank *rank, uint64_t step)
{
    struct version version = {rank->launch->term, step};
    struct sealed_version *known = sealed_of(version);
    if (!known) {
        versions = realloc(versions, (version_count + 1) * sizeof(*versions));
        if (!versions) {
            abort();
        }
        known = &versions[version_count++];
        *known = (struct sealed_version){.version = version};
    }
    known->ranks++;
}

static void check_sealed(struct version version, const char *what)
{
    const struct sealed_version *known = sealed_of(version);
    if (!known || known->ranks != job.ranks) {
        sim_violation("step %" PRIu64 " of term %" PRIu64 " is %s, and %u of %u ranks have sealed it", version.step,
                      version.term, what, known ? known->ranks : 0, job.ranks);
    }
}

/* ---- what trainers are told
 * ----------------------------------------------------------------------------------------------- */

static void look_at_status(struct rank *rank)
{
    struct version now = {rank->launch->term, 0};
    uint64_t committed = atomic_load(&rank->status->committed_step);
    uint64_t stored = atomic_load(&rank->status->published_step);
    if (committed < rank->committed || stored < rank->published) {
        sim_violation("rank %u: committed goes from %" PRIu64 " to %" PRIu64 ", published from %" PRIu64 " to %" PRIu64,
                      rank->number, rank->committed, committed, rank->published, stored);
    }
    rank->committed = committed;
    rank->published = stored;
    now.step = committed;
    noted = noted || (committed > 0 && sim.us > quiet_us + NOTE_US);
    if (committed > 0 && is_older(promise, now)) {
        check_sealed(now, "committed");
        promise = now;
        losses = 0;
        witnesses = ~UINT64_C(0);
        job.commits++;
        job.committed = committed;
        sim_say("step %" PRIu64 " is committed", committed);
    }
    now.step = stored;
    if (stored > 0 && is_older(published, now)) {
        published = now;
        job.publishes++;
        job.published = stored;
        sim_say("step %" PRIu64 " is published", stored);
    }
}

static void look_at_host(struct host *host)
{
    quiet_us = host->deaf || !host->agent ? sim.us : quiet_us;
    uint64_t adopted = host->agent ? hard_state_get(host->agent->state)->term.adopted : host->adopted;
    if (adopted < host->adopted) {
        sim_violation("%s goes from term %" PRIu64 " back to %" PRIu64, host->name, host->adopted, adopted);
    }
    host->adopted = adopted;
}

void judge_event(void)
{
    struct launch *launch = job.launch;
    for (uint32_t r = 0; launch && !sim.measure && r < launch->count; r++) {
        if (launch->ranks[r].status && launch->ranks[r].pid && launch->phase == PHASE_TRAIN) {
            look_at_status(&launch->ranks[r]);
        }
    }
    for (uint32_t i = 0; !sim.measure && i < sim.host_count; i++) {
        look_at_host(&sim.hosts[i]);
    }
}

void judge_look(void)
{
    struct launch *launch = job.launch;
    for (uint32_t r = 0; launch && r < launch->count; r++) {
        if (launch->ranks[r].status) {
            look_at_status(&launch->ranks[r]);
        }
    }
}

/* ---- what they restore
 * ---------------------------------------------------------------------------------------------------- */

static bool is_promised(void)
{
    uint32_t copies = job.copies < sim.host_count ? job.copies : sim.host_count;
    return !version_none(promise) && losses < copies;
}

/* Some machine was there when it was committed. If none is, storage is all there is. */
static bool is_known(void)
{
    return (witnesses & ((UINT64_C(1) << sim.host_count) - 1)) != 0;
}

void judge_host_lost(const struct host *host)
{
    losses++;
    witnesses &= ~(UINT64_C(1) << host->index);
}

static void check_version(const struct rank *rank)
{
    struct version v = rank->version;
    if (rank->fresh) {
        if (!version_none(promise) && (is_known() || noted)) {
            sim_violation("a fresh start, although step %" PRIu64 " of term %" PRIu64 " was committed", promise.step,
                          promise.term);
        }
        return;
    }
    check_sealed(v, "restored");
    if (is_older(v, promise) && is_promised()) {
        sim_violation("step %" PRIu64 " of term %" PRIu64 " is restored, although step %" PRIu64 " of term %" PRIu64
                      " was committed and %u machines were lost since",
                      v.step, v.term, promise.step, promise.term, losses);
    } else if (is_older(v, promise) && is_known() && rank->passed_over[0] == '\0') {
        sim_violation("step %" PRIu64 " of term %" PRIu64 " is restored, and nobody is told that step %" PRIu64
                      " was committed",
                      v.step, v.term, promise.step);
    }
    if (is_older(v, published)) {
        sim_violation("step %" PRIu64 " is restored, although step %" PRIu64 " is published", v.step, published.step);
    }
}

void judge_restored(const struct launch *launch)
{
    const struct rank *first = &launch->ranks[0];
    sim_say("restored: step %" PRIu64 " of term %" PRIu64 "%s%s", first->version.step, first->version.term,
            first->passed_over[0] ? ", " : "", first->passed_over);
    for (uint32_t r = 0; r < launch->count; r++) {
        if (!version_is(launch->ranks[r].version, first->version)) {
            sim_violation("ranks 0 and %u restore different versions", r);
        }
    }
    check_version(first);
    promise = first->fresh ? promise : first->version; /* what is newer is given up */
    job.committed = first->version.step;
    job.published = 0;
    published = VERSION_NONE;
    quiet_us = sim.us;
}

void judge_unrecoverable(const struct launch *launch, const struct error *err)
{
    (void)launch;
    if (is_promised() || !version_none(published)) {
        sim_violation("what was committed is said to be lost, after %u lost machines: %s", losses, err->text);
    }
    sim_say("what was saved is lost, and that was told");
    job.lost = job.done = true;
}

/* ---- what is on storage
 * ----------------------------------------------------------------------------------------------------- */

static void check_published(struct persistent *p, const struct published *list, size_t count)
{
    struct error err;
    bool found = version_none(published);
    for (size_t i = 0; i < count; i++) {
        check_sealed(list[i].version, "published");
        found = found || version_is(list[i].version, published);
        if (persistent_verify(p, &list[i], &err) != TCK_OK) {
            sim_violation("what is published is damaged: %s", err.text);
        }
    }
    if (!found) {
        sim_violation("step %" PRIu64 " of term %" PRIu64 " was said to be published, and is not there", published.step,
                      published.term);
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
}
