/* SPDX-License-Identifier: Apache-2.0
 * What is promised of saves: trainers are not told that a version failed that is committed, what was sealed is not
 * given away, there is room for the training's last step, and no drain fails for a reason that cannot be. */
#include "sim.h"

#include "agent/state/hard_state.h"
#include "agent/storage/health.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

/* ---- what trainers are told ----------------------------------------------------------------------------------------
 */

/* It may have been committed for a while, if a newer one is: then nobody needs it, unless it is being drained. What
 * only this node has refused may still be committed. */
static void check_failed(const struct rank *rank, struct version version)
{
    const struct agent *agent = rank->host->agent;
    const struct decision *d = agent != NULL ? &hard_state_get(agent->state)->decision : NULL;
    if (d != NULL && d->term == version.term && decision_fate(d, version) == FATE_UNDECIDED) {
        sim_violation("rank %u is told that step %" PRIu64 " of term %" PRIu64 " has failed, and it is undecided",
                      rank->number, version.step, version.term);
    }
    if (judge_is_committed(version) || (d != NULL && version_is(version, d->drain))) {
        sim_violation("rank %u is told that step %" PRIu64 " of term %" PRIu64 " has failed, and it is %s",
                      rank->number, version.step, version.term,
                      judge_is_committed(version) ? "committed" : "being drained");
    }
    judge_told_failed(version);
}

void judge_told(struct rank *rank)
{
    uint64_t failed = atomic_load(&rank->status->failed_step);
    if (failed != rank->failed && failed > 0) {
        check_failed(rank, (struct version){rank->launch->term, failed});
    }
    rank->failed = failed;
}

/* ---- slots ---------------------------------------------------------------------------------------------------------
 */

/* What a trainer has sealed is verified, or its slot is freed. A fetch may give up what was verified at once. */
void judge_header(const struct slot_header *before, const struct slot_header *now)
{
    if (before->state == SLOT_SEALED && (now->state == SLOT_FILLING || now->state == SLOT_RECEIVING)) {
        sim_violation("%s fills a slot with step %" PRIu64 " of term %" PRIu64
                      ", and a trainer has sealed step %" PRIu64 " of term %" PRIu64 " there, which was never freed",
                      sim.current->name, now->version.step, now->version.term, before->version.step,
                      before->version.term);
    }
    const struct term_context *tc = sim.current->agent != NULL ? sim.current->agent->term_context : NULL;
    bool begun = before->state == SLOT_FREE && now->state == SLOT_FILLING && tc != NULL;
    if (begun && now->version.term == tc->world.term &&
        !decision_lets_begin(node_decision(tc->node), now->version.step)) {
        sim_violation("%s begins step %" PRIu64 " of term %" PRIu64 ", which is held back", sim.current->name,
                      now->version.step, now->version.term);
    }
}

/* It would be freed with the next decision, if there is another one. */
void judge_copy_taken(const struct agent *agent, struct version version)
{
    const struct term_context *tc = agent->term_context;
    if (tc != NULL && decision_fate(node_decision(tc->node), version) == FATE_OVER) {
        sim_violation("%s takes a copy of step %" PRIu64 " of term %" PRIu64 ", which is over", sim.current->name,
                      version.step, version.term);
    }
}

/* ---- the last step -------------------------------------------------------------------------------------------------
 */

/* The ranks ask until there is room; all else that a rank is told ends the step for all of them. */
void judge_last_refused(const struct rank *rank, const struct error *err)
{
    static const enum refusal of_room[] = {REFUSAL_NO_SLOT, REFUSAL_QUARANTINED, REFUSAL_HELD_BACK};
    for (size_t i = 0; i < sizeof(of_room) / sizeof(of_room[0]); i++) {
        if (err->code != TCK_ERR_NOSPC && strstr(err->text, refusal_text(of_room[i])) != NULL) {
            sim_violation("rank %u is refused the last step for want of room, which comes by itself: %s", rank->number,
                          err->text);
        }
    }
    const struct term_context *tc = rank->host->agent != NULL ? rank->host->agent->term_context : NULL;
    if (tc != NULL && tc->coordinator != NULL && tc->world.term == rank->launch->term &&
        coordinator_decision(tc->coordinator)->not_before > rank->launch->last_step) {
        sim_violation("the last step, %" PRIu64 ", is held back: no save for which room has to be kept comes after it",
                      rank->launch->last_step);
    }
}

/* ---- drains --------------------------------------------------------------------------------------------------------
 */

void __real_health_storage_failed(struct health *h, uint64_t step, const struct error *why);
void __wrap_health_storage_failed(struct health *h, uint64_t step, const struct error *why);

void __wrap_health_storage_failed(struct health *h, uint64_t step, const struct error *why)
{
    if (why->code == TCK_ERR_INTERNAL) {
        sim_violation("%s fails to store step %" PRIu64 " by a fault of its own: %s", sim.current->name, step,
                      why->text);
    }
    __real_health_storage_failed(h, step, why);
}
