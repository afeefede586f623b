/* SPDX-License-Identifier: Apache-2.0
 * What a term's file says. The claim writes it first; what is noted later replaces the file as a whole.
 * Claims ignore the content, so a file that a crash left empty still counts. */
#include "tiers/term_note.h"

#include "tiers/names.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TERM_FILE_MAX (8u << 20) /* with the agents of all nodes */

/* The holder is last: is_unfinished_claim relies on that. */
char *term_note_print(const struct term_note *note, json_t *holder)
{
    char *text = NULL;
    json_t *json = json_object();
    bool ok = json != NULL && json_add_u64(json, "term", note->term) && json_add_u64(json, "wall_ms", note->wall_ms);
    if (ok && note->claim_id != 0) {
        ok = json_add_u64(json, "claim", note->claim_id);
    }
    if (ok && note->reserved_by != 0) {
        ok = json_add_u64(json, "reserved_by", note->reserved_by);
    }
    if (ok && !version_none(note->restored)) {
        ok = json_add_u64(json, "restored_term", note->restored.term) &&
             json_add_u64(json, "restored_step", note->restored.step);
    }
    if (ok && note->committed) {
        ok = json_add_bool(json, "committed", true);
    }
    if (ok && note->ended_well) {
        ok = json_add_bool(json, "ended_well", true);
    }
    if (ok && holder != NULL) {
        ok = json_add(json, "holder", holder);
    } else {
        json_free(holder);
    }
    if (ok) {
        text = json_print(json, false);
    }
    json_free(json);
    return text;
}

static struct term_note decode(uint64_t term, const json_t *json)
{
    struct term_note note = {.term = term};
    struct version restored = VERSION_NONE;
    if (json_u64(json_get(json, "restored_term"), &restored.term) &&
        json_u64(json_get(json, "restored_step"), &restored.step)) {
        note.restored = restored;
    }
    if (!json_u64(json_get(json, "wall_ms"), &note.wall_ms)) {
        note.wall_ms = 0;
    }
    if (!json_u64(json_get(json, "reserved_by"), &note.reserved_by)) {
        note.reserved_by = 0;
    }
    if (!json_bool(json_get(json, "committed"), &note.committed)) {
        note.committed = false;
    }
    if (!json_bool(json_get(json, "ended_well"), &note.ended_well)) {
        note.ended_well = false;
    }
    return note;
}

/* Whether the text is the beginning of the claim's last member. Notes of commits and restores come before it. */
static bool is_cut_holder(const char *text, size_t len)
{
    static const char begin[] = ",\"holder\":{";
    size_t head = len < sizeof(begin) - 1 ? len : sizeof(begin) - 1;
    return strncmp(text, begin, head) == 0 && (len < 2 || strncmp(text + len - 2, "}}", 2) != 0);
}

/* A claim that was cut off: only its beginning reached the disk, or zeros in its place. Notes added later replace the
 * file as a whole, so this one has never had any. */
static bool is_unfinished_claim(uint64_t term, const char *text, size_t len)
{
    char begin[DIR_NAME_MAX];
    size_t zeros = 0;
    snprintf(begin, sizeof(begin), "{\"term\":%" PRIu64 ",\"wall_ms\":", term);
    while (zeros < len && text[zeros] == '\0') {
        zeros++;
    }
    if (zeros == len || strncmp(begin, text, len) == 0) {
        return true;
    }
    size_t head = strlen(begin);
    if (len <= head || strncmp(begin, text, head) != 0) {
        return false;
    }
    size_t digits = head + strspn(text + head, "0123456789");
    return digits == len || is_cut_holder(text + digits, len - digits);
}

tck_status_t term_note_read_json(const struct folder *job, uint64_t term, json_t **out, struct error *err)
{
    char name[DIR_NAME_MAX], *text;
    size_t len;
    json_t *json = NULL;
    struct error why = {0};
    term_name(term, name);
    tck_status_t status = folder_read(job, name, TERM_FILE_MAX, &text, &len, err);
    if (status != TCK_OK) {
        return status;
    }
    status = is_unfinished_claim(term, text, len) ? TCK_OK : json_parse(text, len, &json, &why);
    free(text);
    if (status != TCK_OK) {
        return error_set(err, status, "%s: %s", name, why.text);
    }
    *out = json;
    return TCK_OK;
}

struct term_note term_note_decode(uint64_t term, const json_t *json)
{
    return json != NULL ? decode(term, json) : (struct term_note){.term = term};
}

/* ---- objects --------------------------------------------------------------------------------------------------- */

static tck_status_t read_object(const struct folder *job, const char *name, json_t **out, struct error *err)
{
    char *text;
    size_t len;
    struct error why = {0};
    tck_status_t status = folder_read(job, name, TERM_FILE_MAX, &text, &len, err);
    if (status != TCK_OK) {
        return status;
    }
    status = json_parse(text, len, out, &why);
    free(text);
    return status == TCK_OK ? TCK_OK : error_set(err, status, "%s: %s", name, why.text);
}

/* What is noted of a reserved term claims it. */
static void add_note(struct term_note *note, const struct term_note *more)
{
    note->restored = version_none(more->restored) ? note->restored : more->restored;
    note->committed = note->committed || more->committed;
    note->ended_well = note->ended_well || more->ended_well;
    if (note->reserved_by != 0) {
        note->reserved_by = 0;
        note->wall_ms = more->wall_ms;
    }
}

static tck_status_t read_noted(const struct folder *job, const char *name, struct term_note *note,
                               struct term_holder *holder, struct error *err)
{
    json_t *json = NULL;
    tck_status_t status = read_object(job, name, &json, err);
    if (status != TCK_OK) {
        return status;
    }
    struct term_note more = decode(note->term, json);
    add_note(note, &more);
    const json_t *held = json_get(json, "holder");
    if (held != NULL && holder != NULL) {
        term_holder_free(holder);
        status = term_holder_decode(held, holder, err);
    }
    json_free(json);
    return status;
}

/* In the order of enum term_object, so that the agents that have joined replace the claimer alone. */
static tck_status_t read_objects(const struct folder *job, unsigned objects, struct term_note *note,
                                 struct term_holder *holder, struct error *err)
{
    tck_status_t status = TCK_OK;
    for (enum term_object what = 0; what < TERM_OBJECTS && status == TCK_OK; what++) {
        char name[DIR_NAME_MAX];
        term_object_name(note->term, what, name);
        status = (objects & 1u << what) != 0 ? read_noted(job, name, note, holder, err) : TCK_OK;
    }
    return status;
}

static tck_status_t list_objects(const struct folder *job, struct term_listed *listed, struct error *err)
{
    char beginning[DIR_NAME_MAX + 1], name[DIR_NAME_MAX];
    struct names names;
    term_name(listed->term, name);
    snprintf(beginning, sizeof(beginning), "%s.", name);
    tck_status_t status = folder_list_some(job, beginning, &names, err);
    for (size_t i = 0; status == TCK_OK && i < names.count; i++) {
        uint64_t term;
        enum term_object what;
        listed->objects |= term_object_parse(names.names[i], &term, &what) ? 1u << what : 0;
    }
    if (status == TCK_OK) {
        names_free(&names);
    }
    return status;
}

/* ---- all ------------------------------------------------------------------------------------------------------- */

/* listed NULL: a store of objects is asked what is noted, after the term's file was read. */
static tck_status_t read_all(const struct folder *job, struct term_note *note, const struct term_listed *listed,
                             struct term_holder *holder, struct error *err)
{
    json_t *json = NULL;
    struct term_listed found = {.term = note->term};
    tck_status_t status = term_note_read_json(job, note->term, &json, err);
    if (status != TCK_OK) {
        return status;
    }
    *note = term_note_decode(note->term, json);
    if (holder != NULL) {
        status = term_holder_decode(json == NULL ? NULL : json_get(json, "holder"), holder, err);
    }
    json_free(json);
    if (status == TCK_OK && job->objects != NULL && listed == NULL) {
        status = list_objects(job, &found, err);
        listed = &found;
    }
    return status == TCK_OK && job->objects != NULL ? read_objects(job, listed->objects, note, holder, err) : status;
}

static tck_status_t read_checked(const struct folder *job, uint64_t term, const struct term_listed *listed,
                                 struct term_note *out, struct term_holder *holder_out, struct error *err)
{
    struct term_holder holder = {0};
    struct term_note note = {.term = term};
    tck_status_t status = read_all(job, &note, listed, holder_out == NULL ? NULL : &holder, err);
    if (status != TCK_OK) {
        term_holder_free(&holder);
        return status;
    }
    *out = note;
    if (holder_out != NULL) {
        *holder_out = holder;
    }
    return TCK_OK;
}

tck_status_t term_note_read_all(const struct folder *job, uint64_t term, struct term_note *out,
                                struct term_holder *holder_out, struct error *err)
{
    return read_checked(job, term, NULL, out, holder_out, err);
}

tck_status_t term_note_read_listed(const struct folder *job, const struct term_listed *listed, struct term_note *out,
                                   struct term_holder *holder_out, struct error *err)
{
    return read_checked(job, listed->term, listed, out, holder_out, err);
}

tck_status_t term_note_read_outcome(const struct folder *job, const struct term_listed *listed, struct term_note *out,
                                    struct error *err)
{
    const unsigned outcome = 1u << TERM_RESTORE | 1u << TERM_COMMIT | 1u << TERM_END;
    struct term_note note = {.term = listed->term};
    if (job->objects == NULL) {
        return term_note_read(job, listed->term, out, err);
    }
    tck_status_t status = read_objects(job, listed->objects & outcome, &note, NULL, err);
    if (status == TCK_OK) {
        *out = note;
    }
    return status == TCK_ERR_PROTO ? (err->code = TCK_ERR_CORRUPT) : status;
}

tck_status_t term_note_read(const struct folder *job, uint64_t term, struct term_note *out, struct error *err)
{
    tck_status_t status = term_note_read_all(job, term, out, NULL, err);
    return status == TCK_ERR_PROTO ? (err->code = TCK_ERR_CORRUPT) : status;
}

bool term_note_has_no_holder(const struct folder *job, uint64_t term, tck_status_t status)
{
    char name[DIR_NAME_MAX];
    struct error ignored = {0};
    uint64_t bytes;
    term_name(term, name);
    if (job->objects != NULL) { /* where a refusal says nothing about what is there */
        return status == TCK_ERR_PROTO ||
               (status == TCK_ERR_NOENT && folder_size(job, name, &bytes, &ignored) == TCK_ERR_NOENT);
    }
    return status == TCK_ERR_PROTO || status == TCK_ERR_NOENT ||
           (status == TCK_ERR_DENIED && folder_size(job, name, &bytes, &ignored) == TCK_ERR_DENIED);
}
