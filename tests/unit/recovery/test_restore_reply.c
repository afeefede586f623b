/* SPDX-License-Identifier: Apache-2.0
 * When a recovery begins, and the reply to a trainer that asks to restore. */
#include "recovery/restore_reply.h"

#include <criterion/criterion.h>
#include <tierckpt.h>

#define TERM 7

static const struct version base = {TERM - 1, 40};

static struct decision fresh(void)
{
    return (struct decision){.term = TERM};
}

/* The term's base is chosen, and not protected yet. */
static struct decision readable(void)
{
    return (struct decision){.term = TERM, .readable = true, .base = base, .watermark = base};
}

/* The term's recovery is over. */
static struct decision based(void)
{
    struct decision d = readable();
    d.based = true;
    return d;
}

/* ---- when a recovery begins ------------------------------------------------------------------------------------ */

Test(restore_due, begins_when_all_trainers_have_registered_and_one_asks)
{
    struct decision d = fresh();
    struct restore_due due = {.decision = &d, .asked = true};
    cr_assert_not(restore_is_due(&due));
    due.all_registered = true;
    cr_assert(restore_is_due(&due));
    due.recovering = true;
    cr_assert_not(restore_is_due(&due), "it has begun");
}

Test(restore_due, begins_without_a_request_after_a_grace_period)
{
    struct decision d = fresh();
    struct restore_due due = {.decision = &d, .all_registered = true, .waited_ms = RESTORE_GRACE_MS - 1};
    cr_assert_not(restore_is_due(&due));
    due.waited_ms = RESTORE_GRACE_MS;
    cr_assert(restore_is_due(&due));
}

Test(restore_due, waits_for_a_trainer_that_will_ask_unless_the_base_is_chosen)
{
    struct decision d = fresh();
    struct restore_due due = {
        .decision = &d, .all_registered = true, .will_be_asked = true, .waited_ms = RESTORE_GRACE_MS};
    cr_assert_not(restore_is_due(&due));
    d = readable();
    cr_assert(restore_is_due(&due));
}

Test(restore_due, does_not_begin_when_the_term_has_recovered)
{
    struct decision d = based();
    struct restore_due due = {.decision = &d, .all_registered = true, .asked = true};
    cr_assert_not(restore_is_due(&due));
}

/* ---- the reply ------------------------------------------------------------------------------------------------- */

static enum restore_reply ask(const struct decision *decision, uint64_t step)
{
    struct restore_question q = {.step = step, .decision = decision};
    return restore_reply(&q);
}

static enum restore_reply ask_during(const struct decision *decision, uint64_t recovery_step, uint64_t step)
{
    struct restore_question q = {
        .step = step, .decision = decision, .recovering = true, .recovery_step = recovery_step};
    return restore_reply(&q);
}

static enum restore_reply ask_after(const struct decision *decision, uint64_t answered_step, uint64_t step)
{
    struct restore_question q = {.step = step,
                                 .decision = decision,
                                 .recovering = true,
                                 .ended = true,
                                 .recovery_step = answered_step,
                                 .answered = true,
                                 .answered_step = answered_step};
    return restore_reply(&q);
}

Test(restore_reply, the_first_request_begins_the_recovery)
{
    struct decision d = fresh();
    cr_assert_eq(ask(&d, TCK_NEWEST), RESTORE_BEGIN);
    cr_assert_eq(ask(&d, 12), RESTORE_BEGIN);
}

Test(restore_reply, a_restarted_agent_continues_with_the_base_that_was_chosen)
{
    struct decision d = readable();
    cr_assert_eq(ask(&d, TCK_NEWEST), RESTORE_BEGIN);
    cr_assert_eq(ask(&d, base.step), RESTORE_BEGIN);
    cr_assert_eq(ask(&d, 12), RESTORE_OTHER);
}

Test(restore_reply, the_same_request_waits_for_the_recovery_in_progress)
{
    struct decision d = fresh();
    cr_assert_eq(ask_during(&d, 12, 12), RESTORE_UNDER_WAY);
    cr_assert_eq(ask_during(&d, TCK_NEWEST, TCK_NEWEST), RESTORE_UNDER_WAY);
    cr_assert_eq(ask_during(&d, TCK_NEWEST, 12), RESTORE_NO_BASE, "nothing is chosen yet, and it may be another one");
}

Test(restore_reply, a_request_that_the_chosen_base_answers_waits_too)
{
    struct decision d = readable();
    cr_assert_eq(ask_during(&d, TCK_NEWEST, base.step), RESTORE_UNDER_WAY);
    cr_assert_eq(ask_during(&d, base.step, TCK_NEWEST), RESTORE_UNDER_WAY);
    cr_assert_eq(ask_during(&d, TCK_NEWEST, 12), RESTORE_OTHER);
}

Test(restore_reply, a_request_that_was_answered_gets_the_same_answer)
{
    struct decision d = based();
    cr_assert_eq(ask_after(&d, TCK_NEWEST, TCK_NEWEST), RESTORE_ANSWERED);
    cr_assert_eq(ask_after(&d, TCK_NEWEST, base.step), RESTORE_ANSWERED, "the newest is that step");
    cr_assert_eq(ask_after(&d, TCK_NEWEST, 12), RESTORE_OTHER);
    cr_assert_eq(ask_after(&d, base.step, TCK_NEWEST), RESTORE_OTHER, "there may be a newer one");
}

Test(restore_reply, nothing_to_restore_is_an_answer_too)
{
    struct decision d = fresh();
    d.based = true;
    cr_assert_eq(ask_after(&d, TCK_NEWEST, TCK_NEWEST), RESTORE_ANSWERED);
    cr_assert_eq(ask_after(&d, TCK_NEWEST, 12), RESTORE_NO_BASE);
}

Test(restore_reply, an_agent_that_lost_its_answer_takes_it_from_the_kept_base)
{
    struct decision d = based();
    cr_assert_eq(ask(&d, TCK_NEWEST), RESTORE_KEPT_BASE);
    cr_assert_eq(ask(&d, base.step), RESTORE_KEPT_BASE);
    d.base = d.watermark = VERSION_NONE;
    cr_assert_eq(ask(&d, TCK_NEWEST), RESTORE_NO_BASE, "why there is none is not known any more");
}

Test(restore_reply, a_recovery_that_ended_without_an_answer_is_not_waited_for)
{
    struct decision d = based();
    struct restore_question q = {.step = base.step, .decision = &d, .recovering = true, .ended = true};
    cr_assert_eq(restore_reply(&q), RESTORE_OTHER);
}

Test(restore_reply, a_term_that_has_saved_is_not_restored_from)
{
    struct decision d = based();
    d.watermark = (struct version){TERM, 50};
    cr_assert_eq(ask(&d, 12), RESTORE_SAVED);
    cr_assert_eq(ask(&d, base.step), RESTORE_SAVED);
}

Test(restore_reply, a_base_that_is_lost_is_not_restored)
{
    struct decision d = readable();
    d.base_lost = true;
    cr_assert_eq(ask(&d, base.step), RESTORE_BASE_LOST);
    cr_assert_eq(ask_after(&d, base.step, base.step), RESTORE_BASE_LOST);
}
