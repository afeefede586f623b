/* SPDX-License-Identifier: Apache-2.0
 * The requests of trainers and commands: each message goes to the part that answers it. */
#include "agent/client_requests.h"

#include "agent/actions.h"
#include "agent/command/command_requests.h"
#include "agent/driver/protocol_driver.h"
#include "agent/driver/term_context.h"
#include "agent/ipc/ipc_server.h"
#include "agent/lifecycle/idle_exit.h"
#include "agent/membership/claim.h"
#include "agent/membership/membership.h"
#include "agent/membership/reservation.h"
#include "agent/parts.h"
#include "agent/replication/fetch.h"
#include "agent/state/hard_state.h"
#include "agent/storage/health.h"
#include "agent/storage/metadata_writer.h"
#include "base/message.h"

#include <stdlib.h>

/* ---- the save path ------------------------------------------------------------------------------------------- */

/* The term context that this trainer saves into, or NULL after an error reply. */
static struct term_context *term_of(const struct agent *agent, struct client *client, uint32_t seq, uint32_t answer)
{
    struct term_context *tc = agent->term_context;
    struct error err;
    if (client->term == 0 || tc == NULL || tc->world.term < client->term) {
        (void)error_set(&err, TCK_ERR_BUSY, "refused: %s", refusal_text(REFUSAL_NOT_JOINED));
    } else if (tc->world.term != client->term || tc->closed) {
        (void)error_set(&err, TCK_ERR_DENIED, "refused: %s", refusal_text(REFUSAL_TERM_CLOSED));
    } else if (term_context_local_rank(tc, client->rank) < 0) {
        (void)error_set(&err, TCK_ERR_PROTO, "the registered world has no rank %u on this node", client->rank);
    } else {
        return tc;
    }
    if (answer) {
        client_error(client, answer, seq, &err);
    }
    return NULL;
}

static void on_begin(struct agent *agent, struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_begin m;
    if (msg_begin_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed BEGIN");
        return;
    }
    struct term_context *tc = term_of(agent, client, m.seq, MSG_REFUSED);
    if (tc == NULL) {
        return;
    }
    client->begin_seq = m.seq;
    struct event event = {.type = EVENT_BEGIN,
                          .rank = (uint32_t)term_context_local_rank(tc, client->rank),
                          .version = {tc->world.term, m.step},
                          .to_storage = m.to_storage,
                          .last = m.last};
    driver_step_coordinator(tc, &event);
    driver_step_node(tc, &event);
}

static void on_step(struct agent *agent, struct client *client, const uint8_t *payload, size_t len,
                    enum event_type type)
{
    struct msg_step m;
    if (msg_step_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed SEAL or ABANDON");
        return;
    }
    struct term_context *tc = term_of(agent, client, 0, 0);
    writers_handle_step(&agent->writers, client, m.step);
    if (tc != NULL) {
        struct event event = {.type = type,
                              .rank = (uint32_t)term_context_local_rank(tc, client->rank),
                              .version = {tc->world.term, m.step}};
        driver_step_node(tc, &event);
    }
}

static void on_roots(struct agent *agent, struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_roots m;
    if (msg_roots_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed ROOTS");
        return;
    }
    struct term_context *tc = term_of(agent, client, 0, 0);
    if (tc != NULL) {
        actions_send_roots(tc, (uint32_t)term_context_local_rank(tc, client->rank), &m);
    }
    free(m.roots);
}

/* No slot is pinned for a restore: a newer version cannot commit before this rank saves. */
static void on_restore_done(struct agent *agent, struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_step m;
    if (msg_step_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed RESTORE_DONE");
        return;
    }
    struct term_context *tc = term_of(agent, client, 0, 0);
    bool resharded = tc != NULL && tc->readable.outcome == TCK_ERR_LAYOUT && !version_none(tc->readable.version);
    bool restored = tc != NULL && tc->readable_known && (tc->readable.outcome == TCK_OK || resharded);
    if (restored && tc->readable.version.step == m.step) {
        if (!resharded) {
            fetches_proven(tc, tc->readable.version);
        }
        metadata_note_restored(agent->metadata, tc, tc->readable.version);
    }
}

/* Memory is kept while it has the only copy of a step that should have been published. */
static bool may_end(const struct agent *agent, const struct msg_detach *m)
{
    const struct trouble *trouble = health_storage(agent->health);
    if (!m->last_failed && trouble->steps == 0) {
        return true;
    }
    log_error("the job has ended, but its last step is not on storage (%s): memory is kept for %u s (linger_s). "
              "Repair storage and start the job again: it restores from memory, and tck_save_last publishes it",
              trouble->code == TCK_OK ? "see above" : trouble->text, agent->config.linger_s);
    return false;
}

static void on_detach(struct agent *agent, struct client *client, const uint8_t *payload, size_t len)
{
    struct msg_detach m;
    if (msg_detach_decode(payload, len, &m) != TCK_OK) {
        client_cut(client, "malformed DETACH");
        return;
    }
    struct term_context *tc = agent->term_context;
    /* A trainer whose job another start has taken over does not end it. */
    bool job_done = m.job_done && client->trainer && client->term != 0 &&
                    client->term == hard_state_get(agent->state)->term.adopted;
    client->done = true;
    if (job_done && tc != NULL && !tc->closed && client->term == tc->world.term) {
        metadata_note_end(agent->metadata, tc);
        reservation_release(agent->reservations, tc);
    }
    if (job_done && may_end(agent, &m)) {
        idle_exit_job_done(agent->idle_exit);
    }
    writers_returned(&agent->writers, client, client->term);
    log_info("trainer of rank %u detached%s", client->rank, job_done ? ", the job is done" : "");
    client_ok(client, m.seq);
}

/* ---- dispatch ------------------------------------------------------------------------------------------------ */

void client_requests_handle(void *ctx, struct client *client, const struct ipc_frame *frame)
{
    struct agent *agent = ctx;
    const uint8_t *p = frame->payload;
    size_t len = frame->len;
    switch (frame->type) {
    case MSG_HELLO:
        membership_handle_hello(agent->membership, client, p, len);
        break;
    case MSG_CLAIM_TERM:
        claim_handle_request(agent->claims, client, p, len);
        break;
    case MSG_JOIN:
        membership_handle_join(agent->membership, client, p, len);
        break;
    case MSG_REGISTER:
        membership_handle_register(agent->membership, client, p, len);
        break;
    case MSG_SEGMENT_GET:
        membership_handle_segment_get(agent->membership, client, p, len);
        break;
    case MSG_BEGIN:
        on_begin(agent, client, p, len);
        break;
    case MSG_SEAL:
        on_step(agent, client, p, len, EVENT_SEAL);
        break;
    case MSG_ABANDON:
        on_step(agent, client, p, len, EVENT_ABANDON);
        break;
    case MSG_ROOTS:
        on_roots(agent, client, p, len);
        break;
    case MSG_RESTORE:
        restore_client(&agent->restore, client, p, len);
        break;
    case MSG_RESTORE_DONE:
        on_restore_done(agent, client, p, len);
        break;
    case MSG_QUERY:
        restore_query(&agent->restore, client, p, len);
        break;
    case MSG_DETACH:
        on_detach(agent, client, p, len);
        break;
    case MSG_CONTROL:
        control_request(agent, client, p, len);
        break;
    default:
        client_cut(client, "unknown message type");
    }
}

/* ---- the end of connections and terms -------------------------------------------------------------------------- */

void client_requests_client_gone(void *ctx, struct client *client)
{
    struct agent *agent = ctx;
    struct term_context *tc = agent->term_context;
    if (client->trainer) {
        stalls_add_board(&agent->tally.stalls, &client->shared->stalls);
    }
    int64_t local = tc != NULL && client->trainer && client->term == tc->world.term
                        ? term_context_local_rank(tc, client->rank)
                        : -1;
    if (local >= 0 && client_of_rank(agent->clients, client->term, client->rank) == NULL) {
        term_context_report_seal(tc, (uint32_t)local);
        struct event event = {.type = EVENT_RANK_LOST, .rank = (uint32_t)local};
        driver_step_node(tc, &event);
        writers_check(&agent->writers);
    }
}

void client_requests_term_over(struct agent *agent, uint64_t term)
{
    struct error err;
    (void)error_set(&err, TCK_ERR_DENIED, "refused: %s", refusal_text(REFUSAL_TERM_CLOSED));
    for (struct client *c = agent->clients; c != NULL; c = c->next) {
        if (c->term >= term) {
            continue;
        }
        if (c->join_seq != 0 || c->register_seq != 0) {
            join_reply(&agent->join, c, &err);
        }
        if (c->restoring) {
            c->restoring = false;
            client_error(c, MSG_ERROR, c->restore_seq, &err);
        }
    }
}
