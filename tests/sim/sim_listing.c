/* SPDX-License-Identifier: Apache-2.0
 * What storage answers when a recovery asks what it has. The answer may be an error, leave out what cannot be read now,
 * or be as old as the term that asks; a note of a commit may be missing, damaged or unreadable. */
#include "sim.h"
#include <inttypes.h>

static bool lasts(const struct sim *s, uint64_t until)
{
    return !s->calm && until > s->now;
}

bool listing_is_unreadable(const struct sim *s, const struct staged *stage)
{
    return lasts(s, stage->unreadable_until);
}

/* ---- listings --------------------------------------------------------------------------------------------------- */

void listing_take(const struct sim *s, const struct sim_term *term, struct listing *out)
{
    const struct staged *visible[SIM_PUBLISHED];
    uint32_t total = storage_versions(s, visible);
    out->stored_count = out->unfit_count = 0;
    for (uint32_t i = 0; i < total; i++) {
        bool unreadable = !visible[i]->files_only && listing_is_unreadable(s, visible[i]);
        if (unreadable || visible[i]->unread) {
            out->unfit[out->unfit_count++] =
                (struct unfit_version){.version = visible[i]->version,
                                       .standing = unreadable ? STANDING_UNREADABLE : STANDING_DAMAGED,
                                       .why = unreadable ? "an error" : "its manifest is cut off"};
        } else {
            out->stored[out->stored_count++] = (struct stored_version){.version = visible[i]->version,
                                                                       .layout = term->world.layout,
                                                                       .shard_count = term->world.shard_count,
                                                                       .shards = term->ids};
        }
    }
}

/* From the newest term down to one that has noted a commit, as tiers/term_claim.c does. */
static void read_notes(const struct sim *s, uint64_t term, struct storage_view *view)
{
    if (lasts(s, s->notes_unread_until)) {
        view->unsure = "the notes cannot be read";
        view->unsure_passes = true;
        return;
    }
    for (uint64_t t = term - 1; t > 0 && version_none(view->noted); t--) {
        if (s->terms[t]->commit_note == NOTE_WRITTEN) {
            view->noted = (struct version){.term = t};
        } else if (s->terms[t]->commit_note == NOTE_DAMAGED) {
            view->unsure = "a note is damaged";
        }
    }
}

/* A claim is made in the directory that is listed: nobody gets a listing from before it. */
struct storage_view listing_answer(struct sim *s, struct sim_term *term)
{
    struct storage_view view = {.complete = true, .stored = term->listed.stored, .unfit = term->listed.unfit};
    if (s->notes) {
        read_notes(s, term->term, &view);
    }
    if (lasts(s, s->unlisted_until)) {
        view.complete = false;
        view.why = "storage gives an error";
        return view;
    }
    if (s->doubts && !s->calm && sim_chance(s, 300)) {
        term->listed = term->claimed;
    } else {
        listing_take(s, term, &term->listed);
    }
    view.stored_count = term->listed.stored_count;
    view.unfit_count = term->listed.unfit_count;
    return view;
}

/* ---- notes ------------------------------------------------------------------------------------------------------ */

void listing_note_commit(struct sim *s, struct sim_term *term)
{
    if (s->notes && term->commit_note == NOTE_NONE) {
        bool lost = !s->calm && sim_chance(s, 100), damaged = !s->calm && sim_chance(s, 50);
        term->commit_note = lost ? NOTE_MISSING : damaged ? NOTE_DAMAGED : NOTE_WRITTEN;
    }
}

void listing_note_restored(struct sim *s, struct sim_term *term)
{
    term->restored_noted = !s->notes || s->calm || !sim_chance(s, 100);
}

/* ---- doubts ----------------------------------------------------------------------------------------------------- */

/* The newest one mostly: it is the one that counts. */
static struct staged *choose_stage(struct sim *s)
{
    const struct staged *visible[SIM_PUBLISHED];
    uint32_t total = storage_versions(s, visible);
    if (total == 0) {
        return NULL;
    }
    return &s->stages[visible[sim_chance(s, 700) ? 0 : sim_random(s, total)] - s->stages];
}

void listing_doubt(struct sim *s)
{
    uint64_t until = s->now + sim_between(s, 50, 3000), kind = sim_random(s, 4);
    struct staged *stage = kind < 2 ? choose_stage(s) : NULL;
    if (stage != NULL) {
        sim_log(s, "published %" PRIu64 ".%" PRIu64 " cannot be read until %" PRIu64, stage->version.term,
                stage->version.step, until);
        stage->unreadable_until = until;
        stage->files_only = sim_chance(s, 500);
    } else {
        sim_log(s, "storage does not tell its %s until %" PRIu64, kind == 2 ? "versions" : "notes", until);
        *(kind == 2 ? &s->unlisted_until : &s->notes_unread_until) = until;
    }
    s->totals.faults++;
}
