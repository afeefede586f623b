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
    uint64_t us; /* when the first did */
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
        *known = (struct sealed_version){.version = version, .us = sim.us};
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

/* ---- what was decided -----------------------------------------------------------------------------------------------
 */

/* The newest version that a coordinator has decided to be committed, or the protected base of its term. Its copies stay
 * until something newer is decided, but for machines that are lost. */
struct copies_of {
    struct shard_info shard;
    uint64_t hosts; /* a bit each */
};
static struct anchor {
    struct version version;
    uint64_t term; /* that decided it */
    struct copies_of *copies;
    uint32_t count;
    uint32_t losses; /* since */
} anchor;

static bool has_copy(const struct host *host, const struct shard_info *shard, struct version version)
{
    struct segment *segment = memory_find(host->agent->memory, shard->id);
    for (uint32_t k = 0; segment && k < segment_info(segment).slot_count; k++) {
        const struct slot_header *header = segment_header(segment, k);
        if (header->state != SLOT_VERIFIED || !version_is(header->version, version)) {
            continue;
        }
        if (!image_is(segment_image(segment, k), shard->image_bytes, shard->id, version)) {
            sim_violation("%s counts a copy of step %" PRIu64 " of term %" PRIu64 " that has wrong bytes", host->name,
                          version.step, version.term);
        }
        return true;
    }
    return false;
}

static uint32_t wanted_copies(void)
{
    return job.copies < sim.host_count ? job.copies : sim.host_count;
}

/* Machines that died since it was begun had their copies, and what a dead agent's memory has is not seen. */
static void find_copies(struct copies_of *c, uint64_t since_us)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sim.host_count; i++) {
        const struct host *host = &sim.hosts[i];
        bool here = host->agent && has_copy(host, &c->shard, anchor.version);
        bool excused = !host->agent || host->lost_us >= since_us;
        c->hosts |= here ? UINT64_C(1) << i : 0;
        count += here || excused;
    }
    if (count < wanted_copies()) {
        sim_violation("step %" PRIu64 " of term %" PRIu64 " is decided with %u copies of a shard, and %u are wanted",
                      anchor.version.step, anchor.version.term, count, wanted_copies());
    }
}

static void set_anchor(struct version version, uint64_t term, uint64_t since_us)
{
    free(anchor.copies);
    anchor = (struct anchor){.version = version, .term = term, .count = job.ranks * job.shards};
    anchor.copies = calloc(anchor.count, sizeof(*anchor.copies));
    for (uint32_t r = 0; r < job.ranks; r++) {
        struct shard_info infos[2];
        rank_shard_ids(r, infos);
        for (uint32_t i = 0; i < job.shards; i++) {
            struct copies_of *c = &anchor.copies[r * job.shards + i];
            c->shard = infos[i];
            find_copies(c, since_us);
        }
    }
}

/* An older term may still decide what every node has agreed to, unless a newer one has decided already. */
static void anchor_follow(const struct host *host)
{
    const struct decision *d = &hard_state_get(host->agent->state)->decision;
    bool own = d->watermark.term == d->term && d->term > 0;
    if (version_none(d->watermark) || d->term < anchor.term ||
        (d->term == anchor.term && !is_older(anchor.version, d->watermark))) {
        return;
    }
    const struct sealed_version *sealed = sealed_of(d->watermark);
    set_anchor(d->watermark, d->term, own && sealed ? sealed->us : 0);
}

/* All of it can still be had. */
static bool anchor_survives(void)
{
    bool all = !version_none(anchor.version);
    for (uint32_t i = 0; i < anchor.count; i++) {
        all = all && anchor.copies[i].hosts != 0;
    }
    return all;
}

static void check_anchor(const struct host *host)
{
    for (uint32_t i = 0; host->agent && anchor.losses < wanted_copies() && i < anchor.count; i++) {
        const struct copies_of *c = &anchor.copies[i];
        if ((c->hosts >> host->index & 1) && !has_copy(host, &c->shard, anchor.version)) {
            sim_violation("%s has given up a copy of step %" PRIu64 " of term %" PRIu64
                          ", and nothing newer is decided",
                          host->name, anchor.version.step, anchor.version.term);
        }
    }
}

static void anchor_lose(const struct host *host)
{
    anchor.losses++;
    for (uint32_t i = 0; i < anchor.count; i++) {
        anchor.copies[i].hosts &= ~(UINT64_C(1) << host->index);
    }
}

/* ---- what trainers are told
 * ----------------------------------------------------------------------------------------------- */

static void look_at_status(struct rank *rank)
{
    struct version now = {rank->launch->term, 0};
    if (!rank->registered) {
        return; /* the page of an agent that has not looked at its memory yet */
    }
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

/* Terms never go back, nor does what an agent knows to be committed; a later term may take an older version. */
static void check_kept(struct host *host)
{
    const struct kept *kept = hard_state_get(host->agent->state);
    struct version known = hard_state_watermark(host->agent->state);
    uint64_t decided_in = version_none(kept->decision.watermark) ? host->decided_in : kept->decision.term;
    if (kept->term.adopted < host->adopted) {
        sim_violation("%s goes from term %" PRIu64 " back to %" PRIu64, host->name, host->adopted, kept->term.adopted);
    }
    if (decided_in <= host->decided_in && is_older(known, host->watermark)) {
        sim_violation("%s knew that step %" PRIu64 " of term %" PRIu64 " was committed, and now of step %" PRIu64
                      " of term %" PRIu64,
                      host->name, host->watermark.step, host->watermark.term, known.step, known.term);
    }
    host->adopted = kept->term.adopted;
    host->watermark = known;
    host->decided_in = decided_in;
}

static void look_at_host(struct host *host)
{
    quiet_us = host->deaf || !host->agent ? sim.us : quiet_us;
    if (host->agent && !sim.measure) {
        check_kept(host);
        anchor_follow(host);
    }
}

/* What an agent learns about terms, and what it still does for older ones. */

void __real_adopt_term(struct agent *agent, uint64_t term);
void __wrap_adopt_term(struct agent *agent, uint64_t term);
tck_status_t __real_replica_handle_pull(void *ctx, struct peer *from, const struct peer_offer *want,
                                        struct tier_item *item, struct error *err);
tck_status_t __wrap_replica_handle_pull(void *ctx, struct peer *from, const struct peer_offer *want,
                                        struct tier_item *item, struct error *err);
tck_status_t __real_replica_handle_offer(void *ctx, struct peer *from, const struct peer_offer *offer,
                                         struct tier_item *item, struct error *err);
tck_status_t __wrap_replica_handle_offer(void *ctx, struct peer *from, const struct peer_offer *offer,
                                         struct tier_item *item, struct error *err);

void __wrap_adopt_term(struct agent *agent, uint64_t term)
{
    struct host *host = sim.current;
    __real_adopt_term(agent, term);
    host->adopted = term > host->adopted ? term : host->adopted;
}

static void check_fenced(const char *what, uint64_t term)
{
    if (term < sim.current->adopted) {
        sim_violation("%s %s for term %" PRIu64 " although it has adopted term %" PRIu64, sim.current->name, what, term,
                      sim.current->adopted);
    }
}

tck_status_t __wrap_replica_handle_pull(void *ctx, struct peer *from, const struct peer_offer *want,
                                        struct tier_item *item, struct error *err)
{
    tck_status_t status = __real_replica_handle_pull(ctx, from, want, item, err);
    if (status == TCK_OK) {
        check_fenced("hands out a copy", want->term);
    }
    return status;
}

tck_status_t __wrap_replica_handle_offer(void *ctx, struct peer *from, const struct peer_offer *offer,
                                         struct tier_item *item, struct error *err)
{
    tck_status_t status = __real_replica_handle_offer(ctx, from, offer, item, err);
    if (status == TCK_OK || status == TCK_ERR_EXIST) {
        check_fenced("takes a copy", offer->term);
    }
    return status;
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
    if (sim.ran && !sim.measure) {
        check_anchor(sim.ran);
    }
    sim.ran = NULL;
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
    return !version_none(promise) && losses < wanted_copies();
}

/* Some machine was there when it was committed. If none is, storage is all there is. */
static bool is_known(void)
{
    return (witnesses & ((UINT64_C(1) << sim.host_count) - 1)) != 0;
}

void judge_host_lost(struct host *host)
{
    host->adopted = host->decided_in = 0;
    host->watermark = VERSION_NONE;
    host->lost_us = sim.us;
    anchor_lose(host);
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
    if (is_older(v, anchor.version) && anchor_survives()) {
        sim_violation("step %" PRIu64 " of term %" PRIu64
                      " is restored, although there are copies of all of step %" PRIu64 " of term %" PRIu64
                      ", which was decided",
                      v.step, v.term, anchor.version.step, anchor.version.term);
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
    if (is_promised() || anchor_survives() || !version_none(published)) {
        sim_violation("what was committed is said to be lost, after %u lost machines: %s", losses, err->text);
    }
    sim_say("what was saved is lost, and that was told");
    job.lost = job.done = true;
}

/* ---- at rest --------------------------------------------------------------------------------------------------------
 */

/* The newest commit is there, and nothing else: what else stays in a slot is lost for the saves to come. */
static void check_slots(const struct host *host, const struct term_context *tc)
{
    for (uint32_t i = 0; i < node_slot_total(tc->node); i++) {
        const struct slot *slot = node_slot(tc->node, i);
        bool due = slot->state == SLOT_VERIFIED && version_is(slot->version, anchor.version);
        if ((slot->state != SLOT_FREE && !due) || slot->pins > 0) {
            sim_violation("%s keeps slot %u with step %" PRIu64 " of term %" PRIu64 " (%s, %u pins), and step %" PRIu64
                          " is committed",
                          host->name, i, slot->version.step, slot->version.term, slot_state_name(slot->state),
                          slot->pins, anchor.version.step);
        }
    }
}

static void check_decision(const struct decision *d)
{
    if (!d->based || d->open_count > 0 || !version_none(d->drain) || !version_is(d->watermark, anchor.version)) {
        sim_violation("the coordinator does not come to rest: %s%u versions are open, step %" PRIu64
                      " is being drained, step %" PRIu64 " is committed",
                      d->based ? "" : "not based, ", d->open_count, d->drain.step, d->watermark.step);
    }
}

void judge_settled(const struct launch *launch)
{
    for (uint32_t i = 0; i < sim.host_count && !sim.measure; i++) {
        const struct host *host = &sim.hosts[i];
        const struct term_context *tc = host->agent ? host->agent->term_context : NULL;
        if (!tc || tc->closed || tc->world.term != launch->term) {
            sim_violation("%s takes no part in term %" PRIu64, host->name, launch->term);
            return;
        }
        check_slots(host, tc);
        if (tc->coordinator) {
            check_decision(coordinator_decision(tc->coordinator));
        }
    }
    for (uint32_t i = 0; i < anchor.count; i++) {
        find_copies(&anchor.copies[i], UINT64_MAX);
    }
}

/* ---- what is on storage
 * ----------------------------------------------------------------------------------------------------- */

static void check_published(struct persistent *p, const struct published *list, size_t count)
{
    struct error err;
    bool found = version_none(published);
    for (size_t i = 0; i < count; i++) {
        check_sealed(list[i].version, "published");
        found = found || !is_older(list[i].version, published);
        if (persistent_verify(p, &list[i], &err) != TCK_OK) {
            sim_violation("what is published is damaged: %s", err.text);
        }
    }
    if (!found) {
        sim_violation("step %" PRIu64 " of term %" PRIu64
                      " was said to be published, and neither it nor a newer one is there",
                      published.step, published.term);
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
