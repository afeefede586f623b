/* SPDX-License-Identifier: Apache-2.0
 * The answers to JOIN and REGISTER, which wait for sessions with other nodes. */
#include "agent/membership/join_reply.h"

#include "agent/driver/term_context.h"
#include "agent/ipc/ipc_server.h"
#include "agent/trainers/trainer_control.h"
#include "base/message.h"
#include "tiers/segment.h"

#include <stdlib.h>

static void answer_segments(const struct join_setup *join, struct client *client, struct term_context *tc)
{
    struct msg_segments m = {.seq = client->register_seq};
    client->register_seq = 0;
    trainers_show_decisions(join->trainers, client);
    m.segments = calloc(tc->in_world_count + (size_t)1, sizeof(*m.segments));
    uint32_t at = 0, local_shard;
    while (m.segments != NULL && (local_shard = term_context_next_of(tc, client->rank, &at)) != NONE32) {
        struct segment_info info = segment_info(tc->local_shards[local_shard].segment);
        m.segments[m.count++] = (struct msg_segment){
            .shard = info.shard,
            .slot_stride = info.slot_stride,
            .slot_count = info.slot_count,
            .page_bytes = info.page_bytes,
            .stored_here = tc->shards[local_shard].storing_rank == (uint32_t)term_context_local_rank(tc, client->rank),
        };
    }
    struct writer w = writer_new(0);
    msg_segments_encode(&m, &w);
    client_send(client, MSG_SEGMENTS, &w);
    writer_free(&w);
    free(m.segments);
}

bool join_may_reply(const struct join_setup *join, const struct client *client)
{
    const struct term_context *tc = *join->term;
    bool formed = tc != NULL && !tc->closed && tc->world.term == client->term;
    return client->join_seq != 0 || (client->register_seq != 0 && formed);
}

void join_reply(const struct join_setup *join, struct client *client, const struct error *err)
{
    uint32_t seq = client->join_seq ? client->join_seq : client->register_seq;
    bool joins = client->join_seq != 0;
    client->join_seq = 0;
    if (err != NULL) {
        client->register_seq = 0;
        client_error(client, MSG_ERROR, seq, err);
    } else if (joins) {
        client_ok(client, seq);
    } else {
        answer_segments(join, client, *join->term);
    }
}
