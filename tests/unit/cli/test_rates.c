/* SPDX-License-Identifier: Apache-2.0
 * What `tierckpt top` makes of two answers. */
#include "cli/rates.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static json_t *answer(const char *text)
{
    json_t *json;
    struct error err;
    cr_assert_eq(json_parse(text, strlen(text), &json, &err), TCK_OK, "%s", err.text);
    return json;
}

static bool is(double value, double wanted)
{
    return fabs(value - wanted) < 1e-9;
}

static const char first[] = "{\"trainers\":[{\"step\":100},{\"step\":98}],\"committed\":{\"step\":90},"
                            "\"training\":{\"step_ns\":20000000,\"saves\":10,\"stall_ns\":5000000},"
                            "\"transfer\":{\"digested_bytes\":1000,\"copied_bytes\":2000,\"received_bytes\":0,"
                            "\"stored_bytes\":0}}";
static const char second[] = "{\"trainers\":[{\"step\":150},{\"step\":160}],\"committed\":{\"step\":155},"
                             "\"published\":{\"step\":100},"
                             "\"training\":{\"step_ns\":25000000,\"saves\":14,\"stall_ns\":13000000},"
                             "\"transfer\":{\"digested_bytes\":5000,\"copied_bytes\":2000,\"received_bytes\":8000,"
                             "\"stored_bytes\":600}}";

Test(rates, differences_are_divided_by_the_time_between)
{
    json_t *before = answer(first), *now = answer(second);
    struct rates r = rates_between(before, now, 2);
    cr_assert_eq(r.step, 160);
    cr_assert_eq(r.unsaved, 5);
    cr_assert_eq(r.undrained, 60);
    cr_assert(is(r.step_ms, 25) && is(r.steps, 30) && is(r.saves, 2));
    cr_assert(is(r.stall_ms, 2), "8 ms by 4 saves");
    cr_assert(is(r.digested, 2000) && is(r.copied, 0) && is(r.received, 4000) && is(r.stored, 300));
    json_free(before);
    json_free(now);
}

Test(rates, the_first_answer_has_no_rates)
{
    json_t *now = answer(second);
    struct rates r = rates_between(NULL, now, 0);
    cr_assert_eq(r.step, 160);
    cr_assert(is(r.steps, 0) && is(r.saves, 0) && is(r.digested, 0) && r.stall_ms < 0);
    json_free(now);
}

Test(rates, counters_that_went_back_are_those_of_a_new_agent)
{
    json_t *before = answer(second), *now = answer(first);
    struct rates r = rates_between(before, now, 1);
    cr_assert(is(r.steps, 0), "the training was started again from an older step");
    cr_assert(is(r.saves, 10) && is(r.digested, 1000) && is(r.stored, 0));
    json_free(before);
    json_free(now);
}

Test(rates, an_agent_without_trainers_has_only_zeros)
{
    json_t *before = answer("{}"), *now = answer("{\"ok\":true}");
    struct rates r = rates_between(before, now, 1);
    cr_assert(r.step == 0 && r.unsaved == 0 && r.undrained == 0 && is(r.steps, 0) && is(r.copied, 0) && r.stall_ms < 0);
    json_free(before);
    json_free(now);
}
