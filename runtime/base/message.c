/* SPDX-License-Identifier: Apache-2.0
 * The payloads between client, command and agent: the rules that their tables cannot express. */
#include "base/message.h"

/* ---- parts --------------------------------------------------------------------------------------------------- */

static bool claim_agent_is_valid(const struct claim_agent *m)
{
    return name_is_safe(m->node);
}

/* The whole data fd must be a size that a file can have. */
static bool segment_is_valid(const struct msg_segment *m)
{
    return m->slot_count <= MESSAGE_SLOTS_MAX && m->slot_stride <= INT64_MAX / MESSAGE_SLOTS_MAX;
}

static bool restored_shard_is_valid(const struct restored_shard *m)
{
    return m->source < SOURCE_KINDS;
}

SCHEMA_PART(claim_agent, CLAIM_AGENT_FIELDS, claim_agent_is_valid)
SCHEMA_PART(msg_segment, SEGMENT_FIELDS, segment_is_valid)
SCHEMA_PART(msg_root, ROOT_FIELDS, schema_any)
SCHEMA_PART(restored_shard, RESTORED_SHARD_FIELDS, restored_shard_is_valid)

/* ---- messages ------------------------------------------------------------------------------------------------ */

static bool hello_is_valid(const struct msg_hello *m)
{
    return m->format == MESSAGE_FORMAT && m->world_size <= WORLD_RANKS_MAX && m->rank < m->world_size &&
           name_is_safe(m->job);
}

static bool welcome_is_valid(const struct msg_welcome *m)
{
    return m->format == MESSAGE_FORMAT;
}

static bool world_is_valid(const struct msg_world *m)
{
    return m->rank < m->world.world_size;
}

bool msg_world_parts(const void *data, size_t len, struct msg_world_parts *out)
{
    struct reader r = reader_of(data, len);
    *out = (struct msg_world_parts){.seq = read_u32(&r), .rank = 0};
    out->rank = read_u32(&r);
    out->world_len = reader_left(&r) > 0 ? reader_left(&r) - 1 : 0;
    out->world = read_bytes(&r, out->world_len);
    out->will_ask = read_bool(&r);
    return reader_done(&r);
}

static bool segments_are_sorted(const struct msg_segments *m)
{
    for (uint32_t i = 1; i < m->count; i++) {
        if (hash128_cmp(m->segments[i - 1].shard, m->segments[i].shard) >= 0) {
            return false;
        }
    }
    return true;
}

#define MESSAGE_CODEC(name, FIELDS, is_valid) SCHEMA_CODEC(msg_##name, FIELDS, is_valid)
MESSAGES(MESSAGE_CODEC)

void msg_seq_encode(const struct msg_seq *m, struct writer *w)
{
    write_u32(w, m->seq);
}

tck_status_t msg_seq_decode(const void *payload, size_t len, struct msg_seq *out)
{
    struct reader r = reader_of(payload, len);
    struct msg_seq m = {.seq = read_u32(&r)};
    if (r.failed) {
        return TCK_ERR_PROTO;
    }
    *out = m;
    return TCK_OK;
}

bool msg_hello_format(const void *payload, size_t len, uint32_t *seq_out, uint32_t *format_out)
{
    struct reader r = reader_of(payload, len);
    uint32_t seq = read_u32(&r);
    uint32_t format = read_u32(&r);
    if (r.failed) {
        return false;
    }
    *seq_out = seq;
    *format_out = format;
    return true;
}
