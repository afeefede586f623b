/* SPDX-License-Identifier: Apache-2.0
 * The coordinator's part in copies to the archive. */
#include "core/archive_lead.h"

#include <criterion/criterion.h>

#define NODES 3

static struct archive_lead lead;
static bool reported[NODES], reported_later[64];
static struct archive_now now;
static struct archive_ask ask; /* the call under way */

static const struct version one = {5, 10};

static void begin(void)
{
    lead = (struct archive_lead){0};
    now = (struct archive_now){.ms = 1000000, .every_steps = 10, .published = one};
    archive_lead_begin(&lead, 5, NODES, reported);
}

TestSuite(archive_lead, .init = begin);

static void expect_call(enum archive_call call, struct version version)
{
    struct archive_ask next = archive_lead_next(&lead, &now);
    cr_assert_eq(next.call, call, "%d", (int)next.call);
    cr_assert(version_is(next.version, version));
    if (call != ARCHIVE_NOTHING) {
        ask = next;
        lead.calling = true;
    }
}

static struct archive_effects answer(enum archive_end end, struct version newest)
{
    const struct archive_answer answered = {.end = end, .newest = newest};
    return archive_lead_answered(&lead, &ask, &answered, lead.term, now.ms);
}

/* The archive has this version, and another one is chosen if that is due. */
static void look_and_prepare(struct version newest)
{
    expect_call(ARCHIVE_LOOK, VERSION_NONE);
    cr_assert(answer(ARCHIVE_DONE, newest).works);
    expect_call(ARCHIVE_PREPARE, now.published);
    cr_assert(answer(ARCHIVE_DONE, VERSION_NONE).chosen);
    cr_assert(version_is(lead.chosen, now.published));
}

static void copy_all(void)
{
    for (uint32_t node = 0; node < NODES; node++) {
        expect_call(ARCHIVE_NOTHING, VERSION_NONE);
        archive_lead_copied(&lead, node, lead.chosen, now.ms);
        archive_lead_copied(&lead, node, lead.chosen, now.ms);
    }
}

Test(archive_lead, a_version_is_published_once_all_nodes_have_copied_it)
{
    look_and_prepare(VERSION_NONE);
    copy_all();
    expect_call(ARCHIVE_PUBLISH, one);
    expect_call(ARCHIVE_NOTHING, VERSION_NONE);
    struct archive_effects effects = answer(ARCHIVE_DONE, one);
    cr_assert(effects.published && effects.works && effects.chosen && !effects.failed);
    cr_assert(version_none(lead.chosen));
    expect_call(ARCHIVE_NOTHING, VERSION_NONE);
    now.published = (struct version){5, 20};
    expect_call(ARCHIVE_PREPARE, now.published);
}

Test(archive_lead, nothing_is_called_before_a_version_is_published)
{
    now.published = VERSION_NONE;
    expect_call(ARCHIVE_NOTHING, VERSION_NONE);
}

Test(archive_lead, what_is_not_due_is_not_chosen)
{
    expect_call(ARCHIVE_LOOK, VERSION_NONE);
    (void)answer(ARCHIVE_DONE, one);
    now.published = (struct version){5, 19};
    expect_call(ARCHIVE_NOTHING, VERSION_NONE);
}

Test(archive_lead, reports_of_other_versions_and_unknown_nodes_do_not_count)
{
    look_and_prepare(VERSION_NONE);
    copy_all();
    expect_call(ARCHIVE_PUBLISH, one);
    (void)answer(ARCHIVE_DONE, one);
    now.published = (struct version){5, 20};
    expect_call(ARCHIVE_PREPARE, now.published);
    (void)answer(ARCHIVE_DONE, VERSION_NONE);
    for (uint32_t node = 0; node < NODES; node++) {
        archive_lead_copied(&lead, node, one, now.ms);
    }
    archive_lead_copied(&lead, NODES, lead.chosen, now.ms);
    cr_assert_eq(lead.reported_count, 0);
    struct archive_effects effects = archive_lead_could_not(&lead, 1, one, &now);
    cr_assert(!effects.failed && !effects.chosen);
}

Test(archive_lead, a_publish_that_fails_is_repeated_after_pauses_that_grow)
{
    look_and_prepare(VERSION_NONE);
    copy_all();
    uint64_t pause_ms = 10000;
    for (int i = 0; i < 4; i++) {
        expect_call(ARCHIVE_PUBLISH, one);
        struct archive_effects effects = answer(ARCHIVE_FAILED, VERSION_NONE);
        cr_assert(effects.failed && !effects.chosen, "what was copied is still there");
        now.ms += pause_ms - 1;
        expect_call(ARCHIVE_NOTHING, VERSION_NONE);
        now.ms++;
        pause_ms *= 2;
    }
    expect_call(ARCHIVE_PUBLISH, one);
    (void)answer(ARCHIVE_DONE, one);
    cr_assert_eq(lead.failures, 0);
}

Test(archive_lead, a_publish_that_lacks_files_begins_with_the_copies)
{
    look_and_prepare(VERSION_NONE);
    copy_all();
    expect_call(ARCHIVE_PUBLISH, one);
    struct archive_effects effects = answer(ARCHIVE_LACKS, VERSION_NONE);
    cr_assert(effects.failed && effects.chosen);
    cr_assert(version_none(lead.chosen));
    now.ms += 10000;
    expect_call(ARCHIVE_PREPARE, one);
}

Test(archive_lead, a_call_that_was_canceled_says_nothing)
{
    expect_call(ARCHIVE_LOOK, VERSION_NONE);
    struct archive_effects effects = answer(ARCHIVE_CANCELED, VERSION_NONE);
    cr_assert(!effects.failed && !effects.works && !effects.chosen);
    expect_call(ARCHIVE_LOOK, VERSION_NONE);
}

Test(archive_lead, a_node_that_fails_keeps_the_version_until_there_is_a_newer_one)
{
    look_and_prepare(VERSION_NONE);
    struct archive_effects effects = archive_lead_could_not(&lead, 1, one, &now);
    cr_assert(effects.failed && !effects.chosen);
    effects = archive_lead_could_not(&lead, 2, one, &now);
    cr_assert(effects.failed);
    cr_assert_eq(lead.failures, 1, "one failure, though two nodes report it");
    now.published = (struct version){5, 11};
    effects = archive_lead_could_not(&lead, 1, one, &now);
    cr_assert(effects.chosen && version_none(lead.chosen), "save_dir may have deleted it");
    now.ms += 10000;
    expect_call(ARCHIVE_PREPARE, now.published);
}

Test(archive_lead, a_new_term_looks_at_the_archive_again_before_it_chooses)
{
    look_and_prepare(VERSION_NONE);
    archive_lead_copied(&lead, 0, one, now.ms);
    archive_lead_begin(&lead, 6, 64, reported_later);
    cr_assert(version_none(lead.chosen));
    for (uint32_t node = 0; node < 64; node++) {
        archive_lead_copied(&lead, node, one, now.ms);
    }
    expect_call(ARCHIVE_LOOK, VERSION_NONE);
    (void)answer(ARCHIVE_DONE, VERSION_NONE);
    expect_call(ARCHIVE_PREPARE, one);
}

Test(archive_lead, a_call_of_an_older_term_chooses_nothing)
{
    expect_call(ARCHIVE_LOOK, VERSION_NONE);
    struct archive_ask look = ask;
    archive_lead_begin(&lead, 6, 64, reported_later);
    const struct archive_answer found = {.end = ARCHIVE_DONE, .newest = {5, 10}};
    struct archive_effects effects = archive_lead_answered(&lead, &look, &found, 6, now.ms);
    cr_assert(!effects.works && !lead.known, "another coordinator may have published since");
    struct archive_ask prepare = {.call = ARCHIVE_PREPARE, .term = 5, .version = one};
    effects = archive_lead_answered(&lead, &prepare, &found, 6, now.ms);
    cr_assert(!effects.chosen && version_none(lead.chosen));
    const struct archive_answer lacks = {.end = ARCHIVE_LACKS};
    struct archive_ask publish = {.call = ARCHIVE_PUBLISH, .term = 5, .version = one};
    effects = archive_lead_answered(&lead, &publish, &lacks, 6, now.ms);
    cr_assert(effects.failed && !effects.chosen);
}

Test(archive_lead, a_publish_that_ends_in_a_later_term_is_known_there)
{
    look_and_prepare(VERSION_NONE);
    copy_all();
    expect_call(ARCHIVE_PUBLISH, one);
    struct archive_ask publish = ask;
    archive_lead_begin(&lead, 6, 64, reported_later);
    const struct archive_answer done = {.end = ARCHIVE_DONE, .newest = one};
    struct archive_effects effects = archive_lead_answered(&lead, &publish, &done, 6, now.ms);
    cr_assert(effects.published && !effects.chosen);
    cr_assert(version_is(lead.archived, one));
}

Test(archive_lead, a_call_that_ends_when_its_term_is_over_but_no_other_has_begun_chooses_nothing)
{
    expect_call(ARCHIVE_LOOK, VERSION_NONE);
    (void)answer(ARCHIVE_DONE, VERSION_NONE);
    expect_call(ARCHIVE_PREPARE, one);
    const struct archive_answer done = {.end = ARCHIVE_DONE};
    struct archive_effects effects = archive_lead_answered(&lead, &ask, &done, 0, now.ms);
    cr_assert(!effects.chosen && version_none(lead.chosen));
}

Test(archive_lead, a_version_of_a_term_that_save_dir_has_not_reached_stops_all_copies)
{
    expect_call(ARCHIVE_LOOK, VERSION_NONE);
    struct archive_effects effects = answer(ARCHIVE_DONE, (struct version){7, 5});
    cr_assert(effects.ahead && !effects.works);
    expect_call(ARCHIVE_NOTHING, VERSION_NONE);
}
