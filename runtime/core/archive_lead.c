/* SPDX-License-Identifier: Apache-2.0
 * See archive_lead.h. */
#include "core/archive_lead.h"

#include "core/archive_due.h"

#include <string.h>

static void choose(struct archive_lead *lead, struct version version, uint64_t now_ms)
{
    memset(lead->reported, 0, lead->node_count * sizeof(*lead->reported));
    lead->reported_count = 0;
    lead->reported_ms = now_ms;
    lead->chosen = version;
}

void archive_lead_begin(struct archive_lead *lead, uint64_t term, uint32_t node_count, bool *reported)
{
    lead->term = term;
    lead->node_count = node_count;
    lead->reported = reported;
    lead->known = false;
    choose(lead, VERSION_NONE, 0);
}

static bool is_due(const struct archive_lead *lead, const struct archive_now *now)
{
    const struct archive_due due = {.every_steps = now->every_steps,
                                    .every_ms = now->every_ms,
                                    .published = now->published,
                                    .archived = lead->archived,
                                    .now_wall_ms = now->wall_ms,
                                    .archived_wall_ms = lead->archived_wall_ms};
    return archive_is_due(&due);
}

struct archive_ask archive_lead_next(const struct archive_lead *lead, const struct archive_now *now)
{
    struct archive_ask ask = {.term = lead->term};
    if (lead->calling || version_none(now->published) || now->ms < lead->not_before_ms) {
        return ask;
    }
    if (!lead->known) {
        ask.call = ARCHIVE_LOOK;
    } else if (version_none(lead->chosen) && is_due(lead, now)) {
        ask.call = ARCHIVE_PREPARE;
        ask.version = now->published;
    } else if (!version_none(lead->chosen) && lead->reported_count == lead->node_count) {
        ask.call = ARCHIVE_PUBLISH;
        ask.version = lead->chosen;
    }
    return ask;
}

/* The next attempt of the coordinator, or of a version, waits. */
static void pause(struct archive_lead *lead, uint64_t now_ms)
{
    lead->failures++;
    lead->not_before_ms = now_ms + archive_pause_ms(lead->failures);
}

/* What the nodes have copied is still there, unless the failure says that something of it is missing or damaged. */
static struct archive_effects call_failed(struct archive_lead *lead, const struct archive_ask *ask,
                                          const struct archive_answer *answer, bool current, uint64_t now_ms)
{
    bool again = answer->end == ARCHIVE_LACKS;
    pause(lead, now_ms);
    bool drops = current && (ask->call == ARCHIVE_PREPARE || (ask->call == ARCHIVE_PUBLISH && again));
    if (drops) {
        choose(lead, VERSION_NONE, now_ms);
    }
    return (struct archive_effects){.failed = true, .chosen = drops};
}

/* A version of a term that save_dir has not reached was copied before save_dir was replaced by an older copy of itself,
 * while the archive could not be reached. What is published now has lower terms, so it would not count beside that
 * version: copies of it are of no use, and the next start restores the archive's version. */
static struct archive_effects found(struct archive_lead *lead, const struct archive_ask *ask,
                                    const struct archive_answer *answer)
{
    bool ahead = answer->newest.term > ask->term;
    lead->known = true;
    lead->archived = answer->newest;
    lead->archived_wall_ms = answer->newest_wall_ms;
    return (struct archive_effects){.works = !ahead, .ahead = ahead};
}

static struct archive_effects published(struct archive_lead *lead, const struct archive_ask *ask,
                                        const struct archive_answer *answer, bool current, uint64_t now_ms)
{
    struct archive_effects effects = found(lead, ask, answer);
    lead->failures = 0;
    effects.published = true;
    effects.chosen = current;
    if (current) {
        choose(lead, VERSION_NONE, now_ms);
    }
    return effects;
}

/* NOLINTNEXTLINE(readability-function-size): the call, its outcome, and when it ended */
struct archive_effects archive_lead_answered(struct archive_lead *lead, const struct archive_ask *ask,
                                             const struct archive_answer *answer, uint64_t term, uint64_t now_ms)
{
    bool current = term == lead->term && ask->term == lead->term;
    lead->calling = false;
    if (answer->end == ARCHIVE_CANCELED) {
        return (struct archive_effects){0};
    }
    if (answer->end != ARCHIVE_DONE) {
        return call_failed(lead, ask, answer, current, now_ms);
    }
    if (ask->call == ARCHIVE_PUBLISH) {
        return published(lead, ask, answer, current, now_ms);
    }
    if (!current) { /* this term has to look itself: another coordinator may have published since */
        return (struct archive_effects){0};
    }
    if (ask->call == ARCHIVE_LOOK) {
        return found(lead, ask, answer);
    }
    choose(lead, ask->version, now_ms); /* which says nothing about the other nodes */
    return (struct archive_effects){.chosen = true};
}

static bool is_late(const struct archive_lead *lead, uint32_t node, struct version version)
{
    return version_none(lead->chosen) || !version_is(version, lead->chosen) || node >= lead->node_count;
}

void archive_lead_copied(struct archive_lead *lead, uint32_t node, struct version version, uint64_t now_ms)
{
    if (!is_late(lead, node, version) && !lead->reported[node]) {
        lead->reported[node] = true;
        lead->reported_count++;
        lead->reported_ms = now_ms;
    }
}

struct archive_effects archive_lead_could_not(struct archive_lead *lead, uint32_t node, struct version version,
                                              const struct archive_now *now)
{
    if (is_late(lead, node, version)) {
        return (struct archive_effects){0};
    }
    if (now->ms >= lead->not_before_ms) { /* one failure, even if several nodes report it */
        pause(lead, now->ms);
    }
    bool drops = version_cmp(now->published, lead->chosen) > 0;
    if (drops) {
        choose(lead, VERSION_NONE, now->ms);
    }
    return (struct archive_effects){.failed = true, .chosen = drops};
}
