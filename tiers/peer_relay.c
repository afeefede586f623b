/* SPDX-License-Identifier: Apache-2.0
 * Messages that one agent passes on between two others, and to which session at this end they belong. */
#include "base/log.h"
#include "tiers/peer_internal.h"

#include <inttypes.h>

static void send_on(struct peer *to, const struct wire_relay *m, bool *sent_out)
{
    struct writer w = writer_new(0);

    wire_relay_encode(m, &w);
    *sent_out = !w.failed && session_send(to, WIRE_RELAY, 0, w.data, w.len) == TCK_OK;
    writer_free(&w);
}

/* What the peer had sent is lost: it has to know, since messages of a session are lost only with it. */
static void answer_ended(struct peer *from, const struct wire_relay *m)
{
    struct wire_relay ended = {.to = from->node.agent_id, .from = m->to, .session = m->session, .ended = true};
    bool sent;

    send_on(from, &ended, &sent);
    if (!sent) {
        log_debug("node %s does not learn that a session relayed for it has ended", from->node.name);
    }
}

/* This agent relays between the coordinator's of its world and those of its group, and between no others. */
static bool may_pass_on(const struct peer *from, const struct wire_relay *m)
{
    const struct peers_setup *setup = &from->peers->setup;

    return setup->relays != NULL && setup->relays(setup->ctx, from->node.agent_id, m->to);
}

static void note_refused(const struct peer *from, const struct wire_relay *m)
{
    if (!from->up->relay_refused && peers_may_complain(from->peers)) {
        log_info("node %s asks for a message to be passed on to agent %016" PRIx64
                 ": refused, since this agent does not lead such a group, or has not joined its term yet",
                 from->node.name, m->to);
    }
    from->up->relay_refused = true;
}

/* No agent sends in the name of another, and nothing is passed on more than once: `to` must have a direct session here.
 */
void relay_pass_on(struct peer *from, const struct wire_relay *m)
{
    struct peer *to = peers_find(from->peers, m->to);
    bool may = may_pass_on(from, m), sent = false;

    if (!may) {
        note_refused(from, m);
    } else if (to != NULL && to->up != NULL && !to->up->relayed) {
        send_on(to, m, &sent);
    }
    if (!sent && !m->ended) {
        answer_ended(from, m);
    }
}

void relay_refuse(struct peer *relay, const struct wire_relay *m)
{
    struct wire_relay ended = {.to = m->from, .from = m->to, .session = m->session, .ended = true};
    bool sent;

    if (!m->ended) {
        send_on(relay, &ended, &sent);
    }
}

static bool is_of(const struct channel *channel, const struct peer *relay, const struct wire_relay *m)
{
    return channel != NULL && channel->conn == NULL && channel->relay == relay->node.agent_id &&
           channel->relay_session == relay->up->id && channel->far == m->from && channel->tunnel == m->session;
}

static bool is_of_session(const struct session *session, const struct peer *relay, const struct wire_relay *m)
{
    return session != NULL && is_of(session->control, relay, m);
}

static struct channel *stranger_of(const struct peer *relay, const struct wire_relay *m)
{
    struct channel *channel = relay->peers->strangers;

    while (channel != NULL && !is_of(channel, relay, m)) {
        channel = channel->next;
    }
    return channel;
}

struct channel *relay_channel(const struct peer *relay, const struct wire_relay *m)
{
    const struct peer *far = peers_find(relay->peers, m->from);
    struct channel *channel;

    if (far != NULL && is_of_session(far->up, relay, m)) {
        return far->up->control;
    }
    if (far != NULL && is_of_session(far->making, relay, m)) {
        return far->making->control;
    }
    channel = stranger_of(relay, m);
    if (channel == NULL && !m->ended && wire_kind_of(m->data, m->len) == WIRE_HELLO) {
        channel = channel_accept_relayed(relay, m->from, m->session);
    }
    return channel;
}
