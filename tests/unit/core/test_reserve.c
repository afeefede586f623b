/* SPDX-License-Identifier: Apache-2.0
 * Terms that are reserved for successors: each is granted once, by one agent. */
#include "core/reserve.h"
#include <criterion/criterion.h>

enum { A = 11, B = 12 };

static struct reserve reserved(uint64_t first, uint64_t last)
{
    return (struct reserve){.first = first, .last = last};
}

static struct reserve_ask ask_of(uint64_t to, uint64_t adopted)
{
    return (struct reserve_ask){.to = to, .at_least = adopted + 1, .adopted = adopted};
}

static struct grant give(struct reserve *r, uint64_t adopted, const struct reserve_ask *ask)
{
    return reserve_give(r, &(struct reserve_terms){.adopted = adopted, .joined = adopted}, ask);
}

Test(reserve, a_term_is_granted_with_what_is_left)
{
    struct reserve r = reserved(5, 8);
    struct reserve_ask ask = ask_of(B, 4);
    cr_assert_eq(reserve_offer(&r, B, 5), 5);
    struct grant grant = give(&r, 4, &ask);
    cr_assert_eq(grant.term, 5);
    cr_assert_eq(grant.last, 8);
    cr_assert_eq(reserve_offer(&r, A, 5), 0, "all of it was handed on");

    struct reserve at_b = {0};
    reserve_take(&at_b, &grant);
    cr_assert_eq(at_b.first, 6);
    cr_assert_eq(at_b.last, 8);
    cr_assert(reserve_has(&at_b, 8));
    cr_assert_not(reserve_has(&at_b, 5));
}

Test(reserve, an_answer_that_was_lost_is_given_again_to_the_same_agent_alone)
{
    struct reserve r = reserved(5, 6);
    struct reserve_ask b = ask_of(B, 4), a = ask_of(A, 5);
    struct grant grant = give(&r, 4, &b), again = give(&r, 5, &b);
    cr_assert_eq(again.term, grant.term);
    cr_assert_eq(again.last, grant.last);
    cr_assert_eq(give(&r, 5, &a).term, 0);
    struct reserve_ask later = ask_of(B, 5);
    cr_assert_eq(give(&r, 5, &later).term, 0, "it has that one, and wants another");
}

Test(reserve, a_grant_is_refused_if_another_start_was_granted_one_since_the_question)
{
    struct reserve r = reserved(6, 8);
    struct reserve_ask ask = {.to = B, .at_least = 5, .adopted = 4};
    cr_assert_eq(give(&r, 5, &ask).term, 0);
    cr_assert_eq(r.first, 6, "nothing was given away");
}

Test(reserve, the_last_term_is_granted_without_a_remainder)
{
    struct reserve r = reserved(5, 5), taken = reserved(1, 2);
    struct reserve_ask ask = ask_of(A, 4);
    struct grant grant = give(&r, 4, &ask);
    cr_assert_eq(grant.term, 5);
    reserve_take(&taken, &grant);
    cr_assert_eq(taken.first, 0);
    cr_assert_not(reserve_has(&taken, 0));
}

Test(reserve, a_higher_term_can_be_asked_for)
{
    struct reserve r = reserved(5, 8);
    struct reserve_ask ask = {.to = A, .at_least = 7, .adopted = 4};
    struct grant grant = give(&r, 4, &ask);
    cr_assert_eq(grant.term, 7);
    reserve_take(&r, &grant);
    cr_assert_eq(r.first, 8);
    cr_assert_eq(reserve_offer(&r, A, 9), 0);
}

Test(reserve, a_term_claimed_above_the_reservation_ends_it)
{
    struct reserve r = reserved(5, 8);
    reserve_adopted(&r, 4);
    cr_assert_eq(r.first, 5);
    reserve_adopted(&r, 9);
    cr_assert_eq(reserve_offer(&r, A, 1), 0);
}

Test(reserve, what_was_granted_is_given_again_until_a_later_term_is_adopted)
{
    struct reserve r = reserved(5, 8);
    struct reserve_ask ask = ask_of(B, 4);
    (void)give(&r, 4, &ask);
    reserve_adopted(&r, 5);
    cr_assert_eq(reserve_offer(&r, B, 5), 5);
    reserve_adopted(&r, 9);
    cr_assert_eq(reserve_offer(&r, B, 5), 0);
}

Test(reserve, what_is_missing_is_added_in_one_piece)
{
    struct reserve r = {0};
    uint64_t first, last;
    cr_assert(reserve_missing(&r, 4, &first, &last));
    cr_assert_eq(first, 5);
    cr_assert_eq(last, 4 + RESERVE_COUNT);
    reserve_add(&r, first, last);
    cr_assert_not(reserve_missing(&r, 4, &first, &last));

    r.first++; /* one was granted */
    cr_assert(reserve_missing(&r, 5, &first, &last));
    cr_assert_eq(first, 5 + RESERVE_COUNT);
    cr_assert_eq(last, first);
    reserve_add(&r, first, last);
    cr_assert_eq(r.first, 6);
    cr_assert_eq(r.last, 5 + RESERVE_COUNT);

    struct reserve other = {0};
    reserve_add(&other, 20, 21);
    cr_assert_eq(other.first, 20, "past a reservation whose agent is gone");
    struct reserve at_the_end = {0};
    cr_assert_not(reserve_missing(&at_the_end, UINT64_MAX - 1, &first, &last));
}

Test(reserve, an_offer_is_taken_if_it_is_above_everything)
{
    struct reserve_answer none[] = {{.adopted = 4}, {.adopted = 4}};
    cr_assert_eq(reserve_choose(none, 2, 4), UINT32_MAX);
    struct reserve_answer one[] = {{.adopted = 4}, {.adopted = 4, .offer = 5}, {.adopted = 3}};
    cr_assert_eq(reserve_choose(one, 3, 4), 1);
    cr_assert_eq(reserve_choose(one, 3, 5), UINT32_MAX, "a start has claimed it on storage");
    struct reserve_answer passed[] = {{.adopted = 9}, {.adopted = 4, .offer = 5}};
    cr_assert_eq(reserve_choose(passed, 2, 0), UINT32_MAX, "an agent knows of a later term");
    struct reserve_answer two[] = {{.adopted = 4, .offer = 5}, {.adopted = 8, .offer = 9}};
    cr_assert_eq(reserve_choose(two, 2, 4), 1);
}

Test(reserve, a_grant_says_which_terms_before_it_saved_nothing)
{
    struct reserve r = reserved(5, 8);
    struct reserve_terms coordinator = {.adopted = 4, .joined = 4},
                         saved_nothing = {.adopted = 5, .joined = 5, .claimed = 5, .committed = 4},
                         elsewhere = {.adopted = 5, .joined = 5, .claimed = 5, .committed = 2},
                         saved = {.adopted = 6, .joined = 6, .claimed = 6, .committed = 6};
    struct reserve_ask first = ask_of(B, 4), second = ask_of(A, 5), third = ask_of(A, 6);
    struct grant grant = reserve_give(&r, &coordinator, &first);
    cr_assert_eq(grant.follows, 4);
    struct reserve at_b = {0};
    reserve_take(&at_b, &grant);

    struct reserve copy = at_b;
    cr_assert_eq(reserve_give(&copy, &elsewhere, &second).follows, 4, "it did not join term 4, but knows of it");
    grant = reserve_give(&at_b, &saved_nothing, &second);
    cr_assert_eq(grant.term, 6);
    cr_assert_eq(grant.follows, 4, "the start with term 5 saved nothing");

    struct reserve at_a = {0};
    reserve_take(&at_a, &grant);
    cr_assert_eq(reserve_give(&at_a, &saved, &third).follows, 6);
}

Test(reserve, a_grant_that_was_kept_and_never_told_is_forgotten_with_the_next_reservation)
{
    struct reserve r = reserved(5, 8);
    struct reserve_ask ask = ask_of(B, 4);
    (void)give(&r, 4, &ask); /* and the agent dies before it adopts the term */
    reserve_add(&r, 9, 12);
    cr_assert_eq(reserve_offer(&r, B, 5), 9, "the terms from 5 on were handed on with it");
}

Test(reserve, grants_none_while_a_claim_of_its_own_node_is_being_granted_one)
{
    struct reserve r = reserved(6, 8);
    struct reserve_ask ask = ask_of(B, 4);
    struct reserve_terms granting = {.adopted = 4, .joined = 4, .granting = 5}, adopted = granting;
    cr_assert_eq(reserve_give(&r, &granting, &ask).term, 0);
    cr_assert_eq(r.first, 6, "nothing was given away");
    adopted.adopted = 5;
    ask = ask_of(B, 5);
    cr_assert_eq(reserve_give(&r, &adopted, &ask).term, 6);
}

Test(reserve, in_a_term_that_was_joined_something_may_have_been_saved)
{
    cr_assert_eq(reserve_newest_saved(&(struct reserve_terms){.adopted = 5, .joined = 4, .committed = 3}), 4,
                 "its coordinator may know of a commit that this agent does not know of");
    cr_assert_eq(reserve_newest_saved(&(struct reserve_terms){.adopted = 5, .joined = 4, .committed = 5}), 5);
}

Test(reserve, in_a_term_that_was_granted_here_only_what_is_known_was_saved)
{
    struct reserve_terms terms = {.adopted = 5, .joined = 5, .claimed = 5, .committed = 4};
    cr_assert_eq(reserve_newest_saved(&terms), 4);
    terms.committed = 5;
    cr_assert_eq(reserve_newest_saved(&terms), 5);
    terms = (struct reserve_terms){.adopted = 6, .joined = 6, .claimed = 5, .committed = 4};
    cr_assert_eq(reserve_newest_saved(&terms), 6, "that one was claimed elsewhere");
}

Test(reserve, a_process_takes_a_term_that_is_new)
{
    struct reserve_terms terms = {.adopted = 4, .joined = 4, .claimed = 3, .claimed_pid = 70};
    cr_assert(reserve_may_take(&terms, 5, 5, 71));
    cr_assert(reserve_may_take(&terms, 7, 5, 71));
    cr_assert_not(reserve_may_take(&terms, 5, 6, 71), "it wants a higher one");
    terms.adopted = 6;
    cr_assert_not(reserve_may_take(&terms, 5, 5, 71), "the term is over");
}

Test(reserve, a_term_that_is_granted_again_is_for_the_process_that_had_it)
{
    struct reserve_terms terms = {.adopted = 4, .joined = 4, .claimed = 5, .claimed_pid = 70};
    cr_assert(reserve_may_take(&terms, 5, 5, 70));
    cr_assert_not(reserve_may_take(&terms, 5, 5, 71));
    terms.claimed_pid = 0;
    cr_assert_not(reserve_may_take(&terms, 5, 5, 0), "processes that cannot be seen cannot be told apart");
}

Test(reserve, no_process_takes_a_term_while_another_one_of_its_node_is_being_granted_one)
{
    struct reserve_terms terms = {.adopted = 4, .joined = 4, .granting = 5};
    cr_assert_not(reserve_may_take(&terms, 6, 5, 70));
    terms.adopted = 5;
    cr_assert(reserve_may_take(&terms, 6, 5, 70));
}

Test(reserve, a_claim_is_known_again_by_its_process)
{
    struct reserve_terms terms = {.claimed = 5, .claimed_pid = 70}, none = {0};
    cr_assert(reserve_claimed_by(&terms, 5, 70));
    cr_assert_not(reserve_claimed_by(&terms, 6, 70));
    cr_assert_not(reserve_claimed_by(&terms, 5, 71));
    cr_assert_not(reserve_claimed_by(&none, 0, 0));
}

Test(reserve, terms_between_the_last_save_and_the_granted_one_are_unused)
{
    struct reserve r = {.follows = 4};
    struct reserve_terms terms = {.adopted = 7, .claimed = 7, .committed = 3};
    cr_assert_eq(reserve_unused(&r, &terms, 7), 2, "5 and 6");
    terms.committed = 6;
    cr_assert_eq(reserve_unused(&r, &terms, 7), 0, "6 has committed something, whatever the grant said");
    terms.committed = 7;
    cr_assert_eq(reserve_unused(&r, &terms, 7), 0);
}

Test(reserve, of_a_term_that_was_claimed_on_storage_none_before_it_is_known_to_be_unused)
{
    struct reserve r = {.follows = 4}, never_granted = {0};
    struct reserve_terms terms = {.adopted = 7, .claimed = 6, .committed = 4};
    cr_assert_eq(reserve_unused(&r, &terms, 7), 0);
    terms.claimed = 7;
    cr_assert_eq(reserve_unused(&never_granted, &terms, 7), 0);
}

Test(reserve, terms_that_were_reserved_late_are_added_where_they_fit)
{
    struct reserve r = reserved(5, 6), none = {0};
    struct reserve_terms same = {.adopted = 4}, later = {.adopted = 5};
    cr_assert(reserve_may_add(&none, &same, 4, 5), "the term that wanted them is in use");
    cr_assert(reserve_may_add(&r, &later, 4, 7), "they follow what is left");
    cr_assert_not(reserve_may_add(&r, &later, 4, 8));
    cr_assert_not(reserve_may_add(&none, &later, 4, 6), "the reservation was handed on meanwhile");
    cr_assert_not(reserve_may_add(&none, &later, 4, 1), "nothing is left for them to follow");
}
