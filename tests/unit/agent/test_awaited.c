/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/state/awaited.h"

#include "agent/report/derived.h"
#include "base/message.h"
#include <criterion/criterion.h>

Test(awaited, something_moves_when_bytes_arrive)
{
    struct wait w = {0};
    wait_note(&w, &(struct wait){.since_ms = 100, .total_bytes = 50}, 120);
    cr_assert_eq(w.moved_ms, 120);
    wait_note(&w, &(struct wait){.since_ms = 100, .total_bytes = 50}, 170);
    cr_assert_eq(w.moved_ms, 120);
    wait_note(&w, &(struct wait){.since_ms = 100, .done_bytes = 10, .total_bytes = 50}, 220);
    cr_assert_eq(w.moved_ms, 220);
    cr_assert_eq(w.done_bytes, 10);
}

Test(awaited, a_wait_that_is_over_leaves_nothing)
{
    struct wait w = {.since_ms = 100, .done_bytes = 10, .total_bytes = 50, .moved_ms = 120};
    wait_note(&w, &(struct wait){0}, 200);
    cr_assert_eq(w.since_ms + w.done_bytes + w.total_bytes + w.moved_ms, 0);
}

Test(awaited, the_next_wait_begins_at_zero)
{
    struct wait w = {.since_ms = 100, .done_bytes = 10, .total_bytes = 50, .moved_ms = 120};
    wait_note(&w, &(struct wait){0}, 200);
    wait_note(&w, &(struct wait){.since_ms = 290}, 300);
    cr_assert_eq(w.moved_ms, 300);
}

Test(awaited, a_trainer_sees_it)
{
    struct shared_status shared = {0};
    wait_show(&(struct wait){.since_ms = 1, .done_bytes = 10, .total_bytes = 50, .moved_ms = 120}, &shared);
    cr_assert_eq(atomic_load(&shared.work_done_bytes), 10);
    cr_assert_eq(atomic_load(&shared.work_total_bytes), 50);
    cr_assert_eq(atomic_load(&shared.work_moved_ms), 120);
}

Test(derived, an_operation_is_as_old_as_the_longest_wait)
{
    struct report r = {.now_ms = 5000};
    struct operation of[OPERATIONS];
    r.awaited.of[AWAIT_RESTORE] = (struct wait){.since_ms = 2000, .done_bytes = 10, .total_bytes = 50};
    report_operations(&r, of);
    cr_assert_str_eq(of[4].name, "restore");
    cr_assert_eq(of[4].age_ms, 3000);
    cr_assert_eq(of[4].wait->total_bytes, 50);
    cr_assert_str_eq(of[3].name, "register");
    cr_assert_eq(of[3].age_ms, 0);
}

Test(derived, nodes_and_saves_are_summed)
{
    struct report r = {0};
    r.in_term.nodes[NODE_SELF] = 1;
    r.in_term.nodes[NODE_LOST] = 2;
    r.trainers.stalls.buckets[0] = 3;
    r.trainers.stalls.buckets[STALL_BUCKETS - 1] = 4;
    cr_assert_eq(report_nodes(&r), 3);
    cr_assert_eq(report_saves(&r), 7);
}
