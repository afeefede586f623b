/* SPDX-License-Identifier: Apache-2.0
 * The metrics of an agent: the table of all of them, and the samples that each one has. A value that is not known is
 * left out rather than given as 0. */
#include "agent/metrics/metrics_text.h"

#include "agent/report/derived.h"
#include "base/exposition.h"

#include <ctype.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#define MS  3u /* decimals of seconds that are known in milliseconds, */
#define PPM 6u /* of parts that are known in millionths, */
#define NS  9u /* in nanoseconds */

static void plain(struct exposition *x, uint64_t value)
{
    exposition_sample(x, NULL, 0, value, 0);
}

static void seconds_of_ms(struct exposition *x, uint64_t ms)
{
    exposition_sample(x, NULL, 0, ms, MS);
}

static void labelled(struct exposition *x, const char *name, const char *value, uint64_t number)
{
    exposition_sample(x, &(struct label){name, value}, 1, number, 0);
}

/* ---- the agent ----------------------------------------------------------------------------------------------- */

static void build_info(struct exposition *x, const struct report *r)
{
    (void)r;
    labelled(x, "version", TCK_VERSION, 1);
}

static void config_info(struct exposition *x, const struct report *r)
{
    const struct config *c = r->config;
    char copies[16], slots[16];
    snprintf(copies, sizeof(copies), "%u", c->copies);
    snprintf(slots, sizeof(slots), "%u", c->slots);
    const struct label labels[] = {{"domain", c->domain},
                                   {"copies", copies},
                                   {"slots", slots},
                                   {"on_node_loss", c->on_node_loss == ON_NODE_LOSS_REPORT ? "report" : "end_trainers"},
                                   {"storage_verify", c->storage_verify == SWITCH_ON ? "on" : "off"}};
    exposition_sample(x, labels, sizeof(labels) / sizeof(*labels), 1, 0);
}

/* With storage_format framework the interval is that of the framework's own checkpoints, of which the agent knows
 * nothing: an alert would say that storage is late. */
static bool publishes(const struct report *r)
{
    return r->config->storage_format != STORAGE_FORMAT_FRAMEWORK;
}

static void interval_steps(struct exposition *x, const struct report *r)
{
    labelled(x, "tier", "memory", r->save_mem_steps);
    labelled(x, "tier", "storage", publishes(r) ? r->save_storage_steps : 0);
}

static void interval_seconds(struct exposition *x, const struct report *r)
{
    const struct interval *memory = &r->config->save_mem_interval, *storage = &r->config->save_storage_interval;
    double storage_seconds = publishes(r) ? storage->seconds : 0;
    exposition_sample(x, &(struct label){"tier", "memory"}, 1, (uint64_t)(memory->seconds * 1000), MS);
    exposition_sample(x, &(struct label){"tier", "storage"}, 1, (uint64_t)(storage_seconds * 1000), MS);
}

static void start_time(struct exposition *x, const struct report *r)
{
    seconds_of_ms(x, r->start_wall_ms);
}

static void updated(struct exposition *x, const struct report *r)
{
    seconds_of_ms(x, r->now_wall_ms);
}

static void cpu(struct exposition *x, const struct report *r)
{
    exposition_sample(x, NULL, 0, r->cpu_ns, NS);
}

static void queues(struct exposition *x, const struct report *r)
{
    labelled(x, "queue", "digest", r->queues.digest);
    labelled(x, "queue", "storage", r->queues.storage);
    labelled(x, "queue", "claim", r->queues.claim);
}

static void stale_messages(struct exposition *x, const struct report *r)
{
    plain(x, r->stale_messages);
}

static void files(struct exposition *x, const struct report *r)
{
    labelled(x, "held_by", "agent alone", r->parked.not_parked);
    labelled(x, "held_by", r->parked.with, r->parked.files - r->parked.not_parked);
}

static void operations(struct exposition *x, const struct report *r)
{
    struct operation of[OPERATIONS];
    report_operations(r, of);
    for (size_t i = 0; i < OPERATIONS; i++) {
        exposition_sample(x, &(struct label){"operation", of[i].name}, 1, of[i].age_ms, MS);
    }
}

/* ---- the job ------------------------------------------------------------------------------------------------- */

/* A node whose term is over does not know how the job is: its connections are closed, and its decisions are old. */
static bool in_force(const struct report *r)
{
    return r->in_term.joined && !r->in_term.closed;
}

static void term(struct exposition *x, const struct report *r)
{
    plain(x, r->term);
}

static void term_over(struct exposition *x, const struct report *r)
{
    if (r->in_term.joined) {
        plain(x, r->in_term.closed);
    }
}

static void coordinator(struct exposition *x, const struct report *r)
{
    if (in_force(r)) {
        plain(x, r->in_term.coordinator);
    }
}

static void ranks(struct exposition *x, const struct report *r)
{
    if (in_force(r)) {
        plain(x, r->in_term.ranks);
    }
}

static void trainers(struct exposition *x, const struct report *r)
{
    plain(x, r->trainers.count);
}

static void restoring(struct exposition *x, const struct report *r)
{
    plain(x, r->trainers.restoring);
}

static void training_step(struct exposition *x, const struct report *r)
{
    if (r->trainers.count > 0) {
        plain(x, r->trainers.step);
    }
}

static void step_time(struct exposition *x, const struct report *r)
{
    if (r->trainers.step_ns > 0) {
        exposition_sample(x, NULL, 0, r->trainers.step_ns, NS);
    }
}

static void save_stall(struct exposition *x, const struct report *r)
{
    const struct stalls *s = &r->trainers.stalls;
    uint64_t count = 0;
    for (unsigned i = 0; i < STALL_BUCKETS; i++) {
        char bound[32] = "+Inf";
        count += s->buckets[i];
        if (i < STALL_BOUNDS) {
            snprintf(bound, sizeof(bound), "%g", (double)stall_bound_us(i) / 1e6);
        }
        exposition_part(x, "_bucket", &(struct label){"le", bound}, 1, count, 0);
    }
    exposition_part(x, "_sum", NULL, 0, s->total_ns, NS);
    exposition_part(x, "_count", NULL, 0, count, 0);
}

static void nodes(struct exposition *x, const struct report *r)
{
    for (int i = 0; in_force(r) && i < NODE_STATES; i++) {
        labelled(x, "state", node_state_name((enum node_state)i), r->in_term.nodes[i]);
    }
}

static void nodes_lost(struct exposition *x, const struct report *r)
{
    for (size_t i = 0; in_force(r) && i < REPORT_LOST_MAX && r->in_term.lost[i] != NULL; i++) {
        labelled(x, "peer", r->in_term.lost[i], 1);
    }
}

static void sessions(struct exposition *x, const struct report *r)
{
    for (size_t i = 0; in_force(r) && i < ADDRESSES_MAX; i++) {
        char number[16];
        snprintf(number, sizeof(number), "%zu", i + 1);
        labelled(x, "address", number, r->in_term.sessions[i]);
    }
}

static void sessions_relayed(struct exposition *x, const struct report *r)
{
    if (in_force(r)) {
        plain(x, r->in_term.relayed);
    }
}

static void silent_addresses(struct exposition *x, const struct report *r)
{
    for (size_t i = 0; in_force(r) && i < REPORT_LOST_MAX && i < r->in_term.silent_count; i++) {
        const struct report_silent *silent = &r->in_term.silent[i];
        const struct label labels[] = {{"peer", silent->node}, {"address", silent->address}};
        exposition_sample(x, labels, 2, 1, 0);
    }
}

/* ---- versions ------------------------------------------------------------------------------------------------ */

static void newest(struct exposition *x, const struct report *r, const char *tier, struct version v, uint64_t value)
{
    if (in_force(r) && !version_none(v)) {
        labelled(x, "tier", tier, value);
    }
}

static void newest_step(struct exposition *x, const struct report *r)
{
    const struct decision *d = &r->in_term.decision;
    newest(x, r, "memory", d->watermark, d->watermark.step);
    newest(x, r, "storage", d->published, d->published.step);
}

static void newest_term(struct exposition *x, const struct report *r)
{
    const struct decision *d = &r->in_term.decision;
    newest(x, r, "memory", d->watermark, d->watermark.term);
    newest(x, r, "storage", d->published, d->published.term);
}

static void newest_time(struct exposition *x, const struct report *r)
{
    static const struct {
        const char *tier;
        enum stage stage;
    } of[] = {{"memory", STAGE_COMMITTED}, {"storage", STAGE_PUBLISHED}};
    for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
        uint64_t ms = r->tally.stage_wall_ms[of[i].stage];
        if (ms != 0) {
            exposition_sample(x, &(struct label){"tier", of[i].tier}, 1, ms, MS);
        }
    }
}

static void undecided(struct exposition *x, const struct report *r)
{
    if (in_force(r)) {
        plain(x, r->in_term.decision.open_count);
    }
}

static void version_bytes(struct exposition *x, const struct report *r)
{
    if (in_force(r)) {
        plain(x, r->in_term.version_bytes);
    }
}

static void held_back(struct exposition *x, const struct report *r)
{
    if (in_force(r)) {
        plain(x, r->in_term.decision.not_before > 0);
    }
}

static void recovered(struct exposition *x, const struct report *r)
{
    if (in_force(r)) {
        plain(x, decision_is_recovered(&r->in_term.decision));
    }
}

static void older_restored(struct exposition *x, const struct report *r)
{
    if (in_force(r)) {
        plain(x, r->in_term.passed_over[0] != '\0');
    }
}

static void saves_begun(struct exposition *x, const struct report *r)
{
    plain(x, r->tally.saves_begun);
}

/* REFUSAL_NO_SLOT is "no_slot". */
static void lower_case(const char *name, char *out, size_t cap)
{
    size_t len = 0;
    for (; name[len] != '\0' && len < cap - 1; len++) {
        out[len] = (char)(tolower)((unsigned char)name[len]); /* the function: its macro is a page of code */
    }
    out[len] = '\0';
}

static void saves_refused(struct exposition *x, const struct report *r)
{
#define REASON(name, text) [REFUSAL_##name] = #name,
    static const char *const names[TALLY_REFUSALS] = {REFUSAL_MAP(REASON)};
#undef REASON
    for (int i = REFUSAL_NONE + 1; i < TALLY_REFUSALS; i++) {
        char reason[32];
        lower_case(names[i], reason, sizeof(reason));
        labelled(x, "reason", reason, r->tally.saves_refused[i]);
    }
}

static void versions(struct exposition *x, const struct report *r)
{
    static const char *const names[TALLY_STAGES] = {[STAGE_PROTECTED] = "protected",
                                                    [STAGE_COMMITTED] = "committed",
                                                    [STAGE_PUBLISHED] = "published",
                                                    [STAGE_FAILED] = "aborted"};
    for (int i = 0; i < TALLY_STAGES; i++) {
        labelled(x, "result", names[i], r->tally.versions[i]);
    }
}

/* ---- copies -------------------------------------------------------------------------------------------------- */

static void copies_missing(struct exposition *x, const struct report *r)
{
    plain(x, r->scrub.copies_missing);
}

static void shards(struct exposition *x, const struct report *r)
{
    if (in_force(r)) {
        plain(x, r->in_term.shards);
    }
}

/* With one node, no other node could hold a copy. */
static void shards_short(struct exposition *x, const struct report *r)
{
    uint64_t count = 0;
    for (int i = 0; i < NODE_STATES; i++) {
        count += r->in_term.nodes[i];
    }
    if (in_force(r)) {
        plain(x, count > 1 ? r->in_term.shards_short : 0);
    }
}

static void divergences(struct exposition *x, const struct report *r)
{
    if (in_force(r)) {
        plain(x, r->in_term.divergences);
    }
}

static void mismatches(struct exposition *x, const struct report *r)
{
    labelled(x, "tier", "memory", r->scrub.slots_bad);
    labelled(x, "tier", "storage", r->storage_scrub.files_bad);
}

static void repairs(struct exposition *x, const struct report *r)
{
    labelled(x, "tier", "memory", r->scrub.copies_repaired);
    labelled(x, "tier", "storage", r->storage_scrub.files_repaired);
}

static void recoveries(struct exposition *x, const struct report *r)
{
    labelled(x, "result", "restored", r->recoveries.restored);
    labelled(x, "result", "resharded", r->recoveries.resharded);
    labelled(x, "result", "fresh", r->recoveries.fresh);
    labelled(x, "result", "failed", r->recoveries.failed);
    labelled(x, "result", "base_lost", r->recoveries.bases_lost);
}

static void last_recovery(struct exposition *x, const struct report *r)
{
    if (r->recoveries.last_ms > 0) {
        seconds_of_ms(x, r->recoveries.last_ms);
    }
}

static void fetched(struct exposition *x, const struct report *r)
{
    for (uint32_t i = 0; i < SOURCE_KINDS; i++) {
        labelled(x, "source", source_kind_name(i), r->fetches.shards[i]);
    }
}

static void fetches_failed(struct exposition *x, const struct report *r)
{
    plain(x, r->fetches.failed);
}

static void moved(struct exposition *x, const char *tier, const char *direction, uint64_t bytes)
{
    exposition_sample(x, (struct label[]){{"tier", tier}, {"direction", direction}}, 2, bytes, 0);
}

static void bytes_moved(struct exposition *x, const struct report *r)
{
    const uint64_t *fetches = r->fetches.bytes;
    moved(x, "memory", "in", r->tally.digested_bytes);
    moved(x, "peer", "in", r->tally.received_bytes + fetches[SOURCE_TWIN] + fetches[SOURCE_PEER]);
    moved(x, "peer", "out", r->tally.copied_bytes + r->tally.pulled_bytes);
    moved(x, "storage", "in", fetches[SOURCE_STORAGE]);
    moved(x, "storage", "out", r->drains.bytes);
}

static void unchanged(struct exposition *x, const struct report *r)
{
    moved(x, "peer", "in", r->tally.unchanged_in_bytes);
    moved(x, "peer", "out", r->tally.unchanged_out_bytes);
    moved(x, "storage", "out", r->drains.shared_bytes);
}

/* ---- pacing ---- */

/* An estimate may be below 0, since steps are not all alike; the format has no such values here. */
static void part(struct exposition *x, const char *name, const char *value, double number)
{
    const struct label label = {name, value};
    exposition_sample(x, &label, name != NULL, number > 0 ? (uint64_t)(number * 1e6 + 0.5) : 0, PPM);
}

static void inflation(struct exposition *x, const struct report *r)
{
    const struct inflation *e = &r->pacing.inflation;
    if (e->pairs > 0) {
        part(x, "bound", "low", e->low);
        part(x, "bound", "mean", e->mean);
        part(x, "bound", "high", e->high);
    }
}

static void target_inflation(struct exposition *x, const struct report *r)
{
    part(x, NULL, NULL, r->pacing.target);
}

static void pace_spread(struct exposition *x, const struct report *r)
{
    part(x, NULL, NULL, r->pacing.spread);
}

static void pace_rate(struct exposition *x, const struct report *r)
{
    labelled(x, "tier", "peer", (uint64_t)r->pacing.rate[LANE_COPIES]);
    labelled(x, "tier", "storage", (uint64_t)r->pacing.rate[LANE_DRAIN]);
}

/* ---- storage and memory -------------------------------------------------------------------------------------- */

static void storage_good(struct exposition *x, const struct report *r)
{
    plain(x, r->storage.trouble->code == TCK_OK);
}

static void storage_since(struct exposition *x, const struct report *r)
{
    if (r->storage.trouble->code != TCK_OK) {
        seconds_of_ms(x, r->storage.trouble->since_ms);
    }
}

static void storage_missed(struct exposition *x, const struct report *r)
{
    plain(x, r->storage.trouble->code != TCK_OK ? r->storage.trouble->steps : 0);
}

static void storage_calls(struct exposition *x, const struct report *r)
{
    plain(x, r->storage.calls);
}

static void drains(struct exposition *x, const struct report *r)
{
    labelled(x, "result", "written", r->drains.written);
    labelled(x, "result", "failed", r->drains.failed);
}

static void archive_good(struct exposition *x, const struct report *r)
{
    plain(x, r->archive.trouble.code == TCK_OK);
}

static void archive_step(struct exposition *x, const struct report *r)
{
    if (!version_none(r->archive.archived)) {
        plain(x, r->archive.archived.step);
    }
}

static void archive_files(struct exposition *x, const struct report *r)
{
    plain(x, r->archive.files);
}

static void memory_used(struct exposition *x, const struct report *r)
{
    if (!r->memory.changing) {
        plain(x, r->memory.used_bytes);
    }
}

static void memory_limit(struct exposition *x, const struct report *r)
{
    plain(x, r->config->memory_cap_bytes);
}

static void memory_level(struct exposition *x, const struct report *r)
{
    if (r->pressure.watched) {
        plain(x, r->pressure.level);
    }
}

static void memory_available(struct exposition *x, const struct report *r)
{
    if (r->pressure.watched) {
        plain(x, r->pressure.available_bytes);
    }
}

static void memory_reserved(struct exposition *x, const struct report *r)
{
    if (r->pressure.watched) {
        plain(x, r->pressure.reserve_bytes);
    }
}

static void given_back(struct exposition *x, const struct report *r)
{
    plain(x, r->pressure.bytes_given_back);
}

static void given_up(struct exposition *x, const struct report *r)
{
    plain(x, r->pressure.copies_given_up);
}

static void suspended(struct exposition *x, const struct report *r)
{
    plain(x, r->pressure.saving_suspended);
}

static void slots_by_state(struct exposition *x, const struct report *r, const uint64_t *values)
{
    for (int i = 0; !r->memory.changing && i < SLOT_STATES; i++) {
        labelled(x, "state", slot_state_name((enum slot_state)i), values[i]);
    }
}

static void slots(struct exposition *x, const struct report *r)
{
    slots_by_state(x, r, r->memory.slots);
}

static void slot_bytes(struct exposition *x, const struct report *r)
{
    slots_by_state(x, r, r->memory.slot_bytes);
}

/* ---- all of them --------------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *labels; /* those beside job_id and node */
    enum family_kind kind;
    const char *help;
    void (*samples)(struct exposition *x, const struct report *r);
} families[] = {
    /* the agent */
    {"tierckpt_build_info", "version", FAMILY_GAUGE, "The version of the agent; always 1.", build_info},
    {"tierckpt_config_info", "domain, copies, slots, on_node_loss, storage_verify", FAMILY_GAUGE,
     "Settings of the agent; always 1.", config_info},
    {"tierckpt_save_interval_steps", "tier", FAMILY_GAUGE,
     "Steps from one save to the next, by where it goes; 0: not by steps, or not as versions.", interval_steps},
    {"tierckpt_save_interval_seconds", "tier", FAMILY_GAUGE,
     "Time from one save to the next, by where it goes; 0: not by time, or not as versions.", interval_seconds},
    {"tierckpt_agent_start_time_seconds", "", FAMILY_GAUGE, "When this agent process started.", start_time},
    {"tierckpt_updated_timestamp_seconds", "", FAMILY_GAUGE,
     "When these values were read. Old if the agent hangs or is dead.", updated},
    {"tierckpt_agent_cpu_seconds_total", "", FAMILY_COUNTER, "Processor time of the agent.", cpu},
    {"tierckpt_queue_length", "queue", FAMILY_GAUGE, "Jobs that wait for a thread of the agent.", queues},
    {"tierckpt_stale_messages_total", "", FAMILY_COUNTER, "Messages of older terms that were refused.", stale_messages},
    {"tierckpt_memory_files", "held_by", FAMILY_GAUGE,
     "Files of this node's memory, by who holds them. Those that the agent alone holds are lost if it dies.", files},
    {OPERATION_FAMILY, "operation", FAMILY_GAUGE, OPERATION_FAMILY_HELP, operations},
    /* the job */
    {"tierckpt_term", "", FAMILY_GAUGE, "Newest term that this node knows of.", term},
    {"tierckpt_term_over", "", FAMILY_GAUGE, "1: the term that this node has joined is over.", term_over},
    {"tierckpt_coordinator", "", FAMILY_GAUGE, "1: this node is the coordinator of its term.", coordinator},
    {"tierckpt_ranks", "", FAMILY_GAUGE, "Ranks of the term, on all nodes.", ranks},
    {"tierckpt_trainers", "", FAMILY_GAUGE, "Trainers of this node that are connected.", trainers},
    {"tierckpt_trainers_restoring", "", FAMILY_GAUGE, "Trainers of this node that wait for a restore.", restoring},
    {"tierckpt_training_step", "", FAMILY_GAUGE, "Step that the fastest trainer of this node has reached.",
     training_step},
    {"tierckpt_training_step_duration_seconds", "", FAMILY_GAUGE,
     "Smoothed time of a step, of the slowest trainer here.", step_time},
    {"tierckpt_save_stall_seconds", "", FAMILY_HISTOGRAM,
     "How long each save kept a trainer of this node from training, in the call and before the optimizer's step.",
     save_stall},
    {"tierckpt_nodes", "state", FAMILY_GAUGE,
     "Nodes of the term, as this one sees them. Only the coordinator has sessions with all of them. no copies: reached "
     "through another node, though copies need a direct session.",
     nodes},
    {"tierckpt_node_lost", "peer", FAMILY_GAUGE,
     "1 for each lost node that this one knows of; none is shown otherwise.", nodes_lost},
    {"tierckpt_sessions", "address", FAMILY_GAUGE,
     "Nodes with a direct session, by which of their addresses is in use: 1 is the first in net_device or net_address.",
     sessions},
    {"tierckpt_sessions_relayed", "", FAMILY_GAUGE,
     "Nodes whose session another node relays: they are up, and no address of theirs is in use.", sessions_relayed},
    {"tierckpt_address_silent", "peer, address", FAMILY_GAUGE,
     "1 for each address at which a connected node does not answer; none is shown otherwise, nor of a node whose "
     "session is relayed.",
     silent_addresses},
    /* versions */
    {"tierckpt_newest_version_step", "tier", FAMILY_GAUGE,
     "Step of the newest committed version (memory) and of the newest one published in this term (storage).",
     newest_step},
    {"tierckpt_newest_version_term", "tier", FAMILY_GAUGE, "Term in which that version was saved.", newest_term},
    {"tierckpt_newest_version_timestamp_seconds", "tier", FAMILY_GAUGE,
     "When this agent last saw a version committed (memory) or published (storage).", newest_time},
    {"tierckpt_versions_undecided", "", FAMILY_GAUGE, "Versions that are neither committed nor aborted yet.",
     undecided},
    {"tierckpt_version_bytes", "", FAMILY_GAUGE, "Size of one version of the whole job.", version_bytes},
    {"tierckpt_saves_held_back", "", FAMILY_GAUGE,
     "1: most saves are skipped, because they come faster than they can be copied.", held_back},
    {"tierckpt_recovered", "", FAMILY_GAUGE, "1: the recovery of this term is over.", recovered},
    {"tierckpt_older_version_restored", "", FAMILY_GAUGE, "1: this term restored a version that was not the newest.",
     older_restored},
    {"tierckpt_saves_begun_total", "", FAMILY_COUNTER, "Saves that trainers of this node have begun.", saves_begun},
    {"tierckpt_saves_refused_total", "reason", FAMILY_COUNTER,
     "Saves of trainers of this node that were refused, by reason.", saves_refused},
    {"tierckpt_versions_total", "result", FAMILY_COUNTER,
     "Versions that were protected on this node, committed, published, or aborted.", versions},
    /* copies */
    {"tierckpt_copies_missing", "", FAMILY_GAUGE,
     "Copies of the committed version that this node should have and lacks.", copies_missing},
    {"tierckpt_shards", "", FAMILY_GAUGE, "Shards of a version of the whole job.", shards},
    {"tierckpt_shards_short_of_domains", "", FAMILY_GAUGE,
     "Shards with fewer copies in distinct failure domains than configured.", shards_short},
    {"tierckpt_twin_divergences_total", "", FAMILY_COUNTER,
     "Shards of data-parallel ranks that differed, as the coordinator sees them.", divergences},
    {"tierckpt_digest_mismatches_total", "tier", FAMILY_COUNTER,
     "Copies that did not match their digests when checked.", mismatches},
    {"tierckpt_repairs_total", "tier", FAMILY_COUNTER, "Copies that were made again.", repairs},
    {"tierckpt_recoveries_total", "result", FAMILY_COUNTER, "Recoveries that this node has led, by their outcome.",
     recoveries},
    {"tierckpt_last_recovery_duration_seconds", "", FAMILY_GAUGE,
     "How long the last recovery took until all ranks could read; on the node that led it.", last_recovery},
    {"tierckpt_fetched_shards_total", "source", FAMILY_COUNTER,
     "Shards that were restored or repaired on this node, by source.", fetched},
    {"tierckpt_fetches_failed_total", "", FAMILY_COUNTER, "Attempts to fetch a shard that failed.", fetches_failed},
    {"tierckpt_transferred_bytes_total", "tier, direction", FAMILY_COUNTER,
     "Bytes of shards that were saved (memory) and that went to and came from other nodes (peer) and storage.",
     bytes_moved},
    {"tierckpt_unchanged_bytes_total", "tier, direction", FAMILY_COUNTER,
     "Bytes of copies that were not sent (peer, out) and not received (peer, in), because the other node, or this one, "
     "had them in the version before; and of files that share them with those of the version before, so that they were "
     "not written (storage, out).",
     unchanged},
    /* pacing */
    {"tierckpt_step_inflation_ratio", "bound", FAMILY_GAUGE,
     "By which part of its time copies and drains make a step longer, while they run: mean and 95 % interval of this "
     "node's last measurements; 0 if it is below.",
     inflation},
    {"tierckpt_step_inflation_target_ratio", "", FAMILY_GAUGE, "What target_inflation allows; 0: nothing is throttled.",
     target_inflation},
    {"tierckpt_pace_spread_ratio", "", FAMILY_GAUGE,
     "Part of the time between versions that the bytes of one are spread over.", pace_spread},
    {"tierckpt_pace_bytes_per_second", "tier", FAMILY_GAUGE,
     "Rate at which the last copies (peer) and the last drain (storage) began; 0: not limited.", pace_rate},
    /* storage and memory */
    {"tierckpt_storage_good", "", FAMILY_GAUGE, "0: something on storage has failed and has not succeeded since.",
     storage_good},
    {"tierckpt_storage_failing_since_timestamp_seconds", "", FAMILY_GAUGE, "Since when storage fails.", storage_since},
    {"tierckpt_storage_steps_missed", "", FAMILY_GAUGE, "Steps that did not reach storage since it fails.",
     storage_missed},
    {"tierckpt_storage_calls", "", FAMILY_GAUGE, "Operations on storage that are under way.", storage_calls},
    {"tierckpt_drains_total", "result", FAMILY_COUNTER, "Parts of versions that this node has written to storage.",
     drains},
    {"tierckpt_archive_good", "", FAMILY_GAUGE, "0: a copy to archive_dir has failed and has not succeeded since.",
     archive_good},
    {"tierckpt_archived_step", "", FAMILY_GAUGE, "Newest step in archive_dir, as the coordinator's node knows it.",
     archive_step},
    {"tierckpt_archived_files_total", "", FAMILY_COUNTER, "Files that this node has copied to archive_dir.",
     archive_files},
    {"tierckpt_memory_used_bytes", "", FAMILY_GAUGE, "Memory of this node that holds snapshots or is free for them.",
     memory_used},
    {"tierckpt_memory_limit_bytes", "", FAMILY_GAUGE, "What memory_cap_bytes allows.", memory_limit},
    {"tierckpt_memory_pressure", "", FAMILY_GAUGE, "How short of memory this node is: 0 enough, 1 low, 2 critical.",
     memory_level},
    {"tierckpt_memory_available_bytes", "", FAMILY_GAUGE,
     "What the machine or the agent's control group has left, whichever has less.", memory_available},
    {"tierckpt_memory_reserve_bytes", "", FAMILY_GAUGE, "What memory_reserve_bytes wants to be left.", memory_reserved},
    {"tierckpt_memory_given_back_bytes", "", FAMILY_GAUGE,
     "Bytes of slots that were given back because memory is short.", given_back},
    {"tierckpt_copies_given_up", "", FAMILY_GAUGE,
     "Copies of the newest committed version that this node has given up because memory was short.", given_up},
    {"tierckpt_saving_suspended", "", FAMILY_GAUGE,
     "1: nothing is saved because this node has given back the slots that a save needs.", suspended},
    {"tierckpt_slots", "state", FAMILY_GAUGE, "Snapshots in this node's memory, by state.", slots},
    {"tierckpt_slot_bytes", "state", FAMILY_GAUGE, "Bytes of the snapshots in this node's memory, by state.",
     slot_bytes},
};

#define FAMILY_COUNT (sizeof(families) / sizeof(*families))

bool metrics_family(size_t i, struct metrics_help *out)
{
    if (i >= FAMILY_COUNT) {
        return false;
    }
    *out = (struct metrics_help){.name = families[i].name,
                                 .labels = families[i].labels,
                                 .kind = family_kind_name(families[i].kind),
                                 .help = families[i].help};
    return true;
}

/* Without an archive_dir there is nothing to read of it, not even what the metrics mean. */
static bool is_left_out(size_t i, const struct report *report)
{
    bool of_archive = families[i].samples == archive_good || families[i].samples == archive_step ||
                      families[i].samples == archive_files;
    return of_archive && !report->archive.used;
}

char *metrics_text(const struct report *report, size_t *len_out)
{
    struct exposition x;
    const struct label common[] = {{"job_id", report->config->job}, {"node", report->config->node}};
    exposition_begin(&x, METRICS_TEXT_MAX, common, sizeof(common) / sizeof(*common));
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        if (is_left_out(i, report)) {
            continue;
        }
        exposition_family(&x, families[i].name, families[i].kind, families[i].help);
        families[i].samples(&x, report);
    }
    return exposition_end(&x, len_out);
}
