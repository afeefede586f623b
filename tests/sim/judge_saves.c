/* SPDX-License-Identifier: Apache-2.0
 * Checks the guarantees for saves: no committed version is reported to trainers as failed, slots with sealed versions
 * are not reused, there is room for the training's last step, and no drain fails for an impossible reason. */
#include "sim.h"

#include "agent/state/hard_state.h"
#include "agent/storage/health.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

/* ---- reports to trainers ----------------------------------------------------------------------------------------- */

/* The version may have been committed for a while if a newer one is committed: then it is no longer needed, unless it
 * is being drained. A version that only this node has refused may still be committed. */
static void check_failed(const struct rank *rank, struct version version)
{
    const struct agent *agent = rank->host->agent;
    const struct decision *d = agent != NULL ? &hard_state_get(agent->state)->decision : NULL;
    if (d != NULL && d->term == version.term && decision_fate(d, version) == FATE_UNDECIDED) {
        sim_violation("rank %u gets a report that step %" PRIu64 " of term %" PRIu64
                      " has failed, although it is undecided",
                      rank->number, version.step, version.term);
    }
    if (judge_is_committed(version) || (d != NULL && version_is(version, d->drain))) {
        sim_violation("rank %u gets a report that step %" PRIu64 " of term %" PRIu64 " has failed, although it is %s",
                      rank->number, version.step, version.term,
                      judge_is_committed(version) ? "committed" : "being drained");
    }
    judge_reported_failed(version);
}

void judge_status(struct rank *rank)
{
    uint64_t failed = atomic_load(&rank->status->failed_step);
    if (failed != rank->failed && failed > 0) {
        check_failed(rank, (struct version){rank->launch->term, failed});
    }
    rank->failed = failed;
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

/* A slot that a trainer has sealed must be verified or freed before it is reused. A fetch may give up a verified
 * version at once. */
void judge_header(const struct slot_header *before, const struct slot_header *now)
{
    if (before->state == SLOT_SEALED && (now->state == SLOT_FILLING || now->state == SLOT_RECEIVING)) {
        sim_violation("%s fills a slot with step %" PRIu64 " of term %" PRIu64
                      ", although a trainer sealed step %" PRIu64 " of term %" PRIu64 " there, which was never freed",
                      sim.current->name, now->version.step, now->version.term, before->version.step,
                      before->version.term);
    }
    const struct term_context *tc = sim.current->agent != NULL ? sim.current->agent->term_context : NULL;
    bool begun = before->state == SLOT_FREE && now->state == SLOT_FILLING && tc != NULL;
    if (begun && now->version.term == tc->world.term &&
        !decision_lets_begin(node_decision(tc->node), now->version.step)) {
        sim_violation("%s begins step %" PRIu64 " of term %" PRIu64 ", which is throttled", sim.current->name,
                      now->version.step, now->version.term);
    }
}

/* Such a copy would be freed only with the next decision, if there is one. */
void judge_copy_taken(const struct agent *agent, struct version version)
{
    const struct term_context *tc = agent->term_context;
    if (tc != NULL && decision_fate(node_decision(tc->node), version) == FATE_OVER) {
        sim_violation("%s takes a copy of step %" PRIu64 " of term %" PRIu64 ", which is over", sim.current->name,
                      version.step, version.term);
    }
}

/* ---- the last step ----------------------------------------------------------------------------------------------- */

/* The ranks repeat the request until there is room; any other answer to a rank ends the step for all of them. */
void judge_last_refused(const struct rank *rank, const struct error *err)
{
    static const enum refusal of_room[] = {REFUSAL_NO_SLOT, REFUSAL_QUARANTINED, REFUSAL_HELD_BACK};
    for (size_t i = 0; i < sizeof(of_room) / sizeof(of_room[0]); i++) {
        if (err->code != TCK_ERR_NOSPC && strstr(err->text, refusal_text(of_room[i])) != NULL) {
            sim_violation(
                "rank %u is refused the last step for lack of room, although room becomes available by itself: %s",
                rank->number, err->text);
        }
    }
    const struct term_context *tc = rank->host->agent != NULL ? rank->host->agent->term_context : NULL;
    if (tc != NULL && tc->coordinator != NULL && tc->world.term == rank->launch->term &&
        coordinator_decision(tc->coordinator)->not_before > rank->launch->last_step) {
        sim_violation("the last step, %" PRIu64 ", is throttled, although no later save needs the room",
                      rank->launch->last_step);
    }
}

/* ---- drains ------------------------------------------------------------------------------------------------------ */

void __real_health_storage_failed(struct health *h, uint64_t step, const struct error *why);
void __wrap_health_storage_failed(struct health *h, uint64_t step, const struct error *why);

void __wrap_health_storage_failed(struct health *h, uint64_t step, const struct error *why)
{
    if (why->code == TCK_ERR_INTERNAL) {
        sim_violation("%s fails to store step %" PRIu64 " because of its own error: %s", sim.current->name, step,
                      why->text);
    }
    __real_health_storage_failed(h, step, why);
}
