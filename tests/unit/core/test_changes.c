/* SPDX-License-Identifier: Apache-2.0 */
#include "core/changes.h"

#include "base/config.h"
#include <criterion/criterion.h>
#include <string.h>

/* The same on every node, whatever arrives first. */
static void exchange(struct changes *a, struct changes *b)
{
    struct changes before = *a;
    for (size_t i = 0; i < CHANGES_COUNT; i++) {
        (void)changes_take(a, b, i);
        (void)changes_take(b, &before, i);
    }
    cr_assert_eq(memcmp(a, b, sizeof(*a)), 0);
}

Test(changes, have_every_key_that_may_change)
{
    struct config_help field;
    size_t count = 0;
    for (size_t i = 0; config_field(i, &field); i++) {
        struct changes c = {0};
        cr_assert_eq(changes_note(&c, field.name, "1", 5), field.changeable, "%s", field.name);
        count += field.changeable;
    }
    cr_assert_eq(count, CHANGES_COUNT);
}

Test(changes, of_another_node_are_taken_once)
{
    struct changes mine = {0}, theirs = {0};
    cr_assert(changes_note(&theirs, "save_mem_interval", "20", 1000));
    cr_assert(changes_take(&mine, &theirs, 0));
    cr_assert_str_eq(mine.of[0].value, "20");
    cr_assert_str_eq(changes_key(0), "save_mem_interval");
    cr_assert_not(changes_take(&mine, &theirs, 0));
    cr_assert_not(changes_take(&mine, &theirs, 1));
}

Test(changes, that_are_older_are_not_taken)
{
    struct changes mine = {0}, theirs = {0};
    cr_assert(changes_note(&theirs, "max_ckpt_num", "3", 1000));
    cr_assert(changes_note(&mine, "max_ckpt_num", "5", 1001));
    exchange(&mine, &theirs);
    cr_assert_str_eq(theirs.of[2].value, "5");
}

Test(changes, of_keys_are_independent)
{
    struct changes mine = {0}, theirs = {0};
    cr_assert(changes_note(&mine, "save_mem_interval", "20", 1000));
    cr_assert(changes_note(&theirs, "on_node_loss", "end_trainers", 2000));
    exchange(&mine, &theirs);
    cr_assert_str_eq(mine.of[0].value, "20");
    cr_assert_str_eq(mine.of[3].value, "end_trainers");
}

Test(changes, are_later_than_what_is_known_though_the_clock_is_behind)
{
    struct changes c = {0};
    cr_assert(changes_note(&c, "save_mem_interval", "20", 5000));
    cr_assert(changes_note(&c, "save_mem_interval", "30", 1000));
    cr_assert_eq(c.of[0].at_ms, 5001);
    cr_assert_str_eq(c.of[0].value, "30");
}

Test(changes, at_the_same_time_end_alike_on_all_nodes)
{
    struct changes mine = {0}, theirs = {0};
    cr_assert(changes_note(&mine, "save_mem_interval", "20", 1000));
    cr_assert(changes_note(&theirs, "save_mem_interval", "30", 1000));
    exchange(&mine, &theirs);
}

Test(changes, that_cannot_be_sent_are_refused)
{
    struct changes c = {0};
    cr_assert_not(changes_note(&c, "save_mem_interval", "00000000000000000000000000000000000000020", 1000));
    cr_assert_not(changes_note(&c, "slots", "2", 1000));
    cr_assert(key_change_is_none(&c.of[0]));
}

Test(changes, hold_until_the_configuration_says_something_else)
{
    struct overridden noted = {.of[0] = "10", .of[1] = "50"}, configured = noted;
    cr_assert(changes_hold(&noted, &configured, 0));
    strcpy(configured.of[0], "3");
    cr_assert_not(changes_hold(&noted, &configured, 0));
    cr_assert(changes_hold(&noted, &configured, 1), "the key is another one");
}

Test(changes, hold_if_it_is_not_known_what_they_have_overridden)
{
    struct overridden none = {0}, configured = {.of[0] = "3"};
    cr_assert(changes_hold(&none, &configured, 0));
    cr_assert(changes_hold(&configured, &none, 0));
}
