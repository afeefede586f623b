/* SPDX-License-Identifier: Apache-2.0
 * Restoring: the agent brings images of this rank's shards into slots, all ranks agree that they have theirs, and only
 * then is the trainer's memory written. Memory that is damaged is noticed while it is copied: the agent has checked
 * what came from elsewhere, but only the digests of what was in its slots. Then the records hold parts of several
 * states until a later attempt has written all of them: client->torn. */
#include "base/clock.h"
#include "base/digest.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "client/notices.h"
#include "client/reshard.h"
#include "client/restore_sources.h"
#include "client/slot_copy.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RETURN_PAUSE_NS 10000000
#define RETURNS_MAX     8

/* ---- what the agent offers ----------------------------------------------------------------------------------- */

/* CRCs that come with the offer of these slots. */
static uint64_t crcs_of(const struct tck_client *client, const struct msg_restored *offer)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < offer->count; i++) {
        count += offer->shards[i].slot == NONE32 ? 0 : chunk_count(client->layout.shards[i].image_bytes);
    }
    return count;
}

static tck_status_t take_offer(const struct tck_client *client, const struct ipc_frame *frame, bool may_lack,
                               struct msg_restored *out, struct error *err)
{
    struct msg_restored offer;
    if (msg_restored_decode(frame->payload, frame->len, &offer) != TCK_OK) {
        return error_set(err, TCK_ERR_PROTO, "malformed restore from the agent");
    }
    bool fits = offer.count == (offer.other_layout ? 0 : client->layout.shard_count);
    for (uint32_t i = 0; i < offer.count && fits; i++) {
        uint32_t slot = offer.shards[i].slot;

        fits = slot < client->slots.shards[i].segment.slot_count || (may_lack && slot == NONE32);
    }
    if (!fits || offer.crc_count != crcs_of(client, &offer)) {
        msg_restored_free(&offer);
        return error_set(err, TCK_ERR_PROTO, "the agent restored into slots that do not exist, or without digests");
    }
    *out = offer;
    return TCK_OK;
}

/* The request for a version. */
struct question {
    uint64_t step;
    bool may_lack;      /* shards that other ranks have */
    const char *failed; /* why they could not be passed on, for one agent's log; or NULL */
};

static tck_status_t request_version(struct tck_client *client, const struct question *question,
                                    struct msg_restored *out, struct error *err)
{
    struct msg_restore restore = {
        .seq = session_seq(&client->session), .step = question->step, .may_lack = question->may_lack};
    struct writer w = writer_new(0);
    struct ipc_frame frame;
    tck_status_t status;

    if (question->failed != NULL) {
        snprintf(restore.failed, sizeof(restore.failed), "%s", question->failed);
    }
    msg_restore_encode(&restore, &w);
    status = session_ask(&client->session, MSG_RESTORE, &w, MSG_RESTORED, PATIENT, &frame, err);
    if (status != TCK_OK) {
        return status;
    }
    status = take_offer(client, &frame, question->may_lack, out, err);
    ipc_frame_free(&frame);
    return status;
}

/* All ranks have their bytes: from now on the poison counter counts this run's outcome against the version. */
static void send_done(struct tck_client *client, const struct msg_restored *offer)
{
    struct msg_step done = {.seq = session_seq(&client->session), .step = offer->version.step};
    struct writer w = writer_new(0);
    struct error err;

    msg_step_encode(&done, &w);
    if (session_post(&client->session, MSG_RESTORE_DONE, &w, &err) != TCK_OK) {
        log_debug("the report that step %" PRIu64 " was restored did not reach the agent", offer->version.step);
    }
}

/* ---- checks before anything is written ----------------------------------------------------------------------- */

static tck_status_t check_blobs(const struct layout *layout, const struct shard *shard, const uint8_t *image,
                                struct error *err)
{
    for (uint32_t i = 0; i < shard->record_count; i++) {
        const struct record *record = &layout->records[shard->records[i]];
        uint64_t size;

        if (!record->blob) {
            continue;
        }
        memcpy(&size, image + record->image_offset, sizeof(size));
        if (le64toh(size) > record->bytes - BLOB_PREFIX_BYTES) {
            return error_set(err, TCK_ERR_CORRUPT, "blob \"%.200s\": %" PRIu64 " bytes in a capacity of %" PRIu64,
                             record->key, le64toh(size), record->bytes - BLOB_PREFIX_BYTES);
        }
    }
    return TCK_OK;
}

/* Whether the chunks that these bytes of the image lie in have their CRCs. */
static bool chunks_match(const struct shard *shard, const uint8_t *image, const uint32_t *crcs, uint64_t begin,
                         uint64_t end)
{
    for (uint32_t c = (uint32_t)(begin / CHUNK_BYTES); c <= (uint32_t)((end - 1) / CHUNK_BYTES); c++) {
        if (chunk_crc(image, shard->image_bytes, c) != crcs[c]) {
            return false;
        }
    }
    return true;
}

static tck_status_t damaged(const struct shard *shard, struct error *err)
{
    return error_set(err, TCK_ERR_CORRUPT, "the shard of group \"%.200s\" was damaged in this node's memory",
                     shard->group);
}

/* A record table that is not this rank's own may also be a damaged one. */
static tck_status_t check_image(struct tck_client *client, uint32_t i, uint32_t slot, const uint32_t *crcs,
                                struct error *err)
{
    const struct shard *shard = &client->layout.shards[i];
    const uint8_t *image;

    if (client->slots.shards[i].base == NULL) {
        tck_status_t status = slots_map(&client->slots, i, &client->session, err);

        if (status != TCK_OK) {
            return status;
        }
    }
    image = slot_image(&client->slots.shards[i], slot);
    if (memcmp(image, shard->header, shard->header_bytes) != 0) {
        if (!chunks_match(shard, image, crcs, 0, shard->header_bytes)) {
            return damaged(shard, err);
        }
        return error_set(err, TCK_ERR_LAYOUT, "the saved shard of group \"%.200s\" has another record table",
                         shard->group);
    }
    return check_blobs(&client->layout, shard, image, err);
}

static tck_status_t check_images(struct tck_client *client, const struct msg_restored *offer, struct error *err)
{
    const uint32_t *crcs = offer->crcs;
    tck_status_t status = TCK_OK;

    for (uint32_t i = 0; i < offer->count && status == TCK_OK; i++) {
        if (offer->shards[i].slot != NONE32) { /* else its twins check it: they have the same record table */
            status = check_image(client, i, offer->shards[i].slot, crcs, err);
            crcs += chunk_count(client->layout.shards[i].image_bytes);
        }
    }
    return status;
}

/* ---- requests, repeated as needed ----------------------------------------------------------------------------- */

/* The snapshot worker's thread reconnects to an agent that its supervisor has restarted; it needs the lock for that. */
static bool wait_for_return(struct session *session)
{
    uint64_t give_up_ms = clock_ms() + session->config.session_wait_ms;
    bool back = false;

    pthread_mutex_unlock(&session->lock);
    while (!back && clock_ms() < give_up_ms) {
        nanosleep(&(struct timespec){.tv_nsec = RETURN_PAUSE_NS}, NULL);
        back = atomic_load(&session->connected);
    }
    pthread_mutex_lock(&session->lock);
    return back;
}

static tck_status_t request_and_check(struct tck_client *client, const struct question *question,
                                      struct msg_restored *out, struct error *err)
{
    struct msg_restored offer;
    tck_status_t status = request_version(client, question, &offer, err);

    if (status != TCK_OK) {
        return status;
    }
    failpoint(restore, offered);
    status = check_images(client, &offer, err);
    if (status != TCK_OK) {
        msg_restored_free(&offer);
        return status;
    }
    *out = offer;
    return TCK_OK;
}

/* An agent that dies meanwhile loses the request, but not its decisions. */
static tck_status_t request_until_answered(struct tck_client *client, const struct question *question,
                                           struct msg_restored *out, struct error *err)
{
    tck_status_t status = TCK_ERR_UNREACHABLE;

    for (int i = 0; i < RETURNS_MAX && status != TCK_OK; i++) {
        status = request_and_check(client, question, out, err);
        if (status != TCK_OK && (atomic_load(&client->session.connected) || !wait_for_return(&client->session))) {
            break;
        }
    }
    return status;
}

/* ---- copying ------------------------------------------------------------------------------------------------- */

/* Such a shard is checked while it is copied; what devices copy is checked before. */
static bool on_host_alone(const struct layout *layout, const struct shard *shard)
{
    for (uint32_t i = 0; i < shard->record_count; i++) {
        if (layout->records[shard->records[i]].memory != TCK_HOST) {
            return false;
        }
    }
    return true;
}

static bool checked_ahead(const struct tck_client *client, const struct restore_sources *gather, uint32_t i)
{
    return !gather->own.came[i] /* else that was checked when it came */ &&
           !on_host_alone(&client->layout, &client->layout.shards[i]);
}

static uint64_t bytes_ahead(const struct tck_client *client, const struct restore_sources *gather)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < gather->own.count; i++) {
        bytes += checked_ahead(client, gather, i) ? client->layout.shards[i].image_bytes : 0;
    }
    return bytes;
}

/* The agent may not have read them: memory that is damaged must not reach the trainer. */
static tck_status_t check_ahead(struct tck_client *client, const struct restore_sources *gather, struct error *err)
{
    activity_phase(&client->activity, "checking", bytes_ahead(client, gather));
    for (uint32_t i = 0; i < gather->own.count; i++) {
        const struct shard *shard = &client->layout.shards[i];
        struct hash128 root = gather->own.roots[i];
        tck_status_t status = TCK_OK;

        if (checked_ahead(client, gather, i)) {
            status = copy_digest(client->copier, gather->own.images[i], shard->image_bytes, &root, err);
            activity_add(&client->activity, shard->image_bytes);
        }
        if (status != TCK_OK) {
            return status;
        }
        if (!hash128_is(root, gather->own.roots[i])) {
            return damaged(shard, err);
        }
    }
    return TCK_OK;
}

/* The trainer is about to read the blobs, before the rest is checked and copied. */
static tck_status_t check_chunks_of_blobs(const struct tck_client *client, const struct restore_sources *gather,
                                          struct error *err)
{
    for (uint32_t i = 0; i < gather->own.count; i++) {
        const struct shard *shard = &client->layout.shards[i];

        for (uint32_t k = 0; k < shard->record_count && gather->crcs[i] != NULL; k++) {
            const struct record *record = &client->layout.records[shard->records[k]];

            uint64_t begin = record->image_offset;
            if (record->blob &&
                !chunks_match(shard, gather->own.images[i], gather->crcs[i], begin, begin + record->bytes)) {
                return damaged(shard, err);
            }
        }
    }
    return TCK_OK;
}

static void place_blobs(const struct layout *layout, const struct shard *shard, const uint8_t *image)
{
    for (uint32_t i = 0; i < shard->record_count; i++) {
        const struct record *record = &layout->records[shard->records[i]];

        if (record->blob) {
            memcpy(record->addr, image + record->image_offset, record->bytes);
        }
    }
}

/* Runs the trainers' checks: either all ranks go on, or none does and only blobs have changed. */
static tck_status_t consult(struct tck_client *client, const struct restore_sources *gather, struct error *err)
{
    tck_status_t status = check_ahead(client, gather, err);

    if (status == TCK_OK) {
        status = check_chunks_of_blobs(client, gather, err);
    }
    for (uint32_t i = 0; i < gather->own.count && status == TCK_OK; i++) {
        place_blobs(&client->layout, &client->layout.shards[i], gather->own.images[i]);
    }
    if (status == TCK_OK && gather->own.count > 0) {
        status = client_ask_trainer(client, err);
    }
    activity_phase(&client->activity, WAITS_FOR_RANKS, 0);
    return oob_agree(&client->oob, status, err);
}

static void list_images(const struct tck_client *client, const struct restore_sources *gather,
                        struct device_image *images)
{
    for (uint32_t i = 0; i < gather->own.count; i++) {
        bool checked = gather->own.came[i] || checked_ahead(client, gather, i);

        images[i] = (struct device_image){.shard = i,
                                          .pinned = client->slots.shards[i].pinned && !gather->own.came[i],
                                          .image = gather->own.images[i],
                                          .crcs = checked ? NULL : gather->crcs[i]};
    }
}

static tck_status_t copy_images(struct tck_client *client, const struct restore_sources *gather, struct error *err)
{
    struct device_image *images = calloc(gather->own.count + (size_t)1, sizeof(*images));
    tck_status_t status = images == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory to restore with") : TCK_OK;

    if (status == TCK_OK) {
        list_images(client, gather, images);
    }
    if (status == TCK_OK && client->check == NULL) {
        status = check_ahead(client, gather, err); /* else all ranks did before they agreed to come here */
    }
    activity_phase(&client->activity, "copying into the tensors", 0);
    if (status == TCK_OK) {
        status = devices_restore(&client->devices, images, gather->own.count, err);
    }
    tck_status_t finished = devices_finish(&client->devices, status == TCK_OK ? err : NULL);
    free(images);
    return status == TCK_OK ? finished : status;
}

/* ---- all ranks ----------------------------------------------------------------------------------------------- */

/* What each rank reports of its agent's offer. */
struct offered {
    struct version version;
    uint64_t spread; /* enum restore_spread: how it would get what its node lacks */
};

/* One rank's part in a restore. */
struct attempt {
    enum restore_spread spread; /* how this rank would get what its node lacks */
    bool mixed;                 /* the ranks are not configured alike */
    struct msg_restored *offer;
    struct restore_sources gather;
};

/* Also checks that all ranks were offered the same version, and whether they are configured alike. */
static tck_status_t agree_on_version(const struct tck_client *client, tck_status_t status, struct attempt *attempt,
                                     struct error *err)
{
    uint32_t world_size = client->oob.world_size;
    struct version version = attempt->offer->version;
    struct offered mine = {{htole64(version.term), htole64(version.step)}, htole64((uint64_t)attempt->spread)};
    struct offered *all = calloc(world_size, sizeof(*all));

    if (all == NULL && status == TCK_OK) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for %u versions", world_size);
    }
    status = oob_exchange(&client->oob, status, &mine, all, sizeof(mine), err);
    for (uint32_t r = 0; r < world_size && status == TCK_OK; r++) {
        attempt->mixed |= all[r].spread != all[0].spread;
        if (!version_is(all[r].version, mine.version)) {
            status = error_set(err, TCK_ERR_INTERNAL, "rank %u was offered another version than rank %u", r,
                               client->oob.rank);
        }
    }
    free(all);
    return status;
}

/* Replaces the offer by a new one from the agent, of one version on all ranks. status: of this rank so far. */
static tck_status_t get_offer(struct tck_client *client, tck_status_t status, const struct question *question,
                              struct attempt *attempt, struct error *err)
{
    restore_sources_free(client, &attempt->gather);
    msg_restored_free(attempt->offer);
    if (status == TCK_OK) {
        activity_of_agent(&client->activity, "getting the shards", client->session.shared);
        status = request_until_answered(client, question, attempt->offer, err);
    }
    if (status == TCK_OK) {
        status = restore_sources_begin(client, attempt->offer, &attempt->gather, err);
    }
    activity_phase(&client->activity, WAITS_FOR_RANKS, 0);
    return agree_on_version(client, status, attempt, err);
}

/* Gets what this rank lacks from the others. If that fails, all ranks (this is collective) request it again from their
 * agents. */
static tck_status_t gather_images(struct tck_client *client, struct attempt *attempt, struct error *err)
{
    struct question again = {.step = attempt->offer->version.step};
    struct error failed = {0};
    tck_status_t status;

    if (attempt->offer->other_layout || (attempt->spread == SPREAD_AGENTS && !attempt->mixed)) {
        return TCK_OK;
    }
    activity_phase(&client->activity, "passing shards from rank to rank", 0);
    status = attempt->mixed ? error_set(&failed, TCK_ERR_CONFIG, "restore_spread is not the same on all ranks")
                            : restore_sources_spread(client, attempt->spread, &attempt->gather, &failed);
    if (status == TCK_OK) {
        return TCK_OK;
    }
    again.failed = client->oob.rank == 0 ? failed.text : NULL; /* one rank's agent logs it */
    return get_offer(client, TCK_OK, &again, attempt, err);
}

static void fill_result(const struct tck_client *client, const struct msg_restored *offer, tck_restored_t *out)
{
    uint64_t bytes[SOURCE_KINDS] = {0};

    for (uint32_t i = 0; i < offer->count; i++) {
        bytes[offer->shards[i].source] += client->layout.shards[i].image_bytes;
    }
    out->version = (tck_version_t){offer->version.term, offer->version.step};
    out->bytes_local = bytes[SOURCE_LOCAL];
    out->bytes_twin = bytes[SOURCE_TWIN];
    out->bytes_peer = bytes[SOURCE_PEER];
    out->bytes_storage = bytes[SOURCE_STORAGE];
    out->newest_step = offer->newest_step;
}

/* The text that the result points to belongs to the client. */
static void report_passed_over(struct tck_client *client, const struct msg_restored *offer, tck_restored_t *out)
{
    snprintf(client->passed_over, sizeof(client->passed_over), "%s", offer->passed_over);
    out->passed_over = client->passed_over;
    if (client->passed_over[0] != '\0' && client->oob.rank == 0) {
        log_warn("an older version, %" PRIu64 ".%" PRIu64 ", is restored: %s", out->version.term, out->version.step,
                 client->passed_over);
    }
}

static void unmap_foreign(struct tck_client *client)
{
    for (uint32_t i = 0; i < client->slots.count; i++) {
        if (!client->slots.shards[i].segment.stored_here) {
            slots_unmap(&client->slots, i);
        }
    }
}

static tck_status_t restore_locked(struct tck_client *client, uint64_t step, struct msg_restored *offer,
                                   struct error *err)
{
    struct attempt attempt = {.spread = restore_sources_wanted(client), .offer = offer};
    struct question question = {.step = step, .may_lack = attempt.spread != SPREAD_AGENTS};
    tck_status_t status = devices_restore_prepare(&client->devices, &client->layout, err);

    status = get_offer(client, status, &question, &attempt, err);
    if (status == TCK_OK) {
        status = gather_images(client, &attempt, err);
    }
    if (status == TCK_OK && client->check != NULL && !offer->other_layout) {
        status = consult(client, &attempt.gather, err);
    }
    if (status == TCK_OK) {
        failpoint(restore, agreed);
        client->torn |= !offer->other_layout;
        client->placed = copy_images(client, &attempt.gather, err);
        failpoint(restore, copied);
    }
    devices_restore_over(&client->devices);
    restore_sources_free(client, &attempt.gather);
    unmap_foreign(client);
    return status;
}

/* ---- a term restores once ------------------------------------------------------------------------------------ */

/* Terms begun for one restore: agents that restore on their own may finish before the request arrives. */
#define TERMS_MAX 4

/* What each rank contributes before an attempt. */
struct intent {
    uint64_t step;
    uint64_t new_term; /* a new term is needed: this one has restored another version, or saved */
    uint64_t accepts;  /* accepts a fresh start if all saved versions are lost */
    uint64_t ends;     /* the attempt before failed in a way that another term cannot repair */
    uint64_t torn;     /* its records hold parts of several states */
};

static bool term_is_used(struct tck_client *client, uint64_t step)
{
    bool saved;

    pthread_mutex_lock(&client->worker.lock);
    saved = client->worker.begun_step != 0;
    pthread_mutex_unlock(&client->worker.lock);
    return saved || (client->asked && client->restore_step != step);
}

/* Reduces all ranks' intents into *mine. */
static tck_status_t agree_on_intent(const struct tck_client *client, struct intent *mine, struct error *err)
{
    uint32_t world_size = client->oob.world_size;
    struct intent *all = calloc(world_size, sizeof(*all));
    struct intent sent = {htole64(mine->step), htole64(mine->new_term), htole64(mine->accepts), htole64(mine->ends),
                          htole64(mine->torn)};
    tck_status_t status =
        all == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for what %u ranks restore", world_size) : TCK_OK;

    status = oob_exchange(&client->oob, status, &sent, all, sizeof(sent), err);
    for (uint32_t r = 0; r < world_size && status == TCK_OK; r++) {
        mine->new_term |= le64toh(all[r].new_term);
        mine->ends |= le64toh(all[r].ends);
        mine->torn |= le64toh(all[r].torn);
        if (le64toh(all[r].step) != mine->step) {
            status = error_set(err, TCK_ERR_INVAL, "rank %u restores another step than rank %u", r, client->oob.rank);
        } else if (le64toh(all[r].accepts) != mine->accepts) {
            status = error_set(err, TCK_ERR_CONFIG, "accept_fresh_start is not the same on ranks %u and %u", r,
                               client->oob.rank);
        }
    }
    free(all);
    return status;
}

static tck_status_t try_restore(struct tck_client *client, uint64_t step, struct msg_restored *offer, struct error *err)
{
    tck_status_t status;

    client->asked = true;
    client->restore_step = step;
    pthread_mutex_lock(&client->session.lock);
    status = restore_locked(client, step, offer, err);
    client->session.will_ask = false;
    pthread_mutex_unlock(&client->session.lock);
    if (status != TCK_OK || offer->other_layout) {
        return status;
    }
    activity_phase(&client->activity, WAITS_FOR_RANKS, 0);
    status = oob_agree(&client->oob, client->placed, err);
    client->torn = status != TCK_OK;
    if (status == TCK_OK && !version_none(offer->version)) {
        pthread_mutex_lock(&client->session.lock);
        send_done(client, offer);
        pthread_mutex_unlock(&client->session.lock);
    }
    return status;
}

/* Whether a new term may succeed: its recovery checks every copy again. */
static bool may_go_better(tck_status_t tried)
{
    return tried == TCK_ERR_BUSY || tried == TCK_ERR_CORRUPT;
}

/* Only if the versions are lost: what cannot be read now may still exist. */
static tck_status_t accept_loss(const struct tck_client *client, tck_status_t tried, struct error *err)
{
    char why[ERROR_TEXT_BYTES];
    if (tried != TCK_ERR_UNRECOVERABLE) {
        return tried;
    }
    snprintf(why, sizeof(why), "%s", err->text);
    if (client->oob.rank == 0) {
        log_warn("starting fresh, since accept_fresh_start is set: %s", why);
    }
    return error_set(err, TCK_ERR_NOENT, "a fresh start is accepted: %.400s", why);
}

/* All ranks fail together, so they also retry together. */
static tck_status_t restore_in_some_term(struct tck_client *client, uint64_t step, struct msg_restored *offer,
                                         struct error *err)
{
    struct intent intent = {.step = step, .new_term = term_is_used(client, step)};
    bool accepts = step == TCK_NEWEST && client->session.config.accept_fresh_start == SWITCH_ON;
    tck_status_t tried = TCK_ERR_BUSY;

    intent.accepts = accepts;
    for (int i = 0; i <= TERMS_MAX; i++) {
        struct error failure = {0};
        activity_phase(&client->activity, WAITS_FOR_RANKS, 0);
        intent.torn = client->torn;
        tck_status_t status = agree_on_intent(client, &intent, &failure);

        client->torn |= intent.torn != 0;
        if (status == TCK_OK && intent.ends) {
            return accepts && !client->torn ? accept_loss(client, tried, err) : tried;
        }
        if (status == TCK_OK && intent.new_term) {
            status = client_begin_term(client, true, &failure);
        }
        if (status != TCK_OK) {
            *err = failure;
            return status;
        }
        msg_restored_free(offer);
        tried = try_restore(client, step, offer, err);
        if (tried == TCK_OK) {
            return TCK_OK;
        }
        intent.new_term = true;
        intent.ends = !may_go_better(tried) || i + 1 == TERMS_MAX;
    }
    return tried;
}

/* Completes the restore on this rank; with another layout each rank reads its part now. */
static tck_status_t finish(struct tck_client *client, const struct msg_restored *offer, tck_restored_t *out,
                           struct error *err)
{
    tck_status_t status;

    if (!offer->other_layout) {
        fill_result(client, offer, out);
        return TCK_OK;
    }
    status = client_reshard(client, offer->version, out, err);
    out->newest_step = offer->newest_step;
    if (status == TCK_OK) {
        pthread_mutex_lock(&client->session.lock);
        send_done(client, offer);
        pthread_mutex_unlock(&client->session.lock);
    }
    return status;
}

/* Of errors after which a program would continue with what its records hold, this one is made when they hold parts of
 * several states. */
static tck_status_t failed(const struct tck_client *client, tck_status_t status, struct error *err)
{
    if (!client->torn) {
        return status;
    }
    if (status == TCK_ERR_NOENT || status == TCK_ERR_LAYOUT || status == TCK_ERR_NOSPC) {
        err->code = status = TCK_ERR_UNRECOVERABLE;
    }
    (void)error_prefix(err, "this restore, or one before it, failed after it had begun to write the records, which now "
                            "hold parts of several states: do not train with them. Nothing is saved until a restore "
                            "succeeds");
    return status;
}

tck_status_t client_restore(struct tck_client *client, uint64_t step, tck_restored_t *out, struct error *err)
{
    struct msg_restored offer = {0};
    uint64_t begin_ns = clock_ns();
    tck_restored_t restored = {.struct_size = sizeof(restored)};
    tck_status_t status = restore_in_some_term(client, step, &offer, err);

    if (status == TCK_OK) {
        status = finish(client, &offer, &restored, err);
    }
    if (status == TCK_OK) {
        restored.seconds = (double)(clock_ns() - begin_ns) / 1e9;
        notice_restored(client, &restored);
        report_passed_over(client, &offer, &restored);
    }
    if (status != TCK_OK) {
        status = failed(client, status, err);
    }
    if (status == TCK_OK && out != NULL) {
        restored.struct_size = out->struct_size;
        *out = restored;
    }
    msg_restored_free(&offer);
    return status;
}
