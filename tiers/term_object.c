/* SPDX-License-Identifier: Apache-2.0
 * A term in a store of objects. The claim is one object, created only if absent, and whatever is noted later is an
 * object of its own: nothing is read, changed and written back, so no two writers can undo each other's work. */
#include "tiers/persistent_objects.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Whether the claim is ours is decided by its bytes if an answer was lost, so no two attempts write the same. */
tck_status_t objects_claim_one(const struct persistent *p, const struct term_note *note, json_t *holder, bool *full_out,
                               struct error *err)
{
    struct term_note own = *note;
    char name[DIR_NAME_MAX];
    if (random_bytes(&own.claim_id, sizeof(own.claim_id)) != TCK_OK) {
        json_free(holder);
        return error_set(err, TCK_ERR_IO, "no random bytes to claim a term");
    }
    char *text = term_note_print(&own, holder);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to claim a term");
    }
    term_name(own.term, name);
    *full_out = false;
    failpoint(object, claiming);
    tck_status_t status = folder_create(&p->job, name, text, strlen(text), err);
    free(text);
    failpoint(object, claimed);
    return status == TCK_OK ? TCK_OK : error_prefix(err, "claim a term in %s/%s", p->config->save_dir, p->config->job);
}

void objects_claimed(const struct persistent *p)
{
    (void)p;
}

static enum term_object object_of(const struct term_addition *what)
{
    if (what->holder != NULL) {
        return what->holder->joined ? TERM_JOINED : TERM_HOLDER;
    }
    if (!version_none(what->restored)) {
        return TERM_RESTORE;
    }
    return what->committed ? TERM_COMMIT : TERM_END;
}

tck_status_t objects_note(struct persistent *p, uint64_t term, const struct term_addition *what, struct error *err)
{
    const struct term_note note = {.term = term,
                                   .wall_ms = clock_wall_ms(),
                                   .restored = what->restored,
                                   .committed = what->committed,
                                   .ended_well = what->ended_well};
    char name[DIR_NAME_MAX];
    struct error ignored;
    uint64_t bytes;
    term_object_name(term, object_of(what), name);
    if ((what->committed || what->ended_well) && folder_size(&p->job, name, &bytes, &ignored) == TCK_OK) {
        return TCK_OK; /* it says so already */
    }
    json_t *holder = what->holder != NULL ? term_holder_json(what->holder) : NULL;
    if (what->holder != NULL && holder == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the holder of term %" PRIu64, term);
    }
    char *text = term_note_print(&note, holder);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the note of term %" PRIu64, term);
    }
    tck_status_t status = folder_write(&p->job, name, text, strlen(text), err);
    free(text);
    return status;
}
