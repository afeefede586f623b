/* SPDX-License-Identifier: Apache-2.0
 * Checks the guarantees as a user observes them: in the trainers' status pages, in what they restore, and in save_dir.
 */
#include "sim.h"

#include "agent/state/hard_state.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define NOTE_US      (2 * S) /* after this time, a commit must have been noted on storage */
#define SWEEP_EVENTS 64      /* all memory is checked after this many events, even if no change is known */

/* A version that some or all ranks have sealed. */
struct sealed_version {
    struct version version;
    const struct shape *shape;
    uint32_t ranks;
    uint64_t us; /* when the first rank sealed it */
};

static struct sealed_version *versions;
static size_t version_count;
static struct version promise; /* newest version that was reported to trainers as committed */
static uint32_t losses;        /* machines lost since */
static struct version gave_up; /* newest version of which copies were given up for lack of memory */
static uint64_t quiet_us;      /* since when storage has answered all hosts and no agent has died */
static uint64_t lost_us;       /* when a machine was last lost */
static uint32_t lost_domain;   /* its domain: machines of one domain that are lost at once count as one loss */
static struct version owed;    /* version whose drain was requested in this term */
static bool noted;             /* save_dir says that something was committed */

static bool is_older(struct version a, struct version b)
{
    return a.term < b.term || (a.term == b.term && a.step < b.step);
}

/* ---- sealed versions --------------------------------------------------------------------------------------------- */

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
    if (known == NULL) {
        versions = realloc(versions, (version_count + 1) * sizeof(*versions));
        if (versions == NULL) {
            abort();
        }
        known = &versions[version_count++];
        *known = (struct sealed_version){.version = version, .shape = rank->launch->shape, .us = sim.us};
    }
    known->ranks++;
}

static void check_sealed(struct version version, const char *what)
{
    const struct sealed_version *known = sealed_of(version);
    if (known == NULL || known->ranks != known->shape->ranks) {
        sim_violation("step %" PRIu64 " of term %" PRIu64 " is %s, and %u of %u ranks have sealed it", version.step,
                      version.term, what, known != NULL ? known->ranks : 0, known != NULL ? known->shape->ranks : 0);
    }
}

/* ---- decisions --------------------------------------------------------------------------------------------------- */

/* The newest version that a coordinator has decided to commit, or the protected base of its term. Except on lost
 * machines, its copies must stay until something newer is decided. */
struct copies_of {
    struct shard_info shard;
    uint64_t hosts;  /* one bit per host */
    uint64_t unsure; /* hosts whose memory has changed since it was last checked */
    uint64_t newer;  /* hosts that have given up their copies while they had a newer version's */
};
static struct anchor {
    struct version version;
    const struct shape *shape;
    uint64_t term;   /* that decided it */
    uint32_t wanted; /* number of domains in which each shard must have a copy */
    uint32_t hosts;  /* number of machines of the launch */
    struct copies_of *copies;
    uint32_t count;
    uint32_t losses; /* since the decision */
} anchor;
static uint32_t anchors; /* number of anchors so far */

bool judge_has_copy(const struct host *host, const struct shard_info *shard, struct version version)
{
    struct segment *segment = memory_find(host->agent->memory, shard->id);
    for (uint32_t k = 0; segment != NULL && k < segment_info(segment).slot_count; k++) {
        const struct slot_header *header = segment_header(segment, k);
        if (header->state != SLOT_VERIFIED || !version_is(header->version, version)) {
            continue;
        }
        if (!image_is(segment_image(segment, k), shard->image_bytes, shard->id, version)) {
            if (damage_is_known(host, shard->id, version)) {
                return false; /* its bytes are wrong, and the agent may not have noticed */
            }
            sim_violation("%s counts a copy of step %" PRIu64 " of term %" PRIu64 " that has wrong bytes", host->name,
                          version.step, version.term);
        }
        return true;
    }
    return false;
}

static uint32_t lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The number of domains that must have copies: the loss of fewer must not lose the version. */
static uint32_t wanted_copies(const struct shape *shape)
{
    uint64_t hosts = shape_hosts(shape), domains = 0;
    for (uint32_t i = 0; i < sim.host_count; i++) {
        domains |= hosts >> i & 1 ? UINT64_C(1) << sim.hosts[i].domain : 0;
    }
    return lesser(job.copies, (uint32_t)__builtin_popcountll(domains));
}

/* Machines that died since the version was begun count as having had their copies, and for a while also those whose
 * memory was damaged; the memory of a dead agent cannot be seen. */
static void find_copies(struct copies_of *c, uint64_t since_us)
{
    uint64_t domains = 0;
    uint32_t count = 0;
    c->unsure = 0;
    for (uint32_t i = 0; i < sim.host_count; i++) {
        const struct host *host = &sim.hosts[i];
        bool here = host->agent != NULL && judge_has_copy(host, &c->shard, anchor.version);
        bool damaged = since_us != UINT64_MAX && damage_is_known(host, c->shard.id, anchor.version);
        bool excused = host->agent == NULL || host->lost_us >= since_us || damaged;
        c->hosts |= here ? UINT64_C(1) << i : 0;
        domains |= here || excused ? UINT64_C(1) << host->domain : 0;
        count += here || excused;
    }
    uint32_t in_domains = (uint32_t)__builtin_popcountll(domains);
    if (in_domains < anchor.wanted || count < lesser(job.copies, anchor.hosts)) {
        sim_violation("step %" PRIu64 " of term %" PRIu64
                      " is decided with %u copies of a shard in %u domains, although %u copies are required",
                      anchor.version.step, anchor.version.term, count, in_domains, job.copies);
    }
}

/* The machines of the launch that decides the version, which may differ from those that it was saved on. */
static const struct shape *deciding_shape(uint64_t term, const struct shape *sealed)
{
    return job.launch != NULL && job.launch->term == term ? job.launch->shape : sealed;
}

static void set_anchor(struct version version, uint64_t term, uint64_t since_us)
{
    const struct sealed_version *sealed = sealed_of(version);
    const struct shape *shape = sealed != NULL ? sealed->shape : &job.newest;
    const struct shape *by = deciding_shape(term, shape);
    free(anchor.copies);
    anchors++;
    anchor = (struct anchor){.version = version,
                             .shape = shape,
                             .term = term,
                             .wanted = lesser(wanted_copies(shape), wanted_copies(by)),
                             .hosts = lesser(shape->hosts, by->hosts),
                             .count = shape->ranks * job.shards,
                             .losses = damage_count(version)};
    anchor.copies = calloc(anchor.count, sizeof(*anchor.copies));
    for (uint32_t r = 0; r < shape->ranks; r++) {
        struct shard_info infos[2];
        rank_shard_ids(shape, r, infos);
        for (uint32_t i = 0; i < job.shards; i++) {
            struct copies_of *c = &anchor.copies[r * job.shards + i];
            c->shard = infos[i];
            find_copies(c, since_us);
        }
    }
}

/* The time at which the term that restored it began. */
static uint64_t restored_since(uint64_t term)
{
    return job.launch != NULL && job.launch->term == term ? job.launch->claimed_us : 0;
}

/* An older term may still decide what every node has agreed to, unless a newer term has already decided. */
static void anchor_follow(const struct host *host)
{
    const struct decision *d = &hard_state_get(host->agent->state)->decision;
    bool own = d->watermark.term == d->term && d->term > 0;
    if (version_none(d->watermark) || d->term < anchor.term ||
        (d->term == anchor.term && !is_older(anchor.version, d->watermark))) {
        return;
    }
    const struct sealed_version *sealed = sealed_of(d->watermark);
    set_anchor(d->watermark, d->term, own && sealed != NULL ? sealed->us : restored_since(d->term));
}

/* Machines that the newest launch may know of: its own, and those of earlier launches unless catalogs were lost or a
 * recent fault kept their agents from answering. */
static uint64_t known_hosts(void)
{
    bool others = catalog_is_complete() && sim.us > faults.last_us + 10 * S;
    return shape_hosts(&job.newest) | (others ? ~UINT64_C(0) : 0);
}

/* True if all shards of the version still have a copy. */
static bool anchor_survives(void)
{
    bool all = !version_none(anchor.version);
    for (uint32_t i = 0; i < anchor.count; i++) {
        all = all && (anchor.copies[i].hosts & known_hosts()) != 0;
    }
    return all;
}

void judge_memory_changed(struct host *host, const struct hash128 *shard)
{
    host->changed = true;
    for (uint32_t i = 0; i < anchor.count; i++) {
        struct copies_of *c = &anchor.copies[i];
        c->unsure |= shard == NULL || hash128_is(*shard, c->shard.id) ? UINT64_C(1) << host->index : 0;
    }
}

/* Bytes that are in no image of a segment cannot change what is checked. */
void judge_bytes_changed(struct host *host, const void *at, size_t len)
{
    uintptr_t begin = (uintptr_t)at, end = begin + len;
    for (size_t i = host->agent != NULL ? memory_count(host->agent->memory) : 0; i-- > 0;) {
        struct segment *segment = memory_at(host->agent->memory, i);
        struct segment_info info = segment_info(segment);
        uintptr_t images = (uintptr_t)segment_image(segment, 0);
        if (begin < images + info.slot_count * info.slot_stride && end > images) {
            judge_memory_changed(host, &info.shard);
        }
    }
}

/* What is sent from a slot that is still being filled was checked. Images are of one chunk. */
void judge_passed_on(const struct host *host, const void *at, size_t len)
{
    for (size_t i = host->agent != NULL ? memory_count(host->agent->memory) : 0; i-- > 0;) {
        struct segment *segment = memory_at(host->agent->memory, i);
        struct segment_info info = segment_info(segment);
        for (uint32_t k = 0; k < info.slot_count; k++) {
            const struct slot_header *header = segment_header(segment, k);
            bool filling =
                segment_image(segment, k) == at && len == info.image_bytes && header->state == SLOT_RECEIVING;
            if (filling && !image_is(at, len, info.shard, header->version)) {
                sim_violation("%s passes on wrong bytes of step %" PRIu64 " of term %" PRIu64, host->name,
                              header->version.step, header->version.term);
            }
        }
    }
}

/* True if each machine that has a copy of the anchor, or has given one up for a newer version, has this version's copy
 * of the same shard: then no loss can cost this version which would have left the anchor. */
static bool replaces_anchor(struct version version)
{
    bool all = true;
    for (uint32_t i = 0; i < anchor.count * sim.host_count && all; i++) {
        const struct copies_of *c = &anchor.copies[i / sim.host_count];
        const struct host *host = &sim.hosts[i % sim.host_count];
        bool counts = ((c->hosts | c->newer) >> host->index & 1) && host->agent != NULL;
        all = !counts || judge_has_copy(host, &c->shard, version) || damage_is_known(host, c->shard.id, version);
    }
    return all;
}

/* True if a step was requested, and a newer version has all the copies that the anchor has. If its commit is known only
 * to lost machines, what is left of the anchor looks the same. */
static bool has_newer(void)
{
    bool requested = job.launch != NULL && job.launch->asked_step != TCK_NEWEST;
    for (size_t i = version_count; requested && i-- > 0;) {
        const struct sealed_version *v = &versions[i];
        if (v->ranks == v->shape->ranks && is_older(anchor.version, v->version) && replaces_anchor(v->version)) {
            return true;
        }
    }
    return false;
}

/* A machine that another launch has left out continues until it learns of that launch's term. */
static void check_anchor(const struct host *host)
{
    uint64_t bit = UINT64_C(1) << host->index;
    bool left_out = host->adopted < anchor.term;
    bool lasts = host->agent != NULL && anchor.count > 0 && anchor.losses < anchor.wanted;
    for (uint32_t i = 0; lasts && i < anchor.count; i++) {
        struct copies_of *c = &anchor.copies[i];
        bool missing = (c->hosts & c->unsure & bit) && !judge_has_copy(host, &c->shard, anchor.version);
        bool newer = missing && !left_out && has_newer();
        if (missing && (left_out || newer)) {
            c->hosts &= ~bit;
            c->newer |= newer ? bit : 0;
        } else if (missing) {
            sim_violation("%s has given up a copy of step %" PRIu64 " of term %" PRIu64
                          ", although nothing newer is decided",
                          host->name, anchor.version.step, anchor.version.term);
        }
        c->unsure &= ~bit;
    }
}

static void anchor_reset(uint64_t term)
{
    free(anchor.copies);
    anchors++;
    anchor = (struct anchor){.term = term};
}

static void anchor_lose(const struct host *host, bool counts)
{
    anchor.losses += counts;
    for (uint32_t i = 0; i < anchor.count; i++) {
        anchor.copies[i].hosts &= ~(UINT64_C(1) << host->index);
        anchor.copies[i].newer &= ~(UINT64_C(1) << host->index);
    }
}

/* ---- reports to trainers ----------------------------------------------------------------------------------------- */

/* The losses of machines whose copies counted, if they existed before. */
static uint32_t lost_since(struct version version)
{
    const struct sealed_version *sealed = sealed_of(version);
    uint32_t count = 0;
    for (uint32_t i = 0; sealed != NULL && i < sim.host_count; i++) {
        count += sim.hosts[i].lost_us >= sealed->us;
    }
    return count;
}

static void check_page(struct rank *rank, uint64_t committed, uint64_t stored)
{
    struct version now = {rank->launch->term, 0};
    if (committed < rank->committed || stored < rank->published) {
        sim_violation("rank %u: committed goes from %" PRIu64 " to %" PRIu64 ", published from %" PRIu64 " to %" PRIu64,
                      rank->number, rank->committed, committed, rank->published, stored);
    }
    rank->committed = committed;
    rank->published = stored;
    judge_status(rank);
    now.step = committed;
    if (committed > 0 && is_older(promise, now)) {
        check_sealed(now, "committed");
        promise = now;
        losses = damage_count(now) + lost_since(now);
        job.commits++;
        job.committed = committed;
        sim_log("step %" PRIu64 " is committed", committed);
    }
    now.step = stored;
    if (stored > job.published &&
        !is_older(now, stored_promise())) { /* it may already be known from the removal of an older version */
        stored_reported(now);
        job.publishes++;
        job.published = stored;
        sim_log("step %" PRIu64 " is published", stored);
    }
}

/* Most pages are as they were after the last event, and have nothing that is not known yet. */
static void check_status(struct rank *rank)
{
    if (!rank->registered) {
        return; /* the page of an agent that has not read its memory yet */
    }
    uint64_t committed = atomic_load(&rank->status->committed_step);
    uint64_t stored = atomic_load(&rank->status->published_step);
    bool same = committed == rank->committed && stored == rank->published &&
                atomic_load(&rank->status->failed_step) == rank->failed;
    bool is_new = committed > 0 && is_older(promise, (struct version){rank->launch->term, committed});
    if (!same || is_new || stored > job.published) {
        check_page(rank, committed, stored);
    }
    noted = noted || (committed > 0 && sim.us > quiet_us + NOTE_US);
}

/* Terms never go back, and neither does the newest commit that an agent knows of; a later term may restore an older
 * version. */
static void check_kept(struct host *host)
{
    const struct kept *kept = hard_state_get(host->agent->state);
    struct version known = hard_state_watermark(host->agent->state);
    uint64_t decided_in = version_none(kept->decision.watermark) ? host->decided_in : kept->decision.term;
    if (kept->term.adopted < host->adopted) {
        sim_violation("%s goes from term %" PRIu64 " back to %" PRIu64, host->name, host->adopted, kept->term.adopted);
    }
    if (decided_in <= host->decided_in && is_older(known, host->watermark)) {
        sim_violation("%s knew that step %" PRIu64 " of term %" PRIu64
                      " was committed, and now only knows of step %" PRIu64 " of term %" PRIu64,
                      host->name, host->watermark.step, host->watermark.term, known.step, known.term);
    }
    host->adopted = kept->term.adopted;
    host->watermark = known;
    host->knows = is_older(host->knows, known) ? known : host->knows;
    host->restored = is_older(host->restored, kept->base) ? kept->base : host->restored;
    host->decided_in = decided_in;
}

/* An agent's kept state cannot change unless its code ran. Following it twice has no effect, unless the anchor was
 * replaced in between. */
static void check_host(struct host *host)
{
    bool waits = host->hangs_until_us[AT_SAVE_DIR] > sim.us || host->full_until_us[AT_SAVE_DIR] > sim.us ||
                 host->stopped_until_us > sim.us;
    quiet_us = host->refused_by[AT_SAVE_DIR] || host->agent == NULL || waits ? sim.us : quiet_us;
    if (host->agent != NULL && host->ran) {
        judge_decision(host);
        check_kept(host);
    }
    if (host->agent != NULL && (host->ran || host->followed != anchors)) {
        anchor_follow(host);
        host->followed = anchors;
    }
    host->ran = false;
}

/* The contents of its memory cannot change unless something was written there. */
static void check_memory(struct host *host)
{
    if (sim.events % SWEEP_EVENTS == 0) {
        judge_memory_changed(host, NULL);
    }
    if (host->changed) {
        check_anchor(host);
        host->changed = false;
    }
}

/* Checks which terms an agent adopts, and that it no longer works for older ones. */

void __real_adopt_term(const struct adopt_setup *adopt, uint64_t term);
void __wrap_adopt_term(const struct adopt_setup *adopt, uint64_t term);
tck_status_t __real_replica_handle_pull(const struct replica_setup *replicas, struct peer *from,
                                        const struct peer_offer *want, struct tier_item *item, struct error *err);
tck_status_t __wrap_replica_handle_pull(const struct replica_setup *replicas, struct peer *from,
                                        const struct peer_offer *want, struct tier_item *item, struct error *err);
tck_status_t __real_replica_handle_offer(const struct replica_setup *replicas, struct peer *from,
                                         const struct peer_offer *offer, struct tier_item *item, struct error *err);
tck_status_t __wrap_replica_handle_offer(const struct replica_setup *replicas, struct peer *from,
                                         const struct peer_offer *offer, struct tier_item *item, struct error *err);

tck_status_t __real_replica_handle_stored(const struct replica_setup *replicas, struct peer *from,
                                          const struct peer_offer *offer, const struct error *outcome);
tck_status_t __wrap_replica_handle_stored(const struct replica_setup *replicas, struct peer *from,
                                          const struct peer_offer *offer, const struct error *outcome);
bool __real_replica_base_is_bad(const struct replica_setup *replicas, const struct tier_item *item, uint32_t chunk,
                                struct segment **segment_out, uint32_t *k_out, struct error *err);
bool __wrap_replica_base_is_bad(const struct replica_setup *replicas, const struct tier_item *item, uint32_t chunk,
                                struct segment **segment_out, uint32_t *k_out, struct error *err);

void __wrap_adopt_term(const struct adopt_setup *adopt, uint64_t term)
{
    struct host *host = sim.current;
    __real_adopt_term(adopt, term);
    host->adopted = term > host->adopted ? term : host->adopted;
}

static void check_fenced(const char *what, uint64_t term)
{
    if (term < sim.current->adopted) {
        sim_violation("%s %s for term %" PRIu64 " although it has adopted term %" PRIu64, sim.current->name, what, term,
                      sim.current->adopted);
    }
}

tck_status_t __wrap_replica_handle_pull(const struct replica_setup *replicas, struct peer *from,
                                        const struct peer_offer *want, struct tier_item *item, struct error *err)
{
    tck_status_t status = __real_replica_handle_pull(replicas, from, want, item, err);
    if (status == TCK_OK) {
        check_fenced("hands out a copy", want->term);
    }
    return status;
}

tck_status_t __wrap_replica_handle_offer(const struct replica_setup *replicas, struct peer *from,
                                         const struct peer_offer *offer, struct tier_item *item, struct error *err)
{
    tck_status_t status = __real_replica_handle_offer(replicas, from, offer, item, err);
    if (status == TCK_OK || status == TCK_ERR_EXIST) {
        check_fenced("takes a copy", offer->term);
    }
    if (status == TCK_OK) {
        judge_copy_taken(sim.current->agent, offer->version);
    }
    if (status == TCK_OK && item->base_image != NULL) {
        slot_use_begin(item->image, item->base_image, "a part of a copy is taken from it", sim.current);
    }
    return status;
}

/* The copy that has arrived is in one of these slots; its base is not used any more. */
tck_status_t __wrap_replica_handle_stored(const struct replica_setup *replicas, struct peer *from,
                                          const struct peer_offer *offer, const struct error *outcome)
{
    struct segment *segment = memory_find(replicas->memory, offer->shard);
    for (uint32_t k = 0; segment != NULL && k < segment_info(segment).slot_count; k++) {
        const struct slot_header *header = segment_header(segment, k);
        if (header->state == SLOT_RECEIVING && version_is(header->version, offer->version)) {
            slot_use_end(segment_image(segment, k));
        }
    }
    return __real_replica_handle_stored(replicas, from, offer, outcome);
}

/* Of the slot with this image; NULL if there is none. */
static const struct slot_header *header_at(const struct memory *memory, struct hash128 shard, const uint8_t *image)
{
    const struct segment *segment = memory_find(memory, shard);
    for (uint32_t k = 0; segment != NULL && k < segment_info(segment).slot_count; k++) {
        if (segment_image(segment, k) == image) {
            return segment_header(segment, k);
        }
    }
    return NULL;
}

bool __wrap_replica_base_is_bad(const struct replica_setup *replicas, const struct tier_item *item, uint32_t chunk,
                                struct segment **segment_out, uint32_t *k_out, struct error *err)
{
    const struct slot_header *base = header_at(replicas->memory, item->shard, item->base_image);
    bool held = base != NULL && base->state == SLOT_VERIFIED; /* else it was dropped for an earlier chunk */
    if (held && !damage_is_known(sim.current, item->shard, base->version)) {
        sim_violation("%s makes a copy of step %" PRIu64 " of term %" PRIu64 " from a base that has other bytes",
                      sim.current->name, item->version.step, item->version.term);
    }
    return __real_replica_base_is_bad(replicas, item, chunk, segment_out, k_out, err);
}

void judge_event(void)
{
    struct launch *launch = job.launch;
    if (sim.measure) {
        return;
    }
    bool trains = launch != NULL && launch->phase == PHASE_TRAIN;
    for (uint32_t r = 0; trains && r < launch->count; r++) {
        if (launch->ranks[r].status != NULL && launch->ranks[r].pid) {
            check_status(&launch->ranks[r]);
        }
    }
    quiet_us = doubts_of_notes() ? sim.us : quiet_us;
    for (uint32_t i = 0; i < sim.host_count; i++) {
        check_host(&sim.hosts[i]);
    }
    for (uint32_t i = 0; i < sim.host_count; i++) {
        check_memory(&sim.hosts[i]);
    }
}

void judge_all(void)
{
    struct launch *launch = job.launch;
    for (uint32_t r = 0; launch != NULL && r < launch->count; r++) {
        if (launch->ranks[r].status != NULL) {
            check_status(&launch->ranks[r]);
        }
    }
}

/* ---- restores ---------------------------------------------------------------------------------------------------- */

/* Machines that had the version but are not known now count as lost. */
static bool is_promised(void)
{
    const struct sealed_version *sealed = sealed_of(promise);
    if (version_none(promise) || sealed == NULL) {
        return false;
    }
    uint32_t left = (uint32_t)__builtin_popcountll(shape_hosts(sealed->shape) & ~known_hosts());
    uint32_t wanted = wanted_copies(sealed->shape);
    /* Then one machine's loss may lose it, or the newer version that was committed in its place. */
    bool fewest = gave_up.term == promise.term && !is_older(gave_up, promise);
    uint32_t fewer = fewest ? wanted - 1 : 0;
    return losses + left + fewer < wanted;
}

/* True if some machine's agent knows that the version was committed or restored. If none does, only storage can have
 * it. */
static bool is_known(const struct host *coordinator)
{
    if (!is_older(coordinator->restored, promise)) {
        return true;
    }
    for (uint32_t i = 0; i < sim.host_count; i++) {
        const struct host *host = &sim.hosts[i];
        if ((known_hosts() >> i & 1) && !(is_older(host->knows, promise) && is_older(host->restored, promise))) {
            return true;
        }
    }
    return false;
}

void judge_host_lost(struct host *host)
{
    catalog_lose(host);
    host->adopted = host->decided_in = 0;
    host->watermark = VERSION_NONE;
    bool together = lost_us == sim.us && lost_domain == host->domain;
    lost_us = host->lost_us = sim.us;
    lost_domain = host->domain;
    anchor_lose(host, !together);
    losses += !together;
    host->knows = host->restored = VERSION_NONE;
}

void judge_clock_jumped(void)
{
    quiet_us = sim.us;
}

void judge_damaged(const struct host *host, struct hash128 shard, struct version version)
{
    losses += !is_older(version, promise); /* a newer one may have replaced it without a report to trainers yet */
    if (!version_is(version, anchor.version)) {
        return;
    }
    anchor.losses++;
    for (uint32_t i = 0; i < anchor.count; i++) {
        if (hash128_is(anchor.copies[i].shard.id, shard)) {
            anchor.copies[i].hosts &= ~(UINT64_C(1) << host->index);
        }
    }
}

/* Storage has it, or another machine whose copy was not lost by a fault. */
static void check_left(const struct copies_of *c, const struct host *by)
{
    struct published_version p = {.version = VERSION_MOST};
    bool left = anchor.losses > 0;
    while (!left && published_next(&p)) {
        left = version_is(p.version, anchor.version);
    }
    for (uint32_t i = 0; i < sim.host_count && !left; i++) {
        const struct host *host = &sim.hosts[i];
        left = host != by && (c->hosts >> i & 1) &&
               (host->agent == NULL || judge_has_copy(host, &c->shard, anchor.version));
    }
    if (!left) {
        sim_violation("%s gives up the last copy of a shard of step %" PRIu64 " of term %" PRIu64, by->name,
                      anchor.version.step, anchor.version.term);
    }
}

void judge_given_up(const struct host *host, struct hash128 shard, struct version version)
{
    if (is_older(version, anchor.version)) {
        return;
    }
    gave_up = is_older(gave_up, version) ? version : gave_up;
    for (uint32_t i = 0; version_is(version, anchor.version) && i < anchor.count; i++) {
        if (hash128_is(anchor.copies[i].shard.id, shard)) {
            check_left(&anchor.copies[i], host);
            anchor.copies[i].hosts &= ~(UINT64_C(1) << host->index);
        }
    }
}

void judge_note_emptied(void)
{
    noted = false;
}

/* True if the rank got a report that a newer version was passed over. */
static bool was_reported(const struct rank *rank)
{
    return rank->passed_over[0] != '\0';
}

/* A launch that requests a step gets that step or an error. */
static void check_asked(const struct rank *rank)
{
    if (rank->fresh || rank->version.step != rank->launch->asked_step) {
        sim_violation("step %" PRIu64 " is restored, although step %" PRIu64 " was requested", rank->version.step,
                      rank->launch->asked_step);
    }
    check_sealed(rank->version, "restored");
}

static void check_version(const struct rank *rank)
{
    struct version v = rank->version;
    if (rank->launch->asked_step != TCK_NEWEST) {
        check_asked(rank);
        return;
    }
    if (rank->fresh) {
        struct published_version p = {.version = VERSION_MOST};
        if (published_next(&p)) {
            sim_violation("a fresh start, although step %" PRIu64 " of term %" PRIu64 " is on storage", p.version.step,
                          p.version.term);
        }
        if (rank->launch->noted && stored_notes(rank->launch->term)) {
            sim_violation("a fresh start, although storage says that something was committed, or cannot be read");
        }
        if (!version_none(promise) && (is_known(rank->host) || noted)) {
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
    } else if (is_older(v, promise) && is_known(rank->host) && !was_reported(rank)) {
        sim_violation("step %" PRIu64 " of term %" PRIu64 " is restored without a report that step %" PRIu64
                      " was committed",
                      v.step, v.term, promise.step);
    }
    if (is_older(v, anchor.version) && anchor_survives()) {
        sim_violation("step %" PRIu64 " of term %" PRIu64
                      " is restored, although there are copies of all of step %" PRIu64 " of term %" PRIu64
                      ", which was decided",
                      v.step, v.term, anchor.version.step, anchor.version.term);
    }
    if (is_older(v, stored_promise())) {
        sim_violation("step %" PRIu64 " is restored, although step %" PRIu64 " is published", v.step,
                      stored_promise().step);
    }
    if (is_older(v, archive_promise(rank->launch->began_us))) {
        sim_violation("step %" PRIu64 " is restored, although step %" PRIu64 " is in the archive", v.step,
                      archive_promise(rank->launch->began_us).step);
    }
    if (!was_reported(rank) && stored_passed_over(v) != NULL) {
        sim_violation("step %" PRIu64 " of term %" PRIu64 " is restored, without a report that %s is damaged", v.step,
                      v.term, stored_passed_over(v));
    }
}

/* From now on, the term continues from the requested step, even if its trainers are killed before they have restored
 * it. */
void judge_gone_back(struct version base)
{
    if (!version_none(base) && is_older(base, promise)) {
        promise = base;
        losses = UINT32_MAX / 2; /* the version may be missing in memory */
    }
}

void judge_restored(struct launch *launch)
{
    const struct rank *first = &launch->ranks[0];
    sim_log("restored: step %" PRIu64 " of term %" PRIu64 "%s%s", first->version.step, first->version.term,
            first->passed_over[0] ? ", " : "", first->passed_over);
    for (uint32_t r = 0; r < launch->count; r++) {
        if (!version_is(launch->ranks[r].version, first->version)) {
            sim_violation("ranks 0 and %u restore different versions", r);
        }
    }
    check_version(first);
    bool older = !first->fresh && is_older(first->version, promise);
    promise = older ? first->version
                    : promise; /* newer versions are given up; a version newer than the promise is not protected yet */
    losses =
        older && launch->asked_step != TCK_NEWEST ? UINT32_MAX / 2 : losses; /* the version may be missing in memory */
    owed = VERSION_NONE;
    job.committed = first->version.step;
    job.published = 0;
    if (first->resharded) { /* it comes from storage, independent of the contents of memory */
        stored_resharded(launch, first->version);
        anchor_reset(launch->term);
        promise = first->version;
        losses = UINT32_MAX / 2;
    }
    stored_restored(launch->term, first->version);
    quiet_us = sim.us;
}

void judge_unrecoverable(const struct launch *launch, const struct error *err)
{
    if (!version_none(archive_promise(launch->began_us))) {
        sim_violation("the saved versions are reported as lost, although step %" PRIu64 " is in the archive: %s",
                      archive_promise(launch->began_us).step, err->text);
    }
    if (is_promised() || anchor_survives() || !version_none(stored_promise())) {
        sim_violation("a committed version is reported as lost after %u lost machines: %s", losses, err->text);
    }
    sim_log("the saved versions are lost, and the loss was reported");
    job.lost = job.done = true;
}

/* ---- at rest ----------------------------------------------------------------------------------------------------- */

/* Memory must have the newest commit and nothing else: any other slot that stays in use is missing for further saves.
 */
static void check_slots(const struct host *host, const struct term_context *tc)
{
    for (uint32_t i = 0; i < node_slot_total(tc->node); i++) {
        const struct slot *slot = node_slot(tc->node, i);
        bool due = slot->state == SLOT_VERIFIED && version_is(slot->version, anchor.version);
        bool occupies = slot->state != SLOT_FREE && !tc->local_shards[slot->shard].gone;
        if ((occupies && !due) || slot->pins > 0) {
            sim_violation("%s keeps slot %u with step %" PRIu64 " of term %" PRIu64
                          " (%s, %u pins), although step %" PRIu64 " is committed",
                          host->name, i, slot->version.step, slot->version.term, slot_state_name(slot->state),
                          slot->pins, anchor.version.step);
        }
    }
}

/* Of a shard that a node only holds, no more slots have memory than it uses. */
static void check_unused_slots(const struct host *host, const struct term_context *tc)
{
    for (uint32_t i = 0; i < tc->setup.shard_count; i++) {
        uint32_t first = tc->local_shards[i].first_slot, have = 0;
        for (uint32_t k = 0; k < tc->shards[i].slot_count; k++) {
            have += !node_slot(tc->node, first + k)->withheld;
        }
        if (!tc->local_shards[i].gone &&
            have > slots_used(tc->shards[i].slot_count, tc->shards[i].storing_rank != NONE32)) {
            sim_violation("%s keeps memory for %u versions of a shard that it only holds", host->name, have);
        }
    }
}

void judge_drain_asked(const struct decision *d)
{
    owed = d->watermark;
}

/* True if its only copies were damaged before it was on storage, so that it cannot be recovered. */
static bool is_lost(const struct copies_of *c)
{
    bool damaged = false, somewhere = !is_older(stored_promise(), anchor.version);
    for (uint32_t i = 0; i < sim.host_count; i++) {
        const struct host *host = &sim.hosts[i];
        damaged = damaged || damage_is_known(host, c->shard.id, anchor.version);
        somewhere = somewhere || (host->agent != NULL && judge_has_copy(host, &c->shard, anchor.version));
    }
    return damaged && !somewhere;
}

static bool is_anchor_lost(void)
{
    bool lost = false;
    for (uint32_t i = 0; i < anchor.count; i++) {
        lost = lost || is_lost(&anchor.copies[i]);
    }
    return lost;
}

static void check_decision(const struct decision *d)
{
    bool lost = version_is(owed, anchor.version) && is_anchor_lost();
    if (!lost && is_older(d->published, owed) && is_older(stored_promise(), owed)) {
        sim_violation("a drain of step %" PRIu64 " of term %" PRIu64 " was requested, but it is not on storage",
                      owed.step, owed.term);
    }
    if (!d->based || d->open_count > 0 || !version_none(d->drain) || !version_is(d->watermark, anchor.version)) {
        sim_violation("the coordinator does not become idle: %s%u versions are open, step %" PRIu64
                      " is being drained, step %" PRIu64 " is committed",
                      d->based ? "" : "not based, ", d->open_count, d->drain.step, d->watermark.step);
    }
}

/* Every owner must have its copy: enough copies elsewhere do not replace it. */
static void check_owners(const struct launch *launch)
{
    for (uint32_t i = 0; !version_none(anchor.version) && i < launch->count * job.shards; i++) {
        const struct host *host = launch->ranks[i / job.shards].host;
        struct shard_info infos[2];
        rank_shard_ids(launch->shape, i / job.shards, infos);
        const struct copies_of *c = &anchor.copies[i];
        if (hash128_is(c->shard.id, infos[i % job.shards].id) && !is_lost(c) &&
            !judge_has_copy(host, &c->shard, anchor.version)) {
            sim_violation("%s has no copy of shard %u of rank %u of step %" PRIu64 " of term %" PRIu64, host->name,
                          i % job.shards, i / job.shards, anchor.version.step, anchor.version.term);
        }
    }
}

void judge_settled(const struct launch *launch)
{
    uint64_t members = shape_hosts(launch->shape);
    for (uint32_t i = 0; i < sim.host_count; i++) {
        const struct host *host = &sim.hosts[i];
        if (!(members >> i & 1)) {
            continue;
        }
        const struct term_context *tc = host->agent != NULL ? host->agent->term_context : NULL;
        if (tc == NULL || tc->closed || tc->world.term != launch->term) {
            sim_violation("%s takes no part in term %" PRIu64, host->name, launch->term);
            return;
        }
        if (launch->ranks[0].resharded && job.committed == launch->ranks[0].version.step) {
            continue; /* versions of older terms stay until something is committed with the new layout */
        }
        check_slots(host, tc);
        check_unused_slots(host, tc);
        if (tc->coordinator != NULL) {
            check_decision(coordinator_decision(tc->coordinator));
        }
    }
    for (uint32_t i = 0; i < anchor.count; i++) {
        if (!is_lost(&anchor.copies[i])) {
            find_copies(&anchor.copies[i], UINT64_MAX);
        }
    }
    if (anchor.count == launch->count * job.shards) {
        check_owners(launch);
    }
}

void judge_published(struct version version)
{
    check_sealed(version, "published");
}
