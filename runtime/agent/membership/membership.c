/* SPDX-License-Identifier: Apache-2.0
 * How trainers and agents form a term: HELLO, the claim of a term, joining its world, registering shards. Memory is
 * allocated and touched in a pool thread, because that may take a long time and heartbeats must continue. */
#include "agent/membership/membership.h"

#include "agent/driver/protocol_driver.h"
#include "agent/driver/slot_ops.h"
#include "agent/driver/term_context.h"
#include "agent/ipc/ipc_server.h"
#include "agent/lifecycle/idle_exit.h"
#include "agent/membership/connectivity.h"
#include "agent/membership/job_holders.h"
#include "agent/membership/join_reply.h"
#include "agent/membership/rank_cpus.h"
#include "agent/membership/start_config.h"
#include "agent/replication/peer_rpc.h"
#include "agent/state/adopt.h"
#include "agent/state/hard_state.h"
#include "agent/storage/health.h"
#include "agent/storage/metadata_writer.h"
#include "agent/storage/storage_ops.h"
#include "agent/trainers/slot_writers.h"
#include "agent/trainers/trainer_control.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/failpoint.h"
#include "base/pool.h"
#include "base/progress.h"
#include "core/slot.h"
#include "tiers/memory.h"
#include "tiers/peer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHARED_STATUS_BYTES 4096

struct membership {
    struct membership_setup needs;
    struct registration *registration; /* in progress, or waiting */
    bool allocating;                   /* it is in progress: a pool thread is changing the memory tier */
    /* Every rank of a node sends the same description of the world: it is decoded for the first of them. */
    struct hash128 join_digest, register_digest; /* of the encodings */
    struct world joined;                         /* until a term is formed; empty: none */
    struct world registered;                     /* only its term, size and layout; all zero: none */
    struct log_limit refused_hellos;
};

/* ---- hello --------------------------------------------------------------------------------------------------- */

static tck_status_t make_status_page(struct client *client, int *fd_out, struct error *err)
{
    _Static_assert(sizeof(struct shared_status) <= SHARED_STATUS_BYTES, "the shared status is one page");
    int fd = memfd_create("tierckpt-status", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, SHARED_STATUS_BYTES) != 0) {
        tck_status_t status = error_set(err, status_of_errno(errno), "shared status: memfd: %m");
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    void *p = mmap(NULL, SHARED_STATUS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        close(fd);
        return error_set(err, status_of_errno(errno), "shared status: mmap: %m");
    }
    client->shared = p;
    *fd_out = fd;
    return TCK_OK;
}

static tck_status_t check_hello(const struct membership *ms, const struct msg_hello *m, struct error *err)
{
    const struct config *config = ms->needs.config;
    if (strcmp(m->job, config->job) != 0) {
        return error_set(err, TCK_ERR_DENIED, "agent of node %s serves job %s, not %s", config->node, config->job,
                         m->job);
    }
    if (m->world_size == 0 || m->rank >= m->world_size) {
        return error_set(err, TCK_ERR_INVAL, "rank %u is not in a world of %u ranks", m->rank, m->world_size);
    }
    uint8_t proof[MAC_BYTES];
    secret_mac(ms->needs.secret, "client", m->job, strlen(m->job), proof);
    if (config->token_file[0] != '\0' && !mac_equal(proof, m->proof)) {
        return error_set(err, TCK_ERR_DENIED, "the token of rank %u is not the one of job %s", m->rank, m->job);
    }
    return TCK_OK;
}

static void send_welcome(const struct membership *ms, struct client *client, uint32_t seq, int status_fd)
{
    struct msg_welcome welcome = {.seq = seq, .format = MESSAGE_FORMAT};
    welcome.hello.node = *peers_self(ms->needs.peers);
    welcome.hello.term_seen = hard_state_get(ms->needs.state)->term.adopted;
    struct writer w = writer_new(0);
    msg_welcome_encode(&welcome, &w);
    client_send_fds(client, MSG_WELCOME, &w, &status_fd, 1);
    writer_free(&w);
}

static void refuse_hello(struct membership *ms, struct client *client, uint32_t seq, const struct error *err)
{
    struct log_limit *limit = &ms->refused_hellos;
    if (log_limit_pass(limit)) {
        log_warn("HELLO of pid %d refused: %s (%" PRIu64 " refused so far)", (int)client->process.pid, err->text,
                 limit->count);
    }
    client_error(client, MSG_ERROR, seq, err);
}

/* False: the client has another message format, and was sent an error. */
static bool has_our_format(struct membership *ms, struct client *client, const uint8_t *payload, size_t len)
{
    uint32_t seq, format;
    struct error err;
    if (!msg_hello_format(payload, len, &seq, &format) || format == MESSAGE_FORMAT) {
        return true;
    }
    (void)error_set(&err, TCK_ERR_PROTO, "the agent of node %s uses message format %d, the client uses format %u",
                    ms->needs.config->node, MESSAGE_FORMAT, format);
    refuse_hello(ms, client, seq, &err);
    return false;
}

void membership_handle_hello(struct membership *ms, struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_hello m;
    struct error err;
    int status_fd = -1;
    if (!has_our_format(ms, client, payload, len)) {
        return;
    }
    if (msg_hello_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed HELLO");
        return;
    }
    tck_status_t status = check_hello(ms, &m, &err);
    if (status == TCK_OK && client->trainer) {
        status = error_set(&err, TCK_ERR_PROTO, "a second HELLO on one connection");
    }
    if (status == TCK_OK) {
        status = start_config_compare(ms->needs.start_config, client, &m, &err);
    }
    if (status == TCK_OK) {
        status = make_status_page(client, &status_fd, &err);
    }
    if (status != TCK_OK) {
        refuse_hello(ms, client, m.seq, &err);
        return;
    }
    client->trainer = true;
    client->returning = m.returning;
    client->rank = m.rank;
    client->world_size = m.world_size;
    memcpy(client->run_id, m.run_id, sizeof(client->run_id));
    client->takeover = m.takeover;
    client_watch_process(client);
    idle_exit_trainer_connected(ms->needs.idle_exit);
    trainers_show_settings(ms->needs.trainers);
    trainers_show_health(ms->needs.trainers, client);
    log_info("trainer of rank %u of %u connected (pid %d)%s", m.rank, m.world_size, (int)client->process.pid,
             m.returning ? " again" : "");
    if (m.returning) {
        writers_returned(ms->needs.writers, client, m.term);
    }
    send_welcome(ms, client, m.seq, status_fd);
    close(status_fd);
}

/* ---- term ---------------------------------------------------------------------------------------------------- */

/* Releases peers outside the new world, so that transfers with them do not delay the new term. */
static void release_outsiders(struct peers *peers, const struct world *world)
{
    for (size_t i = peers_count(peers); i-- > 0;) {
        struct peer *peer = peers_at(peers, i);
        int64_t node = world_find_agent(world, peer_node(peer)->agent_id);
        if (node < 0 || strcmp(world->nodes[node].name, peer_node(peer)->name) != 0) {
            peers_unwant(peers, peer);
        }
    }
}

static tck_status_t join_term(struct membership *ms, const struct world *world, struct error *err)
{
    struct kept kept = *hard_state_get(ms->needs.state);
    uint64_t before = kept.term.joined;
    if (!term_join(&kept.term, world->term)) {
        return error_set(err, TCK_ERR_DENIED, "term %" PRIu64 " is over: node %s has adopted term %" PRIu64,
                         world->term, ms->needs.config->node, kept.term.adopted);
    }
    if (kept.term.joined == before) {
        connectivity_want_world(ms->needs.connectivity, world); /* needed if this agent has restarted since */
        return TCK_OK;
    }
    adopt_term(ms->needs.adopt, world->term);
    kept.reserve = hard_state_get(ms->needs.state)->reserve;
    kept.watermark = hard_state_watermark(ms->needs.state);
    kept.decision = (struct decision){0};
    kept.save_dir = hard_state_save_dir(ms->needs.config);
    failpoint(term, joining);
    hard_state_put(ms->needs.state, &kept);
    failpoint(term, joined);
    release_outsiders(ms->needs.peers, world);
    connectivity_want_world(ms->needs.connectivity, world);
    log_info("joined term %" PRIu64 ": %u ranks on %u nodes", world->term, world->world_size, world->node_count);
    return TCK_OK;
}

static bool has_restarted(const struct membership *ms, const struct world *world)
{
    int64_t self = world_find_node(world, ms->needs.config->node);
    return self >= 0 && world->nodes[self].agent_id != hard_state_get(ms->needs.state)->agent_id;
}

/* The world must contain this rank, this node and this agent process: other nodes could not find an agent that has
 * restarted without its state since HELLO. */
static tck_status_t check_world(const struct membership *ms, const struct client *client, const struct world *world,
                                uint32_t rank, struct error *err)
{
    const char *node = ms->needs.config->node;
    int64_t self = world_find_node(world, node);
    if (!client->trainer || rank != client->rank || self < 0 || world->node_of_rank[rank] != (uint32_t)self) {
        return error_set(err, TCK_ERR_PROTO, "the world has no rank %u on node %s", rank, node);
    }
    if (has_restarted(ms, world)) {
        return error_set(err, TCK_ERR_DENIED,
                         "term %" PRIu64
                         " was formed with another agent of node %s, whose memory is lost: attach again",
                         world->term, node);
    }
    const struct client *other = client_of_rank(*ms->needs.clients, world->term, rank);
    if (other != NULL && other != client) {
        return error_set(err, TCK_ERR_EXIST, "rank %u is connected already (pid %d)", rank, (int)other->process.pid);
    }
    return TCK_OK;
}

/* The world of a JOIN, which membership keeps; NULL: it is malformed. */
static const struct world *joined_world(struct membership *ms, const uint8_t *payload, size_t len,
                                        struct msg_world_parts *parts)
{
    if (!msg_world_parts(payload, len, parts)) {
        return NULL;
    }
    struct hash128 digest = hash128_of(parts->world, parts->world_len);
    if (ms->joined.nodes == NULL || !hash128_is(ms->join_digest, digest)) {
        struct msg_world m;
        if (msg_world_decode(payload, len, &m) != TCK_OK) {
            return NULL;
        }
        world_free(&ms->joined);
        ms->joined = m.world;
        ms->join_digest = digest;
    }
    return parts->rank < ms->joined.world_size ? &ms->joined : NULL;
}

void membership_handle_join(struct membership *ms, struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_world_parts m;
    struct error err;
    const struct world *world = joined_world(ms, payload, len, &m);
    if (world == NULL) {
        client_cut(client, "malformed JOIN");
        return;
    }
    tck_status_t status = check_world(ms, client, world, m.rank, &err);
    if (status == TCK_OK) {
        status = join_term(ms, world, &err);
    }
    if (status == TCK_OK) {
        client->term = world->term;
        metadata_note_world(ms->needs.metadata, world, client_of_rank(*ms->needs.clients, world->term, 0));
        start_config_apply(ms->needs.start_config, client);
        trainers_show_decisions(ms->needs.trainers, client);
        client->join_seq = m.seq;
        client->sessions_since_ms = clock_ms();
        connectivity_tick(ms->needs.connectivity);
    } else {
        log_warn("JOIN refused: %s", err.text);
        if (client->trainer && has_restarted(ms, world)) {
            connectivity_memory_lost(ms->needs.connectivity, world);
        }
        client_error(client, MSG_ERROR, m.seq, &err);
    }
}

/* ---- register ------------------------------------------------------------------------------------------------ */

/* A registration under way: waits until no operation touches slots, then allocates in a pool thread. */
struct registration {
    struct membership *ms;
    struct rank_cpus *ranks; /* one for each trainer that is connected here */
    size_t ranks_count;
    struct registration *then; /* for a newer term: starts when this one has allocated its memory */
    struct world world;
    uint32_t self; /* this node's number in it; NONE32: it is not part of it */
    struct placement placement;
    bool resumed;                  /* after a restart of this agent: there is no client */
    _Atomic uint64_t wanted_bytes; /* to be allocated; written by the pool thread */
    uint64_t touched_before;
    tck_status_t status;
    struct error err;
};

static void registration_free(struct registration *j)
{
    if (j->then != NULL) {
        registration_free(j->then);
    }
    placement_free(&j->placement);
    world_free(&j->world);
    free(j->ranks);
    free(j);
}

static void answer_all(const struct membership *ms, uint64_t term, const struct error *err)
{
    for (struct client *c = *ms->needs.clients; c != NULL; c = c->next) {
        if (c->register_seq == 0 || c->term != term) {
            continue;
        }
        c->sessions_since_ms = clock_ms();
        if (err != NULL) {
            join_reply(ms->needs.join, c, err);
        }
    }
    connectivity_tick(ms->needs.connectivity);
}

/* A segment that was made with another number of slots keeps them, and with them what it holds. */
static uint32_t slots_of(const struct membership_setup *needs, struct hash128 shard)
{
    const struct segment *kept = memory_find(needs->memory, shard);
    uint32_t wanted = needs->config->slots, slots = kept != NULL ? segment_info(kept).slot_count : wanted;
    if (slots != wanted) {
        char text[HASH128_TEXT];
        hash128_text(shard, text);
        log_info("the segment of shard %s keeps its %u slots, although slots is %u now: that holds for new segments",
                 text, slots, wanted);
    }
    return slots;
}

static bool is_owned_here(const struct registration *j, uint32_t shard)
{
    return j->self != NONE32 && placement_is_owner(&j->placement, shard, j->self);
}

static bool is_kept_here(const struct registration *j, uint32_t shard)
{
    return j->self != NONE32 && (is_owned_here(j, shard) || placement_is_holder(&j->placement, shard, j->self));
}

static struct segment_wish segment_wish(const struct registration *j, uint32_t s, uint32_t slots)
{
    const struct world_shard *shard = &j->world.shards[s];
    return (struct segment_wish){.shard = shard->id,
                                 .image_bytes = shard->image_bytes,
                                 .slot_count = slots,
                                 .used = slots_used(slots, is_owned_here(j, s)),
                                 .near = cpus_of_shard(&j->world, j->self, s, j->ranks, j->ranks_count)};
}

static uint64_t wanted_bytes(const struct registration *j)
{
    const struct membership_setup *needs = &j->ms->needs;
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < j->world.shard_count; s++) {
        struct segment_wish wish = segment_wish(j, s, needs->config->slots);
        bytes += is_kept_here(j, s) ? memory_needed(needs->memory, &wish) : 0;
    }
    return bytes;
}

/* What this node owned before, and will only hold or not even that, gives back what others may need. */
static void give_back_unused(const struct registration *j)
{
    const struct memory *memory = j->ms->needs.memory;
    for (size_t i = 0; i < memory_count(memory); i++) {
        struct segment_info info = segment_info(memory_at(memory, i));
        int64_t shard = world_find_shard(&j->world, info.shard);
        if (shard < 0 || !is_owned_here(j, (uint32_t)shard)) {
            segment_set_used(memory_at(memory, i), slots_used(info.slot_count, false));
        }
    }
}

/* Runs in a pool thread; nothing else touches the memory tier in the meantime. */
static void allocate(void *ctx)
{
    struct registration *j = ctx;
    const struct membership_setup *needs = &j->ms->needs;
    for (size_t i = 0; i < j->ranks_count; i++) {
        j->ranks[i].node = cpus_of_node(NUMA_NODES, &j->ranks[i].bound);
    }
    atomic_store_explicit(&j->wanted_bytes, wanted_bytes(j), memory_order_relaxed);
    give_back_unused(j);
    for (uint32_t s = 0; j->status == TCK_OK && s < j->world.shard_count; s++) {
        if (is_kept_here(j, s)) {
            struct segment *segment;
            struct segment_wish wish = segment_wish(j, s, slots_of(needs, j->world.shards[s].id));
            j->status = memory_add(needs->memory, &wish, &segment, &j->err);
            failpoint(enrol, allocating);
        }
    }
}

void membership_allocated(const struct membership *ms, uint64_t *done_out, uint64_t *total_out)
{
    const struct registration *j = ms->registration;
    *done_out = *total_out = 0;
    if (j != NULL && ms->allocating) {
        uint64_t touched = atomic_load_explicit(&ms->needs.touched->bytes, memory_order_relaxed) - j->touched_before;
        *total_out = atomic_load_explicit(&j->wanted_bytes, memory_order_relaxed);
        *done_out = touched < *total_out ? touched : *total_out; /* more if a file of huge pages was given up */
    }
}

static void warn_about_domains(const struct registration *j)
{
    if (j->placement.domains_short > 0) {
        log_warn("%u of %u shards have fewer than %u copies in distinct domains: add nodes or domains, or lower copies",
                 j->placement.domains_short, j->world.shard_count, j->ms->needs.config->copies);
    }
}

/* The decision of this term from before this agent restarted, even if the agent could not resume the term by itself. */
static const struct decision *kept_decision(const struct membership *ms, uint64_t term)
{
    const struct decision *decision = &hard_state_get(ms->needs.state)->decision;
    return decision->term == term ? decision : NULL;
}

static tck_status_t form(struct registration *j)
{
    const struct membership_setup *needs = &j->ms->needs;
    struct term_context *tc;
    const struct decision *decision = kept_decision(j->ms, j->world.term);
    failpoint(enrol, forming);
    storage_leaving(needs->storage_ops, *needs->term);
    tck_status_t status = term_context_new(needs->term_setup, &j->world, &j->placement, decision, &tc, &j->err);
    if (status != TCK_OK) {
        return status;
    }
    memset(&j->world, 0, sizeof(j->world));
    memset(&j->placement, 0, sizeof(j->placement));
    needs->replaced(needs->ctx, tc);
    if (*needs->term != NULL) {
        storage_leave(needs->storage_ops, *needs->term);
    }
    *needs->term = tc;
    world_free(&j->ms->joined);
    health_term_began(needs->health);
    writers_check(needs->writers);
    if (!j->resumed) {
        status = hard_state_put_world(needs->state, &tc->world, &j->err);
        metadata_sweep_stage(needs->metadata, tc);
    }
    log_info("term %" PRIu64 " has its memory on this node: %" PRIu64 " of %" PRIu64 " MiB", tc->world.term,
             (memory_used_bytes(needs->memory) >> 20), (memory_cap_bytes(needs->memory) >> 20));
    failpoint(enrol, formed);
    metadata_put_nodes(needs->metadata, tc);
    connectivity_want_term(needs->connectivity, tc);
    driver_tick(tc); /* applies the kept decision before a returning trainer reads what is committed */
    if (j->resumed) {
        trainers_nodes_awaited(needs->trainers, tc);
    }
    rpc_send_registered(tc);
    return status;
}

static void finish(struct registration *j)
{
    const struct membership *ms = j->ms;
    uint64_t term = j->world.term;
    warn_about_domains(j);
    if (j->status == TCK_OK && term != hard_state_get(ms->needs.state)->term.adopted) {
        j->status = error_set(&j->err, TCK_ERR_DENIED, "%s", refusal_text(REFUSAL_TERM_CLOSED));
    }
    if (j->status == TCK_OK) {
        j->status = form(j);
    }
    if (j->status != TCK_OK) {
        log_error("registration of term %" PRIu64 " failed: %s", term, j->err.text);
    }
    answer_all(ms, term, j->status == TCK_OK ? NULL : &j->err);
}

/* Publishes whether other parts may touch the memory tier. */
static void publish_memory_use(const struct membership *ms)
{
    slot_ops_set_memory(ms->needs.slot_ops, ms->registration == NULL ? MEMORY_STEADY
                                            : ms->allocating         ? MEMORY_CHANGING
                                                                     : MEMORY_WANTED);
}

static void allocated(void *ctx, bool canceled)
{
    struct registration *j = ctx;
    struct membership *ms = j->ms;
    ms->registration = NULL;
    ms->allocating = false;
    publish_memory_use(ms);
    if (!canceled && !*ms->needs.leaving) {
        finish(j);
        ms->registration = j->then;
        j->then = NULL;
        publish_memory_use(ms);
    }
    registration_free(j);
    membership_ops_idle(ms);
}

void membership_ops_idle(struct membership *ms)
{
    struct registration *j = ms->registration;
    if (j == NULL || ms->allocating || !slot_ops_none(ms->needs.slot_ops)) {
        return;
    }
    ms->allocating = true;
    j->touched_before = atomic_load_explicit(&ms->needs.touched->bytes, memory_order_relaxed);
    publish_memory_use(ms);
    if (pool_submit(ms->needs.pool, allocate, allocated, j) != TCK_OK) {
        j->status = error_set(&j->err, TCK_ERR_NOMEM, "registration: out of memory");
        allocated(j, false);
    }
}

/* All ranks of this node have joined the term before one of them registers. After a restart of this agent none has. */
static tck_status_t note_ranks(struct registration *j, uint64_t term, struct error *err)
{
    size_t count = clients_trainers(*j->ms->needs.clients);
    j->ranks = calloc(count + 1, sizeof(*j->ranks));
    if (j->ranks == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "registration: out of memory");
    }
    for (const struct client *c = *j->ms->needs.clients; c != NULL && j->ranks_count < count; c = c->next) {
        if (c->trainer && !c->done && c->term == term && c->process.pid > 0) {
            j->ranks[j->ranks_count++] = (struct rank_cpus){.rank = c->rank, .bound = cpus_of_process(c->process.pid)};
        }
    }
    return TCK_OK;
}

/* Takes ownership of the world. */
static tck_status_t registration_start(struct membership *ms, struct world *world, bool resumed, struct error *err)
{
    struct registration *j = calloc(1, sizeof(*j));
    if (j == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "registration: out of memory");
    }
    j->ms = ms;
    tck_status_t status = note_ranks(j, world->term, err);
    if (status == TCK_OK) {
        status = placement_build(world, ms->needs.config->copies, &j->placement, err);
    }
    if (status != TCK_OK) {
        free(j->ranks);
        free(j);
        return status;
    }
    int64_t self = world_find_node(world, ms->needs.config->node);
    j->self = self >= 0 ? (uint32_t)self : NONE32;
    j->world = *world;
    memset(world, 0, sizeof(*world));
    j->resumed = resumed;
    struct registration **at = ms->allocating ? &ms->registration->then : &ms->registration;
    if (*at != NULL) {
        registration_free(*at); /* for an older term, which no trainer waits for any more */
    }
    *at = j;
    publish_memory_use(ms);
    membership_ops_idle(ms);
    return TCK_OK;
}

/* The registration of this term that is under way or waits, NULL if none. */
static const struct registration *registration_of(const struct membership *ms, uint64_t term)
{
    const struct registration *j = ms->registration;
    while (j != NULL && j->world.term != term) {
        j = j->then;
    }
    return j;
}

/* Decodes what is in a REGISTER; of a world that another rank has sent already, term, size and layout alone. */
static tck_status_t registered_world(struct membership *ms, const uint8_t *payload, size_t len,
                                     struct msg_world_parts *parts, struct msg_world *out)
{
    if (!msg_world_parts(payload, len, parts)) {
        return TCK_ERR_PROTO;
    }
    struct hash128 digest = hash128_of(parts->world, parts->world_len);
    if (ms->registered.world_size > 0 && hash128_is(ms->register_digest, digest)) {
        *out = (struct msg_world){.world = ms->registered};
        return parts->rank < ms->registered.world_size ? TCK_OK : TCK_ERR_PROTO;
    }
    tck_status_t status = msg_world_decode(payload, len, out);
    if (status == TCK_OK) {
        ms->register_digest = digest;
        ms->registered =
            (struct world){.term = out->world.term, .world_size = out->world.world_size, .layout = out->world.layout};
    }
    return status;
}

/* Takes ownership of the world. Of one that is not decoded, only what is compared is needed unless the registration
 * that began with it has failed: it is begun again then. */
static tck_status_t start_decoded(struct membership *ms, struct world *world, const uint8_t *payload, size_t len,
                                  struct error *err)
{
    struct msg_world m = {.world = *world};
    if (world->nodes == NULL && msg_world_decode(payload, len, &m) != TCK_OK) {
        return error_set(err, TCK_ERR_NOMEM, "registration: out of memory");
    }
    *world = m.world;
    return registration_start(ms, world, false, err);
}

/* Replies to REGISTER at once, queues it behind the registration in progress, or starts a new one. */
static tck_status_t register_world(struct membership *ms, struct client *client, struct world *world,
                                   const uint8_t *payload, size_t len, struct error *err)
{
    if (client->term == 0) {
        return error_set(err, TCK_ERR_PROTO, "pid %d sent REGISTER without having joined a term",
                         (int)client->process.pid);
    }
    if (client->term != world->term || world->term != hard_state_get(ms->needs.state)->term.adopted) {
        return error_set(err, TCK_ERR_DENIED, "term %" PRIu64 " is over", world->term);
    }
    const struct registration *j = registration_of(ms, world->term);
    if (j != NULL) {
        return hash128_is(j->world.layout, world->layout)
                   ? TCK_OK
                   : error_set(err, TCK_ERR_LAYOUT, "ranks of one term register different layouts");
    }
    const struct term_context *tc = *ms->needs.term;
    if (tc != NULL && tc->world.term == world->term) {
        if (!hash128_is(tc->world.layout, world->layout)) {
            return error_set(err, TCK_ERR_LAYOUT, "ranks of one term register different layouts");
        }
        client->sessions_since_ms = clock_ms();
        connectivity_tick(ms->needs.connectivity);
        return TCK_OK;
    }
    return start_decoded(ms, world, payload, len, err);
}

void membership_handle_register(struct membership *ms, struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_world_parts parts;
    struct msg_world m;
    struct error err;
    if (registered_world(ms, payload, len, &parts, &m) != TCK_OK) {
        client_cut(client, "malformed REGISTER");
        return;
    }
    client->register_seq = parts.seq;
    client->waits_since_ms = clock_ms();
    client->will_ask = parts.will_ask;
    tck_status_t status = register_world(ms, client, &m.world, payload, len, &err);
    if (status != TCK_OK) {
        client->register_seq = 0;
        client_error(client, MSG_ERROR, parts.seq, &err);
    }
    world_free(&m.world);
}

void membership_resume(struct membership *ms)
{
    const struct kept *kept = hard_state_get(ms->needs.state);
    struct world world;
    struct error err;
    if (kept->term.joined == 0 || kept->term.joined != kept->term.adopted ||
        hard_state_world(ms->needs.state, &world, &err) != TCK_OK) {
        return;
    }
    log_info("resuming term %" PRIu64, kept->term.joined);
    holders_await(ms->needs.holders, &world);
    failpoint(resume, begun);
    if (registration_start(ms, &world, true, &err) != TCK_OK) {
        log_error("term %" PRIu64 " cannot be resumed: %s", kept->term.joined, err.text);
        world_free(&world);
    }
}

void membership_abandon(struct membership *ms)
{
    if (ms != NULL && ms->registration != NULL && !ms->allocating) {
        registration_free(ms->registration);
        ms->registration = NULL;
        publish_memory_use(ms);
    }
}

void membership_handle_segment_get(struct membership *ms, struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_segment_get m;
    struct error err;
    if (msg_segment_get_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed SEGMENT_GET");
        return;
    }
    struct term_context *tc = *ms->needs.term;
    uint32_t local_shard =
        tc != NULL && client->term != 0 && client->term == tc->world.term ? term_context_shard(tc, m.shard) : NONE32;
    int64_t shard = local_shard == NONE32 ? -1 : world_find_shard(&tc->world, m.shard);
    if (shard < 0 || !world_rank_has(&tc->world, (uint32_t)shard, client->rank)) {
        (void)error_set(&err, TCK_ERR_DENIED, "rank %u does not hold that shard", client->rank);
        client_error(client, MSG_ERROR, m.seq, &err);
        return;
    }
    struct segment *segment = tc->local_shards[local_shard].segment;
    struct segment_info info = segment_info(segment);
    struct writer w = writer_new(0);
    if (tc->shards[local_shard].storing_rank == (uint32_t)term_context_local_rank(tc, client->rank)) {
        segment_announce(segment); /* before the trainer can pin anything */
    }
    msg_segment_get_encode(&m, &w);
    client_send_fds(client, MSG_SEGMENT, &w, (const int[]){info.data_fd, info.meta_fd}, 2);
    writer_free(&w);
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

tck_status_t membership_new(const struct membership_setup *setup, struct membership **out, struct error *err)
{
    struct membership *ms = calloc(1, sizeof(*ms));
    if (ms == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    ms->needs = *setup;
    *out = ms;
    return TCK_OK;
}

void membership_free(struct membership *ms)
{
    if (ms != NULL) {
        world_free(&ms->joined);
    }
    free(ms);
}
