/* SPDX-License-Identifier: Apache-2.0
 * Answers the trainers' restore requests: asks the coordinator, and passes its answer to the trainers that wait. */
#include "agent/recovery/restore.h"

#include "agent/driver/term_context.h"
#include "agent/ipc/ipc_server.h"
#include "agent/membership/connectivity.h"
#include "agent/replication/fetch.h"
#include "agent/replication/peer_rpc.h"
#include "agent/state/hard_state.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/failpoint.h"
#include "tiers/segment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t turn_ms(const struct restore_setup *restore, const struct term_context *tc, uint32_t shard)
{
    bool comes_late = restore->config->restore_spread != SPREAD_AGENTS;
    uint32_t turn = comes_late ? placement_turn(&tc->placement, shard, tc->self) : 0;
    return restore_timeout_turn_ms(turn, tc->world.shards[shard].image_bytes);
}

/* Adds the CRCs of a shard's chunks, by which the rank checks what it copies. */
static bool add_crcs(const struct local_shard *shard, uint32_t slot, struct msg_restored *m)
{
    uint32_t count = chunk_count(segment_info(shard->segment).image_bytes);
    uint32_t *crcs = reallocarray(m->crcs, m->crc_count + (size_t)count + 1, sizeof(*crcs));
    if (crcs == NULL) {
        return false;
    }
    memcpy(&crcs[m->crc_count], segment_crcs(shard->segment, slot), count * sizeof(*crcs));
    m->crcs = crcs;
    m->crc_count += count;
    return true;
}

/* The same of all shards that are here, in their order. */
static bool fill_crcs(const struct term_context *tc, uint32_t rank, struct msg_restored *m)
{
    uint32_t i = 0, at = 0, local_shard;
    bool filled = true;
    while (i < m->count && filled && (local_shard = term_context_next_of(tc, rank, &at)) != NONE32) {
        filled = m->shards[i].slot == NONE32 || add_crcs(&tc->local_shards[local_shard], m->shards[i].slot, m);
        i++;
    }
    return filled;
}

/* Fills in the slot of each shard of the rank, in the order of MSG_SEGMENTS. Returns how many are missing; *turn_out:
 * how long they may still be in flight. Their slots are unproven until the ranks report that all have their bytes. */
static uint32_t restored_shards(const struct restore_setup *restore, const struct term_context *tc, uint32_t rank,
                                struct msg_restored *m, uint64_t *turn_out)
{
    uint32_t lacking = 0, at = 0, local_shard;
    while ((local_shard = term_context_next_of(tc, rank, &at)) != NONE32) {
        uint32_t s = tc->shards[local_shard].world_shard;
        uint32_t slot = node_slot_of(tc->node, local_shard, m->version);
        if (slot == NONE32 || node_slot(tc->node, slot)->state != SLOT_VERIFIED) {
            m->shards[m->count++] = (struct restored_shard){.slot = NONE32, .source = SOURCE_TWIN};
            *turn_out = turn_ms(restore, tc, s) > *turn_out ? turn_ms(restore, tc, s) : *turn_out;
            lacking++;
            continue;
        }
        uint32_t k;
        struct segment *segment = term_context_slot(tc, slot, &k)->segment;
        segment_set_unproven(segment, k, true);
        m->shards[m->count++] = (struct restored_shard){
            .slot = k, .source = tc->local_shards[local_shard].restored_from, .root = node_slot(tc->node, slot)->root};
    }
    return lacking;
}

static enum restore_verdict judge(const struct restore_setup *restore, struct client *client,
                                  const struct term_context *tc, uint32_t lacking, uint64_t turn)
{
    struct fetch_tally tally = fetch_tally(restore->fetches, tc, tc->readable.version);
    uint64_t limit_ms = turn + restore->config->restore_spread_timeout_ms;
    uint64_t tries = restore_timeout_tries(tc->setup.shard_count);
    struct restore_shards shards = {
        .lacking = lacking,
        .may_lack = client->restore_may_lack,
        .progressing = lacking > 0 && !client->restore_may_lack &&
                       restore_timeout_lasts(&client->restore_timeout, &tally, tries, limit_ms, clock_ms()),
        .recovered = decision_is_recovered(node_decision(tc->node))};
    return restore_judge(&shards);
}

/* Published with another layout: each rank reads what it needs itself. */
static bool is_resharded(const struct wire_readable *m)
{
    return m->outcome == TCK_ERR_LAYOUT && !version_none(m->version);
}

/* False: it waits for missing shards. */
static bool answer_restored(const struct restore_setup *restore, struct client *client, struct term_context *tc)
{
    uint32_t lacking = 0;
    uint64_t turn = 0;
    struct msg_restored m = {
        .seq = client->restore_seq, .version = tc->readable.version, .newest_step = tc->readable.newest_step};
    m.other_layout = is_resharded(&tc->readable);
    snprintf(m.passed_over, sizeof(m.passed_over), "%s", tc->readable.passed_over);
    m.shards = calloc(tc->setup.shard_count ? tc->setup.shard_count : 1, sizeof(*m.shards));
    if (m.shards != NULL && !m.other_layout) {
        lacking = restored_shards(restore, tc, client->rank, &m, &turn);
    }
    enum restore_verdict verdict = judge(restore, client, tc, lacking, turn);
    if (verdict == RESTORE_WAIT) {
        free(m.shards);
        return false;
    }
    bool room = m.shards != NULL && (verdict == RESTORE_LACKS || fill_crcs(tc, client->rank, &m));
    if (!room || verdict == RESTORE_LACKS) {
        struct error err;
        /* BUSY: the ranks retry in a new term, whose recovery finds other copies. */
        (void)error_set(&err, room ? TCK_ERR_BUSY : TCK_ERR_NOMEM,
                        "a shard of version %" PRIu64 ".%" PRIu64 " is not in this node's memory", m.version.term,
                        m.version.step);
        client_error(client, MSG_ERROR, client->restore_seq, &err);
    } else {
        struct writer w = writer_new(0);
        if (lacking > 0) {
            log_info("rank %u gets %u of %u shards of version %" PRIu64 ".%" PRIu64
                     " from other ranks, as this node lacks them",
                     client->rank, lacking, m.count, m.version.term, m.version.step);
        }
        msg_restored_encode(&m, &w);
        failpoint(restore, answering);
        client_send(client, MSG_RESTORED, &w);
        writer_free(&w);
    }
    msg_restored_free(&m);
    return true;
}

static void answer_if_known(const struct restore_setup *restore, struct client *client, struct term_context *tc)
{
    if (!client->restoring || !tc->readable_known || tc->readable.asked_step != client->restore_step) {
        return;
    }
    if (tc->readable.outcome == TCK_OK || is_resharded(&tc->readable)) {
        client->restoring = !answer_restored(restore, client, tc);
        return;
    }
    client->restoring = false;
    struct error err;
    (void)error_set(&err, (tck_status_t)tc->readable.outcome, "%s", tc->readable.reason);
    client_error(client, MSG_ERROR, client->restore_seq, &err);
}

static void refuse_askers(const struct restore_setup *restore, struct term_context *tc, const struct wire_readable *m)
{
    struct error err;
    (void)error_set(&err, (tck_status_t)m->outcome, "%s", m->reason);
    for (struct client *c = *restore->clients; c != NULL; c = c->next) {
        if (c->restoring && c->term == tc->world.term && c->restore_step == m->asked_step) {
            c->restoring = false;
            client_error(c, MSG_ERROR, c->restore_seq, &err);
        }
    }
}

void restore_arrived(const struct restore_setup *restore, struct term_context *tc)
{
    for (struct client *c = *restore->clients; c != NULL; c = c->next) {
        if (c->term == tc->world.term) {
            answer_if_known(restore, c, tc);
        }
    }
}

void restore_readable(const struct restore_setup *restore, struct term_context *tc, const struct wire_readable *m)
{
    if (m->outcome == TCK_ERR_BUSY || (tc->readable_known && tc->readable.outcome == TCK_OK && m->outcome != TCK_OK)) {
        refuse_askers(restore, tc,
                      m); /* the answer to a second, different request: the first outcome is kept, or still to come */
        return;
    }
    if (m->outcome == TCK_OK) {
        hard_state_put_base(restore->state, m->term, m->version, m->passed_over);
    }
    tc->readable = *m;
    tc->readable_known = true;
    restore_arrived(restore, tc);
}

static void send_ask(struct term_context *tc, uint64_t step)
{
    struct wire_ask m = {.term = tc->world.term, .step = step};
    struct writer w = writer_new(0);
    wire_ask_encode(&m, &w);
    rpc_send_coordinator(tc, WIRE_RESTORE_ASK, &w);
    writer_free(&w);
}

static void fail_restore(struct client *client, const struct error *missing)
{
    client->restoring = false;
    log_error("rank %u cannot restore: %s", client->rank, missing->text);
    client_error(client, MSG_ERROR, client->restore_seq, missing);
}

/* The coordinator needs sessions with all nodes, others only with the coordinator. */
void restore_tick(const struct restore_setup *restore, struct term_context *tc)
{
    struct error err;
    bool missing = connectivity_missing(restore->connectivity, tc->world.nodes,
                                        tc->coordinator != NULL ? tc->world.node_count : 1, &err);
    for (struct client *c = *restore->clients; c != NULL; c = c->next) {
        if (!c->restoring || c->term != tc->world.term) {
            continue;
        }
        if (!missing) {
            c->restore_since_ms = clock_ms();
        }
        if (clock_ms() - c->restore_since_ms >= restore->config->session_wait_ms) {
            fail_restore(c, &err);
        } else if (tc->readable_known && tc->readable.asked_step == c->restore_step) {
            answer_if_known(restore, c, tc); /* the rank waits for shards */
        } else {
            send_ask(tc, c->restore_step);
        }
    }
}

static struct term_context *term_of(const struct restore_setup *restore, struct client *client, uint32_t seq)
{
    struct term_context *tc = *restore->term;
    if (client->trainer && tc != NULL && !tc->closed && tc->world.term == client->term) {
        return tc;
    }
    struct error err;
    (void)error_set(&err, TCK_ERR_DENIED, "rank %u has not registered, or its term is over", client->rank);
    client_error(client, MSG_ERROR, seq, &err);
    return NULL;
}

void restore_client(const struct restore_setup *restore, struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_restore m;
    struct error err;
    if (msg_restore_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed RESTORE");
        return;
    }
    struct term_context *tc = term_of(restore, client, m.seq);
    if (tc == NULL) {
        return;
    }
    if (client->restoring) {
        (void)error_set(&err, TCK_ERR_CANCELED, "replaced by a newer restore request");
        client_error(client, MSG_ERROR, client->restore_seq, &err);
    }
    client->restoring = true;
    client->waits_since_ms = clock_ms();
    client->restore_seq = m.seq;
    client->restore_step = m.step;
    client->restore_may_lack = m.may_lack;
    client->restore_timeout = (struct restore_timeout){0};
    if (m.failed[0] != '\0') {
        log_warn("the ranks could not pass shards to each other, fetching them through the agents: %s", m.failed);
    }
    client->restore_since_ms = clock_ms();
    answer_if_known(restore, client, tc);
    if (client->restoring) {
        send_ask(tc, m.step);
    }
}

void restore_query(const struct restore_setup *restore, struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_seq query;
    if (msg_seq_decode(payload, len, &query) != TCK_OK) {
        client_cut(client, "malformed QUERY");
        return;
    }
    struct term_context *tc = term_of(restore, client, query.seq);
    if (tc == NULL) {
        return;
    }
    struct msg_version m = {.seq = query.seq, .version = node_decision(tc->node)->watermark};
    if (version_none(m.version) && tc->readable_known &&
        (tc->readable.outcome == TCK_OK || is_resharded(&tc->readable))) {
        m.version = tc->readable.version;
    }
    if (version_none(m.version)) {
        struct error err;
        if (tc->readable_known) {
            (void)error_set(&err, TCK_ERR_NOENT, "nothing can be restored");
        } else {
            (void)error_set(&err, TCK_ERR_BUSY,
                            "the recovery has not finished: it is not known yet what can be restored");
            send_ask(tc, TCK_NEWEST);
        }
        client_error(client, MSG_ERROR, query.seq, &err);
        return;
    }
    struct writer w = writer_new(0);
    msg_version_encode(&m, &w);
    client_send(client, MSG_VERSION, &w);
    writer_free(&w);
}
