/* SPDX-License-Identifier: Apache-2.0
 * Names of classes, against the numbers in their RFCs. */
#include "base/dscp.h"

#include <criterion/criterion.h>
#include <stdio.h>

static uint32_t value_of(const char *text)
{
    uint32_t value = 99;
    cr_assert(dscp_read(text, &value), "%s", text);
    return value;
}

Test(dscp, class_selectors_are_multiples_of_8)
{
    for (uint32_t i = 0; i < 8; i++) {
        char name[8];
        snprintf(name, sizeof(name), "cs%u", i);
        cr_expect_eq(value_of(name), 8 * i);
    }
}

Test(dscp, assured_forwarding_is_8_times_its_class_and_twice_its_precedence)
{
    for (uint32_t class = 1; class <= 4; class ++) {
        for (uint32_t precedence = 1; precedence <= 3; precedence++) {
            char name[8];
            snprintf(name, sizeof(name), "AF%u%u", class, precedence);
            cr_expect_eq(value_of(name), 8 * class + 2 * precedence, "%s", name);
        }
    }
}

Test(dscp, knows_the_other_names_and_numbers)
{
    cr_expect_eq(value_of("ef"), 46);
    cr_expect_eq(value_of("va"), 44);
    cr_expect_eq(value_of("LE"), 1);
    cr_expect_eq(value_of("0"), 0);
    cr_expect_eq(value_of("63"), 63);
}

Test(dscp, refuses_everything_else)
{
    uint32_t value = 99;
    const char *const bad[] = {"", "cs8", "af14", "af51", "64", "-1", "+1", " 1", "1 ", "1x", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_expect_not(dscp_read(bad[i], &value), "%s", bad[i]);
    }
    cr_assert_eq(value, 99);
}
