/* SPDX-License-Identifier: Apache-2.0
 * Restores as trainers ask for them: the question goes to the coordinator, its answer back to those who wait. */
#include "agent/agent.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

static uint64_t turn_ms(const struct formation *f, uint32_t shard)
{
    bool comes_late = f->agent->config.restore_spread != SPREAD_AGENTS;
    uint32_t turn = comes_late ? placement_turn(&f->placement, shard, f->self) : 0;
    return patience_turn_ms(turn, f->world.shards[shard].image_bytes);
}

/* The slot of each shard of the rank, in the order of MSG_SEGMENTS. How many are not here; *turn_out: for how
 * long that is no wonder. */
static uint32_t restored_shards(const struct formation *f, uint32_t rank, struct msg_restored *m, uint64_t *turn_out)
{
    uint32_t lacking = 0;
    for (uint32_t s = 0; s < f->world.shard_count; s++) {
        uint32_t duty = world_rank_has(&f->world, s, rank) ? formation_duty(f, f->world.shards[s].id) : NONE32;
        if (duty == NONE32) {
            continue;
        }
        uint32_t slot = node_slot_of(f->node, duty, m->version);
        if (slot == NONE32 || node_slot(f->node, slot)->state != SLOT_VERIFIED) {
            m->shards[m->count++] = (struct restored_shard){.slot = NONE32, .source = SOURCE_TWIN};
            *turn_out = turn_ms(f, s) > *turn_out ? turn_ms(f, s) : *turn_out;
            lacking++;
            continue;
        }
        m->shards[m->count++] = (struct restored_shard){.slot = slot - f->duties[duty].first_slot,
                                                        .source = f->duties[duty].restored_from,
                                                        .root = node_slot(f->node, slot)->root};
    }
    return lacking;
}

/* One owner may have sufficed to let the trainers read: then what this node lacks is still on its way. A copy that went
 * bad here after that is not, and nobody brings it again in this term. */
static bool may_still_come(struct client *client, const struct formation *f, uint64_t turn)
{
    const struct decision *d = node_decision(f->node);
    struct fetch_tally tally = fetch_tally(f, f->readable.version);
    uint64_t limit_ms = turn + f->agent->config.restore_spread_timeout_ms;
    bool lasts = patience_lasts(&client->patience, &tally, patience_tries(f->setup.shard_count), limit_ms, clock_ms());
    return lasts && !decision_is_recovered(d);
}

/* Published with another layout: each rank reads what it needs. */
static bool is_resharded(const struct wire_readable *m)
{
    return m->outcome == TCK_ERR_LAYOUT && !version_none(m->version);
}

/* False: what it lacks is waited for. */
static bool answer_restored(struct client *client, struct formation *f)
{
    uint32_t lacking = 0;
    uint64_t turn = 0;
    struct msg_restored m = {
        .seq = client->restore_seq, .version = f->readable.version, .newest_step = f->readable.newest_step};
    m.other_layout = is_resharded(&f->readable);
    snprintf(m.passed_over, sizeof m.passed_over, "%s", f->readable.passed_over);
    m.shards = calloc(f->setup.shard_count ? f->setup.shard_count : 1, sizeof *m.shards);
    if (m.shards && !m.other_layout) {
        lacking = restored_shards(f, client->rank, &m, &turn);
    }
    if (lacking > 0 && !client->restore_may_lack && may_still_come(client, f, turn)) {
        free(m.shards);
        return false;
    }
    if (!m.shards || (lacking > 0 && !client->restore_may_lack)) {
        struct error err;
        /* BUSY: the ranks try again in a new term, whose recovery looks for other copies. */
        (void)error_set(&err, m.shards ? TCK_ERR_BUSY : TCK_ERR_NOMEM,
                        "a shard of version %llu.%llu is not in this node's memory", (unsigned long long)m.version.term,
                        (unsigned long long)m.version.step);
        client_error(client, MSG_ERROR, client->restore_seq, &err);
    } else {
        struct writer w = writer_new(0);
        if (lacking > 0) {
            log_info("rank %u gets %u of %u shards of version %llu.%llu from other ranks, this node lacks them",
                     client->rank, lacking, m.count, (unsigned long long)m.version.term,
                     (unsigned long long)m.version.step);
        }
        msg_restored_encode(&m, &w);
        failpoint(restore, answering);
        client_send(client, MSG_RESTORED, &w);
        writer_free(&w);
    }
    free(m.shards);
    return true;
}

static void answer_if_known(struct client *client, struct formation *f)
{
    if (!client->restoring || !f->readable_known || f->readable.asked_step != client->restore_step) {
        return;
    }
    if (f->readable.outcome == TCK_OK || is_resharded(&f->readable)) {
        client->restoring = !answer_restored(client, f);
        return;
    }
    client->restoring = false;
    struct error err;
    (void)error_set(&err, (tck_status_t)f->readable.outcome, "%s", f->readable.reason);
    client_error(client, MSG_ERROR, client->restore_seq, &err);
}

static void refuse_askers(struct formation *f, const struct wire_readable *m)
{
    struct error err;
    (void)error_set(&err, (tck_status_t)m->outcome, "%s", m->reason);
    for (struct client *c = f->agent->clients; c; c = c->next) {
        if (c->restoring && c->term == f->world.term && c->restore_step == m->asked_step) {
            c->restoring = false;
            client_error(c, MSG_ERROR, c->restore_seq, &err);
        }
    }
}

void restore_arrived(struct formation *f)
{
    for (struct client *c = f->agent->clients; c; c = c->next) {
        if (c->term == f->world.term) {
            answer_if_known(c, f);
        }
    }
}

void restore_readable(struct formation *f, const struct wire_readable *m)
{
    if (m->outcome == TCK_ERR_BUSY || (f->readable_known && f->readable.outcome == TCK_OK && m->outcome != TCK_OK)) {
        refuse_askers(f, m); /* an answer to a second, other question: the first's is kept, or what it will be */
        return;
    }
    f->readable = *m;
    f->readable_known = true;
    restore_arrived(f);
}

static void ask(struct formation *f, uint64_t step)
{
    struct wire_ask m = {.term = f->world.term, .step = step};
    struct writer w = writer_new(0);
    wire_ask_encode(&m, &w);
    exchange_send_coordinator(f, WIRE_RESTORE_ASK, &w);
    writer_free(&w);
}

static void give_up(struct client *client, const struct error *missing)
{
    client->restoring = false;
    log_error("rank %u cannot restore: %s", client->rank, missing->text);
    client_error(client, MSG_ERROR, client->restore_seq, missing);
}

/* The coordinator must hear of all, others only of it. */
void restore_tick(struct formation *f)
{
    struct error err;
    bool missing = meet_missing(f->agent, f->world.nodes, f->coordinator ? f->world.node_count : 1, &err);
    for (struct client *c = f->agent->clients; c; c = c->next) {
        if (!c->restoring || c->term != f->world.term) {
            continue;
        }
        if (!missing) {
            c->restore_since_ms = clock_ms();
        }
        if (clock_ms() - c->restore_since_ms >= f->agent->config.session_wait_ms) {
            give_up(c, &err);
        } else if (f->readable_known && f->readable.asked_step == c->restore_step) {
            answer_if_known(c, f); /* it waits for shards */
        } else {
            ask(f, c->restore_step);
        }
    }
}

static struct formation *formation_of(struct client *client, uint32_t seq)
{
    struct formation *f = client->agent->formation;
    if (client->trainer && f && !f->closed && f->world.term == client->term) {
        return f;
    }
    struct error err;
    (void)error_set(&err, TCK_ERR_DENIED, "rank %u has not registered, or its term is over", client->rank);
    client_error(client, MSG_ERROR, seq, &err);
    return NULL;
}

void restore_client(struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_restore m;
    struct error err;
    if (msg_restore_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed RESTORE");
        return;
    }
    struct formation *f = formation_of(client, m.seq);
    if (!f) {
        return;
    }
    if (client->restoring) {
        (void)error_set(&err, TCK_ERR_CANCELED, "another restore was asked for");
        client_error(client, MSG_ERROR, client->restore_seq, &err);
    }
    client->restoring = true;
    client->restore_seq = m.seq;
    client->restore_step = m.step;
    client->restore_may_lack = m.may_lack;
    client->patience = (struct patience){0};
    if (m.failed[0] != '\0') {
        log_warn("the ranks could not pass shards to each other, the agents bring them: %s", m.failed);
    }
    client->restore_since_ms = clock_ms();
    answer_if_known(client, f);
    if (client->restoring) {
        ask(f, m.step);
    }
}

void restore_query(struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_seq query;
    if (msg_seq_decode(payload, len, &query) != TCK_OK) {
        client_cut(client, "malformed QUERY");
        return;
    }
    struct formation *f = formation_of(client, query.seq);
    if (!f) {
        return;
    }
    struct msg_version m = {.seq = query.seq, .version = node_decision(f->node)->watermark};
    if (version_none(m.version) && f->readable_known && (f->readable.outcome == TCK_OK || is_resharded(&f->readable))) {
        m.version = f->readable.version;
    }
    if (version_none(m.version)) {
        struct error err;
        if (f->readable_known) {
            (void)error_set(&err, TCK_ERR_NOENT, "nothing can be restored");
        } else {
            (void)error_set(&err, TCK_ERR_BUSY, "what can be restored is not known yet");
            ask(f, TCK_NEWEST);
        }
        client_error(client, MSG_ERROR, query.seq, &err);
        return;
    }
    struct writer w = writer_new(0);
    msg_version_encode(&m, &w);
    client_send(client, MSG_VERSION, &w);
    writer_free(&w);
}
