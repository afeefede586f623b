/* SPDX-License-Identifier: Apache-2.0
 * The saver thread: sleeps until the trainer begins a snapshot or the agent is gone. */
#include "client/saver.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "client/over.h"
#include "client/roots.h"
#include "client/spawn.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define RETURN_FIRST_MS 50 /* pause before trying to come back to the agent, doubled each time up to */
#define RETURN_LAST_MS  2000
#define FORSAKEN_MS     5000 /* nobody there for so long: nobody will start the agent again */

static const char UNCONFIRMED[] = "it was not confirmed that its records stayed as they were while they were copied";

/* ---- the end of a snapshot ----------------------------------------------------------------------------------- */

static void finish_copied(struct saver *saver, uint64_t bytes)
{
    pthread_mutex_lock(&saver->lock);
    saver->copied_step = saver->step;
    saver->agent_hung = false;
    saver->counts.copied++;
    saver->counts.bytes += bytes;
    if (saver->told.code != TCK_OK) {
        log_warn("saves go on with step %" PRIu64, saver->step);
        saver->told = (struct error){0};
    }
    saver->state = SAVE_IDLE;
    pthread_cond_broadcast(&saver->idle);
    pthread_mutex_unlock(&saver->lock);
}

/* Once for each cause. What agents refuse is for want of room as a rule: it may come and go with every step. */
static void tell_skipped(struct saver *saver, uint64_t step, const struct error *why)
{
    if (why->code == TCK_ERR_BUSY) {
        if (log_limit_pass(&saver->refusals)) {
            log_info("step %" PRIu64 " is not saved: %s", step, why->text);
        }
    } else if (why->code == TCK_ERR_DENIED && saver->told.code != TCK_ERR_DENIED) {
        log_error("step %" PRIu64 " and all after it are not saved: %s", step, why->text);
        saver->told = *why;
    } else if (why->code != TCK_ERR_DENIED && strcmp(why->text, saver->told.text) != 0) {
        log_warn("saves are skipped, the first is step %" PRIu64 ": %s", step, why->text);
        saver->told = *why;
    }
}

/* With the lock held. */
static void note_skipped(struct saver *saver, uint64_t step, const struct error *why)
{
    tell_skipped(saver, step, why);
    saver->failed_step = step;
    saver->failure = *why;
    saver->counts.skipped++;
}

static void finish_skipped(struct saver *saver, const struct error *why)
{
    pthread_mutex_lock(&saver->lock);
    note_skipped(saver, saver->step, why);
    saver->agent_hung = why->code == TCK_ERR_TIMEDOUT;
    saver->hung_beat = atomic_load(&saver->session->board->agent_beat);
    saver->state = SAVE_IDLE;
    pthread_cond_broadcast(&saver->idle);
    pthread_mutex_unlock(&saver->lock);
}

/* ---- one snapshot (session locked) --------------------------------------------------------------------------- */

static void tell_step(struct saver *saver, enum message_type type, uint64_t number)
{
    struct msg_step step = {.seq = session_seq(saver->session), .step = number};
    struct writer w = writer_new(0);

    msg_step_encode(&step, &w);
    if (session_tell(saver->session, type, &w, NULL) != TCK_OK) {
        log_debug("the agent could not be told of step %" PRIu64 ": it will be when it is back", number);
    }
}

static uint32_t stored_count(const struct slots *slots)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < slots->count; i++) {
        count += slots->shards[i].segment.stored_here;
    }
    return count;
}

/* One slot for each shard stored here, in their order. */
static bool grant_fits(const struct saver *saver, const struct msg_grant *grant)
{
    uint32_t n = 0;

    if (grant->step != saver->step || grant->count != stored_count(saver->slots)) {
        return false;
    }
    for (uint32_t i = 0; i < saver->slots->count; i++) {
        const struct msg_segment *segment = &saver->slots->shards[i].segment;

        if (segment->stored_here && grant->slots[n++] >= segment->slot_count) {
            return false;
        }
    }
    return true;
}

static tck_status_t take_grant(struct saver *saver, const struct ipc_frame *frame, struct msg_grant *out,
                               struct error *err)
{
    if (msg_grant_decode(frame->payload, frame->len, out) != TCK_OK) {
        return error_set(err, TCK_ERR_PROTO, "malformed grant from the agent");
    }
    if (!grant_fits(saver, out)) {
        free(out->slots);
        return error_set(err, TCK_ERR_PROTO, "the agent granted other slots than there are");
    }
    return TCK_OK;
}

static tck_status_t ask_for_slots(struct saver *saver, struct msg_grant *out, struct error *err)
{
    struct msg_begin begin = {.seq = session_seq(saver->session), .step = saver->step, .to_storage = saver->to_storage};
    uint64_t now_ms = clock_ms();
    int left_ms = saver->deadline_ms > now_ms ? (int)(saver->deadline_ms - now_ms) : 0;
    struct writer w = writer_new(0);
    struct ipc_frame frame;
    tck_status_t status;

    msg_begin_encode(&begin, &w);
    status = session_ask(saver->session, MSG_BEGIN, &w, MSG_GRANT, left_ms, &frame, err);
    if (status != TCK_OK) {
        return status;
    }
    status = take_grant(saver, &frame, out, err);
    ipc_frame_free(&frame);
    return status;
}

/* All of them before the first copy: their roots are known while that goes on. */
static tck_status_t start_digests(struct saver *saver, struct error *err)
{
    tck_status_t status = TCK_OK;

    for (uint32_t i = 0; i < saver->slots->count && status == TCK_OK; i++) {
        if (saver->slots->shards[i].segment.stored_here) {
            status = cuda_digest(saver->plan->cuda, i, err);
        }
    }
    return status == TCK_OK ? cuda_digested(saver->plan->cuda, err) : status;
}

/* Has the devices copy to the slots, which they do by themselves unless slots are not pinned. */
static tck_status_t start_devices(struct saver *saver, const struct msg_grant *grant, struct error *err)
{
    struct cuda *cuda = saver->plan->cuda;
    tck_status_t status = cuda_start(cuda, err);
    uint32_t n = 0;

    if (status == TCK_OK) {
        status = start_digests(saver, err);
    }
    for (uint32_t i = 0; i < saver->slots->count && status == TCK_OK; i++) {
        struct shard_slots *shard = &saver->slots->shards[i];

        if (shard->segment.stored_here) {
            status = cuda_save(cuda, i, shard, slot_image(shard, grant->slots[n++]), err);
        }
    }
    return status == TCK_OK ? cuda_end(cuda, err) : status;
}

static uint64_t shard_bytes(const struct layout *layout, const struct shard *shard)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < shard->record_count; i++) {
        bytes += layout->records[shard->records[i]].bytes;
    }
    return bytes;
}

static void prepare_slots(struct saver *saver, const struct msg_grant *grant)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < saver->slots->count; i++) {
        if (saver->slots->shards[i].segment.stored_here) {
            slot_prepare(&saver->slots->shards[i], grant->slots[n++], saver->layout, &saver->layout->shards[i]);
        }
    }
}

static uint64_t copy_host_memory(struct saver *saver, const struct msg_grant *grant)
{
    uint64_t bytes = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; i < saver->slots->count; i++) {
        struct shard_slots *shard = &saver->slots->shards[i];

        if (shard->segment.stored_here) {
            copy_to_slot(saver->copier, &saver->plan->lists[i], slot_image(shard, grant->slots[n++]));
            bytes += shard_bytes(saver->layout, &saver->layout->shards[i]);
            failpoint(save, copying);
        }
    }
    return bytes;
}

/* The fence may let the trainer go on. */
static void release(struct saver *saver)
{
    pthread_mutex_lock(&saver->lock);
    saver->released = true;
    pthread_cond_broadcast(&saver->idle);
    pthread_mutex_unlock(&saver->lock);
}

/* Goes on even if the agent dies meanwhile: the slots outlive it, and its successor finds them sealed. Also on failure
 * nothing writes into the slots any more when it returns. */
static tck_status_t copy_shards(struct saver *saver, const struct msg_grant *grant, uint64_t *bytes_out,
                                struct error *err)
{
    struct cuda *cuda = saver->plan->cuda;
    tck_status_t status = TCK_OK, finished = TCK_OK;

    prepare_slots(saver, grant);
    if (cuda != NULL) {
        status = start_devices(saver, grant, err);
    }
    if (status == TCK_OK) {
        *bytes_out = copy_host_memory(saver, grant);
        release(saver);
    }
    if (cuda != NULL && status == TCK_OK) {
        status = roots_make(saver->plan, saver->slots, saver->layout, grant, err);
    }
    if (cuda != NULL && status == TCK_OK) {
        roots_tell(saver->session, saver->plan, saver->slots, saver->step);
    }
    if (cuda != NULL) {
        finished = cuda_finish(cuda, status == TCK_OK ? err : NULL);
    }
    return status == TCK_OK ? finished : status;
}

/* With the root of the device's digests, if they were made: the agent compares it with that of its own. */
static void seal_slot(struct saver *saver, uint32_t i, uint32_t slot, struct version version)
{
    const struct made_root *mine = &saver->plan->roots[i];

    seal_set(&saver->slots->shards[i].seals[slot], version, mine->made ? &mine->root : NULL);
}

/* Only when all is copied: part of a snapshot is worth nothing. */
static void seal_slots(struct saver *saver, const struct msg_grant *grant)
{
    const struct version version = {saver->session->world.term, saver->step};
    uint32_t n = 0;

    for (uint32_t i = 0; i < saver->slots->count; i++) {
        const struct shard_slots *shard = &saver->slots->shards[i];

        if (shard->segment.stored_here) {
            seal_slot(saver, i, grant->slots[n++], version);
            failpoint(save, sealing);
        }
    }
    saver->sealed_step = saver->step;
}

/* Until the trainer has said whether the records stayed as they were while they were copied. The session is not needed
 * meanwhile, and others may use it. */
static tck_status_t await_verdict(struct saver *saver, struct error *err)
{
    tck_status_t status = TCK_OK;

    pthread_mutex_lock(&saver->lock);
    saver->copied = true;
    pthread_cond_broadcast(&saver->idle);
    if (saver->verdict == VERDICT_PENDING) {
        pthread_mutex_unlock(&saver->session->lock);
        while (saver->verdict == VERDICT_PENDING) {
            pthread_cond_wait(&saver->idle, &saver->lock);
        }
        pthread_mutex_unlock(&saver->lock); /* the session's lock comes first */
        pthread_mutex_lock(&saver->session->lock);
        pthread_mutex_lock(&saver->lock);
    }
    if (saver->verdict == VERDICT_GIVE_UP) {
        status = error_set(err, TCK_ERR_CANCELED, "%s", saver->verdict_why);
    }
    pthread_mutex_unlock(&saver->lock);
    return status;
}

static tck_status_t snapshot_locked(struct saver *saver, uint64_t *bytes_out, struct error *err)
{
    struct msg_grant grant;
    tck_status_t status;

    saver->asked_step = saver->step;
    failpoint(save, asking);
    status = ask_for_slots(saver, &grant, err);
    if (status == TCK_ERR_TIMEDOUT || status == TCK_ERR_PROTO) {
        tell_step(saver, MSG_ABANDON, saver->step); /* a grant may still come; nobody will use it */
    }
    if (status != TCK_OK) {
        return status;
    }
    failpoint(save, granted);
    status = copy_shards(saver, &grant, bytes_out, err);
    failpoint(save, copied);
    if (status == TCK_OK) {
        status = await_verdict(saver, err);
    }
    if (status == TCK_OK) {
        seal_slots(saver, &grant);
        failpoint(save, sealed);
    }
    free(grant.slots);
    tell_step(saver, status == TCK_OK ? MSG_SEAL : MSG_ABANDON, saver->step);
    failpoint(save, told);
    return status;
}

static void take_snapshot(struct saver *saver)
{
    struct error err = {0};
    uint64_t bytes = 0;
    tck_status_t status;

    pthread_mutex_lock(&saver->session->lock);
    status = snapshot_locked(saver, &bytes, &err);
    pthread_mutex_unlock(&saver->session->lock);
    if (status == TCK_ERR_DENIED) {
        (void)!session_over(saver->session, &err); /* says more than the agent's refusal */
    }
    if (status == TCK_OK) {
        finish_copied(saver, bytes);
    } else {
        finish_skipped(saver, &err);
    }
}

/* ---- what else is said of a step ------------------------------------------------------------------------------- */

/* Begun and given up, a version is refused by this node at once. */
static void give_up(struct saver *saver)
{
    struct msg_grant grant;
    struct error ignored;

    pthread_mutex_lock(&saver->session->lock);
    saver->asked_step = saver->step;
    if (ask_for_slots(saver, &grant, &ignored) == TCK_OK) {
        free(grant.slots);
    }
    tell_step(saver, MSG_ABANDON, saver->step);
    pthread_mutex_unlock(&saver->session->lock);
    finish_skipped(saver, &saver->given_up);
}

/* The agent refuses to save a step once more, but the coordinator notes that it is to go to storage. With an agent that
 * is away this waits for its return: the step lies in memory, and is not lost for it. */
static void send_to_storage(struct saver *saver)
{
    struct msg_grant grant;
    struct error err = {0};
    tck_status_t status;

    pthread_mutex_lock(&saver->session->lock);
    status = ask_for_slots(saver, &grant, &err);
    pthread_mutex_unlock(&saver->session->lock);
    if (status == TCK_OK) {
        free(grant.slots);
        status = error_set(&err, TCK_ERR_PROTO, "the agent granted slots for a step that was saved before");
    }
    if (status == TCK_ERR_PROTO || status == TCK_ERR_DENIED) {
        finish_skipped(saver, &err);
        return;
    }
    pthread_mutex_lock(&saver->lock);
    saver->owed_step = status == TCK_ERR_BUSY ? 0 : saver->step;
    saver->state = SAVE_IDLE;
    pthread_cond_broadcast(&saver->idle);
    pthread_mutex_unlock(&saver->lock);
}

static void work(struct saver *saver)
{
    switch (saver->work) {
    case WORK_SAVE:
        take_snapshot(saver);
        return;
    case WORK_GIVE_UP:
        give_up(saver);
        return;
    case WORK_TO_STORAGE:
        send_to_storage(saver);
        return;
    }
}

/* ---- the thread ---------------------------------------------------------------------------------------------- */

static bool should_stop(struct saver *saver)
{
    bool stop;

    pthread_mutex_lock(&saver->lock);
    stop = saver->stop && saver->state == SAVE_IDLE;
    pthread_mutex_unlock(&saver->lock);
    return stop;
}

/* What the agent that died may not have heard. Said twice it does no harm. */
static void say_again(struct saver *saver)
{
    if (saver->sealed_step > 0) {
        tell_step(saver, MSG_SEAL, saver->sealed_step);
    }
    if (saver->asked_step > saver->sealed_step) {
        tell_step(saver, MSG_ABANDON, saver->asked_step); /* its slots, if it has any, are not being filled */
    }
}

static void note_anew(struct saver *saver, bool anew)
{
    pthread_mutex_lock(&saver->lock);
    saver->anew = anew;
    pthread_mutex_unlock(&saver->lock);
}

static tck_status_t come_back(struct saver *saver, struct error *err)
{
    struct msg_segments segments;
    tck_status_t status;

    pthread_mutex_lock(&saver->session->lock);
    status = session_return(saver->session, &segments, err);
    if (status == TCK_OK) {
        status = slots_adopt(saver->slots, saver->session, saver->layout, &segments, err);
    }
    failpoint(comeback, greeted);
    if (status == TCK_OK) {
        say_again(saver);
        failpoint(comeback, told);
        atomic_store(&saver->session->connected, true);
    } else {
        session_disconnect(saver->session);
    }
    note_anew(saver, session_began_anew(saver->session));
    pthread_mutex_unlock(&saver->session->lock);
    return status;
}

/* Whether the other end hung up. The answers to a request of the trainer's thread do not wake us. */
static bool wait_for_work(struct saver *saver, int timeout_ms)
{
    bool connected = atomic_load(&saver->session->connected);
    struct pollfd fds[2] = {{.fd = saver->wake_fd, .events = POLLIN},
                            {.fd = connected ? saver->session->fd : -1, .events = POLLRDHUP}};
    uint64_t count;

    if (poll(fds, 2, timeout_ms) > 0 && fds[0].revents != 0 && read(saver->wake_fd, &count, sizeof(count)) < 0) {
        log_debug("eventfd: %m"); /* another read was faster: no harm */
    }
    return fds[1].revents != 0;
}

static void lose_agent(struct saver *saver)
{
    log_warn("rank %u: the agent is gone", saver->session->rank);
    pthread_mutex_lock(&saver->session->lock);
    session_disconnect(saver->session);
    pthread_mutex_unlock(&saver->session->lock);
}

static bool has_snapshot(struct saver *saver)
{
    bool copying;

    pthread_mutex_lock(&saver->lock);
    copying = saver->state == SAVE_COPYING;
    pthread_mutex_unlock(&saver->lock);
    return copying;
}

static void note_forsaken(struct saver *saver, bool forsaken)
{
    pthread_mutex_lock(&saver->lock);
    saver->forsaken = forsaken;
    pthread_mutex_unlock(&saver->lock);
}

/* Without a keeper somebody else may look after the agent, systemd say, and need a moment to start it again. */
static bool is_forsaken(struct saver *saver)
{
    uint64_t now_ms = clock_ms();

    if (!agent_is_nowhere(&saver->session->config)) {
        saver->nowhere_ms = 0;
        return false;
    }
    saver->nowhere_ms = saver->nowhere_ms == 0 ? now_ms : saver->nowhere_ms;
    return now_ms - saver->nowhere_ms >= FORSAKEN_MS;
}

/* With the lock held. */
static void hand_over(struct saver *saver, uint64_t step, bool to_storage)
{
    saver->step = step;
    saver->to_storage = to_storage;
    saver->storage_step = to_storage ? step : saver->storage_step;
    saver->deadline_ms = clock_ms() + saver->session->config.block_time_ms;
    saver->released = saver->copied = false;
    saver->verdict = saver->confirms && saver->work == WORK_SAVE ? VERDICT_PENDING : VERDICT_SEAL;
    saver->state = SAVE_COPYING;
}

/* What was to go to storage while the agent was away. */
static void send_owed(struct saver *saver)
{
    pthread_mutex_lock(&saver->lock);
    if (saver->owed_step > 0 && saver->state != SAVE_COPYING) {
        saver->work = WORK_TO_STORAGE;
        hand_over(saver, saver->owed_step, true);
        saver->owed_step = 0;
    }
    pthread_mutex_unlock(&saver->lock);
}

/* One try to come back; how long to wait before the next. */
static int try_return(struct saver *saver, int pause_ms)
{
    struct error err = {0};

    if (come_back(saver, &err) == TCK_OK) {
        saver->nowhere_ms = 0;
        note_forsaken(saver, false);
        send_owed(saver);
        return RETURN_FIRST_MS;
    }
    note_forsaken(saver, is_forsaken(saver));
    log_debug("rank %u: the agent is not back: %s", saver->session->rank, err.text);
    return pause_ms * 2 > RETURN_LAST_MS ? RETURN_LAST_MS : pause_ms * 2;
}

static void *saver_main(void *arg)
{
    struct saver *saver = arg;
    int pause_ms = RETURN_FIRST_MS;

    while (!should_stop(saver)) {
        bool connected = atomic_load(&saver->session->connected);

        if (has_snapshot(saver)) {
            work(saver);
            continue;
        }
        if (wait_for_work(saver, connected ? -1 : pause_ms)) {
            lose_agent(saver);
        } else if (!connected && !has_snapshot(saver)) {
            pause_ms = try_return(saver, pause_ms);
        }
    }
    return NULL;
}

static int start_thread(struct saver *saver)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals belong to the trainer's own threads */
    rc = pthread_create(&saver->thread, NULL, saver_main, saver);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

void saver_init(struct saver *saver)
{
    pthread_mutex_init(&saver->lock, NULL);
    pthread_cond_init(&saver->idle, NULL);
}

void saver_free(struct saver *saver)
{
    pthread_cond_destroy(&saver->idle);
    pthread_mutex_destroy(&saver->lock);
}

tck_status_t saver_start(struct saver *saver, struct session *session, const struct layout *layout, struct slots *slots,
                         struct save_plan *plan, struct copier *copier, struct error *err)
{
    int rc;

    pthread_mutex_lock(&saver->lock);
    memset(saver, 0, offsetof(struct saver, lock));
    saver->session = session;
    saver->layout = layout;
    saver->slots = slots;
    saver->plan = plan;
    saver->copier = copier;
    pthread_mutex_unlock(&saver->lock);
    saver->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (saver->wake_fd < 0) {
        return error_set(err, status_of_errno(errno), "create an eventfd: %m");
    }
    rc = start_thread(saver);
    if (rc != 0) {
        close(saver->wake_fd);
        errno = rc;
        return error_set(err, status_of_errno(rc), "start the saver thread: %m");
    }
    saver->running = true;
    return TCK_OK;
}

static void wake(struct saver *saver)
{
    uint64_t one = 1;

    if (write(saver->wake_fd, &one, sizeof(one)) < 0) {
        log_debug("eventfd: %m"); /* full: the thread is awake */
    }
}

void saver_stop(struct saver *saver)
{
    if (!saver->running) {
        return;
    }
    saver_wait(saver);
    atomic_store(&saver->session->stopping, true);
    pthread_mutex_lock(&saver->lock);
    saver->stop = true;
    pthread_mutex_unlock(&saver->lock);
    wake(saver);
    pthread_join(saver->thread, NULL);
    atomic_store(&saver->session->stopping, false);
    close(saver->wake_fd);
    saver->running = false;
}

/* ---- the trainer's side -------------------------------------------------------------------------------------- */

static void copy_eager(const struct saver *saver)
{
    for (uint32_t i = 0; i < saver->plan->eager_count; i++) {
        uint32_t r = saver->plan->eager[i];
        const struct record *record = &saver->layout->records[r];

        if (record->bytes > 0) {
            memcpy(saver->plan->addrs[r], record->addr, record->bytes);
        }
    }
}

const struct error *saver_forsaken(const struct saver *saver)
{
    static const struct error forsaken = {
        TCK_ERR_UNREACHABLE, "agent and keeper of this node are gone, and its memory with them: nothing is "
                             "saved here, and nothing commits, until the job is started again"};
    static const struct error anew = {
        TCK_ERR_UNREACHABLE, "the agent of this node began anew, and what it had in memory is lost: nothing is "
                             "saved here, and nothing commits, until the job is started again"};

    if (atomic_load(&saver->session->connected)) {
        return NULL;
    }
    return saver->anew ? &anew : saver->forsaken ? &forsaken : NULL;
}

/* Why no snapshot can be begun now, NULL if it can. A hung agent costs the block time once, not at every save. */
static const struct error *obstacle(const struct saver *saver)
{
    static const struct error gone = {TCK_ERR_UNREACHABLE, "the agent of this node has ended; saves go on as soon as "
                                                           "its keeper has started it again"};
    static const struct error hung = {TCK_ERR_TIMEDOUT, "the agent of this node does not answer"};

    if (!atomic_load(&saver->session->connected)) {
        const struct error *forsaken = saver_forsaken(saver);

        return forsaken != NULL ? forsaken : &gone;
    }
    return saver->agent_hung && atomic_load(&saver->session->board->agent_beat) == saver->hung_beat ? &hung : NULL;
}

/* Why not; with the lock held. */
static tck_status_t may_begin(const struct saver *saver, struct error *why_out)
{
    const struct error *why = obstacle(saver);

    if (session_over(saver->session, why_out) != TCK_OK) {
        return TCK_ERR_DENIED;
    }
    if (why != NULL) {
        *why_out = *why;
        return why->code;
    }
    return saver->plan->cuda == NULL || saver->work != WORK_SAVE ? TCK_OK : cuda_mark(saver->plan->cuda, true, why_out);
}

/* Marks the snapshot as begun, or as skipped; with the lock held. */
static tck_status_t enter(struct saver *saver, uint64_t step, bool to_storage, bool *started_out, struct error *why_out)
{
    bool saved = saver->begun_step == step && saver->failed_step != step;
    tck_status_t status;

    saver->work = saved ? WORK_TO_STORAGE : WORK_SAVE;
    status = may_begin(saver, why_out);
    if (status == TCK_ERR_INVAL) {
        return status;
    }
    saver->begun_step = step > saver->begun_step ? step : saver->begun_step;
    if (saved && status != TCK_OK && status != TCK_ERR_DENIED) {
        saver->owed_step = saver->storage_step = step;
        *started_out = true;
        return TCK_OK;
    }
    if (status != TCK_OK) {
        note_skipped(saver, step, why_out);
        *started_out = false;
        return TCK_OK;
    }
    saver->failed_step = saver->failed_step == step ? 0 : saver->failed_step; /* this time it was not skipped */
    saver->counts.started++;
    if (saver->work == WORK_SAVE) {
        copy_eager(saver);
    }
    hand_over(saver, step, to_storage);
    *started_out = true;
    return TCK_OK;
}

tck_status_t saver_begin(struct saver *saver, uint64_t step, bool to_storage, bool *started_out, struct error *why)
{
    tck_status_t status = TCK_ERR_BUSY;
    bool started = false;

    pthread_mutex_lock(&saver->lock);
    if (saver->state != SAVE_COPYING) {
        status = enter(saver, step, to_storage, &started, why);
    }
    pthread_mutex_unlock(&saver->lock);
    if (started) {
        wake(saver);
    }
    if (status == TCK_OK) {
        *started_out = started;
    }
    return status;
}

void saver_note_skipped(struct saver *saver, uint64_t step, const struct error *why)
{
    pthread_mutex_lock(&saver->lock);
    bool under_way = saver->state == SAVE_COPYING && saver->step == step; /* it was asked for twice */

    if (step >= saver->begun_step && !under_way) {
        saver->begun_step = step;
        note_skipped(saver, step, why);
    } else {
        saver->counts.skipped++;
    }
    pthread_mutex_unlock(&saver->lock);
}

void saver_give_up(struct saver *saver, uint64_t step, const struct error *why)
{
    bool handed_over;

    pthread_mutex_lock(&saver->lock);
    handed_over = saver->state != SAVE_COPYING && obstacle(saver) == NULL;
    if (handed_over) {
        saver->begun_step = step;
        saver->given_up = *why;
        saver->work = WORK_GIVE_UP;
        hand_over(saver, step, false);
    }
    pthread_mutex_unlock(&saver->lock);
    if (handed_over) {
        wake(saver);
    } else {
        saver_note_skipped(saver, step, why);
    }
}

enum save_order saver_order(struct saver *saver, uint64_t step, uint64_t *newest_out)
{
    enum save_order order = ORDER_NEWER;

    pthread_mutex_lock(&saver->lock);
    *newest_out = saver->begun_step;
    if (step < saver->begun_step) {
        order = ORDER_OLDER;
    } else if (step == saver->begun_step && saver->failed_step != step) {
        order = ORDER_SAVED;
    }
    pthread_mutex_unlock(&saver->lock);
    return order;
}

/* With the lock held. */
static void settle(struct saver *saver, const char *why_not)
{
    if (saver->state != SAVE_COPYING || saver->verdict != VERDICT_PENDING) {
        return;
    }
    saver->verdict = why_not == NULL ? VERDICT_SEAL : VERDICT_GIVE_UP;
    snprintf(saver->verdict_why, sizeof(saver->verdict_why), "%s", why_not == NULL ? "" : why_not);
    pthread_cond_broadcast(&saver->idle);
}

static struct timespec in_ms(uint32_t ms)
{
    struct timespec then;

    clock_gettime(CLOCK_MONOTONIC, &then);
    then.tv_sec += ms / 1000;
    then.tv_nsec += (long)(ms % 1000) * 1000000;
    then.tv_sec += then.tv_nsec / 1000000000;
    then.tv_nsec %= 1000000000;
    return then;
}

bool saver_wait_for(struct saver *saver, uint32_t timeout_ms)
{
    struct timespec deadline = in_ms(timeout_ms);
    int rc = 0;
    bool idle;

    pthread_mutex_lock(&saver->lock);
    while (saver->state == SAVE_COPYING && rc == 0) {
        if (saver->copied) {
            settle(saver, UNCONFIRMED);
        }
        rc = pthread_cond_clockwait(&saver->idle, &saver->lock, CLOCK_MONOTONIC, &deadline);
    }
    idle = saver->state != SAVE_COPYING;
    pthread_mutex_unlock(&saver->lock);
    return idle;
}

void saver_confirm(struct saver *saver, uint64_t step, const char *why_not)
{
    pthread_mutex_lock(&saver->lock);
    if (saver->step == step) { /* a word that comes late is not for the snapshot that was begun meanwhile */
        settle(saver, why_not);
    }
    while (saver->state == SAVE_COPYING && saver->copied && saver->step == step) {
        pthread_cond_wait(&saver->idle, &saver->lock);
    }
    pthread_mutex_unlock(&saver->lock);
}

tck_status_t saver_await_copied(struct saver *saver, int timeout_ms, uint64_t *step_out)
{
    struct timespec until = in_ms((uint32_t)timeout_ms);
    tck_status_t status;
    int rc = 0;

    pthread_mutex_lock(&saver->lock);
    while (saver->state == SAVE_COPYING && !saver->copied && saver->verdict == VERDICT_PENDING && rc == 0) {
        rc = pthread_cond_clockwait(&saver->idle, &saver->lock, CLOCK_MONOTONIC, &until);
    }
    if (saver->state != SAVE_COPYING || saver->verdict != VERDICT_PENDING) {
        status = TCK_ERR_NOENT;
    } else {
        status = saver->copied ? TCK_OK : TCK_ERR_TIMEDOUT;
        *step_out = saver->step;
    }
    pthread_mutex_unlock(&saver->lock);
    return status;
}

void saver_wait(struct saver *saver)
{
    pthread_mutex_lock(&saver->lock);
    while (saver->state == SAVE_COPYING) {
        if (saver->copied) {
            settle(saver, UNCONFIRMED);
        }
        pthread_cond_wait(&saver->idle, &saver->lock);
    }
    pthread_mutex_unlock(&saver->lock);
}

tck_status_t saver_fence(struct saver *saver, struct error *err)
{
    struct cuda *cuda = saver->plan->cuda;
    bool under_way;

    pthread_mutex_lock(&saver->lock);
    while (saver->state == SAVE_COPYING && !saver->released) {
        pthread_cond_wait(&saver->idle, &saver->lock);
    }
    under_way = saver->state == SAVE_COPYING && !saver->copied;
    pthread_mutex_unlock(&saver->lock);
    if (under_way && cuda != NULL && cuda_can_hold(cuda)) {
        tck_status_t status = cuda_hold(cuda, err);

        if (status == TCK_OK || status == TCK_ERR_INVAL) {
            return status;
        }
    }
    pthread_mutex_lock(&saver->lock);
    while (saver->state == SAVE_COPYING && !(saver->copied && saver->verdict == VERDICT_PENDING)) {
        pthread_cond_wait(&saver->idle, &saver->lock); /* also for a device that fails, of which it hears soon enough */
    }
    pthread_mutex_unlock(&saver->lock);
    return TCK_OK;
}

bool saver_idle(struct saver *saver)
{
    return !has_snapshot(saver);
}
