/* SPDX-License-Identifier: Apache-2.0
 * Chooses the newest version that can be restored, or none if there may be a newer one that cannot be seen now. */
#include "recovery/choice.h"

#include "recovery/former_bases.h"
#include "recovery/newer_version.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DESCRIBED_BYTES 288

#define V_FMT    "version %" PRIu64 ".%" PRIu64
#define V_ARG(v) (v).term, (v).step

struct choice {
    const struct replica_index *copies;
    const struct plan_input *input;
    struct coverage *coverage;
    struct plan *plan;
    uint32_t next_unfit; /* of storage, not looked at yet */
};

/* ---- one version ------------------------------------------------------------------------------------------------ */

static bool is_candidate(const struct plan_input *input, struct version version)
{
    bool step = input->step == TCK_NEWEST || version.step == input->step;
    bool only = version_none(input->only) || version_is(version, input->only);
    return step && only && version.term > input->storage.forgotten;
}

static bool is_poisoned(const struct plan_input *input, struct version version)
{
    return input->step == TCK_NEWEST && version_is(version, input->storage.give_up);
}

static bool is_stored(const struct plan_input *input, struct version version)
{
    for (uint32_t i = 0; i < input->storage.stored_count; i++) {
        if (version_is(input->storage.stored[i].version, version)) {
            return true;
        }
    }
    return false;
}

/* Why a version cannot be chosen. If nothing is missing and it is neither poisoned nor of another layout, it can. */
static struct passed_over judge(const struct choice *c, const struct seen_version *seen)
{
    struct passed_over verdict = {.version = seen->version};
    uint32_t example = NONE32;
    verdict.poisoned = is_poisoned(c->input, seen->version);
    verdict.other_layout = !seen->layout_matches;
    verdict.missing = replica_index_cover(c->copies, seen->version, c->coverage, &example);
    verdict.counted = is_stored(c->input, seen->version) || replica_index_committed(c->copies, seen->version) ||
                      was_restored_before(c->input, seen->version);
    if (example != NONE32) {
        verdict.example = c->input->world->shards[example].id;
    }
    return verdict;
}

/* A version of another layout can only be read from storage. If it is not there but complete in memory, it has to be
 * published first, even if no agent knows of its commit: those that knew may be lost. In its own layout it would be
 * restored for the same reason. In all other cases it is lost. False: the search continues. */
static bool settles_otherwise(const struct choice *c, struct passed_over *verdict)
{
    if (!verdict->other_layout || verdict->poisoned) {
        return false;
    }
    if (is_stored(c->input, verdict->version)) {
        c->plan->reshard = verdict->version;
        return true;
    }
    verdict->unsaved = replica_index_whole_elsewhere(c->copies, verdict->version);
    return verdict->unsaved;
}

/* Users are told only of versions that they may count on: those that were committed, or are restored no longer. */
static bool is_told(const struct passed_over *passed)
{
    return passed->counted || passed->poisoned;
}

/* The one that stops the search is the last, and the reason is made of it. */
static bool stops_the_search(const struct passed_over *passed)
{
    return passed->unsaved || (passed->unfit != NULL && passed->unfit->standing != STANDING_DAMAGED);
}

/* The list is full. Leaves out the oldest version that users are not told of, or the oldest one if all are told of.
 * False if the list says enough without this one. */
static bool make_room(struct plan *plan, const struct passed_over *verdict)
{
    uint32_t out = PLAN_PASSED_MAX;
    for (uint32_t i = 0; i < PLAN_PASSED_MAX; i++) {
        out = is_told(&plan->passed[i]) ? out : i;
    }
    bool needed = stops_the_search(verdict) || (is_told(verdict) && out < PLAN_PASSED_MAX);
    if (needed) {
        uint32_t from = out < PLAN_PASSED_MAX ? out + 1 : PLAN_PASSED_MAX;
        memmove(&plan->passed[from - 1], &plan->passed[from], (PLAN_PASSED_MAX - from) * sizeof(*plan->passed));
        plan->passed_count--;
    }
    return needed;
}

static void note_passed(struct plan *plan, const struct passed_over *verdict)
{
    if (plan->passed_count < PLAN_PASSED_MAX || make_room(plan, verdict)) {
        plan->passed[plan->passed_count++] = *verdict;
    }
}

/* ---- what storage does not give --------------------------------------------------------------------------------- */

/* Passes over everything damaged or unreadable on storage that is newer than this version, or is this version itself.
 * False: one of them blocks the choice. */
static bool pass_unfit(struct choice *c, struct version than, bool itself)
{
    const struct storage_view *storage = &c->input->storage;
    for (; c->next_unfit < storage->unfit_count; c->next_unfit++) {
        const struct unfit_version *unfit = &storage->unfit[c->next_unfit];
        int order = version_cmp(unfit->version, than);
        if (order < 0 || (order == 0 && !itself)) {
            break;
        }
        if (!is_candidate(c->input, unfit->version) || is_poisoned(c->input, unfit->version)) {
            continue;
        }
        note_passed(c->plan, &(struct passed_over){.version = unfit->version, .counted = true, .unfit = unfit});
        if (unfit->standing != STANDING_DAMAGED) {
            c->plan->blocked = unfit->standing == STANDING_FOREIGN ? BLOCK_FOREIGN : BLOCK_UNREADABLE;
            return false;
        }
    }
    return true;
}

/* True if storage, which was not listed, may have a newer version than this one. Every published version was
 * committed in an earlier term, and the remaining members have seen all commits of the last term that saved
 * anything. */
static bool may_hide_a_newer(const struct plan_input *input, struct version version)
{
    return !input->storage.complete && version_none(input->only) &&
           version.term + input->unused_terms + 1 < input->world->term;
}

static bool was_passed_since(const struct plan *plan, struct version version)
{
    for (uint32_t i = 0; i < plan->passed_count; i++) {
        if (is_told(&plan->passed[i]) && version_cmp(plan->passed[i].version, version) >= 0) {
            return true;
        }
    }
    return false;
}

/* Notes a known commit that is newer than the chosen version and of which no copy was found. */
static void pass_gone(const struct choice *c, struct version known)
{
    struct version taken = version_none(c->plan->version) ? c->plan->reshard : c->plan->version;
    bool asked = c->input->step == TCK_NEWEST && version_none(c->input->only) && !is_poisoned(c->input, known);
    bool newer = known.step == 0 ? known.term > taken.term : version_cmp(known, taken) > 0;
    if (asked && newer && known.term > c->input->storage.forgotten && !was_passed_since(c->plan, known)) {
        note_passed(c->plan, &(struct passed_over){.version = known, .counted = true, .gone = true});
    }
}

static void pass_all_gone(const struct choice *c)
{
    for (uint32_t i = 0; i < c->input->inventory_count; i++) {
        pass_gone(c, c->input->inventories[i].watermark);
        pass_gone(c, c->input->inventories[i].base);
    }
    pass_gone(c, c->input->storage.noted);
}

/* ---- nothing ---------------------------------------------------------------------------------------------------- */

static bool knows_a_commit(const struct plan_input *input, const struct inventory *inventory)
{
    uint64_t forgotten = input->storage.forgotten;
    bool known = inventory->watermark.term > forgotten;
    for (uint32_t i = 0; !known && i < inventory->count; i++) {
        known = inventory->holdings[i].committed && inventory->holdings[i].version.term > forgotten;
    }
    return known;
}

/* Remains of a job that ended before its first commit are no loss: no trainer was told that they are safe. */
static bool nothing_committed(const struct replica_index *copies)
{
    const struct plan_input *input = copies->input;
    bool newest = input->step == TCK_NEWEST && version_none(input->only) && version_none(input->storage.give_up);
    bool nothing = newest && input->storage.stored_count == 0 && input->bad_count == 0;
    for (uint32_t i = 0; nothing && i < copies->seen_count; i++) {
        nothing = copies->seen[i].layout_matches;
    }
    return nothing;
}

/* The archive was not listed, and may have a version between stored[0], which cannot be taken, and this one. */
static bool archive_may_have_newer(const struct plan_input *input, struct version version)
{
    return input->storage.newest_only && version_none(input->only) &&
           version_cmp(version, input->storage.stored[0].version) < 0;
}

/* The archive was not listed, and may have what was not found elsewhere. */
static bool archive_may_have_any(const struct plan_input *input)
{
    return input->storage.newest_only && version_cmp(input->only, input->storage.stored[0].version) <= 0;
}

/* The search ends before this version: storage has a newer one, or this one, whose content was not read yet. Of a step
 * that is asked for, all were read. */
static bool ends_above(struct choice *c, struct version version)
{
    struct version deeper = c->input->storage.deeper;
    if (c->input->step != TCK_NEWEST || version_none(deeper) || version_cmp(version, deeper) > 0) {
        return false;
    }
    if (pass_unfit(c, deeper, false)) {
        c->plan->blocked = BLOCK_DEEPER;
    }
    return true;
}

/* Absence is proved if storage was listed completely, and no agent knows of a commit or a restore. */
static bool nothing_was_saved(const struct replica_index *copies)
{
    const struct plan_input *input = copies->input;
    const struct storage_view *storage = &input->storage;
    bool nothing = copies->seen_count == 0 || nothing_committed(copies);
    nothing = nothing && storage->complete && storage->unsure == NULL && storage->noted.term <= storage->forgotten;
    for (uint32_t i = 0; i < storage->unfit_count; i++) {
        nothing = nothing && storage->unfit[i].version.term <= storage->forgotten;
    }
    for (uint32_t i = 0; nothing && i < input->inventory_count; i++) {
        const struct inventory *inventory = &input->inventories[i];
        nothing = !knows_a_commit(input, inventory) && inventory->base.term <= storage->forgotten;
    }
    return nothing;
}

/* No version can be taken: is that a fresh start, a loss, or unknown for now? */
static void end_without(struct choice *c)
{
    const struct storage_view *storage = &c->input->storage;
    bool unseen = !storage->complete || (storage->unsure != NULL && storage->unsure_passes);
    if (unseen || archive_may_have_any(c->input)) {
        c->plan->blocked = BLOCK_UNREADABLE;
        return;
    }
    pass_all_gone(c);
    c->plan->nothing_saved = nothing_was_saved(c->copies);
}

/* ---- all -------------------------------------------------------------------------------------------------------- */

/* The error says that the version exists in memory only if storage was listed and lacks it. If storage was not listed,
 * it may have the version. */
static void end_unsaved(struct choice *c, const struct passed_over *verdict)
{
    if (!pass_unfit(c, verdict->version, true)) {
        return;
    }
    note_passed(c->plan, verdict);
    c->plan->blocked = c->input->storage.complete ? BLOCK_NONE : BLOCK_UNREADABLE;
}

/* True if the search ends with this version. */
static bool takes(struct choice *c, const struct seen_version *seen)
{
    struct passed_over verdict = judge(c, seen);
    if (verdict.missing == 0 && !verdict.poisoned && !verdict.other_layout) {
        c->plan->version = seen->version;
        return true;
    }
    bool settled = settles_otherwise(c, &verdict);
    if (verdict.unsaved) {
        end_unsaved(c, &verdict);
    } else if (!settled) {
        note_passed(c->plan, &verdict);
    }
    return settled;
}

/* Storage was not listed, and may have a complete copy of a committed version that was passed over because memory lacks
 * shards of it. */
static bool may_have_what_was_passed(const struct choice *c)
{
    bool may = false;
    for (uint32_t i = 0; i < c->plan->passed_count; i++) {
        may = may || (c->plan->passed[i].counted && !c->plan->passed[i].poisoned);
    }
    return may && !c->input->storage.complete && version_none(c->input->only);
}

static void take_none_if_hidden(struct choice *c)
{
    struct version taken = version_none(c->plan->version) ? c->plan->reshard : c->plan->version;
    if (version_none(taken)) {
        return; /* another layout, which says already why nothing is taken */
    }
    pass_all_gone(c);
    if (may_hide_a_newer(c->input, taken) || may_have_what_was_passed(c)) {
        c->plan->version = c->plan->reshard = VERSION_NONE;
        c->plan->blocked = BLOCK_UNREADABLE;
    }
}

static bool is_complete(const struct choice *c, const struct seen_version *seen)
{
    uint32_t example;
    return seen->version.term > c->input->storage.forgotten &&
           (seen->layout_matches ? replica_index_cover(c->copies, seen->version, c->coverage, &example) == 0
                                 : replica_index_whole_elsewhere(c->copies, seen->version));
}

/* The newest complete version before the chosen one. If a copy of the chosen version turns out to be lost, this version
 * remains, so its slots are given up last. */
static struct version find_fallback(const struct choice *c)
{
    for (uint32_t i = 0; i < c->copies->seen_count; i++) {
        const struct seen_version *seen = &c->copies->seen[i];
        bool older = version_cmp(seen->version, c->plan->version) < 0;
        if (older && seen->layout_matches && is_complete(c, seen)) {
            return seen->version;
        }
    }
    return VERSION_NONE;
}

/* A newer version is passed over only if it is incomplete, unless a step was requested. A base that was chosen before
 * comes with its step. Versions of the world's own term may still be aborted, and no fetch takes their slots. */
static struct version find_newer(const struct choice *c)
{
    bool requested = c->input->step != TCK_NEWEST;
    for (uint32_t i = 0; requested && i < c->copies->seen_count; i++) {
        const struct seen_version *seen = &c->copies->seen[i];
        if (version_cmp(seen->version, c->plan->version) <= 0) {
            break;
        }
        bool earlier = seen->version.term < c->input->world->term;
        if (earlier && is_complete(c, seen) && newer_may_be_committed(c->input, seen->version)) {
            return seen->version;
        }
    }
    return VERSION_NONE;
}

static void settle(struct choice *c)
{
    uint32_t example;
    take_none_if_hidden(c);
    if (!version_none(c->plan->version)) {
        c->plan->fallback = find_fallback(c);
        c->plan->newer = find_newer(c);
        (void)replica_index_cover(c->copies, c->plan->version, c->coverage, &example);
    }
}

void choose_version(const struct replica_index *copies, struct coverage *coverage, struct plan *plan)
{
    const struct storage_view *storage = &copies->input->storage;
    struct choice c = {.copies = copies, .input = copies->input, .coverage = coverage, .plan = plan};
    plan->newest_seen = copies->seen_count > 0 ? copies->seen[0].version : VERSION_NONE;
    if (storage->unfit_count > 0 && version_cmp(storage->unfit[0].version, plan->newest_seen) > 0) {
        plan->newest_seen = storage->unfit[0].version;
    }
    for (uint32_t i = 0; i < copies->seen_count; i++) {
        if (!is_candidate(c.input, copies->seen[i].version)) {
            continue;
        }
        if (archive_may_have_newer(c.input, copies->seen[i].version)) {
            plan->blocked = BLOCK_UNREADABLE;
            return;
        }
        if (ends_above(&c, copies->seen[i].version) || !pass_unfit(&c, copies->seen[i].version, false)) {
            return;
        }
        if (takes(&c, &copies->seen[i])) {
            settle(&c);
            return;
        }
    }
    if (!ends_above(&c, VERSION_NONE) && pass_unfit(&c, VERSION_NONE, false)) {
        end_without(&c);
    }
}

bool plan_waits_for_storage(const struct plan *plan)
{
    return plan->blocked == BLOCK_NONE && plan->passed_count > 0 && plan->passed[plan->passed_count - 1].unsaved;
}

/* ---- texts ------------------------------------------------------------------------------------------------------ */

static int describe_unfit(const struct unfit_version *unfit, char *out, size_t cap)
{
    static const char *const texts[] = {[STANDING_GOOD] = "is good",
                                        [STANDING_UNREADABLE] = "cannot be read now",
                                        [STANDING_FOREIGN] = "cannot be read by this build",
                                        [STANDING_DAMAGED] = "is damaged on storage"};
    return snprintf(out, cap, V_FMT " %s: %s", V_ARG(unfit->version), texts[unfit->standing], unfit->why);
}

/* Describes why the copies of this version that a node tried failed. */
static const char *tried_copies(const struct plan_input *input, struct version version)
{
    const char *tried = "";
    for (uint32_t i = 0; i < input->bad_count; i++) {
        if (version_is(input->bad[i].version, version)) {
            if (input->bad[i].inventory == NONE32) {
                return "; its file on storage is damaged or cannot be read";
            }
            tried = "; a copy in memory is damaged or cannot be reached";
        }
    }
    return tried;
}

static bool is_known_commit(const struct plan_input *input, struct version version)
{
    bool known = version_is(version, input->storage.noted);
    for (uint32_t i = 0; i < input->inventory_count && !known; i++) {
        known = version_is(version, input->inventories[i].watermark);
    }
    return known;
}

static int describe_passed(const struct passed_over *passed, const struct plan_input *input, char *out, size_t cap)
{
    struct version v = passed->version;
    if (passed->unfit != NULL) {
        return describe_unfit(passed->unfit, out, cap);
    }
    if (passed->gone && v.step == 0) {
        return snprintf(out, cap, "term %" PRIu64 " has committed a version, and no copy of it was found", v.term);
    }
    if (passed->gone) {
        return snprintf(out, cap, V_FMT " was %s, and no copy of it was found", V_ARG(v),
                        is_known_commit(input, v) ? "committed" : "restored before");
    }
    if (passed->poisoned) {
        return snprintf(out, cap,
                        V_FMT
                        " is no longer restored: too many starts have failed after restoring it (max_restore_tries)",
                        V_ARG(v));
    }
    if (passed->other_layout) {
        return snprintf(out, cap, V_FMT " has another layout, and no complete copy of it was found", V_ARG(v));
    }
    char example[HASH128_TEXT];
    hash128_text(passed->example, example);
    return snprintf(out, cap, V_FMT ": %u of %u shards have no copy (first %s%s)", V_ARG(v), passed->missing,
                    input->world->shard_count, example, tried_copies(input, v));
}

/* The newest one that counted. */
static const struct passed_over *newest_counted(const struct plan *plan)
{
    const struct passed_over *newest = NULL;
    for (uint32_t i = 0; i < plan->passed_count; i++) {
        const struct passed_over *passed = &plan->passed[i];
        if (is_told(passed) && (newest == NULL || version_cmp(passed->version, newest->version) > 0)) {
            newest = passed;
        }
    }
    return newest;
}

static bool has_reason(const struct plan_input *input, const struct passed_over *passed)
{
    return passed->unfit != NULL || tried_copies(input, passed->version)[0] != '\0';
}

/* Describes all that was passed over by two of them: the newest that counted, and the newest of which a copy could not
 * be used.
 */
static void describe_all_passed(const struct plan_input *input, const struct plan *plan, char *out, size_t cap)
{
    const struct passed_over *counted = newest_counted(plan);
    const struct passed_over *first = counted != NULL ? counted : plan->passed;
    int used = describe_passed(first, input, out, cap);
    size_t at = used < 0 || (size_t)used >= cap ? cap - 1 : (size_t)used;
    for (uint32_t i = 0; i < plan->passed_count; i++) {
        const struct passed_over *other = &plan->passed[i];
        if (other != first && has_reason(input, other) && cap - at > 2) {
            at += (size_t)snprintf(out + at, cap - at, "; ");
            (void)!describe_passed(other, input, out + at, cap - at);
            return;
        }
    }
}

static bool has_version(const struct plan *plan)
{
    return !version_none(plan->version) || !version_none(plan->reshard);
}

static void explain_unlisted_archive(const struct plan_input *input, struct plan *plan, const char *why)
{
    char what[DESCRIBED_BYTES] = "";
    if (plan->passed_count > 0) {
        describe_all_passed(input, plan, what, sizeof(what));
    }
    snprintf(plan->reason, sizeof(plan->reason), "%s%sit is not known which older versions the archive has: %s", what,
             plan->passed_count > 0 ? "; " : "", why);
}

static void explain_block(const struct plan_input *input, struct plan *plan)
{
    const struct storage_view *storage = &input->storage;
    const struct passed_over *last = plan->passed_count > 0 ? &plan->passed[plan->passed_count - 1] : NULL;
    const char *why = storage->why != NULL ? storage->why : "storage does not answer";
    char *text = plan->reason;
    size_t cap = sizeof(plan->reason);
    if (last != NULL && last->unfit != NULL) {
        int used = describe_unfit(last->unfit, text, cap);
        size_t at = used < 0 || (size_t)used >= cap ? cap - 1 : (size_t)used;
        snprintf(text + at, cap - at, "; an older one is not restored instead. Try again when it can be read, %s",
                 plan->blocked == BLOCK_FOREIGN ? "by the build that wrote it, or ask for an older step"
                                                : "or ask for an older step");
    } else if (last != NULL && last->unsaved) {
        snprintf(text, cap,
                 V_FMT " has another layout, for which it is read from storage, and it is not known whether it is "
                       "there: %s",
                 V_ARG(last->version), why);
    } else if (storage->newest_only) {
        explain_unlisted_archive(input, plan, why);
    } else if (!storage->complete) {
        snprintf(text, cap, "it is not known whether a newer version is on storage: %s", why);
    } else {
        snprintf(text, cap, "it is not known whether anything was saved: %s", storage->unsure);
    }
}

static const char advice[] = ". Check first that the right file system is mounted at save_dir. To start from the "
                             "beginning, use another job name, run `tierckpt forget`, or set "
                             "accept_fresh_start";

/* Something was saved, and nothing can be restored. */
static void explain_loss(const struct plan_input *input, struct plan *plan)
{
    char *text = plan->reason;
    size_t cap = sizeof(plan->reason) - sizeof(advice);
    if (plan->passed_count > 0) {
        char what[DESCRIBED_BYTES];
        describe_all_passed(input, plan, what, sizeof(what));
        snprintf(text, cap, "%s; no other version can be restored", what);
    } else if (input->storage.unsure != NULL) {
        snprintf(text, cap, "no version was found, and something may have been saved: %s", input->storage.unsure);
    } else {
        snprintf(text, cap, "something was saved, and no version can be restored");
    }
    if (input->step == TCK_NEWEST && version_none(input->only)) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof(plan->reason) - used, "%s", advice);
    }
}

static void explain_version(const struct plan_input *input, struct plan *plan)
{
    struct version v = version_none(plan->reshard) ? plan->version : plan->reshard;
    char what[DESCRIBED_BYTES] = "";
    if (plan->passed_count > 0) {
        describe_all_passed(input, plan, what, sizeof(what));
    }
    if (newest_counted(plan) != NULL) {
        snprintf(plan->passed_text, sizeof(plan->passed_text), "%s", what);
    } else if (input->step == TCK_NEWEST && version_none(input->only)) {
        snprintf(plan->passed_text, sizeof(plan->passed_text), "%s", passed_over_before(input, v));
    }
    const char *joint = plan->passed_count > 0 ? "; " : "";
    snprintf(plan->reason, sizeof(plan->reason), "%s%s" V_FMT " is %s", what, joint, V_ARG(v),
             version_none(plan->reshard) ? "complete" : "published with another layout");
}

static void explain_nothing(const struct plan_input *input, struct plan *plan)
{
    char *text = plan->reason;
    size_t cap = sizeof(plan->reason);
    if (plan->passed_count == 0) {
        snprintf(text, cap, "nothing was saved yet: no copy of any version was seen");
        return;
    }
    int used = describe_passed(&plan->passed[0], input, text, cap);
    size_t at = used < 0 || (size_t)used >= cap ? cap - 1 : (size_t)used;
    snprintf(text + at, cap - at, "; nothing was committed yet");
}

void choice_explain(const struct plan_input *input, struct plan *plan)
{
    char *text = plan->reason;
    size_t cap = sizeof(plan->reason);
    if (plan_waits_for_storage(plan)) {
        snprintf(text, cap,
                 V_FMT " has another layout, and only memory has it, but resharding reads storage. Start once more "
                       "with the ranks and the sharding that saved it, run `tierckpt drain --wait`, then start with "
                       "the new ones; or restore the step of a published version",
                 V_ARG(plan->passed[plan->passed_count - 1].version));
    } else if (plan->blocked == BLOCK_DEEPER) {
        snprintf(text, cap, "older versions on storage have not been read yet");
    } else if (plan->blocked != BLOCK_NONE) {
        explain_block(input, plan);
    } else if (has_version(plan)) {
        explain_version(input, plan);
    } else if (plan->nothing_saved) {
        explain_nothing(input, plan);
    } else if (plan->passed_count == 0 && input->step != TCK_NEWEST) {
        snprintf(text, cap, "step %" PRIu64 ": no copy was seen; the newest version seen is %" PRIu64 ".%" PRIu64,
                 input->step, V_ARG(plan->newest_seen));
    } else {
        explain_loss(input, plan);
    }
}
