/* SPDX-License-Identifier: Apache-2.0
 * How trainers and agents form a term: HELLO, the claim of a term, joining its world, registering shards. Memory is
 * allocated and touched in a pool thread, because that may take long and heartbeats must continue. */
#include "agent/membership/membership.h"

#include "agent/driver/protocol_driver.h"
#include "agent/driver/term_context.h"
#include "agent/ipc/ipc_server.h"
#include "agent/membership/connectivity.h"
#include "agent/membership/join_reply.h"
#include "agent/membership/start_config.h"
#include "agent/replication/peer_rpc.h"
#include "agent/state/adopt.h"
#include "agent/storage/health.h"
#include "agent/storage/metadata_writer.h"
#include "agent/storage/storage_ops.h"
#include "agent/trainers/slot_writers.h"
#include "agent/trainers/trainer_control.h"
#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RETURN_MS           3000 /* trainers try to reconnect to a new agent several times a second */
#define SHARED_STATUS_BYTES 4096

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

static tck_status_t check_hello(const struct agent *agent, const struct msg_hello *m, struct error *err)
{
    if (strcmp(m->job, agent->config.job) != 0) {
        return error_set(err, TCK_ERR_DENIED, "agent of node %s serves job %s, not %s", agent->config.node,
                         agent->config.job, m->job);
    }
    if (m->world_size == 0 || m->rank >= m->world_size) {
        return error_set(err, TCK_ERR_INVAL, "rank %u of a world of %u", m->rank, m->world_size);
    }
    uint8_t proof[MAC_BYTES];
    secret_mac(&agent->secret, "client", m->job, strlen(m->job), proof);
    if (agent->config.token_file[0] != '\0' && !mac_equal(proof, m->proof)) {
        return error_set(err, TCK_ERR_DENIED, "the token of rank %u is not the one of job %s", m->rank, m->job);
    }
    return TCK_OK;
}

static void send_welcome(struct client *client, uint32_t seq, int board_fd)
{
    struct agent *agent = client->agent;
    struct msg_welcome welcome = {.seq = seq, .format = MESSAGE_FORMAT};
    welcome.hello.node = *peers_self(agent->peers);
    welcome.hello.term_seen = hard_state_get(agent->state)->term.adopted;
    struct writer w = writer_new(0);
    msg_welcome_encode(&welcome, &w);
    client_send_fds(client, MSG_WELCOME, &w, &board_fd, 1);
    writer_free(&w);
}

static void refuse_hello(struct client *client, uint32_t seq, const struct error *err)
{
    struct log_limit *limit = &client->agent->refused_hellos;
    if (log_limit_pass(limit)) {
        log_warn("HELLO of pid %d refused: %s (%" PRIu64 " refused so far)", (int)client->process.pid, err->text,
                 limit->count);
    }
    client_error(client, MSG_ERROR, seq, err);
}

/* False: the client has another message format, and was sent an error. */
static bool speaks_our_format(struct client *client, const uint8_t *payload, size_t len)
{
    uint32_t seq, format;
    struct error err;
    if (!msg_hello_format(payload, len, &seq, &format) || format == MESSAGE_FORMAT) {
        return true;
    }
    (void)error_set(&err, TCK_ERR_PROTO, "agent of node %s speaks message format %d, the client %u",
                    client->agent->config.node, MESSAGE_FORMAT, format);
    refuse_hello(client, seq, &err);
    return false;
}

void membership_handle_hello(struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_hello m;
    struct error err;
    int board_fd = -1;
    if (!speaks_our_format(client, payload, len)) {
        return;
    }
    if (msg_hello_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed HELLO");
        return;
    }
    tck_status_t status = check_hello(client->agent, &m, &err);
    if (status == TCK_OK && client->trainer) {
        status = error_set(&err, TCK_ERR_PROTO, "a second HELLO on one connection");
    }
    if (status == TCK_OK) {
        status = start_config_compare(client, &m, &err);
    }
    if (status == TCK_OK) {
        status = make_status_page(client, &board_fd, &err);
    }
    if (status != TCK_OK) {
        refuse_hello(client, m.seq, &err);
        return;
    }
    client->trainer = true;
    client->returning = m.returning;
    client->rank = m.rank;
    client->world_size = m.world_size;
    memcpy(client->run_id, m.run_id, sizeof(client->run_id));
    client->takeover = m.takeover;
    client_watch_process(client);
    client->agent->job_done = false;
    client->agent->idle_since_ms = 0;
    trainers_show_settings(client->agent);
    trainers_show_health(client);
    log_info("trainer of rank %u of %u connected (pid %d)%s", m.rank, m.world_size, (int)client->process.pid,
             m.returning ? " again" : "");
    if (m.returning) {
        writers_returned(client, m.term);
    }
    send_welcome(client, m.seq, board_fd);
    close(board_fd);
}

/* ---- term ---------------------------------------------------------------------------------------------------- */

/* Releases peers that are not in the new world, so that transfers with them do not delay the new term. */
static void unwant_outsiders(struct agent *agent, const struct world *world)
{
    for (size_t i = peers_count(agent->peers); i-- > 0;) {
        struct peer *peer = peers_at(agent->peers, i);
        int64_t node = world_find_node(world, peer_node(peer)->name);
        if (node < 0 || world->nodes[node].agent_id != peer_node(peer)->agent_id) {
            peers_unwant(agent->peers, peer);
        }
    }
}

static tck_status_t join_term(struct agent *agent, const struct world *world, struct error *err)
{
    struct kept kept = *hard_state_get(agent->state);
    uint64_t before = kept.term.joined;
    if (!term_join(&kept.term, world->term)) {
        return error_set(err, TCK_ERR_DENIED, "term %" PRIu64 " is over: node %s has adopted term %" PRIu64,
                         world->term, agent->config.node, kept.term.adopted);
    }
    if (kept.term.joined == before) {
        connectivity_want_world(agent->connectivity, world); /* again, if this agent has restarted since */
        return TCK_OK;
    }
    adopt_term(agent, world->term);
    kept.reserve = hard_state_get(agent->state)->reserve;
    kept.watermark = hard_state_watermark(agent->state);
    kept.decision = (struct decision){0};
    kept.save_dir = hard_state_save_dir(&agent->config);
    failpoint(term, joining);
    hard_state_put(agent->state, &kept);
    failpoint(term, joined);
    unwant_outsiders(agent, world);
    connectivity_want_world(agent->connectivity, world);
    log_info("joined term %" PRIu64 ": %u ranks on %u nodes", world->term, world->world_size, world->node_count);
    return TCK_OK;
}

static bool has_restarted(const struct agent *agent, const struct world *world)
{
    int64_t self = world_find_node(world, agent->config.node);
    return self >= 0 && world->nodes[self].agent_id != hard_state_get(agent->state)->agent_id;
}

/* The world must name this rank, this node and this very agent: the other nodes would not find an agent that has
 * restarted without its state since HELLO. */
static tck_status_t check_world(const struct client *client, const struct msg_world *m, struct error *err)
{
    const struct agent *agent = client->agent;
    int64_t self = world_find_node(&m->world, agent->config.node);
    if (!client->trainer || m->rank != client->rank || m->rank >= m->world.world_size || self < 0 ||
        m->world.node_of_rank[m->rank] != (uint32_t)self) {
        return error_set(err, TCK_ERR_PROTO, "the world has no rank %u on node %s", m->rank, agent->config.node);
    }
    if (has_restarted(agent, &m->world)) {
        return error_set(err, TCK_ERR_DENIED,
                         "term %" PRIu64
                         " was formed with another agent of node %s, whose memory is lost: attach again",
                         m->world.term, agent->config.node);
    }
    const struct client *other = client_of_rank(agent->clients, m->world.term, m->rank);
    if (other != NULL && other != client) {
        return error_set(err, TCK_ERR_EXIST, "rank %u is connected already (pid %d)", m->rank, (int)other->process.pid);
    }
    return TCK_OK;
}

void membership_handle_join(struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_world m;
    struct error err;
    if (msg_world_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed JOIN");
        return;
    }
    tck_status_t status = check_world(client, &m, &err);
    if (status == TCK_OK) {
        status = join_term(client->agent, &m.world, &err);
    }
    if (status == TCK_OK) {
        client->term = m.world.term;
        metadata_note_world(client->agent->metadata, &m.world, client_of_rank(client->agent->clients, m.world.term, 0));
        start_config_apply(client);
        trainers_show_decisions(client);
        client->join_seq = m.seq;
        client->meet_since_ms = clock_ms();
        connectivity_tick(client->agent->connectivity);
    } else {
        log_warn("JOIN refused: %s", err.text);
        if (client->trainer && has_restarted(client->agent, &m.world)) {
            connectivity_memory_lost(client->agent->connectivity, &m.world);
        }
        client_error(client, MSG_ERROR, m.seq, &err);
    }
    world_free(&m.world);
}

/* ---- register ------------------------------------------------------------------------------------------------ */

/* A registration under way: waits until no operation touches slots, then allocates in a pool thread. */
struct registration {
    struct agent *agent;
    struct registration *then; /* of a newer term: starts when this one has allocated its memory */
    struct world world;
    struct placement placement;
    bool resumed; /* after a restart of this agent: there is no client */
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
    free(j);
}

static void answer_all(struct agent *agent, uint64_t term, const struct error *err)
{
    for (struct client *c = agent->clients; c != NULL; c = c->next) {
        if (c->register_seq == 0 || c->term != term) {
            continue;
        }
        c->meet_since_ms = clock_ms();
        if (err != NULL) {
            join_reply(c, err);
        }
    }
    connectivity_tick(agent->connectivity);
}

/* In a pool thread: nothing else touches the memory tier meanwhile. */
static void allocate(void *ctx)
{
    struct registration *j = ctx;
    int64_t self = world_find_node(&j->world, j->agent->config.node);
    for (uint32_t s = 0; self >= 0 && j->status == TCK_OK && s < j->world.shard_count; s++) {
        if (placement_is_owner(&j->placement, s, (uint32_t)self) ||
            placement_is_holder(&j->placement, s, (uint32_t)self)) {
            struct segment *segment;
            j->status = memory_add(j->agent->memory, j->world.shards[s].id, j->world.shards[s].image_bytes,
                                   j->agent->config.slots, &segment, &j->err);
            failpoint(enrol, allocating);
        }
    }
}

static void warn_of_domains(const struct registration *j)
{
    if (j->placement.domains_short > 0) {
        log_warn("%u of %u shards have fewer than %u copies in distinct domains: add nodes or domains, or lower copies",
                 j->placement.domains_short, j->world.shard_count, j->agent->config.copies);
    }
}

/* What was decided in this term before this agent restarted; also where it could not resume the term by itself. */
static const struct decision *kept_decision(const struct agent *agent, uint64_t term)
{
    const struct decision *decision = &hard_state_get(agent->state)->decision;
    return decision->term == term ? decision : NULL;
}

static tck_status_t form(struct registration *j)
{
    struct agent *agent = j->agent;
    struct term_context *tc;
    const struct decision *decision = kept_decision(agent, j->world.term);
    failpoint(enrol, forming);
    storage_leaving(agent->storage_ops, agent->term_context);
    tck_status_t status = term_context_new(agent, &j->world, &j->placement, decision, &tc, &j->err);
    if (status != TCK_OK) {
        return status;
    }
    memset(&j->world, 0, sizeof(j->world));
    memset(&j->placement, 0, sizeof(j->placement));
    agent->hooks->term_replaced(agent);
    if (agent->term_context != NULL) {
        storage_leave(agent->storage_ops, agent->term_context);
    }
    agent->term_context = tc;
    health_term_began(agent->health);
    writers_look(agent);
    if (!j->resumed) {
        status = hard_state_put_world(agent->state, &tc->world, &j->err);
    }
    if (!j->resumed) {
        metadata_sweep_stage(tc);
    }
    log_info("term %" PRIu64 " has its memory on this node: %" PRIu64 " of %" PRIu64 " MiB", tc->world.term,
             (memory_used_bytes(agent->memory) >> 20), (memory_cap_bytes(agent->memory) >> 20));
    failpoint(enrol, formed);
    metadata_put_nodes(tc);
    connectivity_want_term(tc);
    driver_tick(tc); /* learns the kept decision before a trainer that comes back reads what is committed */
    if (j->resumed) {
        trainers_nodes_awaited(tc);
    }
    rpc_send_registered(tc);
    return status;
}

static void finish(struct registration *j)
{
    struct agent *agent = j->agent;
    uint64_t term = j->world.term;
    warn_of_domains(j);
    if (j->status == TCK_OK && term != hard_state_get(agent->state)->term.adopted) {
        j->status = error_set(&j->err, TCK_ERR_DENIED, "%s", refusal_text(REFUSAL_TERM_CLOSED));
    }
    if (j->status == TCK_OK) {
        j->status = form(j);
    }
    if (j->status != TCK_OK) {
        log_error("registration of term %" PRIu64 " failed: %s", term, j->err.text);
    }
    answer_all(agent, term, j->status == TCK_OK ? NULL : &j->err);
}

static void allocated(void *ctx, bool canceled)
{
    struct registration *j = ctx;
    struct agent *agent = j->agent;
    agent->registration = NULL;
    agent->allocating = false;
    if (!canceled && !agent->leaving) {
        finish(j);
        agent->registration = j->then;
        j->then = NULL;
    }
    registration_free(j);
    membership_ops_idle(agent);
}

void membership_ops_idle(struct agent *agent)
{
    struct registration *j = agent->registration;
    if (j == NULL || agent->allocating || agent->ops > 0) {
        return;
    }
    agent->allocating = true;
    if (pool_submit(agent->pool, allocate, allocated, j) != TCK_OK) {
        j->status = error_set(&j->err, TCK_ERR_NOMEM, "registration: out of memory");
        allocated(j, false);
    }
}

/* Takes ownership of the world. */
static tck_status_t registration_start(struct agent *agent, struct world *world, bool resumed, struct error *err)
{
    struct registration *j = calloc(1, sizeof(*j));
    if (j == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "registration: out of memory");
    }
    j->agent = agent;
    tck_status_t status = placement_build(world, agent->config.copies, &j->placement, err);
    if (status != TCK_OK) {
        free(j);
        return status;
    }
    j->world = *world;
    memset(world, 0, sizeof(*world));
    j->resumed = resumed;
    struct registration **at = agent->allocating ? &agent->registration->then : &agent->registration;
    if (*at != NULL) {
        registration_free(*at); /* of an older term, for which no trainer waits any more */
    }
    *at = j;
    membership_ops_idle(agent);
    return TCK_OK;
}

/* The registration of this term that is under way or waits, NULL if none. */
static const struct registration *registration_of(const struct agent *agent, uint64_t term)
{
    const struct registration *j = agent->registration;
    while (j != NULL && j->world.term != term) {
        j = j->then;
    }
    return j;
}

/* Replies to REGISTER at once, lets it wait for the registration under way, or starts a new one. */
static tck_status_t register_world(struct client *client, struct world *world, struct error *err)
{
    struct agent *agent = client->agent;
    if (client->term == 0) {
        return error_set(err, TCK_ERR_PROTO, "pid %d registers, but has not joined a term", (int)client->process.pid);
    }
    if (client->term != world->term || world->term != hard_state_get(agent->state)->term.adopted) {
        return error_set(err, TCK_ERR_DENIED, "term %" PRIu64 " is over", world->term);
    }
    const struct registration *j = registration_of(agent, world->term);
    if (j != NULL) {
        return hash128_is(j->world.layout, world->layout)
                   ? TCK_OK
                   : error_set(err, TCK_ERR_LAYOUT, "ranks of one term register different layouts");
    }
    struct term_context *tc = agent->term_context;
    if (tc != NULL && tc->world.term == world->term) {
        if (!hash128_is(tc->world.layout, world->layout)) {
            return error_set(err, TCK_ERR_LAYOUT, "ranks of one term register different layouts");
        }
        client->meet_since_ms = clock_ms();
        connectivity_tick(client->agent->connectivity);
        return TCK_OK;
    }
    return registration_start(agent, world, false, err);
}

void membership_handle_register(struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_world m;
    struct error err;
    if (msg_world_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed REGISTER");
        return;
    }
    client->register_seq = m.seq;
    client->will_ask = m.will_ask;
    tck_status_t status = register_world(client, &m.world, &err);
    if (status != TCK_OK) {
        client->register_seq = 0;
        client_error(client, MSG_ERROR, m.seq, &err);
    }
    world_free(&m.world);
}

static void await_trainers(struct agent *agent, const struct world *world)
{
    struct awaited *a = &agent->awaited;
    *a = (struct awaited){.term = world->term, .until_ms = clock_ms() + RETURN_MS, .world_size = world->world_size};
    for (uint32_t r = world->world_size; r-- > 0;) {
        if (strcmp(world->nodes[world->node_of_rank[r]].name, agent->config.node) == 0) {
            a->first_rank = r;
            a->count++;
        }
    }
}

void membership_resume(struct agent *agent)
{
    const struct kept *kept = hard_state_get(agent->state);
    struct world world;
    struct error err;
    if (kept->term.joined == 0 || kept->term.joined != kept->term.adopted ||
        hard_state_world(agent->state, &world, &err) != TCK_OK) {
        return;
    }
    log_info("resuming term %" PRIu64, kept->term.joined);
    await_trainers(agent, &world);
    failpoint(resume, begun);
    if (registration_start(agent, &world, true, &err) != TCK_OK) {
        log_error("term %" PRIu64 " cannot be resumed: %s", kept->term.joined, err.text);
        world_free(&world);
    }
}

void membership_abandon(struct agent *agent)
{
    if (agent->registration != NULL && !agent->allocating) {
        registration_free(agent->registration);
        agent->registration = NULL;
    }
}

void membership_handle_segment_get(struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_segment_get m;
    struct error err;
    if (msg_segment_get_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed SEGMENT_GET");
        return;
    }
    struct term_context *tc = client->agent->term_context;
    uint32_t local_shard =
        tc != NULL && client->term != 0 && client->term == tc->world.term ? term_context_shard(tc, m.shard) : NONE32;
    int64_t shard = local_shard == NONE32 ? -1 : world_find_shard(&tc->world, m.shard);
    if (shard < 0 || !world_rank_has(&tc->world, (uint32_t)shard, client->rank)) {
        (void)error_set(&err, TCK_ERR_DENIED, "rank %u does not hold that shard", client->rank);
        client_error(client, MSG_ERROR, m.seq, &err);
        return;
    }
    struct segment_info info = segment_info(tc->local_shards[local_shard].segment);
    struct writer w = writer_new(0);
    msg_segment_get_encode(&m, &w);
    client_send_fds(client, MSG_SEGMENT, &w, (const int[]){info.data_fd, info.meta_fd}, 2);
    writer_free(&w);
}
