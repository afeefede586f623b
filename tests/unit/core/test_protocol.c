/* SPDX-License-Identifier: Apache-2.0
 * Decisions, their encoding, slot transitions and terms. */
#include "../base/codec.h"
#include "core/slot.h"
#include "core/term.h"
#include <criterion/criterion.h>
#include <string.h>

#define TERM 5

static struct decision some_decision(void)
{
    return (struct decision){.term = TERM,
                             .seq = 9,
                             .readable = true,
                             .base = {TERM - 1, 30},
                             .base_lost = true,
                             .based = true,
                             .watermark = {TERM, 10},
                             .horizon = 21,
                             .not_before = 30,
                             .open_count = 2,
                             .open = {12, 20},
                             .drain = {TERM, 8},
                             .drain_attempt = 3,
                             .drain_wanted = true,
                             .published = {TERM - 1, 4}};
}

static struct version v(uint64_t step)
{
    return (struct version){TERM, step};
}

Test(protocol, fate_of_versions_of_this_term)
{
    struct decision d = some_decision();
    cr_assert_eq(decision_fate(&d, v(10)), FATE_COMMITTED);
    cr_assert_eq(decision_fate(&d, v(9)), FATE_OVER);
    cr_assert_eq(decision_fate(&d, v(12)), FATE_UNDECIDED);
    cr_assert_eq(decision_fate(&d, v(13)), FATE_OVER);
    cr_assert_eq(decision_fate(&d, v(21)), FATE_UNDECIDED);
}

Test(protocol, older_terms_stay_until_this_one_is_based_or_has_committed)
{
    struct version old = {TERM - 1, 100};
    struct decision d = {.term = TERM, .seq = 1};
    cr_assert_eq(decision_fate(&d, old), FATE_UNDECIDED);
    d.based = true;
    cr_assert_eq(decision_fate(&d, old), FATE_OVER);
    d.watermark = old;
    cr_assert_eq(decision_fate(&d, old), FATE_COMMITTED);
    d = (struct decision){.term = TERM, .seq = 1, .watermark = v(1), .horizon = 2};
    cr_assert_eq(decision_fate(&d, old), FATE_OVER);
}

Test(protocol, a_lost_base_alone_is_over_until_this_term_has_committed)
{
    struct version base = {TERM - 1, 30}, older = {TERM - 1, 20};
    struct decision d = {.term = TERM, .seq = 1, .readable = true, .base = base, .base_lost = true};
    cr_assert_eq(decision_fate(&d, base), FATE_OVER);
    cr_assert_eq(decision_fate(&d, older), FATE_UNDECIDED, "it is what is left to be restored");
    d.watermark = v(1);
    d.horizon = 2;
    cr_assert_eq(decision_fate(&d, older), FATE_OVER);
}

Test(protocol, newer_terms_are_not_this_decisions_business)
{
    struct decision d = some_decision();
    cr_assert_eq(decision_fate(&d, (struct version){TERM + 1, 1}), FATE_UNDECIDED);
}

Test(protocol, a_step_that_is_held_back_does_not_begin_unless_it_is_open)
{
    struct decision d = some_decision();
    cr_assert_not(decision_lets_begin(&d, 29));
    cr_assert(decision_lets_begin(&d, 30));
    cr_assert(decision_lets_begin(&d, 20), "open before the step was named");
    cr_assert_eq(decision_fate(&d, v(29)), FATE_UNDECIDED, "who has begun it already hears its end from the horizon");
}

static struct decision through_wire(const struct decision *d, bool *failed_out)
{
    struct writer w = writer_new(0);
    write_decision(&w, d);
    struct reader r = reader_of(w.data, w.len);
    struct decision got = read_decision(&r);
    *failed_out = !reader_done(&r);
    writer_free(&w);
    return got;
}

Test(protocol, decision_survives_its_encoding)
{
    struct decision d = some_decision();
    bool failed;
    struct decision got = through_wire(&d, &failed);
    cr_assert_not(failed);
    cr_assert_eq(memcmp(&got.watermark, &d.watermark, sizeof(d.watermark)), 0);
    cr_assert_eq(got.seq, d.seq);
    cr_assert_eq(got.readable, d.readable);
    cr_assert(version_is(got.base, d.base));
    cr_assert_eq(got.base_lost, d.base_lost);
    cr_assert_eq(got.based, d.based);
    cr_assert_eq(got.horizon, d.horizon);
    cr_assert_eq(got.not_before, d.not_before);
    cr_assert_eq(got.open_count, 2);
    cr_assert_eq(got.open[1], 20);
    cr_assert(version_is(got.drain, d.drain));
    cr_assert_eq(got.drain_attempt, 3);
    cr_assert(got.drain_wanted);
    cr_assert(version_is(got.published, d.published));
}

/* The bytes are part of every heartbeat and of the kept state: changing them changes both formats. */
Test(protocol, decision_keeps_its_bytes)
{
    struct decision d = some_decision();
    struct writer w = writer_new(0);
    write_decision(&w, &d);
    codec_bytes(&w, "050000000000000009000000000000000104000000000000001e00000000000000010105000000000000000a"
                    "0000000000000015000000000000001e00000000000000020c00000000000000140000000000000005000000"
                    "00000000080000000000000003000000000000000104000000000000000400000000000000");
    writer_free(&w);
}

Test(protocol, decision_that_no_coordinator_makes_does_not_decode)
{
    struct decision descending = some_decision();
    descending.open[1] = 11;
    struct decision beyond = some_decision();
    beyond.open[1] = 21;
    struct decision behind = some_decision();
    behind.open[0] = 10;
    struct decision of_the_future = some_decision();
    of_the_future.watermark.term = TERM + 1;
    struct decision based_on_itself = some_decision();
    based_on_itself.base.term = TERM;
    struct decision based_on_nothing_readable = some_decision();
    based_on_nothing_readable.readable = false;
    struct decision lost_nothing = some_decision();
    lost_nothing.base = VERSION_NONE;
    struct decision lost_and_committed = some_decision();
    lost_and_committed.watermark = lost_and_committed.base;
    const struct decision *bad[] = {&descending,      &beyond,
                                    &behind,          &of_the_future,
                                    &based_on_itself, &based_on_nothing_readable,
                                    &lost_nothing,    &lost_and_committed};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        bool failed;
        through_wire(bad[i], &failed);
        cr_assert(failed, "number %zu", i);
    }
}

Test(protocol, truncated_decision_does_not_decode)
{
    struct decision d = some_decision();
    struct writer w = writer_new(0);
    write_decision(&w, &d);
    for (size_t len = 0; len < w.len; len++) {
        struct reader r = reader_of(w.data, len);
        read_decision(&r);
        cr_assert_not(reader_done(&r), "length %zu", len);
    }
    writer_free(&w);
}

Test(protocol, every_refusal_has_a_text)
{
    for (int r = REFUSAL_NO_SLOT; r <= REFUSAL_QUARANTINED; r++) {
        cr_assert_str_neq(refusal_text((enum refusal)r), refusal_text(REFUSAL_NONE));
    }
}

Test(slot, becomes_verified_only_through_writing_and_digests)
{
    cr_assert(slot_may_become(SLOT_SEALED, SLOT_VERIFIED));
    cr_assert(slot_may_become(SLOT_RECEIVING, SLOT_VERIFIED));
    cr_assert_not(slot_may_become(SLOT_FREE, SLOT_VERIFIED));
    cr_assert_not(slot_may_become(SLOT_FILLING, SLOT_VERIFIED));
    cr_assert_not(slot_may_become(SLOT_VERIFIED, SLOT_FILLING));
    cr_assert_not(slot_may_become(SLOT_STATES, SLOT_FREE));
}

Test(slot, sealed_by_its_trainer_is_found_sealed_whichever_process_died)
{
    struct version now = {5, 7}, before = {4, 7};
    cr_assert_eq(slot_found(SLOT_SEALED, now, VERSION_NONE, 5), SLOT_SEALED);
    cr_assert_eq(slot_found(SLOT_FILLING, now, now, 5), SLOT_SEALED);
    cr_assert_eq(slot_found(SLOT_FILLING, before, before, 5), SLOT_SEALED);
    cr_assert_eq(slot_found(SLOT_VERIFIED, before, VERSION_NONE, 5), SLOT_VERIFIED);
}

Test(slot, unfinished_is_found_filling_in_its_own_term_only)
{
    struct version now = {5, 7}, before = {4, 7}, other = {5, 6};
    cr_assert_eq(slot_found(SLOT_FILLING, now, VERSION_NONE, 5), SLOT_FILLING);
    cr_assert_eq(slot_found(SLOT_FILLING, now, other, 5), SLOT_FILLING, "the seal is of another version");
    cr_assert_eq(slot_found(SLOT_FILLING, before, VERSION_NONE, 5), SLOT_QUARANTINED, "its trainer may be frozen");
    cr_assert_eq(slot_found(SLOT_RECEIVING, now, now, 5), SLOT_FREE);
    cr_assert_eq(slot_found(SLOT_FREE, now, now, 5), SLOT_FREE);
}

Test(slot, stays_in_quarantine_until_its_writer_is_gone)
{
    struct version before = {4, 7};
    cr_assert_eq(slot_found(SLOT_QUARANTINED, before, VERSION_NONE, 5), SLOT_QUARANTINED);
    cr_assert_eq(slot_found(SLOT_QUARANTINED, before, before, 5), SLOT_QUARANTINED, "that version is not waited for");
    cr_assert(slot_may_become(SLOT_FILLING, SLOT_QUARANTINED));
    cr_assert(slot_may_become(SLOT_QUARANTINED, SLOT_FREE));
    cr_assert_not(slot_may_become(SLOT_QUARANTINED, SLOT_FILLING));
    cr_assert_not(slot_may_become(SLOT_QUARANTINED, SLOT_RECEIVING));
    cr_assert_not(slot_may_become(SLOT_QUARANTINED, SLOT_SEALED));
}

Test(slot, every_state_has_a_name)
{
    for (int s = 0; s < SLOT_STATES; s++) {
        cr_assert_str_neq(slot_state_name((enum slot_state)s), slot_state_name(SLOT_STATES));
    }
}

Test(term, adopting_closes_older_terms_permanently)
{
    struct term_state t = {0};
    cr_assert(term_join(&t, 3));
    cr_assert_eq(term_judge(&t, 3), TERM_CURRENT);
    cr_assert_eq(term_judge(&t, 4), TERM_NEWER);
    cr_assert(term_adopt(&t, 4));
    cr_assert_eq(term_judge(&t, 3), TERM_STALE);
    cr_assert_eq(term_judge(&t, 4), TERM_GIVER);
    cr_assert_not(term_adopt(&t, 4));
    cr_assert_not(term_join(&t, 3));
    cr_assert(term_join(&t, 4));
    cr_assert_eq(term_judge(&t, 4), TERM_CURRENT);
}

Test(term, whatever_is_older_is_stale_however_old)
{
    struct term_state t = {0};
    cr_assert(term_join(&t, 9));
    for (uint64_t term = 1; term < 9; term++) {
        cr_assert_eq(term_judge(&t, term), TERM_STALE, "term %lu", (unsigned long)term);
    }
}
