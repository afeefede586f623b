/* SPDX-License-Identifier: Apache-2.0
 * The fake agent: one thread, poll, and the shortest answer to each message. What cannot fail in a test is asserted. */
#include "fake_agent.h"
#include "base/digest.h"
#include "base/ipc.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define TURN_MS 5

#define MUST(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))

static void fail(const char *what, int line)
{
    fprintf(stderr, "fake_agent.c:%d: %s\n", line, what);
    abort();
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

static void *make_memory(const char *name, size_t bytes, int *fd_out)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    MUST(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(base != MAP_FAILED);
    *fd_out = fd;
    return base;
}

static struct fake_shard *find_shard(struct fake_agent *agent, struct hash128 id)
{
    for (uint32_t i = 0; i < agent->shard_count; i++) {
        if (hash128_is(agent->shards[i].id, id)) {
            return &agent->shards[i];
        }
    }
    return NULL;
}

static void need_shard(struct fake_agent *agent, const struct world_shard *wanted)
{
    if (find_shard(agent, wanted->id) != NULL) {
        return;
    }
    MUST(agent->shard_count < FAKE_SHARDS_MAX);
    struct fake_shard *shard = &agent->shards[agent->shard_count++];
    *shard = (struct fake_shard){.id = wanted->id, .bytes = wanted->image_bytes};
    shard->base = make_memory("fake-segment", shard->bytes * FAKE_SLOTS, &shard->fd);
    memset(shard->base, 0xee, shard->bytes * FAKE_SLOTS); /* memory that somebody used before */
    if (agent->gave_back) {
        MUST(madvise(shard->base + shard->bytes * (FAKE_SLOTS - 1), shard->bytes, MADV_REMOVE) == 0);
    }
    shard->seals = make_memory("fake-seals", SEALS_BYTES, &shard->seals_fd);
}

uint8_t *fake_agent_image(struct fake_agent *agent, uint32_t shard)
{
    return agent->shards[shard].base + agent->shards[shard].sealed_slot * agent->shards[shard].bytes;
}

/* ---- answers ------------------------------------------------------------------------------------------------- */

static void answer_fds(const struct fake_client *client, enum message_type type, struct writer *w, const int *fds,
                       uint32_t count)
{
    MUST(!w->failed);
    (void)!ipc_send(client->fd, type, w->data, w->len, fds, count, 1000, NULL);
    writer_free(w);
}

static void answer(const struct fake_client *client, enum message_type type, struct writer *w, const int *fd)
{
    answer_fds(client, type, w, fd, fd == NULL ? 0 : 1);
}

static void answer_error(const struct fake_client *client, enum message_type type, uint32_t seq, tck_status_t code,
                         const char *text)
{
    struct msg_error message = {.seq = seq, .error = {.code = code}};
    struct writer w = writer_new(0);
    snprintf(message.error.text, sizeof(message.error.text), "%s", text);
    msg_error_encode(&message, &w);
    answer(client, type, &w, NULL);
}

static void answer_ok(const struct fake_client *client, uint32_t seq, uint64_t term)
{
    struct msg_term message = {seq, term};
    struct writer w = writer_new(0);
    msg_term_encode(&message, &w);
    answer(client, MSG_OK, &w, NULL);
}

static void on_hello(struct fake_agent *agent, struct fake_client *client, const struct ipc_frame *frame)
{
    struct msg_hello hello;
    MUST(msg_hello_decode(frame->payload, frame->len, &hello) == TCK_OK);
    struct msg_welcome welcome = {.seq = hello.seq, .format = MESSAGE_FORMAT, .hello = agent->hello};
    struct writer w = writer_new(0);
    client->rank = hello.rank;
    MUST(client->rank < FAKE_CLIENTS);
    client->shared = make_memory("fake-status", sizeof(struct shared_status), &client->board_fd);
    atomic_store(&client->shared->mem_interval_steps, atomic_load(&agent->interval));
    atomic_store(&client->shared->storage_interval_steps, atomic_load(&agent->storage_interval));
    agent->returns += hello.returning;
    msg_welcome_encode(&welcome, &w);
    answer(client, MSG_WELCOME, &w, &client->board_fd);
}

static void on_claim(struct fake_agent *agent, struct fake_client *client, const struct ipc_frame *frame)
{
    struct msg_claim claim;
    struct writer w = writer_new(0);
    MUST(msg_claim_decode(frame->payload, frame->len, &claim) == TCK_OK);
    struct msg_term term = {.seq = claim.seq, .term = claim.at_least};
    agent->term = agent->hello.term_seen = term.term;
    free(claim.agents);
    msg_term_encode(&term, &w);
    answer(client, MSG_TERM, &w, NULL);
}

static void on_join(struct fake_client *client, const struct ipc_frame *frame)
{
    struct msg_world message;
    MUST(msg_world_decode(frame->payload, frame->len, &message) == TCK_OK);
    MUST(message.world.shard_count == 0);
    answer_ok(client, message.seq, message.world.term);
    world_free(&message.world);
}

/* Shards of this rank; the lowest rank of twins stores them. */
static void take_shards(struct fake_agent *agent, struct fake_client *client, const struct world *world)
{
    client->shard_count = 0;
    for (uint32_t i = 0; i < world->shard_count; i++) {
        const struct world_shard *shard = &world->shards[i];
        for (uint32_t k = 0; k < shard->rank_count; k++) {
            if (world->shard_ranks[shard->first_rank + k] == client->rank) {
                need_shard(agent, shard);
                client->stored[client->shard_count] = k == 0;
                client->shards[client->shard_count++] = shard->id;
            }
        }
    }
}

static void on_register(struct fake_agent *agent, struct fake_client *client, const struct ipc_frame *frame)
{
    struct msg_world message;
    struct msg_segment segments[FAKE_SHARDS_MAX];
    struct writer w = writer_new(0);
    MUST(msg_world_decode(frame->payload, frame->len, &message) == TCK_OK);
    take_shards(agent, client, &message.world);
    for (uint32_t i = 0; i < client->shard_count; i++) {
        const struct fake_shard *shard = find_shard(agent, client->shards[i]);
        segments[i] = (struct msg_segment){shard->id, shard->bytes, FAKE_SLOTS, 4096, client->stored[i]};
    }
    struct msg_segments reply = {.seq = message.seq, .count = client->shard_count, .segments = segments};
    msg_segments_encode(&reply, &w);
    answer(client, MSG_SEGMENTS, &w, NULL);
    world_free(&message.world);
}

static void on_segment_get(struct fake_agent *agent, struct fake_client *client, const struct ipc_frame *frame)
{
    struct msg_segment_get get;
    struct writer w = writer_new(0);
    MUST(msg_segment_get_decode(frame->payload, frame->len, &get) == TCK_OK);
    const struct fake_shard *shard = find_shard(agent, get.shard);
    MUST(shard != NULL);
    write_u32(&w, get.seq);
    answer_fds(client, MSG_SEGMENT, &w, (const int[]){shard->fd, shard->seals_fd}, 2);
}

static void grant(struct fake_agent *agent, struct fake_client *client, uint32_t seq, uint64_t step, bool nonsense)
{
    uint32_t slots[FAKE_SHARDS_MAX];
    struct msg_grant message = {.seq = seq, .step = step, .slots = slots};
    struct writer w = writer_new(0);
    for (uint32_t i = 0; i < client->shard_count; i++) {
        struct fake_shard *shard = find_shard(agent, client->shards[i]);
        if (client->stored[i]) {
            shard->granted_slot = shard->next_slot;
            shard->granted_step = step;
            seal_clear(&shard->seals[shard->granted_slot]);
            shard->next_slot = (shard->next_slot + 1) % FAKE_SLOTS;
            slots[message.count++] = nonsense ? MESSAGE_SLOTS_MAX : shard->granted_slot;
        }
    }
    msg_grant_encode(&message, &w);
    answer(client, MSG_GRANT, &w, NULL);
}

static void close_client(struct fake_client *client)
{
    if (client->fd >= 0) {
        close(client->fd);
    }
    if (client->shared != NULL) {
        munmap(client->shared, sizeof(*client->shared));
        close(client->board_fd);
    }
    *client = (struct fake_client){.fd = -1};
}

static void on_begin(struct fake_agent *agent, struct fake_client *client, const struct ipc_frame *frame)
{
    struct msg_begin begin;
    int mode = atomic_load(&agent->mode);
    MUST(msg_begin_decode(frame->payload, frame->len, &begin) == TCK_OK);
    agent->begins++;
    if (atomic_load(&agent->hasty)) {
        atomic_store(&client->shared->committed_step, begin.step);
    }
    if (begin.last && atomic_load(&agent->no_room) > 0) {
        agent->no_room--;
        answer_error(client, MSG_REFUSED, begin.seq, TCK_ERR_NOSPC, "there is no room yet");
    } else if (mode == FAKE_REFUSES) {
        atomic_store(&client->shared->failed_step, begin.step);
        answer_error(client, MSG_REFUSED, begin.seq, TCK_ERR_BUSY, "the step before is undecided");
    } else if (mode == FAKE_GRANTS && begin.step == agent->sealed_by[client->rank]) {
        atomic_store(&client->shared->published_step, begin.to_storage ? begin.step : 0);
        answer_error(client, MSG_REFUSED, begin.seq, TCK_ERR_BUSY, "that step is saved already");
    } else if (mode == FAKE_HOLDS) {
        client->held = (struct ipc_held){begin.seq, begin.step, true};
    } else {
        if (mode != FAKE_DIES_ASKED) {
            grant(agent, client, begin.seq, begin.step, mode == FAKE_NONSENSE);
        }
        if (mode == FAKE_DIES_ASKED || mode == FAKE_DIES_GRANTING) {
            close_client(client);
        }
    }
}

static void on_seal(struct fake_agent *agent, struct fake_client *client, const struct ipc_frame *frame)
{
    struct msg_step seal;
    MUST(msg_step_decode(frame->payload, frame->len, &seal) == TCK_OK);
    for (uint32_t i = 0; i < client->shard_count; i++) {
        if (client->stored[i]) {
            struct fake_shard *shard = find_shard(agent, client->shards[i]);
            shard->sealed_slot = shard->granted_step == seal.step ? shard->granted_slot : shard->sealed_slot;
        }
    }
    agent->sealed = (struct version){agent->term, seal.step};
    agent->sealed_by[client->rank] = seal.step;
    if (atomic_load(&agent->aborts)) {
        atomic_store(&client->shared->failed_step, seal.step);
    } else {
        atomic_store(&client->shared->protected_step, seal.step);
        atomic_store(&client->shared->committed_step, seal.step);
    }
    atomic_store(&client->shared->decided_below, seal.step + 1);
    agent->seals++;
}

static void on_roots(struct fake_agent *agent, const struct ipc_frame *frame)
{
    struct msg_roots roots;
    MUST(msg_roots_decode(frame->payload, frame->len, &roots) == TCK_OK);
    for (uint32_t i = 0; i < roots.count; i++) {
        struct fake_shard *shard = find_shard(agent, roots.roots[i].shard);
        MUST(shard != NULL && shard->granted_step == roots.step);
        shard->early = roots.roots[i].root;
    }
    agent->roots_seals = agent->seals;
    free(roots.roots);
    atomic_store(&agent->roots_step, roots.step);
}

static void on_abandon(struct fake_agent *agent, const struct ipc_frame *frame)
{
    struct msg_step step;
    MUST(msg_step_decode(frame->payload, frame->len, &step) == TCK_OK);
    atomic_store(&agent->abandoned_step, step.step);
    agent->abandons++;
}

/* Adds the CRCs of the sealed image to the reply. */
static struct hash128 root_of(const struct fake_shard *shard, struct msg_restored *reply)
{
    uint32_t count = chunk_count(shard->bytes);
    reply->crcs = realloc(reply->crcs, (reply->crc_count + count) * sizeof(*reply->crcs));
    MUST(reply->crcs != NULL);
    reply->crc_count += count;
    return digest_image(shard->base + shard->sealed_slot * shard->bytes, shard->bytes,
                        &reply->crcs[reply->crc_count - count]);
}

/* The image goes bad after it was checked, or is good again in the next term, as another copy would be. */
static void flip(struct fake_agent *agent, const struct fake_client *client)
{
    if (atomic_load(&agent->flips) > 0) {
        const struct fake_shard *shard = find_shard(agent, client->shards[0]);
        agent->flips--;
        agent->flipped = shard->base + shard->sealed_slot * shard->bytes + agent->flip_at;
        *agent->flipped ^= 1;
    }
}

static void flip_back(struct fake_agent *agent)
{
    if (agent->flipped != NULL) {
        *agent->flipped ^= 1;
        agent->flipped = NULL;
    }
}

static void on_restore(struct fake_agent *agent, struct fake_client *client, const struct ipc_frame *frame)
{
    struct restored_shard shards[FAKE_SHARDS_MAX];
    bool rots = atomic_load(&agent->rots) > 0;
    struct msg_restore restore;
    struct writer w = writer_new(0);
    MUST(msg_restore_decode(frame->payload, frame->len, &restore) == TCK_OK);
    if (version_none(agent->sealed)) {
        answer_error(client, MSG_ERROR, restore.seq, TCK_ERR_NOENT, "nothing was saved");
        return;
    }
    atomic_fetch_sub(&agent->rots, rots);
    flip_back(agent);
    struct msg_restored reply = {.seq = restore.seq,
                                 .count = client->shard_count,
                                 .version = agent->sealed,
                                 .newest_step = agent->sealed.step,
                                 .shards = shards};
    for (uint32_t i = 0; i < client->shard_count; i++) {
        const struct fake_shard *shard = find_shard(agent, client->shards[i]);
        uint32_t slot = atomic_load(&agent->mode) == FAKE_NONSENSE ? FAKE_SLOTS : shard->sealed_slot;
        shards[i] = (struct restored_shard){
            .slot = slot, .source = client->stored[i] ? SOURCE_LOCAL : SOURCE_TWIN, .root = root_of(shard, &reply)};
        shards[i].root.lo ^= rots;
    }
    flip(agent, client);
    msg_restored_encode(&reply, &w);
    free(reply.crcs);
    answer(client, MSG_RESTORED, &w, NULL);
}

static void on_query(struct fake_agent *agent, struct fake_client *client, uint32_t seq)
{
    struct msg_version reply = {.seq = seq, .version = agent->sealed};
    struct writer w = writer_new(0);
    if (version_none(agent->sealed)) {
        answer_error(client, MSG_ERROR, seq, TCK_ERR_NOENT, "nothing was saved");
        return;
    }
    msg_version_encode(&reply, &w);
    answer(client, MSG_VERSION, &w, NULL);
}

static void on_frame(struct fake_agent *agent, struct fake_client *client, const struct ipc_frame *frame)
{
    struct msg_seq head;
    MUST(msg_seq_decode(frame->payload, frame->len, &head) == TCK_OK);
    switch (frame->type) {
    case MSG_HELLO:
        on_hello(agent, client, frame);
        break;
    case MSG_CLAIM_TERM:
        on_claim(agent, client, frame);
        break;
    case MSG_JOIN:
        on_join(client, frame);
        break;
    case MSG_REGISTER:
        on_register(agent, client, frame);
        break;
    case MSG_SEGMENT_GET:
        on_segment_get(agent, client, frame);
        break;
    case MSG_BEGIN:
        on_begin(agent, client, frame);
        break;
    case MSG_SEAL:
        on_seal(agent, client, frame);
        break;
    case MSG_ROOTS:
        on_roots(agent, frame);
        break;
    case MSG_ABANDON:
        on_abandon(agent, frame);
        break;
    case MSG_RESTORE:
        on_restore(agent, client, frame);
        break;
    case MSG_RESTORE_DONE:
        agent->restores_done++;
        break;
    case MSG_QUERY:
        on_query(agent, client, head.seq);
        break;
    case MSG_DETACH:
        agent->detaches++;
        answer_ok(client, head.seq, agent->term);
        break;
    default:
        MUST(!"a message that a client does not send");
    }
}

/* ---- the thread ---------------------------------------------------------------------------------------------- */

static void accept_client(struct fake_agent *agent)
{
    pid_t pid;
    for (int i = 0; i < FAKE_CLIENTS; i++) {
        if (agent->clients[i].fd < 0) {
            (void)!ipc_accept(agent->listen_fd, &agent->clients[i].fd, &pid, NULL);
            return;
        }
    }
    MUST(!"no place for one more client");
}

static void serve(struct fake_agent *agent, struct fake_client *client)
{
    struct ipc_frame frame;
    tck_status_t status = ipc_recv(client->fd, 0, &frame, NULL);
    if (status == TCK_ERR_TIMEDOUT) {
        return;
    }
    if (status != TCK_OK) {
        close_client(client);
        return;
    }
    on_frame(agent, client, &frame);
    ipc_frame_free(&frame);
}

static void turn(struct fake_agent *agent, struct fake_client *client)
{
    if (client->fd < 0 || client->shared == NULL) {
        return;
    }
    atomic_fetch_add(&client->shared->agent_beat, 1);
    if (client->held.waiting && atomic_load(&agent->mode) == FAKE_GRANTS) {
        client->held.waiting = false;
        grant(agent, client, client->held.seq, client->held.step, false);
    }
}

static void *agent_main(void *arg)
{
    struct fake_agent *agent = arg;
    for (;;) {
        struct pollfd fds[2 + FAKE_CLIENTS] = {{agent->stop_fd, POLLIN, 0}, {agent->listen_fd, POLLIN, 0}};
        bool hangs = atomic_load(&agent->mode) == FAKE_HANGS;
        for (int i = 0; i < FAKE_CLIENTS; i++) {
            fds[2 + i] = (struct pollfd){hangs ? -1 : agent->clients[i].fd, POLLIN, 0};
        }
        fds[1].fd = hangs ? -1 : agent->listen_fd;
        MUST(poll(fds, 2 + FAKE_CLIENTS, TURN_MS) >= 0);
        if (fds[0].revents != 0) {
            return NULL;
        }
        if (atomic_load(&agent->mode) == FAKE_HANGS) {
            continue; /* told so while in poll */
        }
        if (fds[1].revents != 0) {
            accept_client(agent);
        }
        for (int i = 0; i < FAKE_CLIENTS; i++) {
            if (fds[2 + i].revents != 0) {
                serve(agent, &agent->clients[i]);
            }
            turn(agent, &agent->clients[i]);
        }
    }
}

void fake_agent_start(struct fake_agent *agent, const char *runtime_dir, const char *job, const char *node)
{
    struct error err = {0};
    snprintf(agent->dir, sizeof(agent->dir), "%s/%s/%s", runtime_dir, job, node);
    snprintf(agent->hello.node.name, CONFIG_NAME, "%s", node);
    snprintf(agent->hello.node.domain, CONFIG_NAME, "%s", node);
    snprintf(agent->hello.node.address, ADDRESS_TEXT, "127.0.0.1:1");
    agent->hello.node.agent_id = 42;
    for (int i = 0; i < FAKE_CLIENTS; i++) {
        agent->clients[i] = (struct fake_client){.fd = -1};
    }
    MUST(ipc_listen(agent->dir, "agent.sock", &agent->listen_fd, &err) == TCK_OK);
    agent->stop_fd = eventfd(0, EFD_CLOEXEC);
    MUST(agent->stop_fd >= 0);
    MUST(pthread_create(&agent->thread, NULL, agent_main, agent) == 0);
    agent->running = true;
}

void fake_agent_stop(struct fake_agent *agent)
{
    uint64_t one = 1;
    if (!agent->running) {
        return;
    }
    MUST(write(agent->stop_fd, &one, sizeof(one)) == sizeof(one));
    pthread_join(agent->thread, NULL);
    close(agent->listen_fd);
    close(agent->stop_fd);
    for (int i = 0; i < FAKE_CLIENTS; i++) {
        close_client(&agent->clients[i]);
    }
    agent->running = false;
}

void fake_agent_free(struct fake_agent *agent)
{
    fake_agent_stop(agent);
    for (uint32_t i = 0; i < agent->shard_count; i++) {
        munmap(agent->shards[i].base, agent->shards[i].bytes * FAKE_SLOTS);
        close(agent->shards[i].fd);
        munmap(agent->shards[i].seals, SEALS_BYTES);
        close(agent->shards[i].seals_fd);
    }
    agent->shard_count = 0;
}
