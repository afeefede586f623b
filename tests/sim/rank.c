/* SPDX-License-Identifier: Apache-2.0
 * One rank: the messages between a trainer's process and its agent, in the same order as in runtime/client (session.c,
 * register.c, snapshot_worker.c, restore.c). It reconnects to an agent that was restarted. */
#include "sim.h"

#include "base/layout.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define COME_BACK_US (50 * MS)
#define OTHER_TWIN   UINT64_C(0xA5A5A5A5A5A5A5A5) /* makes the bytes of a shard differ */

static bool is_over(const struct rank *rank)
{
    return rank->launch->dead || rank->pid == 0;
}

/* ---- contents of saves ------------------------------------------------------------------------------------------- */

uint64_t shape_hosts(const struct shape *shape)
{
    uint64_t hosts = 0;
    for (uint32_t i = 0; i < shape->hosts; i++) {
        hosts |= UINT64_C(1) << (shape->first_host + i) % sim.host_count;
    }
    return hosts;
}

void rank_shard_ids(const struct shape *shape, uint32_t rank, struct shard_info out[2])
{
    uint32_t group = rank % (shape->ranks / shape->twins);
    const char *other = shape->number > 0 ? ", cut otherwise" : "";
    char name[64];
    int len = snprintf(name, sizeof(name), "shard of group %u%s", group, other);
    out[0] = (struct shard_info){.id = hash128_of(name, (size_t)len),
                                 .image_bytes = job.image_bytes + 8 * (group % 16),
                                 .private_to_rank = shape->twins == 1};
    len = snprintf(name, sizeof(name), "own shard of rank %u%s", rank, other);
    out[1] = (struct shard_info){.id = hash128_of(name, (size_t)len), .image_bytes = 128, .private_to_rank = 1};
}

/* Training does not always keep twins equal; if they differ, either is valid. */
static bool twins_differ(struct version version)
{
    return sim_trait(TRAIT_TWINS_DIFFER) && version.step % 3 != 0;
}

static struct hash128 variant_of(const struct rank *rank, struct hash128 shard, struct version version)
{
    const struct shape *shape = rank->launch->shape;
    struct shard_info infos[2];
    if (shape->twins > 1 && rank->number >= shape->ranks / shape->twins && twins_differ(version)) {
        rank_shard_ids(shape, rank->number, infos);
        shard.hi ^= hash128_is(shard, infos[0].id) ? OTHER_TWIN : 0;
    }
    return shard;
}

/* Some shards never change, and some seldom, so that copies are made from bases. */
static struct version changed_in(struct hash128 shard, struct version version)
{
    if (!sim_trait(TRAIT_UNCHANGED) || shard.lo % 3 == 0) {
        return version;
    }
    return shard.lo % 3 == 1 ? VERSION_NONE : (struct version){version.term, version.step / 8};
}

static uint64_t word_of(struct hash128 shard, struct version version, uint64_t i)
{
    uint64_t x = shard.hi ^ (version.term * 0x9E3779B97F4A7C15u) ^ (version.step * 0xC2B2AE3D27D4EB4Fu) ^ i;
    x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
    return x ^ (x >> 32);
}

static void fill_from(uint8_t *image, uint64_t from, uint64_t bytes, struct hash128 shard, struct version version)
{
    version = changed_in(shard, version);
    for (uint64_t i = from / 8; i < bytes / 8; i++) {
        uint64_t word = word_of(shard, version, i);
        memcpy(image + 8 * i, &word, 8);
    }
}

void image_fill(uint8_t *image, uint64_t bytes, struct hash128 shard, struct version version)
{
    fill_from(image, 0, bytes, shard, version);
}

/* The images of a version are checked after each event, so the expected contents are cached. */
static bool is_variant(const uint8_t *image, uint64_t bytes, struct hash128 shard, struct version version)
{
    static struct {
        struct hash128 shard;
        struct version version;
        uint64_t bytes;
        uint8_t *image;
    } known[64], *k;
    k = &known[(shard.hi ^ version.step * 31 ^ version.term * 7) % 64];
    if (k->bytes != bytes || !hash128_is(k->shard, shard) || !version_is(k->version, version)) {
        k->shard = shard;
        k->version = version;
        k->bytes = bytes;
        free(k->image);
        k->image = malloc(bytes);
        if (k->image == NULL) {
            abort();
        }
        image_fill(k->image, bytes, shard, version);
    }
    return memcmp(image, k->image, bytes) == 0;
}

bool image_is(const uint8_t *image, uint64_t bytes, struct hash128 shard, struct version version)
{
    struct hash128 other = shard;
    other.hi ^= OTHER_TWIN;
    return is_variant(image, bytes, shard, version) ||
           (twins_differ(version) && is_variant(image, bytes, other, version));
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static uint32_t new_seq(struct rank *rank)
{
    return ++rank->seq;
}

/* Takes ownership of the payload. The end of a connection is handled elsewhere. */
static void send_frame(struct rank *rank, enum message_type type, struct writer *w)
{
    struct error err;
    int fd = object_fd(rank->socket);
    if (w->failed) {
        abort();
    }
    if (ipc_send(fd, type, w->data, w->len, NULL, 0, 0, &err) != TCK_OK) {
        sim_log("rank %u: %s", rank->number, err.text);
    }
    fd_close(fd);
    writer_free(w);
}

static void send_hello(struct rank *rank)
{
    const char *settings = rank->host->settings;
    bool returning = rank->launch->phase >= PHASE_RESTORE;
    struct msg_hello hello = {.seq = rank->asked = new_seq(rank),
                              .format = MESSAGE_FORMAT,
                              .rank = rank->number,
                              .world_size = rank->launch->count,
                              .pid = (uint32_t)rank->pid,
                              .returning = returning,
                              .takeover = rank->launch->takes_over,
                              .term = returning ? rank->launch->term : 0};
    struct writer w = writer_new(0);
    snprintf(hello.job, sizeof(hello.job), "%s", rank->host->config.job);
    snprintf(hello.run_id, sizeof(hello.run_id), "%s", rank->launch->run_id);
    hello.settings = returning ? NULL : settings;
    hello.settings_len = returning ? 0 : (uint32_t)strlen(settings);
    msg_hello_encode(&hello, &w);
    send_frame(rank, MSG_HELLO, &w);
}

static void claim(struct rank *rank)
{
    struct launch *launch = rank->launch;
    struct world world;
    struct error err;
    struct rank_hello *hellos = calloc(launch->count, sizeof(*hellos));
    struct msg_claim m = {.seq = rank->asked = new_seq(rank), .at_least = launch->term + 1, .after = launch->term};
    struct writer w = writer_new(0);
    for (uint32_t r = 0; r < launch->count; r++) {
        hellos[r] = launch->ranks[r].hello;
        m.at_least = hellos[r].term_seen >= m.at_least ? hellos[r].term_seen + 1 : m.at_least;
    }
    if (world_build(1, hellos, launch->count, &world, &err) != TCK_OK) { /* two agents had one node's name */
        rank->asked = 0;
        free(hellos);
        launch_fail(launch, 200 * MS, err.text);
        return;
    }
    m.agents = calloc(world.node_count, sizeof(*m.agents));
    for (uint32_t n = 0; n < world.node_count; n++, m.count++) {
        memcpy(m.agents[n].node, world.nodes[n].name, sizeof(m.agents[n].node));
        m.agents[n].agent_id = world.nodes[n].agent_id;
    }
    msg_claim_encode(&m, &w);
    world_free(&world);
    free(m.agents);
    free(hellos);
    send_frame(rank, MSG_CLAIM_TERM, &w);
}

bool rank_claim_again(struct rank *rank)
{
    bool can = rank->pid != 0 && rank->socket != NULL && rank->greeted && !rank->asked && !rank->copying;
    if (can) {
        claim(rank);
    }
    return can;
}

/* The nodes as a client that does not check them would send them; NULL: send the launch's own. */
static struct node_info *forge_nodes(const struct launch *launch)
{
    const struct world *world = &launch->world;
    struct node_info *nodes = launch->forged ? calloc(world->node_count, sizeof(*nodes)) : NULL;
    if (nodes != NULL) {
        memcpy(nodes, world->nodes, world->node_count * sizeof(*nodes));
        memcpy(nodes[world->node_count - 1].name, nodes[0].name, sizeof(nodes[0].name));
    }
    return nodes;
}

static void send_world(struct rank *rank, enum message_type type)
{
    struct msg_world m = {.seq = rank->asked = new_seq(rank), .rank = rank->number, .world = rank->launch->world};
    m.will_ask = type == MSG_REGISTER && rank->launch->asked_step != TCK_NEWEST && rank->launch->phase <= PHASE_RESTORE;
    struct writer w = writer_new(IPC_MAX_BYTES);
    struct node_info *nodes = forge_nodes(rank->launch);
    if (type == MSG_JOIN) {
        m.world.shard_count = 0;
        m.world.layout = (struct hash128){0};
    }
    m.world.nodes = nodes != NULL ? nodes : m.world.nodes;
    msg_world_encode(&m, &w);
    free(nodes);
    send_frame(rank, type, &w);
}

static void request_segment(struct rank *rank)
{
    struct msg_segment_get m = {.seq = rank->asked = new_seq(rank), .shard = rank->shards[rank->mapped].segment.shard};
    struct writer w = writer_new(0);
    msg_segment_get_encode(&m, &w);
    send_frame(rank, MSG_SEGMENT_GET, &w);
}

static void request_restore(struct rank *rank)
{
    struct msg_restore m = {
        .seq = rank->asked = new_seq(rank), .step = rank->launch->asked_step, .may_lack = rank->launch->spreads};
    struct writer w = writer_new(0);
    msg_restore_encode(&m, &w);
    send_frame(rank, MSG_RESTORE, &w);
}

static void detach(struct rank *rank)
{
    struct msg_detach m = {.seq = rank->asked = new_seq(rank), .job_done = true};
    struct writer w = writer_new(0);
    msg_detach_encode(&m, &w);
    send_frame(rank, MSG_DETACH, &w);
}

static void send_step(struct rank *rank, enum message_type type, uint64_t step)
{
    struct msg_step m = {.seq = new_seq(rank), .step = step};
    struct writer w = writer_new(0);
    msg_step_encode(&m, &w);
    if (rank->socket != NULL) {
        send_frame(rank, type, &w);
    } else {
        writer_free(&w);
    }
}

/* Repeats reports that the agent that died may not have received. */
static void resend_steps(struct rank *rank)
{
    rank->was_cut = false;
    if (rank->sealed_step > 0) {
        send_step(rank, MSG_SEAL, rank->sealed_step);
    }
    if (rank->asked_step > rank->sealed_step) {
        send_step(rank, MSG_ABANDON, rank->asked_step);
    }
}

/* ---- next request ------------------------------------------------------------------------------------------------ */

static void on_frame(void *ctx, struct ipc_frame *frame);

static void reconnect(void *ctx)
{
    struct rank *rank = ctx;
    rank->connecting = false;
    if (!is_over(rank)) {
        rank_next(rank);
    }
}

static void connect_to_agent(struct rank *rank)
{
    rank->socket = ipc_join(rank->host, rank->pid, on_frame, rank);
    if (rank->socket != NULL) {
        return;
    }
    if (rank->host->loop == NULL && !rank->host->gone && rank->launch->phase == PHASE_HELLO) {
        host_start(rank->host); /* the first trainer starts the agent */
    }
    rank->connecting = true;
    sim_after(COME_BACK_US, NULL, reconnect, rank);
}

static bool must_map(struct rank *rank)
{
    while (rank->mapped < rank->shard_count && !rank->shards[rank->mapped].segment.stored_here) {
        rank->mapped++;
    }
    return rank->mapped < rank->shard_count;
}

/* Sends the next request on the way to the launch's phase; returns false if the rank has reached it. */
static bool request(struct rank *rank)
{
    enum phase phase = rank->launch->phase;
    if (rank->was_cut && rank->registered && phase >= PHASE_RESTORE && !must_map(rank)) {
        resend_steps(rank);
    }
    if (!rank->greeted) {
        send_hello(rank);
    } else if (phase == PHASE_CLAIM && rank->number == 0 && !rank->claimed) {
        claim(rank);
    } else if (phase >= PHASE_JOIN && !rank->joined) {
        send_world(rank, MSG_JOIN);
    } else if (phase >= PHASE_REGISTER && !rank->registered) {
        send_world(rank, MSG_REGISTER);
    } else if (phase >= PHASE_MAP && must_map(rank)) {
        request_segment(rank);
    } else if (phase == PHASE_RESTORE && !rank->restored) {
        request_restore(rank);
    } else if (phase == PHASE_DETACH && !rank->detached) {
        detach(rank);
    } else {
        return false;
    }
    return true;
}

void rank_next(struct rank *rank)
{
    if (is_over(rank) || rank->asked || rank->connecting || (rank->saving && rank->launch->phase == PHASE_TRAIN)) {
        return;
    }
    if (rank->socket == NULL) {
        connect_to_agent(rank);
    }
    if (rank->socket == NULL || request(rank) || rank->arrived) {
        return;
    }
    rank->arrived = true;
    launch_arrived(rank);
}

void rank_end(struct rank *rank)
{
    if (rank->pid == 0) {
        return;
    }
    slot_use_end(rank);
    slot_use_end(&rank->restored);
    process_end(rank->pid);
    rank->pid = 0;
    if (rank->socket != NULL) {
        rank->socket->got = NULL;
        ipc_hang_up(rank->socket);
        rank->socket = NULL;
    }
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void take_welcome(struct rank *rank, struct ipc_frame *frame)
{
    struct msg_welcome m;
    if (msg_welcome_decode(frame->payload, frame->len, &m) != TCK_OK || frame->fd_count != 1) {
        sim_violation("rank %u: malformed WELCOME", rank->number);
        return;
    }
    if (rank->launch->phase == PHASE_HELLO) {
        rank->hello = m.hello;
    }
    rank->greeted = true;
    rank->status_file = object_of(frame->fds[0]);
    object_ref(rank->status_file);
    rank->status = (struct shared_status *)(void *)rank->status_file->base;
}

static void take_term(struct rank *rank, const struct ipc_frame *frame)
{
    struct msg_term m;
    if (msg_term_decode(frame->payload, frame->len, &m) != TCK_OK) {
        sim_violation("rank %u: malformed TERM", rank->number);
        return;
    }
    rank->claimed = true;
    launch_claimed(rank, m.term);
}

static void take_segments(struct rank *rank, const struct ipc_frame *frame)
{
    struct msg_segments m;
    struct shard_info infos[2];
    rank_shard_ids(rank->launch->shape, rank->number, infos);
    if (msg_segments_decode(frame->payload, frame->len, &m) != TCK_OK || m.count != job.shards) {
        sim_violation("rank %u: malformed SEGMENTS", rank->number);
        return;
    }
    free(rank->shards);
    rank->shards = calloc(m.count, sizeof(*rank->shards));
    rank->shard_count = m.count;
    for (uint32_t i = 0; i < m.count; i++) {
        rank->shards[i].segment = m.segments[i];
        rank->shards[i].image_bytes = infos[hash128_is(m.segments[i].shard, infos[1].id)].image_bytes;
    }
    rank->mapped = 0;
    rank->registered = true;
    free(m.segments);
}

static void take_segment(struct rank *rank, const struct ipc_frame *frame)
{
    struct rank_shard *shard = &rank->shards[rank->mapped++];
    if (frame->fd_count != 2) {
        sim_violation("rank %u: malformed SEGMENT", rank->number);
        return;
    }
    shard->data = object_of(frame->fds[0]);
    shard->meta = object_of(frame->fds[1]);
    object_ref(shard->data);
    object_ref(shard->meta);
    struct seal *seals = (struct seal *)(void *)(shard->meta->base + shard->meta->bytes - SEALS_BYTES);
    if (!shard->segment.stored_here) {
        return; /* another rank fills it, and says so */
    }
    if (seals_pins(seals) == PINS_NONE) {
        sim_violation("rank %u may pin pages that its agent is about to remove", rank->number);
    }
    seals_set_pins(seals, PINS_NONE);
}

static void check_restored(struct rank *rank, const struct msg_restored *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        const struct rank_shard *shard = &rank->shards[i];
        struct segment *segment = memory_find(rank->host->agent->memory, shard->segment.shard);
        uint32_t slot = m->shards[i].slot;
        rank->lacks[i] = slot == NONE32 && rank->launch->spreads;
        if (rank->lacks[i]) {
            continue;
        }
        if (segment == NULL || slot >= shard->segment.slot_count) {
            sim_violation("rank %u is to restore from slot %u, which does not exist", rank->number, slot);
            return;
        }
        bool damaged = damage_is_known(rank->host, shard->segment.shard, m->version);
        bool whole = image_is(segment_image(segment, slot), shard->image_bytes, shard->segment.shard, m->version);
        if (!whole && damaged) {
            launch_fail(rank->launch, sim_between(200, 2000) * MS, "a restored image does not have its digests");
            return;
        }
        if (!whole) {
            sim_violation("rank %u restores wrong bytes of step %" PRIu64 " of term %" PRIu64, rank->number,
                          m->version.step, m->version.term);
        }
        slot_use_restore(&rank->restored, segment_image(segment, slot));
    }
}

static void take_restored(struct rank *rank, const struct ipc_frame *frame)
{
    struct msg_restored m;
    if (msg_restored_decode(frame->payload, frame->len, &m) != TCK_OK ||
        m.count != (m.other_layout ? 0 : rank->shard_count)) {
        sim_violation("rank %u: malformed RESTORED", rank->number);
        return;
    }
    if (rank->host->agent != NULL) {
        check_restored(rank, &m);
    }
    rank->version = m.version;
    rank->resharded = m.other_layout;
    snprintf(rank->passed_over, sizeof(rank->passed_over), "%s", m.passed_over);
    rank->restored = true;
    msg_restored_free(&m);
}

static void take_error(struct rank *rank, const struct ipc_frame *frame)
{
    struct msg_error m;
    if (msg_error_decode(frame->payload, frame->len, &m) != TCK_OK) {
        sim_violation("rank %u: malformed ERROR", rank->number);
        return;
    }
    sim_log("rank %u gets the error: %s", rank->number, m.error.text);
    if (frame->type == MSG_REFUSED) {
        if (rank->launch->last_step > 0 && rank->saving == rank->launch->last_step) {
            judge_last_refused(rank, &m.error);
        }
        rank->saving = 0;
    } else if (rank->launch->phase == PHASE_RESTORE && rank->registered && m.error.code == TCK_ERR_NOENT) {
        rank->fresh = rank->restored = true;
        rank->version = VERSION_NONE;
    } else {
        launch_refused(rank, &m.error);
    }
}

static void take_grant(struct rank *rank, const struct ipc_frame *frame);

static void take_answer(struct rank *rank, struct ipc_frame *frame)
{
    switch (frame->type) {
    case MSG_WELCOME:
        take_welcome(rank, frame);
        break;
    case MSG_TERM:
        take_term(rank, frame);
        break;
    case MSG_OK:
        if (rank->launch->forged && !rank->joined) {
            sim_violation("rank %u joins a world in which two machines have the same name", rank->number);
        }
        *(rank->joined ? &rank->detached : &rank->joined) = true;
        break;
    case MSG_SEGMENTS:
        take_segments(rank, frame);
        break;
    case MSG_SEGMENT:
        take_segment(rank, frame);
        break;
    case MSG_RESTORED:
        take_restored(rank, frame);
        break;
    case MSG_GRANT:
        take_grant(rank, frame);
        break;
    case MSG_ERROR:
    case MSG_REFUSED:
        take_error(rank, frame);
        break;
    default:
        sim_violation("rank %u gets a message of type %u", rank->number, frame->type);
    }
}

/* The agent is gone. A copy in progress continues, because the slots outlive the agent. */
static void on_cut(struct rank *rank)
{
    object_unref(rank->socket);
    rank->socket = NULL;
    rank->greeted = rank->joined = rank->registered = false;
    rank->was_cut = true;
    if (rank->asked) {
        rank->asked = 0;
        rank->saving = 0;
    }
    if (rank->launch->forged && rank->launch->phase >= PHASE_JOIN) {
        launch_fail(rank->launch, sim_between(10, 300) * MS, "its agent refuses the world");
        return;
    }
    rank->connecting = true;
    sim_after(COME_BACK_US, NULL, reconnect, rank);
}

static void on_frame(void *ctx, struct ipc_frame *frame)
{
    struct rank *rank = ctx;
    struct msg_seq answered;
    if (is_over(rank)) {
        return;
    }
    if (frame == NULL) {
        on_cut(rank);
        return;
    }
    if (msg_seq_decode(frame->payload, frame->len, &answered) != TCK_OK || answered.seq != rank->asked) {
        sim_violation("rank %u gets an answer without a request (type %u)", rank->number, frame->type);
        return;
    }
    rank->asked = 0;
    take_answer(rank, frame);
    rank_next(rank);
}

/* ---- saving ------------------------------------------------------------------------------------------------------ */

void rank_save(struct rank *rank, uint64_t step, bool to_storage, bool last)
{
    struct msg_begin m = {.step = step, .to_storage = to_storage, .last = last};
    struct writer w = writer_new(0);
    if (rank->socket == NULL || !rank->registered || rank->saving || rank->asked || must_map(rank)) {
        return;
    }
    m.seq = rank->asked = new_seq(rank);
    msg_begin_encode(&m, &w);
    rank->saving = rank->asked_step = step;
    send_frame(rank, MSG_BEGIN, &w);
}

static void seal(const struct rank *rank, struct version version)
{
    for (uint32_t i = 0; i < rank->shard_count; i++) {
        const struct rank_shard *shard = &rank->shards[i];
        if (shard->segment.stored_here) {
            uint8_t *image = shard->data->base + shard->slot * shard->segment.slot_stride;
            struct seal *seals = (struct seal *)(void *)(shard->meta->base + shard->meta->bytes - SEALS_BYTES);
            fill_from(image, shard->image_bytes / 16 * 8, shard->image_bytes,
                      variant_of(rank, shard->segment.shard, version), version);
            judge_bytes_changed(rank->host, image, shard->image_bytes);
            seal_set(&seals[shard->slot], version, NULL);
        }
    }
}

static void finish_copy(struct rank *rank)
{
    uint64_t step = rank->saving;
    rank->saving = 0;
    rank->copying = false;
    rank->sealed_step = step;
    seal(rank, (struct version){rank->launch->term, step});
    slot_use_end(rank);
    judge_sealed(rank, step);
    send_step(rank, MSG_SEAL, step);
    bases_sealed(rank->launch, step);
}

static void copied(void *ctx)
{
    struct rank *rank = ctx;
    if (!is_over(rank) && rank->saving) {
        finish_copy(rank);
        rank_next(rank);
    }
}

static void end_later(void *ctx)
{
    rank_end(ctx);
}

/* The trainer continues where it was frozen, whatever has happened to its launch and its slots, unless it is killed
 * before. */
static void wake_up(void *ctx)
{
    struct rank *rank = ctx;
    if (rank->pid != 0 && sim_chance(60)) {
        sim_log("rank %u of launch %u wakes up", rank->number, rank->launch->number);
        finish_copy(rank);
        sim_after(sim_between(0, 500) * MS, NULL, end_later, rank);
    } else {
        rank_end(rank);
    }
}

void rank_kill(struct rank *rank)
{
    if (rank->copying && sim_trait(TRAIT_FREEZES) && sim.us < faults.until_us && sim_chance(60)) {
        sim_log("rank %u is frozen while it copies step %" PRIu64, rank->number, rank->saving);
        if (rank->socket != NULL && sim_chance(50)) {
            ipc_hang_up(rank->socket); /* the agent could not write to it */
        }
        sim_after(faults_lasting(20, 6000), NULL, wake_up, rank);
    } else {
        rank_end(rank);
    }
}

/* Writes half of the image now and half at the end of the copy, so that torn images are detected. */
static void take_grant(struct rank *rank, const struct ipc_frame *frame)
{
    struct msg_grant m;
    struct version version = {rank->launch->term, rank->saving};
    uint32_t n = 0;
    if (msg_grant_decode(frame->payload, frame->len, &m) != TCK_OK || m.step != rank->saving) {
        sim_violation("rank %u: malformed GRANT", rank->number);
        return;
    }
    for (uint32_t i = 0; i < rank->shard_count; i++) {
        struct rank_shard *shard = &rank->shards[i];
        if (!shard->segment.stored_here) {
            continue;
        }
        if (n == m.count || m.slots[n] >= shard->segment.slot_count) {
            sim_violation("rank %u is granted slots that do not exist", rank->number);
            break;
        }
        shard->slot = m.slots[n++];
        uint8_t *image = shard->data->base + shard->slot * shard->segment.slot_stride;
        slot_use_begin(rank, image, "a trainer still writes there", NULL);
        image_fill(image, shard->image_bytes / 16 * 8, variant_of(rank, shard->segment.shard, version), version);
        judge_bytes_changed(rank->host, image, shard->image_bytes);
    }
    free(m.slots);
    rank->copying = true;
    sim_after(sim_between(100, 5000) + rank->freezes_us, NULL, copied, rank);
    rank->freezes_us = 0;
}

void rank_restore_again(struct rank *rank)
{
    slot_use_end(&rank->restored);
    rank->restored = rank->arrived = false;
    rank_next(rank);
}

void rank_restored(struct rank *rank)
{
    slot_use_end(&rank->restored);
    if (!rank->fresh) {
        send_step(rank, MSG_RESTORE_DONE, rank->version.step);
    }
}
